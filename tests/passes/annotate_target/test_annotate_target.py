"""Who claims which node, and why not."""

from __future__ import annotations

from tests.partition_tools import claims, graph_of, remarks, target_of
from tinycomp.ir.graph import COMPOSITE
from tinycomp.ir.verify import verify
from tinycomp.passes.annotate_target import AnnotateTarget
from tinycomp.rewrite import reject
from tinycomp.target import Policy, Target

STAGE = "annotate-target"
CHAIN = "%a = Relu(%x)\n%b = Neg(%a)\n%c = Relu(%b)"


def test_the_first_target_that_accepts_claims():
    graph = graph_of(CHAIN, "c")
    assert AnnotateTarget([target_of("p", "Relu"), target_of("q", "Relu", "Neg")]).run(graph)
    assert claims(graph) == {"a": "p", "b": "q", "c": "p"}
    assert remarks(graph, STAGE) == [(("b",), "p", "", "no rule for Neg")]


def test_a_later_run_claims_only_what_is_left():
    graph = graph_of(CHAIN, "c")
    AnnotateTarget([target_of("q", "Neg")]).run(graph)
    assert AnnotateTarget([target_of("p", "Relu", "Neg")]).run(graph)
    assert claims(graph) == {"a": "p", "b": "q", "c": "p"}
    assert not AnnotateTarget([target_of("r", "Relu", "Neg")]).run(graph)
    assert claims(graph) == {"a": "p", "b": "q", "c": "p"}


def test_every_refusal_is_reported_with_its_rule():
    npu = Target("npu")
    npu.op("Relu")(lambda node: reject("no Relu today"))
    npu.op("Relu")(lambda node: reject("nor tomorrow"))
    graph = graph_of("%a = Relu(%x)", "a")
    assert not AnnotateTarget([npu]).run(graph)
    assert remarks(graph, STAGE) == [
        (("a",), "npu", "npu.Relu", "no Relu today"),
        (("a",), "npu", "npu.Relu", "nor tomorrow"),
    ]


def test_structural_nodes_between_two_nodes_of_a_target_follow():
    body = "%a = Relu(%x)\n%i = Identity(%a)\n%s = tinycomp::StopFusion@1(%i)\n%b = Relu(%s)\n%o = Identity(%b)"
    graph = graph_of(body, "o i")
    AnnotateTarget([target_of("npu", "Relu")]).run(graph)
    assert claims(graph) == {"a": "npu", "i": "npu", "s": "npu", "b": "npu", "o": None}
    assert remarks(graph, STAGE) == [(("o",), "npu", "structural", "does not lie between two nodes of npu")]


def test_structural_nodes_between_different_targets_or_of_unwilling_ones_stay():
    body = "%a = Relu(%x)\n%i = Identity(%a)\n%b = Neg(%i)"
    graph = graph_of(body, "b")
    AnnotateTarget([target_of("p", "Relu"), target_of("q", "Neg")]).run(graph)
    assert claims(graph)["i"] is None
    graph = graph_of(body, "b")
    AnnotateTarget([target_of("p", "Relu", "Neg", claims_structural=False)]).run(graph)
    assert claims(graph)["i"] is None
    assert (("i",), "p", "", "no rule for Identity") in remarks(graph, STAGE)


def test_a_dropout_whose_mask_is_used_is_no_structural_node():
    body = "%a = Relu(%x)\n%d: float32[2, 4], %m: bool[2, 4] = Dropout(%a)\n%b = Relu(%d)"
    for outputs, expected in (("b m", None), ("b", None)):
        graph = graph_of(body, outputs)
        AnnotateTarget([target_of("npu", "Relu")]).run(graph)
        assert claims(graph)["d"] is expected
    graph = graph_of("%a = Relu(%x)\n%d: float32[2, 4] = Dropout(%a)\n%b = Relu(%d)", "b")
    AnnotateTarget([target_of("npu", "Relu")]).run(graph)
    assert claims(graph)["d"] == "npu"


IF = """%p: bool[] = const [true]
%a = Relu(%x)
%y = If(%p | %a)
  then_branch = graph @then (%t: float32[2, 4]) -> (%u) { %u = Relu(%t) from ["u"] }
  else_branch = graph @else (%t: float32[2, 4]) -> (%u) { %u = Neg(%t) from ["v"] }"""


def test_bodies_are_annotated_in_their_own_scope():
    graph = graph_of(IF.replace("[true]", "true"), "y")
    AnnotateTarget([target_of("npu", "Relu")]).run(graph)
    assert claims(graph) == {"a": "npu", "y": None}
    inner = {n.label: n.target for g, n in graph.walk() if g is not graph}
    assert inner == {"u": "npu", "v": None}


def test_a_target_that_takes_the_whole_if_closes_its_bodies():
    graph = graph_of(IF.replace("[true]", "true"), "y")
    AnnotateTarget([target_of("npu", "Relu", "If")]).run(graph)
    assert claims(graph) == {"a": "npu", "y": "npu"}
    assert {n.target for g, n in graph.walk() if g is not graph} == {None}


def test_composites_keep_their_owner_unless_its_policy_excludes_them():
    for policy, expected in ((Policy(), [("f", "q")]), (Policy(exclude=("Neg",)), [("Relu", None), ("Neg", None)])):
        graph = graph_of("%a = Relu(%x)\n%b = Neg(%a)", "b")
        graph.outline(graph.nodes, "f", domain=COMPOSITE, target="q")
        AnnotateTarget([target_of("p", f"{COMPOSITE}::f", "Abs"), Target("q", policy=policy)]).run(graph)
        verify(graph)
        assert [(n.op, n.target) for n in graph.nodes] == expected
    assert remarks(graph, STAGE)[0] == (("a", "b"), "q", "policy", "excluded by Neg")


def test_excluded_nodes_stay():
    graph = graph_of(CHAIN, "c")
    AnnotateTarget([target_of("npu", "Relu", "Neg", policy=Policy(host_after=("a",)))]).run(graph)
    assert claims(graph) == {"a": "npu", "b": None, "c": None}
    assert remarks(graph, STAGE) == [
        (("b",), "npu", "policy", "host_after: depends on a"),
        (("c",), "npu", "policy", "host_after: depends on a"),
    ]
