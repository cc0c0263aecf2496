"""Targets with costs: what is chosen, what is said about it, and how it goes together with everything else."""

from __future__ import annotations

import numpy as np
import pytest

import tinycomp
from tests.driver.test_placement import running
from tests.partition_tools import claims, conditional, graph_of, target_of
from tinycomp.data import digits_model
from tinycomp.driver.pipeline import Pipeline, optimisation_passes, partitioning_passes
from tinycomp.errors import TargetError
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ops.typing import infer_node_types
from tinycomp.passes.merge_regions import MergeRegions
from tinycomp.passes.place_by_cost import PlaceByCost
from tinycomp.rewrite import P
from tinycomp.target import Cost, Link, Policy, Region, Target, find, fused_roofline, roofline

CHAIN = "%a = Relu(%x)\n%b = Neg(%a)\n%c = Relu(%b)\n%d = Tanh(%c)"
MICRO = 1e-6
HOST = Cost(lambda node: 100 * MICRO)


def two(latency: float = 3.0) -> tuple[Target, Target]:
    """Return a fast target that is far, and a slow one in the host's memory that lacks Tanh."""
    fast = Cost(lambda node: 1 * MICRO, memory="far", link=Link(latency=latency * MICRO))
    far = target_of("far", "Relu", "Neg", "Tanh", cost=fast)
    near = target_of("near", "Relu", "Neg", cost=Cost(lambda node: 2 * MICRO))
    return running(far), running(near)


def placed(body: str, outputs: str, *targets: Target, **options) -> tuple[dict[str, str | None], list[str]]:
    graph = graph_of(body, outputs)
    PlaceByCost(targets, host=HOST, **options).run(graph)
    return claims(graph), [r.reason for r in graph.remarks if r.stage == "place-by-cost"]


def test_transfers_decide():
    far, near = two()
    assert set(placed(CHAIN, "d", far, near)[0].values()) == {"far"}, "4 of work and 6 of transfers"
    assert set(placed(CHAIN, "d", near, far)[0].values()) == {"far"}, "whatever the order"
    far, near = two(latency=0.5)
    assert placed("%a = Relu(%x)\n%b = Neg(%a)", "b", far, near)[0] == {"a": "far", "b": "far"}
    far, near = two(latency=1.5)
    assert placed("%a = Relu(%x)\n%b = Neg(%a)", "b", far, near)[0] == {"a": "near", "b": "near"}


def test_a_value_is_moved_once_for_all_its_readers():
    body = "%t = Tanh(%x)\n%a = Relu(%t)\n%b = Relu(%t)\n%c = Relu(%t)\n%d = Sum(%a, %b, %c)"
    far = target_of("far", "Relu", "Sum", cost=Cost(lambda n: 1 * MICRO, memory="far", link=Link(latency=4 * MICRO)))
    near = target_of("near", "Relu", "Sum", cost=Cost(lambda n: 3.5 * MICRO))
    assert placed(body, "d", far, near)[0] == {"t": None, "a": "far", "b": "far", "c": "far", "d": "far"}


def test_launches_count():
    npu = target_of("npu", "Relu", cost=Cost(lambda node: 1 * MICRO, launch=5 * MICRO))
    near = target_of("near", "Relu", "Neg", cost=Cost(lambda node: 2 * MICRO))
    body = "%a = Relu(%x)\n%b = Relu(%a)\n%c = Relu(%b)\n%d = Relu(%c)"
    assert set(placed(body, "d", npu, near)[0].values()) == {"near"}
    assert set(placed(f"{body}\n%e = Relu(%d)\n%f = Relu(%e)", "f", npu, near)[0].values()) == {"npu"}


def test_a_target_may_say_what_whole_regions_take():
    """Fused, the nodes of npu take less than on the near target, but only if there are enough of them."""
    seen = []

    def fused(region):
        seen.append(region)
        return (1 + 0.5 * len(region.nodes)) * MICRO

    cost = Cost(lambda node: 3 * MICRO, launch=2 * MICRO, region=fused)
    npu, near = target_of("npu", "Relu", cost=cost), target_of("near", "Relu", cost=Cost(lambda node: 2 * MICRO))
    assert set(placed("%a = Relu(%x)", "a", npu, near)[0].values()) == {"near"}
    claimed, reasons = placed("%a = Relu(%x)\n%b = Relu(%a)\n%c = Relu(%b)\n%d = Relu(%c)", "d", npu, near)
    assert set(claimed.values()) == {"npu"}
    assert reasons[0].startswith('graph "main" is estimated at 5 us; 3 us of it work, 0 us transfers; everything on')
    assert reasons[0].endswith("nothing is cheaper")
    assert {region.target for region in seen} == {"npu"}
    assert {len(region.inputs) for region in seen} == {1}


def test_memories_may_have_links_of_their_own():
    """Without the direct link, values would go through the host's memory."""
    slow = Cost(lambda node: 30 * MICRO)
    body = "%a = Relu(%x)\n%b = Neg(%a)\n%c = Relu(%b)"
    for links, expected in (({}, "spare"), ({"other": Link(latency=1 * MICRO)}, "n")):
        one = Cost(lambda node: 1 * MICRO, memory="one", link=Link(latency=20 * MICRO), links=links)
        other = Cost(lambda node: 1 * MICRO, memory="other", link=Link(latency=20 * MICRO))
        spare = Cost(slow.seconds, memory="one", link=one.link, links=links)
        makers = (("r", "Relu", one), ("n", "Neg", other), ("spare", "Neg", spare))
        targets = [target_of(name, op, cost=cost) for name, op, cost in makers]
        assert placed(body, "c", *targets)[0]["b"] == expected


def test_composites_are_atoms_with_a_cost_of_their_own():
    fusing = Target("fusing", cost=Cost(lambda node: 3 * MICRO))

    @fusing.composite
    def pair(x):
        return P.Relu(P.Neg(x))

    plain = target_of("plain", "Relu", "Neg", cost=Cost(lambda node: 2 * MICRO))
    graph = graph_of("%a = Neg(%x)\n%b = Relu(%a)\n%c = Relu(%b)", "c")
    PlaceByCost((plain, fusing), host=HOST).run(graph)
    assert [(n.op, n.target) for n in graph.nodes] == [("fusing.pair", "fusing"), ("Relu", "plain")]


def test_the_estimate_the_alternatives_and_what_was_given_up_are_told():
    far, near = two()
    _, reasons = placed(CHAIN, "d", far, near)
    assert reasons[0] == (
        'graph "main" is estimated at 10 us; 4 us of it work, 6 us transfers; everything on the host: 400 us;'
        " what far takes on it: 10 us; what near takes on it: 106 us; by priority: 10 us; nothing is cheaper"
    )
    assert reasons[1:] == [
        "2 us here, 1 us on far; with transfers the whole would take 1 us more",
        "2 us here, 1 us on far; with transfers the whole would take 7 us more",
        "2 us here, 1 us on far; with transfers the whole would take 7 us more",
    ]


def test_the_report_shows_the_estimate_and_the_nodes_their_alternatives():
    far, near = two()
    module = tinycomp.compile(graph_of(CHAIN, "d"), [near, far])
    report = module.report()
    assert {region.target for region in report.regions} == {"far"}
    assert any(note.startswith('graph "main" is estimated at 10 us') for note in report.notes)
    reasons = [remark.reason for remark in report.reasons["a"]]
    assert "2 us here, 1 us on far; with transfers the whole would take 1 us more" in reasons
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_allclose(module(x), tinycomp.compile(graph_of(CHAIN, "d"), "host")(x), rtol=1e-6)


def test_costs_count_only_where_every_target_has_one():
    far, _ = two(latency=1000)
    other = running(target_of("other", "Relu"))
    report = tinycomp.compile(graph_of(CHAIN, "d"), [far, other]).report()
    assert {region.target for region in report.regions} == {"far"}


def test_what_is_placed_or_excluded_is_no_option():
    far, near = two()
    module = tinycomp.compile(graph_of(CHAIN, "d"), [far, near], place={"b": "near"})
    assert {r.target: r.sources for r in module.report().regions}["near"] != ()
    assert module.report().where("b") != module.report().where("d")
    policy = {"far": Policy(exclude=("Relu", "Neg"))}
    report = tinycomp.compile(graph_of(CHAIN, "d"), [far, near], policy=policy).report()
    assert [(r.target, dict(r.ops)) for r in report.regions] == [("near", {"Relu": 2, "Neg": 1}), ("far", {"Tanh": 1})]


def test_a_region_that_is_declined_goes_to_the_next_target():
    far, near = two()
    far = running(far, 0)
    report = tinycomp.compile(graph_of(CHAIN, "d"), [far, near]).report()
    assert [(r.target, dict(r.ops)) for r in report.regions] == [("near", {"Relu": 2, "Neg": 1})]


def test_branches_are_problems_of_their_own():
    near = running(target_of("near", "Relu", cost=Cost(lambda node: 1 * MICRO)))
    graph = conditional()
    PlaceByCost([near], host=HOST).run(graph)
    (node,) = graph.nodes
    assert [branch.nodes[0].target for branch in node.bodies.values()] == ["near", "near"]


def test_a_definition_counts_with_all_its_parts():
    parts = target_of("parts", "Div", "Erf", "Add", "Mul", cost=Cost(lambda node: 2 * MICRO))
    whole = target_of("whole", "Gelu", cost=Cost(lambda node: 9 * MICRO))
    text = 'graph @main opset {"" = 20} (%x: float32[2, 4]) -> (%y) { %y = Gelu(%x) from ["gate"] }'
    for seconds, expected in ((1, {"parts"}), (3, {"whole"})):
        parts.cost = Cost(lambda node, seconds=seconds: seconds * MICRO)
        graph = parse_graph(text, infer=infer_node_types)
        PlaceByCost([parts, whole], host=HOST).run(graph)
        assert {node.target for node in graph.nodes} == expected


def test_a_large_graph_is_placed_in_reasonable_time():
    operands = {i: f"Relu(%n{i - 1})" if i % 3 else f"Add(%n{i - 1}, %n{max(i - 5, 0)})" for i in range(1, 600)}
    body = "\n".join(f"%n{i} = {text}" for i, text in operands.items())
    far, near = two()
    far.accept("Add")
    graph = graph_of(f"%n0 = Neg(%x)\n{body}", "n599")
    PlaceByCost([far, near], host=HOST).run(graph)
    MergeRegions(targets=[far, near]).run(graph)
    assert set(claims(graph).values()) == {"far"}


@pytest.mark.parametrize(
    ("cost", "text"),
    [
        (Cost(lambda node: -1.0), "cost of npu at a: not a cost; expected seconds, zero or more; found -1.0"),
        (Cost(lambda node: 1 / 0), "cost of npu at a: the cost cannot be told: ZeroDivisionError: division by zero"),
        (
            Cost(lambda node: 1.0, region=lambda region: -1.0),
            "cost of npu at the region of a: not a cost; expected seconds, zero or more; found -1.0",
        ),
        (None, "target npu: the target has no cost. Give it one: Target(cost=…)."),
    ],
)
def test_costs_that_are_none(cost, text):
    with pytest.raises(TargetError) as caught:
        placed("%a = Relu(%x)", "a", target_of("npu", "Relu", cost=cost))
    assert text in str(caught.value)


def test_links_and_rooflines():
    with pytest.raises(TargetError, match="a link has a bandwidth above zero"):
        Link(bandwidth=0)
    assert Link(1e6, 1.0).seconds(2_000_000) == 3.0
    (node,) = graph_of("%a = Relu(%x)", "a").nodes
    assert roofline(1e9, 1e6)(node) == pytest.approx(64e-6)
    assert roofline(1e9, 1e6, overhead=1.0)(node) == pytest.approx(1 + 64e-6)


def test_a_fused_roofline_moves_what_crosses_the_border():
    graph = graph_of("%a = Relu(%x)\n%b = Relu(%a)\n%c = Relu(%b)", "c")
    region = Region.of(graph, graph.nodes)
    assert fused_roofline(1e9, 1e6)(region) == pytest.approx(64e-6)
    assert fused_roofline(1e9, 1e6, overhead=1.0)(region) == pytest.approx(3 + 64e-6)


def test_a_model_is_placed_by_costs_from_end_to_end():
    c, npu = find("c").with_options(), running(Target("npu"))
    c.cost = Cost(roofline(2e10, 1e10))
    npu.cost = Cost(roofline(1e12, 1e11), memory="npu", link=Link(1e9, 1e-6))
    npu.accept("Conv", "Relu", "Add", "MaxPool")
    graph = tinycomp.from_onnx(digits_model(), {"image": (1, 1, 8, 8)})
    passes = Pipeline([*optimisation_passes([npu, c]), *partitioning_passes([npu, c])], check=True)
    assert passes(graph) is not None
    module = tinycomp.compile(digits_model(), [npu, c], shapes={"image": (1, 1, 8, 8)}, verify=True)
    assert any("is estimated at" in note for note in module.report().notes)
