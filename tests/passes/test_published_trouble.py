"""Graphs on which partitioners have gone wrong in public: what must come out here, and that it computes the same.

Every case is annotated, merged and cut out; the regions are compared with the expected ones, their number with brute
force, and the results with the host's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from benchmarks.partition_fuzz import least_regions
from tests.partition_tools import graph_of, regions, target_of
from tests.passes.evaluation import assert_same_results, random_feeds
from tinycomp.ir.graph import Graph
from tinycomp.ir.types import TensorType
from tinycomp.ir.verify import verify
from tinycomp.ops.typing import infer_node_types
from tinycomp.passes.annotate_target import AnnotateTarget
from tinycomp.passes.merge_composite import MergeComposite
from tinycomp.passes.merge_regions import MergeRegions
from tinycomp.passes.partition_graph import PartitionGraph
from tinycomp.rewrite import P
from tinycomp.target import Target


@dataclass(frozen=True)
class Case:
    """A graph in which Relu, Add and Mul are the target's, and all else the host's.

    Attributes:
        body: Statements; the source of a node is the name of its result.
        outputs: Names of results.
        regions: Labels of the nodes of every region.
        inputs: Names of inputs.
    """

    body: str
    outputs: str
    regions: tuple[str, ...]
    inputs: str = "x"


CASES = {
    # The join depends on itself if all three are one region: through h.
    "a diamond with one unsupported side": Case(
        "%a = Relu(%x)\n%h = Neg(%a)\n%b = Relu(%a)\n%c = Add(%h, %b)", "c", ("a", "b c")
    ),
    # The same with the host's side longer, and with both results read later.
    "a diamond whose head is read again": Case(
        "%a = Relu(%x)\n%h = Neg(%a)\n%i = Abs(%h)\n%b = Relu(%a)\n%c = Add(%i, %b)\n%d = Mul(%c, %a)", "d b",
        ("a", "b c d"),
    ),
    # {a1, a2} and {b2, b1} are convex each; forming both makes each wait for the other.
    "two convex regions that depend on each other": Case(
        "%a1 = Relu(%x)\n%b2 = Relu(%y)\n%h1 = Neg(%a1)\n%h2 = Neg(%b2)\n%a2 = Add(%a1, %h2)\n%b1 = Add(%b2, %h1)",
        "a2 b1", ("a1 a2", "b2", "b1"), "x y",
    ),
    # Any two of the three pairs may be joined without harm, all three may not.
    "three convex regions in a ring": Case(
        "%a = Relu(%x)\n%b = Relu(%y)\n%c = Relu(%z)\n%h = Neg(%a)\n%i = Neg(%b)\n%j = Neg(%c)\n"
        "%k = Add(%a, %j)\n%l = Add(%b, %h)\n%m = Add(%c, %i)",
        "k l m", ("a k", "b", "c m", "l"), "x y z",
    ),
    # Five nodes before two unsupported ones, three behind; a sixth beside them may go to either side.
    "ten nodes with two unsupported ones in the middle": Case(
        "%n0 = Add(%x, %y)\n%n1 = Add(%x, %z)\n%n2 = Mul(%n0, %n1)\n%n3 = Sub(%n2, %z)\n%n4 = Relu(%n2)\n"
        "%n5 = Sub(%n4, %y)\n%n6 = Add(%n4, %x)\n%n7 = Mul(%n3, %n6)\n%n8 = Add(%n5, %n7)\n%n9 = Relu(%n8)",
        "n9", ("n0 n1 n2 n4", "n6 n7 n8 n9"), "x y z",
    ),
    # c may join d, which stands first, or e; with d it keeps e from joining a.
    "a join that comes first and costs a region": Case(
        "%a = Relu(%x)\n%h = Neg(%a)\n%b = Relu(%h)\n%c = Relu(%y)\n%d = Add(%b, %c)\n%e = Add(%a, %c)", "d e",
        ("a c e", "b d"), "x y",
    ),
    # The host's two nodes are not one: as one they would make c wait for b.
    "two host nodes that must not be joined": Case(
        "%a = Relu(%x)\n%h = Neg(%a)\n%b = Relu(%a)\n%i = Neg(%b)\n%c = Add(%b, %h)\n%d = Add(%c, %i)", "i d c",
        ("a b", "c d"),
    ),
    "a constant that two halves share": Case(
        "%k: float32[] = const 2.0\n%a = Mul(%x, %k)\n%h = Neg(%a)\n%b = Mul(%h, %k)", "b", ("a", "b")
    ),
    "a constant and an input that two strangers share": Case(
        "%k: float32[] = const 2.0\n%a = Mul(%x, %k)\n%b = Mul(%x, %k)", "a b", ("a", "b")
    ),
    "barriers between every two nodes": Case(
        "%a = Relu(%x)\n%s = tinycomp::StopFusion@1(%a)\n%b = Add(%s, %s)\n%t = tinycomp::StopFusion@1(%b)\n"
        "%c = Relu(%t)",
        "c", ("a s b t c",),
    ),
    # A barrier on the way to the host alone follows nobody.
    "a barrier in front of the host": Case(
        "%a = Relu(%x)\n%s = tinycomp::StopFusion@1(%a)\n%h = Neg(%s)\n%b = Relu(%h)", "b", ("a", "b")
    ),
    "an inner value that is a result as well, twice": Case(
        "%a = Relu(%x)\n%b = Add(%a, %a)\n%c = Mul(%b, %a)", "a c a b", ("a b c",)
    ),
    # The conditional reads the first half by a captured value, and so stands between the halves.
    "a conditional between two supported halves": Case(
        """%a = Relu(%x)
%y = If(%flag | %a)
  then_branch = graph @then (%t: float32[2, 4]) -> (%u) { %v = Relu(%t)  %u = Neg(%v) }
  else_branch = graph @else (%t: float32[2, 4]) -> (%u) { %v = Neg(%t)  %w = Relu(%v)  %u = Mul(%w, %w) }
%b = Add(%a, %y)""",
        "b", ("a", "b"), "x",
    ),
    # Nothing of the first half is captured: what follows the conditional may join what stands before it.
    "a conditional beside two supported halves": Case(
        """%a = Relu(%x)
%y = If(%flag | %x)
  then_branch = graph @then (%t: float32[2, 4]) -> (%u) { %u = Neg(%t) }
  else_branch = graph @else (%t: float32[2, 4]) -> (%u) { %u = Abs(%t) }
%b = Add(%a, %y)""",
        "b", ("a b",), "x",
    ),
}  # fmt: skip


def read(case: Case) -> Graph:
    if "%flag" not in case.body:
        return graph_of(case.body, case.outputs, case.inputs)
    graph = graph_of(f"%flag: bool[] = const true\n{case.body}", case.outputs, case.inputs)
    flag = graph.values["flag"]
    graph.replace_uses(flag, graph.add_input("condition", TensorType("bool", ())))
    graph.erase_unused(flag)
    return graph


@pytest.mark.parametrize("name", CASES)
def test_a_graph_that_has_made_trouble_before(name: str):
    case = CASES[name]
    graph = read(case)
    before = graph.clone()
    npu = target_of("npu", "Relu", "Add", "Mul")
    AnnotateTarget([npu]).run(graph)
    least = least_regions(graph.nodes)
    MergeRegions().run(graph)
    found = {frozenset(labels) for labels in regions(graph)}
    assert len(case.regions) == least
    if name.startswith(("two convex", "three convex")):  # several answers are as good
        assert len(found) == least
        assert {label for labels in found for label in labels} == set(" ".join(case.regions).split())
    else:
        assert found == {frozenset(labels.split()) for labels in case.regions}
    PartitionGraph([npu]).run(graph)
    verify(graph)
    for condition in (False, True):
        feeds = [np.array(condition) if f.dtype == bool else f for f in random_feeds(before)]
        assert_same_results(before, graph, feeds)


def test_both_branches_of_a_conditional_have_regions_of_their_own():
    graph = read(CASES["a conditional between two supported halves"])
    npu = target_of("npu", "Relu", "Add", "Mul")
    AnnotateTarget([npu]).run(graph)
    MergeRegions().run(graph)
    PartitionGraph([npu]).run(graph)
    symbols = [n.op for _, n in graph.walk() if n.is_region]
    assert sorted(symbols) == ["npu_0", "npu_1", "npu_2", "npu_3"]


def chain_with_shared_dequantise() -> Graph:
    """Two convolutions that read one DequantizeLinear, as most quantised models have it at every fork."""
    graph = Graph(opsets={"": 17}, infer=infer_node_types)
    x = graph.add_input("x", TensorType("int8", (1, 4, 6, 6)))
    scale = graph.add_const(np.float32(0.1), "scale")
    real = graph.add("DequantizeLinear", [x, scale], sources=["dequantize"]).output
    results = []
    for side in ("left", "right"):
        weight = graph.add_const(np.random.default_rng(0).standard_normal((4, 4, 1, 1)).astype(np.float32), side)
        conv = graph.add("Conv", [real, weight], sources=[f"{side}/conv"])
        results.append(graph.add("QuantizeLinear", [conv.output, scale], sources=[f"{side}/quantize"]).output)
    graph.set_outputs([graph.add("Concat", results, {"axis": 1}, sources=["concat"]).output])
    return graph


def qconv_target() -> Target:
    npu = Target("npu")

    @npu.composite
    def qconv(x, w=P.const):
        return P.QuantizeLinear(P.Conv(P.DequantizeLinear(x, ...), w), ...)

    npu.accept("Concat")
    return npu


def test_a_shared_dequantise_belongs_to_both_convolutions():
    graph = chain_with_shared_dequantise()
    before = graph.clone()
    npu = qconv_target()
    MergeComposite(npu).run(graph)
    assert [n.op for n in graph.nodes] == ["npu.qconv", "npu.qconv", "Concat"]
    AnnotateTarget([npu]).run(graph)
    MergeRegions().run(graph)
    PartitionGraph([npu]).run(graph)
    verify(graph)
    (region,) = graph.nodes
    assert region.sources == ("dequantize", "left/conv", "left/quantize", "right/conv", "right/quantize", "concat")
    x = np.random.default_rng(1).integers(-128, 128, (1, 4, 6, 6)).astype(np.int8)
    assert_same_results(before, graph, [x], tolerance=0)


def test_a_refused_match_does_not_starve_one_that_overlaps():
    """The longer pattern refuses; its nodes are free for the shorter one."""
    npu = Target("npu")

    @npu.composite
    def three(x):
        return P.Relu(P.Add(P.Mul(x, x), x))

    @npu.composite
    def two(x, y):
        return P.Add(P.Mul(x, x), y)

    @three.check
    def _(match):
        return False

    graph = graph_of("%m = Mul(%x, %x)\n%a = Add(%m, %x)\n%r = Relu(%a)", "r")
    MergeComposite(npu).run(graph)
    assert [n.op for n in graph.nodes] == ["npu.two", "Relu"]
