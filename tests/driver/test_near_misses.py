"""The report says which composite just missed at a node that then ran by itself, and what became of every node."""

from __future__ import annotations

import tinycomp
from tests.driver.test_placement import running
from tests.partition_tools import graph_of, target_of
from tinycomp.rewrite import P, reject
from tinycomp.target import Policy, Target


def npu_of() -> Target:
    npu = Target("npu")

    @npu.composite
    def triple(x):
        return P.Relu(P.Neg(P.Tanh(x)))

    @npu.composite
    def pair(x):
        return P.Neg(P.Tanh(x))

    npu.accept("Relu", "Neg", "Tanh", "Abs", "Add")
    return running(npu)


def reasons(body: str, outputs: str, *targets: Target, **options) -> dict[str, list[str]]:
    found = tinycomp.compile(graph_of(body, outputs), targets, **options).report().reasons
    return {name: [str(remark) for remark in remarks] for name, remarks in found.items()}


def test_a_composite_that_just_missed_is_named_at_the_node_that_ran_singly():
    body = "%a = Abs(%x)\n%b = Neg(%a)\n%c = Relu(%b)"
    assert reasons(body, "c", npu_of()) == {"c": ["npu.triple: expected Tanh, found Abs at a"]}


def test_a_composite_that_lost_a_node_says_to_whom():
    npu = npu_of()

    @npu.composite
    def late(x, y):
        return P.Add(P.Neg(x), y)

    body = "%a = Tanh(%x)\n%b = Neg(%a)\n%c = Add(%b, %x)"
    assert reasons(body, "c", npu)["c"] == ["npu.late: lost b to npu.pair"]


def test_a_check_that_said_no_is_named_as_well():
    npu = npu_of()
    npu.composites[0].check(lambda match: reject("not on Sundays"))
    npu.composites[1].check(lambda match: reject("nor on Mondays"))
    body = "%a = Tanh(%x)\n%b = Neg(%a)\n%c = Relu(%b)"
    found = reasons(body, "c", npu)
    assert found["c"][0] == "npu.triple: not on Sundays"
    assert "npu.pair: nor on Mondays" in found["b"]


def test_nodes_in_composites_and_far_misses_are_not_mentioned():
    assert reasons("%a = Tanh(%x)\n%b = Neg(%a)", "b", npu_of()) == {}
    assert reasons("%a = Abs(%x)\n%b = Relu(%a)", "b", npu_of()) == {}


def test_a_node_that_a_policy_moved_has_its_reason():
    first = running(target_of("first", "Abs", policy=Policy(exclude=("a",))))
    found = reasons("%a = Abs(%x)\n%b = Abs(%a)", "b", first, npu_of())
    assert found == {"a": ["policy: excluded by a"]}
    first = running(target_of("first", "Abs", policy=Policy(min_nodes=3)))
    found = reasons("%a = Abs(%x)\n%b = Abs(%a)", "b", first, npu_of())
    assert found["a"] == ["policy.min_nodes: the region has 2 node(s), fewer than 3"]


def test_the_report_of_a_saved_module_has_them(tmp_path):
    module = tinycomp.compile(graph_of("%a = Abs(%x)\n%b = Neg(%a)\n%c = Relu(%b)", "c"), npu_of())
    module.save(tmp_path / "m.tcm")
    again = tinycomp.load(tmp_path / "m.tcm", targets=[npu_of()])
    assert again.report().reasons == module.report().reasons != {}
