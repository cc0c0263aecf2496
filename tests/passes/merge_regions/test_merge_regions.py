"""Regions of whole graphs: the trouble cases by name, barriers, policies, and the reasons given."""

from __future__ import annotations

import itertools
import random
import re

import pytest

from tests.partition_tools import claims, graph_of, regions, remarks, target_of
from tinycomp.driver.report import make_report
from tinycomp.errors import TinycompError
from tinycomp.passes.annotate_target import AnnotateTarget
from tinycomp.passes.merge_regions import MINIMUM, MOST, MergeRegions, dependencies_and_links, problem_of
from tinycomp.target import Policy, TransferCost

STAGE = "merge-regions"


def merged(body, outputs, *targets, inputs="x", **options):
    graph = graph_of(body, outputs, inputs)
    AnnotateTarget(targets or [target_of("npu", "Relu", "Add", "Mul")]).run(graph)
    MergeRegions(**options).run(graph)
    return graph


def test_a_diamond_with_one_unsupported_side():
    graph = merged("%a = Relu(%x)\n%h = Neg(%a)\n%b = Relu(%a)\n%c = Add(%h, %b)", "c")
    assert regions(graph) == [{"a"}, {"b", "c"}]
    assert remarks(graph, STAGE) == [
        (("a", "b"), "npu", "acyclic", "joining the region of a and the region of b would close a cycle through h")
    ]


def test_a_border_is_explained_by_a_host_node_however_long_the_way_around_is():
    """Of the nodes on the way the first one of the host is named, not one of another region in front of it."""
    body = "%a = Relu(%x)\n%m = Sub(%a, %a)\n%h = Neg(%m)\n%i = Abs(%h)\n%j = Neg(%i)\n%b = Relu(%a)\n%c = Add(%j, %b)"
    graph = merged(body, "c", target_of("npu", "Relu", "Add"), target_of("other", "Sub"))
    assert regions(graph) == [{"a"}, {"m"}, {"b", "c"}]
    assert remarks(graph, STAGE) == [
        (("a", "b"), "npu", "acyclic", "joining the region of a and the region of b would close a cycle through h")
    ]


def test_a_border_may_be_due_to_another_target():
    body = "%a = Relu(%x)\n%m = Sub(%a, %a)\n%b = Relu(%a)\n%c = Add(%m, %b)"
    graph = merged(body, "c", target_of("npu", "Relu", "Add"), target_of("other", "Sub"))
    assert [r for *_, r in remarks(graph, STAGE)] == [
        "joining the region of a and the region of b would close a cycle through m"
    ]


def test_an_unsupported_node_between():
    graph = merged("%a = Relu(%x)\n%h = Neg(%a)\n%b = Relu(%h)", "b")
    assert regions(graph) == [{"a"}, {"b"}]


def test_two_convex_regions_that_depend_on_each_other():
    """Both pairs (a1, a2) and (b2, b1) are convex; forming both makes each wait for the other."""
    body = "%a1 = Relu(%x)\n%b2 = Relu(%y)\n%h1 = Neg(%a1)\n%h2 = Neg(%b2)\n%a2 = Add(%a1, %h2)\n%b1 = Add(%b2, %h1)"
    graph = merged(body, "a2 b1", inputs="x y")
    assert len(regions(graph)) == 3


def test_an_if_between_two_supported_halves():
    """The captured value makes the If depend on the first half."""
    body = """%p: bool[] = const true
%a = Relu(%x)
%y = If(%p | %a)
  then_branch = graph @then (%t: float32[2, 4]) -> (%u) { %u = Relu(%t)  %w = Relu(%u) }
  else_branch = graph @else (%t: float32[2, 4]) -> (%u) { %u = Neg(%t) }
%b = Add(%a, %y)"""
    graph = merged(body, "b")
    assert regions(graph) == [{"a"}, {"b"}]
    branch = next(n for n in graph.nodes if n.op == "If").bodies["then_branch"]
    assert [n.region for n in branch.nodes] == [2, 2]


@pytest.mark.parametrize("shared", ["%k: float32[] = const 2.0", ""])
def test_a_shared_constant_or_input_is_no_bridge(shared):
    other = "%k" if shared else "%x"
    graph = merged(f"{shared}\n%a = Mul(%x, {other})\n%b = Mul(%y, {other})", "a b", inputs="x y")
    assert regions(graph) == [{"a"}, {"b"}]


def test_host_nodes_are_never_joined_and_output_order_does_not_matter():
    body = "%a = Relu(%x)\n%h = Neg(%a)\n%b = Relu(%a)\n%i = Neg(%b)\n%c = Add(%b, %h)\n%d = Add(%c, %i)"
    found = []
    for outputs in itertools.permutations(["h", "i", "c", "d"]):
        graph = merged(body, " ".join(outputs))
        assert {n.region for n in graph.nodes if n.op == "Neg"} == {None}
        found.append(regions(graph))
    assert found == [[{"a", "b"}, {"c", "d"}]] * len(found)


def test_only_so_many_borders_are_explained():
    steps = [f"%r{i} = Relu(%d{i - 1})\n%n{i} = Neg(%r{i})\n%d{i} = Add(%r{i}, %n{i})" for i in range(1, MOST + 3)]
    graph = merged("%d0 = Neg(%x)\n" + "\n".join(steps), f"d{MOST + 2}")
    reasons = [reason for *_, reason in remarks(graph, STAGE)]
    assert len(reasons) == MOST + 1
    assert all("would close a cycle through n" in r for r in reasons[:-1])
    assert reasons[-1] == f"only the first {MOST} borders between regions are explained"


def test_host_nodes_have_no_links():
    graph = graph_of("%a = Neg(%x)\n%b = Neg(%a)\n%c = Relu(%b)\n%d = Relu(%c)", "d")
    AnnotateTarget([target_of("npu", "Relu")]).run(graph)
    problem = problem_of(graph.nodes, *dependencies_and_links(graph))
    assert problem.colors == [0, 0, 1, 1]
    assert problem.links == [set(), set(), {3}, {2}]


def test_borders_between_different_targets_need_no_reason():
    graph = merged("%a = Relu(%x)\n%b = Neg(%a)", "b", target_of("p", "Relu"), target_of("q", "Neg"))
    assert regions(graph) == [{"a"}, {"b"}]
    assert remarks(graph, STAGE) == []


def test_two_targets_do_not_wait_for_each_other():
    p, q = target_of("p", "Relu", "Add"), target_of("q", "Neg", "Mul")
    body = "%a = Relu(%x)\n%m = Neg(%y)\n%b = Add(%a, %m)\n%n = Mul(%m, %a)"
    graph = merged(body, "b n", p, q, inputs="x y")
    assert len(regions(graph)) == 3


def test_a_value_used_twice_and_a_node_with_two_results():
    body = "%a = Relu(%x)\n%s, %t = Split(%a) {axis = 0}\n%b = Add(%s, %t)\n%c = Mul(%b, %b)"
    graph = merged(body, "c", target_of("npu", "Relu", "Split", "Add", "Mul"))
    assert regions(graph) == [{"a", "s", "b", "c"}]


BARRIER = "%a = Relu(%x)\n%s = tinycomp::StopFusion@1(%a)\n%b = Relu(%s)\n%i = Identity(%b)\n%c = Relu(%i)"


@pytest.mark.parametrize(
    ("barriers", "expected"),
    [("transparent", [{"a", "s", "b", "i", "c"}]), ("binding", [{"a"}, {"b", "i", "c"}]),
     ("identity", [{"a"}, {"b"}, {"c"}])],
)  # fmt: skip
def test_barriers_cut_only_when_asked_to(barriers, expected):
    graph = merged(BARRIER, "c", barriers=barriers)
    assert regions(graph) == expected
    if barriers == "binding":
        assert remarks(graph, STAGE) == [(("s",), "npu", "barriers=binding", "StopFusion cuts regions here")]


def test_an_unknown_barrier_option():
    with pytest.raises(TinycompError, match=r'found bindng\. Did you mean "binding"'):
        MergeRegions(barriers="bindng")


def test_running_twice_changes_nothing():
    graph = merged(BARRIER, "c")
    before = str(graph)
    assert not MergeRegions().run(graph)
    assert str(graph) == before


def tangle(size):
    """A graph in which everything depends on much of what came before, too large to be searched."""
    rng = random.Random(1)
    ops = [rng.choice(["Add", "Add", "Sub"]) for _ in range(size)]
    near = [(i - min(i, rng.randint(1, 12)), i - min(i, rng.randint(1, 12))) for i in range(size)]
    lines = [f"%v{i + 1} = {op}(%v{a}, %v{b})" for i, (op, (a, b)) in enumerate(zip(ops, near, strict=True))]
    return "%v0 = Neg(%x)\n" + "\n".join(lines), f"v{size}"


def test_a_number_of_regions_that_may_not_be_minimal_is_admitted():
    graph = merged(*tangle(300))
    (doubt,) = [r for r in graph.remarks if r.rule == MINIMUM]
    found, bound = map(int, re.findall(r"\d+", doubt.reason))
    assert doubt.reason == (
        f'the number of regions of graph "main" may not be minimal: {found} were found, '
        f"and fewer than {bound} are impossible"
    )
    assert 1 < bound < found == len(regions(graph))
    assert make_report(graph, "", ["npu"], ["first"]).notes == ("first", doubt.reason)
    graph = merged(*tangle(10))
    assert [r for r in graph.remarks if r.rule == MINIMUM] == []
    assert make_report(graph, "", ["npu"]).notes == ()


def test_a_policy_hands_whole_regions_back_and_says_so():
    body = "%a = Relu(%x)\n%h = Neg(%a)\n%b = Relu(%h)\n%c = Relu(%b)"
    graph = merged(body, "c", policy=Policy(min_nodes=2))
    assert regions(graph) == [{"b", "c"}]
    assert claims(graph) == {"a": None, "h": None, "b": "npu", "c": "npu"}
    assert remarks(graph, STAGE) == [(("a",), "npu", "policy.min_nodes", "the region has 1 node(s), fewer than 2")]


def test_a_composite_that_goes_back_to_the_host_is_taken_apart():
    graph = graph_of("%a = Relu(%x)\n%b = Neg(%a)", "b")
    graph.outline(graph.nodes, "npu.relu_neg", domain="tinycomp.composite", target="npu")
    MergeRegions(policy=Policy(min_nodes=3)).run(graph)
    assert [(n.op, n.target) for n in graph.nodes] == [("Relu", None), ("Neg", None)]
    assert remarks(graph, STAGE) == [(("a", "b"), "npu", "policy.min_nodes", "the region has 2 node(s), fewer than 3")]


def test_the_policy_of_a_target_counts_for_its_regions_only():
    p, q = target_of("p", "Relu", policy=Policy(min_nodes=2)), target_of("q", "Neg")
    graph = merged("%a = Relu(%x)\n%b = Neg(%x)", "a b", p, q, targets=[p, q])
    assert claims(graph) == {"a": None, "b": "q"}


def test_the_number_of_regions_is_limited_per_target():
    p, q = target_of("p", "Relu"), target_of("q", "Neg")
    body = "%a = Relu(%x)\n%b = Neg(%a)\n%c = Relu(%b)\n%d = Relu(%c)"
    graph = merged(body, "d", p, q, policy=Policy(max_regions=1))
    assert claims(graph) == {"a": None, "b": "q", "c": "p", "d": "p"}
    assert remarks(graph, STAGE)[-1][2] == "policy.max_regions"


def test_dear_transfers_keep_small_regions_on_the_host():
    graph = merged("%a = Relu(%x)", "a", policy=Policy(transfer=TransferCost(bandwidth=1e9)))
    assert claims(graph) == {"a": None}
    assert remarks(graph, STAGE)[0][2] == "policy.transfer"
