"""Targets are asked one after the other, and what one gives back is offered to those behind it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from benchmarks.partition_fuzz import check_priorities
from tests.partition_tools import claims, conditional, graph_of, regions, remarks, target_of
from tinycomp.driver.pipeline import Pipeline, partitioning_passes
from tinycomp.errors import TargetError
from tinycomp.ir.graph import Graph
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ops.typing import infer_node_types
from tinycomp.passes.merge_regions import MergeRegions
from tinycomp.passes.offer_to_target import OfferToTarget
from tinycomp.rewrite import P, reject
from tinycomp.target import Policy, Region, Target, split

CHAIN = "%a = Relu(%x)\n%b = Neg(%a)\n%c = Relu(%b)\n%d = Neg(%c)"


def pairs_of(name: str, **options: object) -> Target:
    """Return a target with the composite ``Relu(Neg(x))``, and a rule for Abs."""
    target = Target(name, **options)

    @target.composite
    def pair(x):
        return P.Relu(P.Neg(x))

    target.accept("Abs")
    return target


def partitioned(graph: Graph, targets: Sequence[Target], policy: Policy | None = None) -> list[tuple[str, list[str]]]:
    """Return target and operators of every region, composites by their name, and of every node of the host."""
    done = Pipeline(partitioning_passes(targets, policy), check=True)(graph)
    graph.remarks = done.remarks
    return [(n.target or "host", [i.op for i in n.body.nodes] if n.is_region else [n.op]) for n in done.nodes]


def test_a_rule_of_the_first_target_comes_before_a_composite_of_the_second():
    first, second = target_of("first", "Relu", "Neg"), pairs_of("second")
    assert partitioned(graph_of(CHAIN, "d"), [first, second]) == [("first", ["Relu", "Neg", "Relu", "Neg"])]
    assert partitioned(graph_of(CHAIN, "d"), [second, first]) == [
        ("first", ["Relu"]), ("second", ["second.pair"]), ("first", ["Neg"])
    ]  # fmt: skip


def test_the_second_target_says_what_it_lost_nodes_to():
    graph = graph_of(CHAIN, "d")
    partitioned(graph, [target_of("first", "Neg"), pairs_of("second")])
    assert (("c", "b"), "second", "second.pair", "b belongs to first already") in remarks(graph, "merge-composite")


def test_what_a_policy_gives_back_goes_to_the_next_target_and_then_to_the_host():
    first = target_of("first", "Relu", policy=Policy(min_nodes=2))
    graph = graph_of(CHAIN, "d")
    assert partitioned(graph, [first, pairs_of("second")]) == [
        ("host", ["Relu"]), ("second", ["second.pair"]), ("host", ["Neg"])
    ]  # fmt: skip
    small = "the region has 1 node(s), fewer than 2"
    assert remarks(graph, "merge-regions") == [
        (("a",), "first", "policy.min_nodes", small), (("c",), "first", "policy.min_nodes", small)
    ]  # fmt: skip


def test_a_policy_of_one_target_does_not_bind_another():
    first = target_of("first", "Relu", policy=Policy(exclude=("Relu",)))
    assert partitioned(graph_of("%a = Relu(%x)", "a"), [first, target_of("second", "Relu")]) == [("second", ["Relu"])]


def test_a_policy_for_all_holds_for_what_is_offered_again():
    first = target_of("first", "Relu", policy=Policy(min_nodes=2))
    graph = graph_of("%a = Relu(%x)", "a")
    assert partitioned(graph, [first, target_of("second", "Relu")], Policy(min_nodes=3)) == [("host", ["Relu"])]
    assert [r[1:3] for r in remarks(graph, "merge-regions")] == [
        ("first", "policy.min_nodes"), ("second", "policy.min_nodes")
    ]  # fmt: skip


def test_regions_are_looked_for_again_when_another_target_has_taken_nodes():
    """The Relu that the first target gives back joins the two nodes of the second."""
    first = target_of("first", "Relu", policy=Policy(min_nodes=2))
    second = target_of("second", "Neg", "Relu", "Abs")
    body = "%a = Neg(%x)\n%b = Relu(%a)\n%c = Abs(%b)"
    assert partitioned(graph_of(body, "c"), [first, second]) == [("second", ["Neg", "Relu", "Abs"])]


def test_an_excluded_node_leaves_the_shorter_composite():
    npu = Target("npu", policy=Policy(exclude=("c",)))

    @npu.composite
    def long(x):
        return P.Abs(P.Relu(P.Neg(x)))

    @npu.composite
    def short(x):
        return P.Relu(P.Neg(x))

    graph = graph_of("%a = Neg(%x)\n%b = Relu(%a)\n%c = Abs(%b)", "c")
    assert partitioned(graph, [npu]) == [("npu", ["npu.short"]), ("host", ["Abs"])]


def test_an_operator_is_expanded_for_the_first_target_before_the_second_takes_it_whole():
    text = '%y = Gelu(%x) from ["gate"]'
    graph = parse_graph(
        f'graph @main opset {{"" = 20}} (%x: float32[2, 4]) -> (%y) {{\n{text}\n}}', infer=infer_node_types
    )
    parts = target_of("parts", "Div", "Erf", "Add", "Mul", "Sqrt", "Cast", "Constant")
    assert [name for name, _ in partitioned(graph, [parts, target_of("whole", "Gelu")])] == ["parts"]
    assert partitioned(graph, [target_of("whole", "Gelu"), parts]) == [("whole", ["Gelu"])]


@pytest.mark.parametrize("seed", range(0, 400, 100))
def test_priorities_of_random_graphs_equal_brute_force(seed: int):
    for each in range(seed, seed + 100):
        check_priorities(each)


# Region checks -------------------------------------------------------------------------------------------------------


def test_a_check_sees_the_finished_region():
    seen: list[Region] = []
    npu = target_of("npu", "MatMul", "Relu")

    @npu.region_check
    def _(region):
        seen.append(region)
        assert region.peak_bytes == 4 * (4 + 1), "the operand and the result of MatMul: the operand is dead behind it"

    text = """graph @main opset {"" = 17} (%x: float32[N, 4]) -> (%z) {
        %w: float32[4, 1] = const [1, 2, 3, 4]
        %y = MatMul(%x, %w) from ["m"]
        %z = Relu(%y) from ["r"]
    }"""
    partitioned(parse_graph(text, infer=infer_node_types), [npu])
    (region,) = seen
    assert (region.target, region.operators, region.label) == ("npu", ["MatMul", "Relu"], "the region of m")
    assert [(v.name, str(v.type)) for v in (*region.inputs, *region.outputs)] == [
        ("x", "float32[N, 4]"), ("z", "float32[N, 1]")
    ]  # fmt: skip
    assert (region.macs, region.constant_bytes) == (4, 4 * 4)


def test_a_refused_region_goes_to_the_next_target_with_the_reason():
    first, second = target_of("first", "Relu", "Neg"), target_of("second", "Neg", "Abs")
    first.region_check(lambda region: "Neg" not in region.operators or reject("no Neg in front of anything"))
    graph = graph_of("%a = Neg(%x)\n%b = Relu(%a)", "b")
    assert partitioned(graph, [first, second]) == [("second", ["Neg"]), ("host", ["Relu"])]
    assert remarks(graph, "merge-regions") == [
        (("a", "b"), "first", "first.region_check", "no Neg in front of anything")
    ]


def test_checks_know_the_options_and_are_asked_in_order():
    @dataclasses.dataclass(frozen=True)
    class Options:
        most: int = 2

    npu = target_of("npu", "Relu", "Neg", options=Options)
    npu.region_check(lambda region: True)

    @npu.region_check
    def _(region, options):
        return len(region.nodes) <= options.most or reject(f"{options.most} nodes at most")

    assert partitioned(graph_of(CHAIN, "d"), [npu.with_options(most=4)]) == [("npu", ["Relu", "Neg", "Relu", "Neg"])]
    graph = graph_of(CHAIN, "d")
    partitioned(graph, [npu])
    assert remarks(graph, "merge-regions")[0][2:] == ("npu.region_check", "2 nodes at most")


def test_a_region_is_split_where_its_target_asks_for_it():
    npu = target_of("npu", "Relu", "Neg")

    @npu.region_check
    def _(region):
        return len(region.nodes) < 3 or split(region.nodes[1].output, reason="the queue holds two")

    graph = graph_of(CHAIN, "d")
    assert partitioned(graph, [npu]) == [("npu", ["Relu", "Neg"]), ("npu", ["Relu", "Neg"])]
    assert remarks(graph, "merge-regions") == [(("b", "c"), "npu", "npu.region_check", "the queue holds two")]


def test_the_rest_of_a_split_region_stays_together_where_it_can():
    """A split is a border at one value, not a cut through the graph: the other side of a diamond is not concerned."""
    npu = target_of("npu", "Relu", "Neg", "Add", "Abs")

    @npu.region_check
    def _(region):
        values = {v.name: v for n in region.nodes for v in n.outputs}
        return len(region.nodes) < 4 or split(values["b"], reason="too long")

    graph = graph_of("%a = Relu(%x)\n%b = Neg(%a)\n%c = Abs(%x)\n%d = Add(%b, %c)", "d")
    assert partitioned(graph, [npu]) == [("npu", ["Relu", "Neg"]), ("npu", ["Abs", "Add"])]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda region: 7, "a predicate gave an answer that is neither yes nor no; expected True, None, False or"),
        (lambda region: 1 / 0, "region check of npu at the region of a: the check failed: ZeroDivisionError"),
        (
            lambda region: split(region.outputs[0], reason="no"),
            'a region cannot be split there; expected values between two nodes of the region; found "d"',
        ),
        (lambda region: split(reason="no"), "expected values between two nodes of the region; found none"),
    ],
)
def test_checks_that_fail_or_answer_otherwise_are_errors(answer, text):
    npu = target_of("npu", "Relu", "Neg")
    npu.region_check(answer)
    with pytest.raises(TargetError) as caught:
        partitioned(graph_of(CHAIN, "d"), [npu])
    assert text in str(caught.value)


def test_a_conditional_that_is_given_back_is_taken_apart_for_the_same_target():
    """The target takes the If whole, gives it back, and may then have what is in its branches."""
    npu = target_of("npu", "If", "Relu")
    npu.region_check(lambda region: "If" not in region.operators or reject("no conditionals"))
    graph = conditional()
    OfferToTarget(npu).run(graph)
    assert claims(graph) == {"y": "npu"}
    MergeRegions(targets=[npu]).run(graph)
    assert claims(graph) == {"y": None}
    (node,) = graph.nodes
    assert [regions(branch) for branch in node.bodies.values()] == [[{"u"}], [{"u"}]]


# Weights -------------------------------------------------------------------------------------------------------------

QDQ = """graph @main opset {"" = 17} (%x: float32[2, 4]) -> (%z) {
    %w: int8[4, 1] = const [1, 2, 3, 4]
    %s: float32[] = const 0.5
    %zero: int8[] = const 0
    %q = QuantizeLinear(%x, %s, %zero) from ["q"]
    %d = DequantizeLinear(%q, %s, %zero) from ["d"]
    %v = DequantizeLinear(%w, %s, %zero) from ["v"]
    %p = MatMul(%d, %v) from ["p"]
    %y = Relu(%p) from ["y"]
    %z = Tanh(%y) from ["z"]
}"""


def floats_of(name: str) -> Target:
    target = Target(name)

    @target.composite
    def dense(x, w=P.const):
        return P.Relu(P.MatMul(x, w))

    return target


def integers_of(name: str) -> Target:
    target = Target(name)

    @target.composite
    def qdense(x, w=P.const):
        return P.Relu(P.MatMul(P.DequantizeLinear(x, ...), P.DequantizeLinear(w, ...)))

    return target


def test_a_float_target_sees_float_weights():
    assert not floats_of("npu").reads_quantized
    alone = partitioned(parse_graph(QDQ, infer=infer_node_types), [floats_of("npu")])
    assert ("npu", ["npu.dense"]) in alone
    first = partitioned(parse_graph(QDQ, infer=infer_node_types), [floats_of("npu"), integers_of("int")])
    assert ("npu", ["npu.dense"]) in first


def test_a_quantised_target_behind_a_float_one_sees_quantised_weights():
    refusing = floats_of("npu")
    refusing.composites[0].check(lambda match: reject("no"))
    assert integers_of("int").reads_quantized
    found = partitioned(parse_graph(QDQ, infer=infer_node_types), [refusing, integers_of("int")])
    assert ("int", ["int.qdense"]) in found


def test_a_quantised_layer_that_no_target_takes_keeps_its_stored_weights():
    found = partitioned(parse_graph(QDQ, infer=infer_node_types), [target_of("p", "Abs"), target_of("q", "Tanh")])
    ops = [ops[0] for _, ops in found]
    assert ops == ["QuantizeLinear", "DequantizeLinear", "DequantizeLinear", "MatMul", "Relu", "Tanh"]


def test_dequantised_weights_that_would_take_too_much_are_offered_as_they_are(monkeypatch):
    monkeypatch.setattr("tinycomp.passes.offer_to_target.MOST_BYTES", 8)
    graph = parse_graph(QDQ, infer=infer_node_types)
    OfferToTarget(target_of("npu", "MatMul", "DequantizeLinear")).run(graph)
    assert claims(graph) == {"q": None, "d": "npu", "v": "npu", "p": "npu", "y": None, "z": None}
