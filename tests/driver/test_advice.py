"""Advice is what a trial has shown: applied, it gives the regions and the work it promises, and the same results."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tinycomp
from tests.driver.planted import KINDS, MULTIPLE, Network, Planted, plain_target, unhindered
from tests.driver.test_placement import running
from tests.graphs import graphs
from tests.partition_tools import conditional, graph_of, target_of
from tinycomp.errors import ModelError
from tinycomp.ir.graph import Graph
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ir.types import TensorType
from tinycomp.ops.typing import infer_node_types
from tinycomp.rewrite import P, reject
from tinycomp.runtime.advice import Advice, AdviceList
from tinycomp.runtime.module import Module
from tinycomp.runtime.report import Report
from tinycomp.target import Cost, Policy, Target, roofline


def feeds_of(module: Module) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {spec.name: [d if isinstance(d, int) else 1 for d in spec.shape] for spec in module.inputs}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def macs_on(report: Report, target: str) -> int:
    return sum(region.macs for region in report.regions if region.target == target)


def apply(advice: Advice) -> Module:
    """Compile with advice, and make sure that it does what it promises."""
    module = tinycomp.compile(**advice.apply())
    report = module.report()
    assert len(report.regions) == advice.regions_after
    assert macs_on(report, advice.target) == advice.macs_after
    return module


def compiled(planted: Planted) -> Module:
    return tinycomp.compile(planted.graph, planted.target, **planted.options)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("obstacle", KINDS)
def test_the_first_advice_removes_a_planted_obstacle(obstacle: str, seed: int) -> None:
    kind, plant = KINDS[obstacle]
    planted = plant(seed)
    module = compiled(planted)
    before = module.report()
    assert len(before.regions) == planted.borders + 1
    advice = before.advice()
    assert not advice.cut
    first = advice[0]
    assert (first.kind, first.target) == (kind, "npu")
    assert (first.regions_before, first.regions_after) == (planted.borders + 1, 1)
    if kind != "shapes":  # which counts the work for the size that it fixes
        assert first.macs_before == macs_on(before, "npu")
    again = apply(first)
    feeds = feeds_of(module)
    expected, found = module.run(feeds), again.run(feeds)
    np.testing.assert_allclose(found["y"], expected["y"], rtol=planted.tolerance, atol=planted.tolerance)


@pytest.mark.parametrize("seed", range(10))
def test_no_advice_where_nothing_is_in_the_way(seed: int) -> None:
    report = compiled(unhindered(seed)).report()
    assert len(report.regions) == 1
    assert list(report.advice()) == []


def test_layers_of_different_sizes_that_are_refused_alike_are_padded_together() -> None:
    """The first of them in the model is at its rim, which is not where advice is looked for first."""
    network = Network(1)
    for channels in (12, MULTIPLE, 20, MULTIPLE):
        network.conv(channels, name=f"conv{channels}")
        network.add("Relu")
    module = compiled(Planted(network.finished(), plain_target()))
    (advice,) = module.report().advice()
    assert advice.change == 'pad the channels of "conv20", "conv12" to a multiple of 8'
    assert "output channels must be a multiple of 8, got 20), but takes it with 24 channels" in advice.text
    assert (advice.nodes, advice.regions_before, advice.regions_after) == (("conv20", "conv12"), 2, 1)
    feeds = feeds_of(module)
    np.testing.assert_allclose(apply(advice).run(feeds)["y"], module.run(feeds)["y"], rtol=1e-4, atol=1e-5)


OPERATORS = ("Relu", "Neg", "Abs", "Tanh", "Sigmoid", "Add", "Mul", "Sub", "MatMul", "Clip", "Split", "Concat")


@settings(max_examples=60, deadline=None)
@given(graphs(), st.sets(st.sampled_from(OPERATORS)), st.sets(st.sampled_from(OPERATORS)), st.integers(1, 3))
def test_all_advice_on_random_graphs_keeps_its_promise(graph, first, second, least) -> None:
    targets = [running(Target("p")), running(Target("q"))]
    for target, operators in zip(targets, (first, second), strict=True):
        if operators:
            target.accept(*operators)
    module = tinycomp.compile(graph, targets, policy=Policy(min_nodes=least))
    feeds = feeds_of(module)
    for each in module.report().advice():
        assert each.regions_before == len(module.report().regions)
        assert each.macs_before == macs_on(module.report(), each.target)
        expected, found = module.run(feeds), apply(each).run(feeds)
        for name, array in expected.items():
            np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)


def advice_on(body: str, outputs: str, *targets: Target, **options: object) -> AdviceList:
    return tinycomp.compile(graph_of(body, outputs), targets, **options).report().advice()


def plain() -> Target:
    return running(target_of("npu", "Relu", "Neg", "Abs"))


def test_one_change_for_two_borders_comes_first() -> None:
    body = "%a = Relu(%x)\n%b = Erf(%a)\n%c = Neg(%b)\n%d = Tanh(%c)\n%e = Abs(%d)\n%f = Erf(%e)\n%g = Relu(%f)"
    advice = advice_on(body, "g", plain())
    assert [(a.change, a.nodes, a.regions_before, a.regions_after) for a in advice] == [
        ('npu.accept("Erf")', ("b", "f"), 4, 2),
        ('npu.accept("Tanh")', ("d",), 4, 3),
    ]
    assert advice[0].text == "b and f are in the way: npu has no rule for Erf."
    for each in advice:
        apply(each)


def test_what_only_helps_together_is_advised_together() -> None:
    body = "%a = Relu(%x)\n%b = Erf(%a)\n%c = Tanh(%b)\n%d = Neg(%c)"
    (advice,) = advice_on(body, "d", plain())
    assert advice.change == 'npu.accept("Erf"); npu.accept("Tanh")'
    assert (advice.nodes, advice.regions_before, advice.regions_after) == (("b", "c"), 2, 1)
    apply(advice)


def test_what_does_not_matter_is_left_out() -> None:
    """Beside the chain between the regions, another node of the host hangs on it."""
    body = "%a = Relu(%x)\n%b = Erf(%a)\n%s = Sinh(%b)\n%d = Neg(%b)"
    (advice,) = advice_on(body, "s d", plain())
    assert (advice.change, advice.nodes) == ('npu.accept("Erf")', ("b",))


def test_a_join_of_regions_that_do_not_feed_each_other() -> None:
    body = "%a = Relu(%x)\n%b = Neg(%x)\n%c = Mul(%a, %b)"
    (advice,) = advice_on(body, "c", plain())
    assert (advice.change, advice.regions_after) == ('npu.accept("Mul")', 1)
    apply(advice)


def test_a_cycle_through_the_host_is_a_border() -> None:
    body = "%a = Relu(%x)\n%b = Erf(%a)\n%c = Neg(%a)\n%d = Add(%b, %c)\n%e = Abs(%d)"
    (advice,) = advice_on(body, "e", running(target_of("npu", "Relu", "Neg", "Abs", "Add")))
    assert (advice.change, advice.regions_before, advice.regions_after) == ('npu.accept("Erf")', 2, 1)
    apply(advice)


def test_a_node_at_the_rim_is_no_border() -> None:
    assert not advice_on("%a = Relu(%x)\n%b = Erf(%a)", "b", plain())


def test_a_rule_says_which_property_it_minds() -> None:
    npu = plain()

    @npu.op("Softmax")
    def _(node):
        axis = node.attrs.get("axis", -1)
        return axis == -1 or reject(f"the axis must be the last, got {axis}")

    (advice,) = advice_on("%a = Relu(%x)\n%b = Softmax(%a) {axis = 0}\n%c = Neg(%b)", "c", npu)
    assert advice.text == "b is in the way: the rule npu.Softmax refuses it: the axis must be the last, got 0."
    assert advice.change == "let the rule npu.Softmax take axis=0"
    apply(advice)


def test_a_rule_that_minds_a_size_says_so() -> None:
    npu = plain()

    @npu.op("Erf")
    def _(node):
        columns = node.inputs[0].type.shape[1]
        return columns % 8 == 0 or reject(f"columns must be a multiple of 8, got {columns}")

    (advice,) = advice_on("%a = Relu(%x)\n%b = Erf(%a)\n%c = Neg(%b)", "c", npu)
    assert advice.change == "let the rule npu.Erf take size 4 at axis 1 of operand 0"


def test_a_rule_that_minds_several_properties_is_shown_an_example() -> None:
    npu = plain()
    npu.op("Erf")(lambda node: reject("never"))
    (advice,) = advice_on("%a = Relu(%x)\n%b = Erf(%a)\n%c = Neg(%b)", "c", npu)
    assert advice.change == "let the rule npu.Erf take nodes like b"


def test_the_part_of_a_pattern_that_did_not_fit() -> None:
    npu = running(target_of("npu", "Relu", "Neg"))

    @npu.composite
    def leaky(x):
        return P.LeakyRelu(P.Abs(x), alpha=0.25)

    body = "%a = Relu(%x)\n%b = Abs(%a)\n%c = LeakyRelu(%b) {alpha = 0.5}\n%d = Neg(%c)"
    (advice,) = advice_on(body, "d", npu)
    assert advice.kind == "composite"
    assert advice.text == "b and c are in the way: the pattern of npu.leaky does not take LeakyRelu with alpha=0.5."
    assert advice.change == "let the pattern of npu.leaky take LeakyRelu with alpha=0.5"
    apply(advice)


def test_another_operator_in_a_pattern_is_the_last_resort() -> None:
    npu = running(target_of("npu", "Relu", "Neg"))

    @npu.composite
    def pair(x, y):
        return P.Mul(P.Sub(x, y), y)

    body = "%a = Relu(%x)\n%b = Neg(%a)\n%c = Div(%a, %b)\n%d = Mul(%c, %b)\n%e = Relu(%d)"
    advice = advice_on(body, "e", npu)
    assert advice[0].kind in ("composite", "rule")
    for each in advice:
        apply(each)


def test_limits_of_a_policy() -> None:
    body = "%a = Relu(%x)\n%b = Erf(%a)\n%c = MatMul(%b, %m)\n%d = Erf(%c)\n%e = Neg(%d)\n%f = Abs(%e)"
    text = "%t = Transpose(%x)\n%m = MatMul(%t, %x)\n" + body.replace("MatMul(%b, %m)", "MatMul(%b, %m)")
    npu = running(target_of("npu", "Relu", "MatMul", "Neg", "Abs", "Transpose"))
    module = tinycomp.compile(graph_of(text, "f"), npu, policy=Policy(min_nodes=2))
    for each in module.report().advice():
        again = apply(each)
        feeds = feeds_of(module)
        np.testing.assert_allclose(again.run(feeds)["out0"], module.run(feeds)["out0"], rtol=1e-5)


def test_the_least_work_that_a_policy_may_ask_for() -> None:
    npu = running(target_of("npu", "MatMul", "Transpose"))
    body = "%t = Transpose(%x)\n%m = MatMul(%x, %t)"
    (advice,) = advice_on(body, "m", npu, policy={"npu": Policy(min_macs=1000)})
    assert advice.change == 'policy={"npu": Policy(min_macs=16, …)}'
    assert (advice.regions_before, advice.regions_after, advice.macs_before, advice.macs_after) == (0, 1, 0, 16)
    apply(advice)


def test_work_that_a_policy_asks_for_may_be_declared() -> None:
    """A size that nobody has declared counts as 1."""
    graph = parse_graph(
        """graph @main opset {"" = 17} (%x: float32["rows", 8], %w: float32[8, 8]) -> (%y) {
             %y: float32["rows", 8] = MatMul(%x, %w) from ["y"]
           }""",
        infer=infer_node_types,
    )
    module = tinycomp.compile(graph, running(target_of("npu", "MatMul")), policy={"npu": Policy(min_macs=1000)})
    (advice,) = module.report().advice()
    assert (advice.kind, advice.change) == ("shapes", "shapes={'x': (('rows', 1, 64), 8)}")
    assert (advice.regions_before, advice.regions_after, advice.macs_before, advice.macs_after) == (0, 1, 0, 64 * 64)
    assert 'the model does not declare how large "rows" may be: the region has 64 MACs, fewer than 1000' in advice.text
    apply(advice)


def test_two_targets() -> None:
    """The second target takes what the first one leaves, which is in the way of the first."""
    first, second = running(target_of("p", "Relu", "Neg")), running(target_of("q", "Erf", "Relu"))
    (advice,) = advice_on("%a = Relu(%x)\n%b = Erf(%a)\n%c = Neg(%b)", "c", first, second)
    assert (advice.target, advice.change) == ("p", 'p.accept("Erf")')
    assert (advice.regions_before, advice.regions_after) == (3, 1)
    apply(advice)


def test_a_node_of_the_first_target_between_two_regions_of_the_second() -> None:
    first, second = running(target_of("p", "Relu")), running(target_of("q", "Relu", "Neg", "Abs"))
    advice = advice_on("%a = Neg(%x)\n%b = Relu(%a)\n%c = Abs(%b)", "c", first, second)
    assert (advice[0].kind, advice[0].target, advice[0].change) == ("place", "q", 'place={"b": "q"}')
    assert (advice[0].regions_before, advice[0].regions_after) == (3, 1)
    for each in advice:
        apply(each)


def test_what_a_code_generator_has_declined_counts_as_declined() -> None:
    npu = running(target_of("npu", "Relu", "Neg", "Abs"), most=2)
    body = "%a = Abs(%x)\n%b = Neg(%a)\n%c = Relu(%b)\n%d = Erf(%c)\n%e = Abs(%d)\n%f = Tanh(%e)\n%g = Relu(%f)"
    report = tinycomp.compile(graph_of(body, "g"), npu).report()
    assert len(report.regions) == 2
    assert [(a.change, a.regions_before, a.regions_after) for a in report.advice()] == [('npu.accept("Tanh")', 2, 1)]


def test_a_graph_that_is_not_simplified() -> None:
    body = "%a = Relu(%x)\n%b = Softplus(%a)\n%c = Neg(%b)"
    npu = running(target_of("npu", "Relu", "Neg", "Exp", "Add", "Log", "CastLike"))
    advice = advice_on(body, "c", npu, optimize=False)
    assert advice[0].apply()["optimize"] is False
    for each in advice:
        apply(each)


def test_targets_with_costs() -> None:
    targets = [running(target_of(name, "Relu", "Neg", "Abs", cost=Cost(roofline(1e15, 1e15)))) for name in "pq"]
    advice = advice_on("%a = Relu(%x)\n%b = Erf(%a)\n%c = Neg(%b)", "c", *targets)
    assert [(a.change, a.regions_before, a.regions_after) for a in advice] == [('p.accept("Erf")', 2, 1)]
    apply(advice[0])


def test_bodies_have_borders_of_their_own() -> None:
    graph = conditional()
    for body in next(node for node in graph.nodes if node.op == "If").bodies.values():
        for op in ("Erf", "Relu"):
            body.insert(op, body.outputs[0]).sources = (f"{body.name}/{op}",)
    report = tinycomp.compile(graph, plain()).report()
    (advice,) = report.advice()
    assert (advice.change, advice.regions_before, advice.regions_after) == ('npu.accept("Erf")', 4, 2)
    apply(advice)


def test_the_model_and_the_targets_stay_as_they_are() -> None:
    npu, graph = plain(), graph_of("%a = Relu(%x)\n%b = Erf(%a)\n%c = Neg(%b)", "c")
    text, rules = str(graph), dict(npu.rules)
    (advice,) = tinycomp.compile(graph, npu).report().advice()
    apply(advice)
    assert (str(graph), npu.rules) == (text, rules)


def test_a_change_of_the_model_after_compiling_does_not_matter() -> None:
    graph = graph_of("%a = Relu(%x)\n%b = Erf(%a)\n%c = Neg(%b)", "c")
    report = tinycomp.compile(graph, plain()).report()
    graph.insert("Erf", graph.outputs[0])
    (advice,) = report.advice()
    assert advice.nodes == ("b",)


@pytest.mark.parametrize(
    ("limit", "cut"), [({"trials": 1}, "1 trials are the limit"), ({"seconds": 0.0}, "0 seconds are over")]
)
def test_a_search_that_is_cut_says_so(limit: dict[str, float], cut: str) -> None:
    body = "%a = Relu(%x)\n%b = Erf(%a)\n%c = Neg(%b)\n%d = Tanh(%c)\n%e = Abs(%d)"
    advice = tinycomp.compile(graph_of(body, "e"), plain()).report().advice(**limit)
    assert advice.cut == cut
    assert len(advice) == advice.trials == limit.get("trials", 0)
    assert f"The search ended early: {cut}." in str(advice)


def test_the_text_fits_into_80_columns_and_the_json_says_the_same() -> None:
    body = "%a = Relu(%x)\n%b = Erf(%a)\n%c = Neg(%b)\n%d = Tanh(%c)\n%d2 = Sinh(%d)\n%e = Abs(%d2)"
    advice = advice_on(body, "e", plain())
    text = str(advice)
    assert max(map(len, text.splitlines())) <= 80
    assert text.splitlines()[:5] == [
        f"2 change(s) gain regions or work; {advice.trials} trial(s).",
        "",
        "1. rule: b is in the way: npu has no rule for Erf.",
        '   npu.accept("Erf")',
        "   regions 3 -> 2, MACs on npu 0 -> 0",
    ]
    data = json.loads(json.dumps(advice.to_dict()))
    assert data["advice"][0] == {
        "kind": "rule",
        "target": "npu",
        "nodes": ["b"],
        "text": "b is in the way: npu has no rule for Erf.",
        "change": 'npu.accept("Erf")',
        "regions_before": 3,
        "regions_after": 2,
        "macs_before": 0,
        "macs_after": 0,
    }
    assert (data["trials"], data["cut"]) == (advice.trials, "")


def test_no_advice_is_said_in_words() -> None:
    assert str(advice_on("%a = Relu(%x)", "a", plain())) == (
        "No advice after 0 trial(s): no change that was tried gains a region or work."
    )


def test_a_loaded_module_has_no_model_to_try_changes_on(tmp_path) -> None:
    npu = plain()
    module = tinycomp.compile(graph_of("%a = Relu(%x)\n%b = Erf(%a)\n%c = Neg(%b)", "c"), npu)
    assert "adviser" not in module.report().to_dict()
    module.save(tmp_path / "m.tcm")
    with pytest.raises(ModelError, match="there is no model to try changes on") as error:
        tinycomp.load(tmp_path / "m.tcm", targets=[npu]).report().advice()
    assert error.value.hint == "Compile the model again, and ask the report of that module."


def test_a_model_with_large_weights_is_not_kept_and_can_be_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tinycomp.driver.models._MOST_KEPT", -1)
    graph = graph_of("%a = Relu(%x)\n%b = Erf(%a)\n%c = Neg(%b)", "c")
    report = tinycomp.compile(graph, plain()).report()
    with pytest.raises(ModelError, match="the module has not kept the model, because its weights are large") as error:
        report.advice()
    assert error.value.hint == "Write report.advice(model), or compile the model from its file."
    (advice,) = report.advice(graph)
    apply(advice)


def test_weights_in_a_file_do_not_count(tmp_path) -> None:
    large = np.zeros((2200, 2200), np.float32)
    graph = Graph(opsets={"": 18}, infer=infer_node_types)
    x = graph.add_input("x", TensorType("float32", (1, 2200)))
    graph.set_outputs([graph.add("MatMul", [x, graph.add_const(large)]).output], ["y"])
    onnx.save(tinycomp.to_onnx(graph), tmp_path / "large.onnx")
    npu = running(target_of("npu", "MatMul"))
    assert not tinycomp.compile(tmp_path / "large.onnx", npu).report().advice()
    with pytest.raises(ModelError, match="has not kept"):
        tinycomp.compile(graph, npu).report().advice()


def test_other_passes_leave_nothing_to_try() -> None:
    report = tinycomp.compile(graph_of("%a = Relu(%x)", "a"), "c", passes="simplify").report()
    with pytest.raises(ModelError, match="compiled with the default passes"):
        report.advice()
