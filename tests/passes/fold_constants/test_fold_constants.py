from __future__ import annotations

import numpy as np
import pytest

from tests.passes.evaluation import assert_same_results, random_feeds
from tinycomp.ir import Graph, TensorType
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ir.verify import verify
from tinycomp.ops.typing import infer_node_types
from tinycomp.passes.fold_constants import FoldConstants


def fold(text, **options):
    graph = parse_graph(text, infer=infer_node_types)
    FoldConstants(**options).run(graph)
    verify(graph)
    return graph


def reasons(graph):
    return {remark.rule: remark.reason for remark in graph.remarks}


def test_a_kernel_that_refuses_leaves_the_node_and_a_remark():
    graph = fold("""graph @main opset {"" = 17} () -> (%y) {
      %a = const float32[2] [1, 2]
      %far = const int64[] 9
      %y = Gather(%a, %far) from ["lookup"]
    }""")
    assert [node.op for node in graph.nodes] == ["Gather"]
    assert reasons(graph)["Gather"].startswith("it could not be computed: lookup (Gather)")
    assert graph.remarks[0].stage == "fold-constants"
    assert graph.remarks[0].sources == ("lookup",)


def test_the_budget_is_for_all_nodes_together():
    text = """graph @main opset {"" = 17} () -> (%a, %b) {
      %n = const int64[1] 10
      %a = ConstantOfShape(%n)
      %m = const int64[1] 11
      %b = ConstantOfShape(%m)
    }"""
    assert len(fold(text)) == 0
    graph = fold(text, max_bytes=60)
    assert [node.output.name for node in graph.nodes] == ["b"]
    assert reasons(graph) == {"ConstantOfShape": "its result would add 36 bytes to the constants, 28 are left"}


def test_a_result_no_larger_than_its_operands_is_free():
    graph = fold(
        """graph @main opset {"" = 17} () -> (%b) {
          %a = const float32[4] [1, 2, 3, 4]
          %b = Neg(%a)
        }""",
        max_bytes=0,
    )
    assert len(graph) == 0


def test_folded_types_reach_the_operators_behind():
    """The rank of y and z is only known once the target of the Reshape is."""
    graph = fold("""graph @main opset {"" = 17} (%x: float32[2, 3, 4]) -> (%z) {
      %a = const int64[1] [5]
      %b = const int64[1] [7]
      %sum = Add(%a, %b)
      %two = const int64[1] [2]
      %target = Concat(%two, %sum) {axis = 0}
      %y: float32[...] = Reshape(%x, %target)
      %z: float32[...] = Relu(%y)
    }""")
    assert graph.outputs[0].type == TensorType("float32", (2, 12))


def test_declared_types_that_inference_cannot_know_are_kept():
    graph = fold("""graph @main opset {"" = 17} (%x: float32[2, 4], %s: int64[2]) -> (%y, %k) {
      %y: float32[N, 8] = Reshape(%x, %s)
      %a = const int64[1] 1
      %k = Neg(%a)
    }""")
    assert graph.outputs[0].type == TensorType("float32", ("N", 8))


def test_a_constant_does_not_keep_the_larger_array_alive_that_it_was_cut_from():
    graph = Graph(opsets={"": 17})
    big = graph.add_const(np.zeros((1000, 4), np.float32), "big")
    bounds = [graph.add_const(np.array([n], np.int64)) for n in (0, 1)]
    graph.set_outputs([graph.add("Slice", [big, *bounds]).output])
    FoldConstants().run(graph)
    array = graph.outputs[0].const
    assert array is not None
    assert array.base is None
    assert array.shape == (1, 4)


@pytest.mark.parametrize("size", [1, 5])
def test_partly_known_shapes_compute_the_same(size):
    text = """graph @main opset {"" = 17} (%x: float32[N, 3, 4]) -> (%y, %half, %tail) {
      %shape = Shape(%x)
      %zero = const int64[1] 0
      %one = const int64[1] 1
      %two = const int64[1] 2
      %n = Gather(%shape, %zero)
      %rest = Slice(%shape, %one, %two)
      %c = Gather(%shape, %two)
      %flat = Mul(%rest, %c)
      %half = Div(%flat, %two)
      %target = Concat(%n, %flat) {axis = 0}
      %y: float32[...] = Reshape(%x, %target)
      %tail = Add(%n, %half)
    }"""
    before, graph = parse_graph(text), fold(text)
    assert graph.values["half"].const == 6
    assert_same_results(before, graph, random_feeds(before, sizes={"N": size}), tolerance=0)


@pytest.mark.long
def test_folding_is_linear_in_the_graph():
    """A chain of folds over a long graph, and a long chain of shapes, end in one sweep without recursion."""
    graph = Graph(opsets={"": 17})
    x = graph.add_input("x", TensorType("float32", (2,)))
    k = graph.add_const(np.array([1.0, 1.0], np.float32), "k")
    one = k
    for _ in range(5000):
        k = graph.add("Add", [k, one]).output
    graph.set_outputs([graph.add("Add", [x, k]).output])
    assert FoldConstants().run(graph)
    assert len(graph) == 1
    assert not FoldConstants().run(graph)
    np.testing.assert_array_equal(graph.nodes[0].inputs[1].const, [5001, 5001])
