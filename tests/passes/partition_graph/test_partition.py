"""Cutting regions out, and putting them back."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graphs import graphs
from tests.partition_tools import graph_of, remarks, target_of, without_marks
from tinycomp.errors import VerifyError
from tinycomp.ir.equality import difference
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ir.verify import verify
from tinycomp.passes.annotate_target import AnnotateTarget
from tinycomp.passes.merge_regions import MergeRegions
from tinycomp.passes.partition_graph import PartitionGraph
from tinycomp.rewrite.traits import is_structural

NPU = target_of("npu", "Relu", "Add", "Mul", "Split", "Sum", "MatMul")


def partitioned(graph, *targets):
    targets = targets or (NPU,)
    AnnotateTarget(targets).run(graph)
    MergeRegions().run(graph)
    PartitionGraph(targets).run(graph)
    verify(graph)
    return graph


def region_nodes(graph):
    return [node for _, node in graph.walk() if node.is_region]


def inline_all(graph):
    for scope, node in [(g, n) for g, n in graph.walk() if n.is_region]:
        scope.inline(node)
    for _, node in graph.walk():
        node.target = None


def test_parameters_and_results_are_distinct_values_in_order():
    body = "%a = Add(%y, %x)\n%b = Mul(%a, %y)\n%h = Neg(%a)\n%i = Abs(%a)\n%c = Relu(%b)\n%d = Neg(%c)"
    graph = partitioned(graph_of(body, "c d h i c", "x y"))
    (region,) = region_nodes(graph)
    assert [v.name for v in region.inputs] == ["y", "x"]
    assert [v.name for v in region.outputs] == ["a", "c"]
    assert (region.op, region.target, region.sources) == ("npu_0", "npu", ("a", "b", "c"))
    assert {n.op for n in graph.nodes} == {"npu_0", "Neg", "Abs"}


@pytest.mark.parametrize(("bind", "operands"), [(True, ["x"]), (False, ["x", "k"])])
def test_constants_are_bound_or_parameters_as_the_target_asks(bind, operands):
    target = target_of("npu", "Mul", bind_constants=bind)
    body = "%k: float32[] = const 2.0\n%a = Mul(%x, %k)\n%h = Neg(%a)\n%b = Mul(%h, %k)"
    graph = partitioned(graph_of(body, "b"), target)
    first, second = region_nodes(graph)
    assert [v.name for v in first.inputs] == operands
    assert [v.name for v in second.inputs] == ["h", *operands[1:]]


NESTED = """%p: bool[] = const true
%a = Relu(%x)
%y = If(%p | %a)
  then_branch = graph @then (%q: bool[], %t: float32[2, 4]) -> (%u) {
    %u = If(%q | %t)
      then_branch = graph @inner (%t: float32[2, 4]) -> (%u) { %u = Relu(%t) }
      else_branch = graph @other (%t: float32[2, 4]) -> (%u) { %u = Neg(%t) }
  }
  else_branch = graph @else (%q: bool[], %t: float32[2, 4]) -> (%u) { %v = Relu(%t)  %u = Mul(%v, %v) }
%b = Add(%y, %a)""".replace("If(%p | %a)", "If(%p | %p, %a)")


def test_bodies_are_partitioned_with_symbols_of_their_own():
    graph = partitioned(graph_of(NESTED, "b"))
    assert sorted(n.op for n in region_nodes(graph)) == ["npu_0", "npu_1", "npu_2", "npu_3"]
    again = partitioned(graph_of(NESTED, "b"))
    assert str(again) == str(graph)


def test_bodies_of_functions_are_partitioned():
    body = """%y = local::f@1(%x)
  body = graph @f (%t: float32[2, 4]) -> (%w) { %u = Relu(%t)  %v = Neg(%u)  %w = Relu(%v) }"""
    graph = partitioned(graph_of(body, "y"))
    assert [n.op for n in graph.nodes] == ["f"]
    assert [n.op for n in region_nodes(graph)] == ["npu_0", "npu_1"]


def test_partition_then_inline_gives_the_graph_back():
    for body, outputs in ((NESTED, "b"), ("%a = Relu(%x)\n%h = Neg(%a)\n%c = Add(%h, %a)", "c a c")):
        graph = graph_of(body, outputs)
        before = graph.clone()
        partitioned(graph)
        inline_all(graph)
        verify(graph)
        assert difference(before, graph, sources=True) is None


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(graphs(max_nodes=14), st.sets(st.sampled_from(["Relu", "Neg", "Tanh", "Add", "Mul", "Sub", "Sum", "Split"])))
def test_any_graph_survives_partition_and_inline(graph, ops):
    before = graph.clone()
    half = sorted(ops)[: len(ops) // 2]
    targets = [target_of(name, *chosen) for name, chosen in (("p", half), ("q", sorted(ops))) if chosen]
    host = {n.output.name for n in before.nodes if n.op not in ops and not is_structural(n)}
    partitioned(graph, *targets) if targets else None
    assert host <= {v.name for n in graph.nodes if not n.is_region for v in n.outputs}
    inline_all(graph)
    verify(graph)
    assert difference(before, graph) is None


def test_composites_stay_whole_inside_their_region():
    graph = graph_of("%a = Relu(%x)\n%b = Neg(%a)\n%c = Relu(%b)", "c")
    graph.outline(graph.nodes[:2], "npu.relu_neg", domain="tinycomp.composite", target="npu")
    partitioned(graph)
    (region,) = region_nodes(graph)
    assert [n.op for n in region.body.nodes] == ["npu.relu_neg", "Relu"]


def test_symbols_are_c_identifiers_and_unique_in_a_second_run():
    names = ("8-bit", "8 bit", "npu")
    graph = graph_of("%a = Relu(%x)\n%b = Neg(%a)\n%c = Abs(%b)", "c")
    partitioned(graph, *(target_of(n, op) for n, op in zip(names, ("Relu", "Neg", "Abs"), strict=True)))
    symbols = [n.op for n in graph.nodes]
    assert symbols == ["t8_bit_0", "t8_bit_1", "npu_0"]
    assert all(re.fullmatch(r"[A-Za-z]\w*", s) for s in symbols)
    graph = graph_of("%a = Relu(%x)\n%b = Neg(%a)\n%c = Relu(%b)", "c")
    partitioned(graph, target_of("npu", "Relu"))
    partitioned(graph, target_of("npu", "Neg"))
    assert [n.op for n in graph.nodes] == ["npu_0", "npu_2", "npu_1"]


def test_a_region_that_nobody_reads_is_not_cut_out():
    graph = graph_of("%a = Neg(%x)\n%b = Relu(%x)", "a")
    partitioned(graph)
    assert region_nodes(graph) == []
    assert remarks(graph, "partition-graph") == [(("b",), "npu", "unused", "no result of the region is used")]


def test_the_pass_says_whether_it_changed_anything():
    graph = graph_of("%a = Relu(%x)\n%b = Neg(%a)", "b")
    assert not PartitionGraph([NPU]).run(graph)
    AnnotateTarget([NPU]).run(graph)
    assert not PartitionGraph([NPU]).run(graph), "claimed, but not numbered"
    assert MergeRegions().run(graph)
    assert PartitionGraph([NPU]).run(graph)
    assert not PartitionGraph([NPU]).run(graph)


def test_stale_marks_are_refused_before_anything_changes():
    graph = graph_of("%a = Relu(%x)\n%h = Neg(%a)\n%c = Add(%h, %a)", "c")
    for node in graph.nodes:
        if node.op != "Neg":
            node.target, node.region = "npu", 0
    text = str(graph)
    with pytest.raises(VerifyError, match=r"depend on each other in a cycle; found a, h, c. Run MergeRegions again"):
        PartitionGraph().run(graph)
    assert str(graph) == text
    graph.nodes[-1].target = "other"
    with pytest.raises(VerifyError, match="graph main, node a: region 0 belongs to npu and other"):
        PartitionGraph().run(graph)


def test_region_marks_are_part_of_the_text():
    graph = graph_of("%a = Relu(%x)", "a")
    AnnotateTarget([NPU]).run(graph)
    MergeRegions().run(graph)
    text = str(graph)
    assert 'target "npu" region 0' in text
    assert str(parse_graph(text)) == text
    assert without_marks(text) == without_marks(str(graph_of("%a = Relu(%x)", "a")))


def test_host_nodes_keep_their_order():
    body = "%a = Neg(%x)\n%b = Relu(%a)\n%c = Abs(%x)\n%d = Relu(%b)\n%e = Neg(%c)\n%f = Neg(%d)"
    graph = graph_of(body, "e f")
    host = [n.label for n in graph.nodes if n.op != "Relu"]
    partitioned(graph)
    assert [n.label for n in graph.nodes if not n.is_region] == host
    assert all(a.position <= b.position for a, b in itertools.pairwise(graph.nodes))
