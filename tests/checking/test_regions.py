"""Comparing regions with the numpy kernels: at the top, in bodies, on every trip, and where the inputs do not lead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest

import tinycomp
from tests.partition_tools import TENSOR, graph_of, target_of
from tinycomp.checking import RegionCheck, compare_regions
from tinycomp.data import digits_model
from tinycomp.driver.compiler import Compiler
from tinycomp.driver.lowering import Lowering
from tinycomp.errors import VerifyError
from tinycomp.ir.graph import Graph, Node
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ops.typing import infer_node_types
from tinycomp.quantized import patterns
from tinycomp.quantized.layer import QuantizedLayer
from tinycomp.quantized.reading import IntegerProduct, Requantization
from tinycomp.runtime.native.executor import Pool
from tinycomp.target import Target, Tolerance, find
from tinycomp.targets.c.quantized import products
from tinycomp.targets.c.quantized.products import layer_of

LOOP = """
  %trips = const int64[] 3
  %y = Loop(%trips, _, %x)
    body = graph @body (%i: int64[], %c: bool[], %v: float32[2, 4]) -> (%c, %w) {
      %w = Neg(%v)
    }"""
BRANCHES = """
  %y = If(%c | %x)
    then_branch = graph @yes (%v: float32[2, 4]) -> (%a) {
      %a = Neg(%v)
    }
    else_branch = graph @no (%v: float32[2, 4]) -> (%b) {
      %b = Relu(%v)
    }"""


def wrong_for(op: str, **options: object) -> Target:
    """A target that takes Neg and Relu, and is one too high for ``op``."""
    target = target_of("npu", "Neg", "Relu", **options)
    exact = {"Neg": np.negative, "Relu": lambda x: np.maximum(x, np.float32(0))}

    @target.codegen
    def _(region):
        (node,) = region.body.nodes
        return lambda x: exact[node.op](x) + np.float32(node.op == op)

    return target


def branches() -> Graph:
    return parse_graph(
        f'graph @main opset {{"" = 17}} (%c: bool[], %x: {TENSOR}) -> (%y) {{{BRANCHES}\n}}', infer=infer_node_types
    )


def check(graph: Graph, target: Target, feeds: dict[str, np.ndarray] | None = None) -> dict[str, RegionCheck]:
    compiler = Compiler((target,), Pool(1))
    checks = compare_regions(compiler.partition(graph), compiler.lowering(), feeds)
    return {c.node.outputs[0].name: c for c in checks}


def test_a_region_in_a_loop_is_compared():
    graph = graph_of(LOOP, "y")
    assert check(graph, wrong_for("nothing"))["w"].within
    wrong = check(graph, wrong_for("Neg"))["w"]
    assert wrong.reached
    assert not wrong.within
    assert wrong.differences[0].largest == pytest.approx(1)


def test_the_worst_trip_counts():
    target = target_of("npu", "Neg")

    @target.codegen
    def _(region):
        trips = iter(np.float32([0, 0.5, 0.25]))
        return lambda x: -x + next(trips)

    wrong = check(graph_of(LOOP, "y"), target, {"x": np.ones((2, 4), np.float32)})["w"]
    assert wrong.differences[0].largest == 0.5
    np.testing.assert_array_equal(wrong.operands[0], -np.ones((2, 4)))


@pytest.mark.parametrize("condition", [False, True])
@pytest.mark.parametrize("wrong", ["Neg", "Relu"])
def test_both_branches_are_compared_whichever_is_taken(condition, wrong):
    feeds = {"c": np.array(condition), "x": np.ones((2, 4), np.float32)}
    checks = check(branches(), wrong_for(wrong), feeds)
    assert [checks["a"].reached, checks["b"].reached] == [condition, not condition]
    assert [checks["a"].within, checks["b"].within] == [wrong != "Neg", wrong != "Relu"]


def test_a_region_of_unknown_shape_that_is_not_reached_says_that_it_was_not_compared():
    text = """graph @main opset {"" = 17} (%c: bool[], %x: float32[?, 4]) -> (%y) {
      %z = NonZero(%x)
      %f = Cast(%z) {to = 1}
      %y = If(%c | %f)
        then_branch = graph @yes (%v: float32[2, ?]) -> (%a) {
          %a = Neg(%v)
        }
        else_branch = graph @no (%v: float32[2, ?]) -> (%b) {
          %b = Relu(%v)
        }
    }"""
    feeds = {"c": np.array(True), "x": np.ones((2, 4), np.float32)}
    checks = check(parse_graph(text, infer=infer_node_types), wrong_for("Relu"), feeds)
    assert checks["a"].reached
    assert checks["b"].differences == ()
    assert not checks["b"].reached


def test_compiling_names_the_region_and_writes_the_smallest_graph(tmp_path):
    graph = graph_of("%a = Neg(%x)\n%y = Relu(%a)", "y")
    target = target_of("npu", "Neg", "Relu")
    target.codegen(lambda region: lambda x: -x)
    with pytest.raises(VerifyError, match=r"^npu, region npu_0: the region differs from the numpy kernels; .*"):
        tinycomp.compile(graph, target, verify=True, dump=tmp_path)
    model = onnx.load(tmp_path / "reproducers" / "npu_0.onnx")
    assert [n.op_type for n in model.graph.node] == ["Relu"]
    with np.load(tmp_path / "reproducers" / "npu_0.npz") as feeds:
        assert [array.shape for array in feeds.values()] == [(2, 4)]


def test_the_tolerance_is_the_target_s_own():
    graph = graph_of("%y = Neg(%x)", "y")
    feeds = {"x": np.ones((2, 4), np.float32)}
    assert not check(graph, wrong_for("Neg"), feeds)["y"].within
    assert check(graph, wrong_for("Neg", tolerance=Tolerance(rtol=1.0, atol=0.0)), feeds)["y"].within


FAULTS: dict[str, Callable[[IntegerProduct, Requantization], Any]] = {
    "a weight": lambda p, to: replace(p, weight=p.weight + (np.arange(p.weight.size).reshape(p.weight.shape) == 5)),
    "a zero point": lambda p, to: replace(p, zero_point=p.zero_point + 1),
    "a clamp": lambda p, to: replace(to, high=to.high - 1),
    "a rounding": lambda p, to: replace(p, scale=p.scale * (1 + 2**-10)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_quantised_layer_is_named(fault: str, monkeypatch: pytest.MonkeyPatch):
    """The model is trained: no step of its last layer shows a fault of the first ones."""
    compiler = Compiler((find("c"),), Pool(1))
    graph = compiler.partition(tinycomp.from_onnx(digits_model(quantized=True)))
    layers = [n.output.name for _, n in graph.walk() if n.op in ("c.qconv", "c.qdense")]
    for name in layers[:2]:

        def planted(node: Node, wrong: str = name) -> QuantizedLayer:
            layer = layer_of(node)
            if node.output.name == wrong:
                changed = FAULTS[fault](layer.product, layer.result)
                vars(layer)["product" if isinstance(changed, IntegerProduct) else "to"] = changed
            return layer

        monkeypatch.setattr(products, "layer_of", planted)
        checks = compare_regions(graph, compiler.lowering())
        assert [c.first.name for c in checks if c.first is not None] == [name]
    monkeypatch.undo()
    assert all(c.within and {d.largest for d in c.layers} == {0} for c in compare_regions(graph, compiler.lowering()))


def test_layers_that_are_right_alone_do_not_excuse_a_region_that_is_wrong_as_a_whole():
    exact = find("npu_sim")
    target = Target("npu", tolerance=Tolerance(steps=0), static_shapes=True, canonical=True)
    for name in ("qconv", "qdense", "qadd", "qavgpool"):
        composite = target.composite(name=name)(getattr(patterns, name))
        composite.checks.extend(next(c for c in exact.composites if c.name == name).checks)
    target.accept("MaxPool")

    @target.codegen
    def _(region: Node) -> Callable[..., Any]:
        graph = region.body
        whole = Lowering({}, Pool(1)).plan(graph)
        shared = len(graph.nodes) > 1  # as memory that two layers share by mistake
        return lambda *x: [y + np.asarray(3 * shared, y.dtype) for y in whole.run(x)]

    checks = check(tinycomp.from_onnx(digits_model(quantized=True)), target)
    wrong = [c for c in checks.values() if not c.within]
    assert wrong
    assert all(d.within for c in wrong for d in c.layers)
    assert all(c.first in c.differences for c in wrong)
