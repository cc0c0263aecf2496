"""Reports and profiles: totals that add up, reasons in order, times, and every form a report can take."""

from __future__ import annotations

import json

import numpy as np
import pytest
from onnx import helper

import tinycomp
from tests.host_only import DOMAIN, NAME, QUALIFIED, host_only
from tests.targets.c.harness import make_model
from tinycomp.data import digits, digits_model
from tinycomp.driver.pipeline import partitioning_passes
from tinycomp.errors import FallbackError
from tinycomp.runtime.report import Report
from tinycomp.targets.c import TARGET

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
W = np.ones((4, 5), np.float32)
NO_RULE = f"no rule for {QUALIFIED}"


@pytest.fixture(scope="module")
def module():
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
        helper.make_node("Relu", ["p"], ["r"], name="relu"),
        host_only("r", "m", name="half"),
        helper.make_node("MatMul", ["x", "v"], ["q"], name="fed"),
        helper.make_node("Add", ["m", "q"], ["y"], name="add"),
    ]
    return tinycomp.compile(make_model(nodes, {"x": X, "v": W}, {"w": W}, ["y"]))


def test_what_runs_where_and_why(module):
    report = module.report()
    assert report.targets == ("c",)
    assert [h.name for h in report.hosts] == ["half"]
    (host,) = report.why("half")
    assert (host.op, host.tier, host.sources) == (QUALIFIED, "numpy", ("half",))
    assert [str(r) for r in host.reasons] == [f"c: {NO_RULE}"]
    assert report.where("half") == "host"
    assert report.where("relu") == report.where("product")
    assert report.where("product") in {r.symbol for r in report.regions}
    assert report.where("nothing") is None
    assert report.why("relu") == []


def test_totals_add_up(module):
    report = module.report()
    assert report.totals["nodes"] == {"offloaded": 4, "host": 1, "share": 0.8}
    assert report.totals["macs"] == {"offloaded": 2 * 3 * 4 * 5, "host": 0, "share": 1.0}
    assert "seconds" not in report.totals
    assert sum(r.nodes for r in report.regions) == 4


def test_borders_are_counted_in_bytes():
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")]
    (region,) = tinycomp.compile(make_model(nodes, {"x": X}, {"w": W}, ["y"])).report().regions
    assert (region.bytes_in, region.bytes_out) == (X.nbytes, 3 * 5 * 4)


def test_every_form(module, tmp_path):
    report = module.report()
    assert Report.from_dict({k: v for k, v in report.to_dict().items() if k != "totals"}) == report
    decoded = json.loads(report.to_json())
    assert decoded["totals"] == report.totals
    assert decoded["hosts"][0]["reasons"][0]["text"] == NO_RULE
    text = str(report)
    assert text.startswith("g: ")
    for word in ("half", QUALIFIED, NO_RULE, "c.matmul", "c_0"):
        assert word in text
    report.save_html(tmp_path / "report.html")
    html = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert NO_RULE in html
    assert html.count("<script") == 2  # the data and the page's own


def test_names_cannot_break_the_page(tmp_path):
    evil = "</script><script>[b]x[/]"
    nodes = [host_only("x", "y", name=evil)]
    report = tinycomp.compile(make_model(nodes, {"x": X}, {}, ["y"])).report()
    assert report.hosts[0].name == evil
    assert evil in str(report)
    report.save_html(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert evil not in page
    assert page.count("<script") == page.count("</script>") == 2


def test_symbolic_sizes_are_mentioned():
    report = tinycomp.compile(digits_model()).report()
    assert report.notes == (
        "MACs and bytes count a dynamic dimension as its upper bound, or else as the least size that fits, mostly 1.",
    )
    bounded = tinycomp.compile(digits_model(), shapes={"image": (("batch", 1, 16), 1, 8, 8)}).report()
    assert bounded.notes == report.notes
    assert [row.macs for row in bounded.regions] == [16 * row.macs for row in report.regions]
    assert [row.bytes_in for row in bounded.regions] == [16 * row.bytes_in for row in report.regions]
    assert tinycomp.compile(digits_model(), shapes={"image": (1, 1, 8, 8)}).report().notes == ()


def test_nodes_in_branches_are_reported():
    branches = {}
    for name, op, domain in (("then_branch", "Relu", ""), ("else_branch", NAME, DOMAIN)):
        inner = [helper.make_node(op, ["x"], [f"{name}_t"], name=f"{name}_{op}", domain=domain)]
        result = helper.make_node("Neg", [f"{name}_t"], [f"{name}_y"], name=f"{name}_neg")
        info = helper.make_tensor_value_info(f"{name}_y", 1, (3, 4))
        branches[name] = helper.make_graph([*inner, result], name, [], [info])
    feeds = {"x": X, "c": np.array(True)}
    module = tinycomp.compile(
        make_model([helper.make_node("If", ["c"], ["y"], name="if", **branches)], feeds, {}, ["y"])
    )
    report = module.report()
    assert {"if", "else_branch_HostOnly"} <= {h.name for h in report.hosts}
    assert report.where("then_branch_Relu") in {r.symbol for r in report.regions}
    np.testing.assert_array_equal(module.run(feeds)["y"], -np.maximum(X, 0))
    np.testing.assert_array_equal(module.run({**feeds, "c": np.array(False)})["y"], -X / 2)


@pytest.mark.parametrize("form", [lambda x: x, lambda x: [x], lambda x: {"image": x}])
def test_profiles(form):
    module = tinycomp.compile(digits_model())
    profile = module.profile(form(digits()[0][:2]), runs=3)
    (step,) = profile.steps
    assert profile.runs == 3
    assert step.label == module.report().regions[0].symbol
    assert profile.seconds == pytest.approx(step.seconds)
    assert all(row.seconds >= 0 for row in profile.rows)
    assert (
        sum(row.macs for row in profile.rows)
        == 2 * tinycomp.compile(digits_model()).report().totals["macs"]["offloaded"]
    )
    assert sum(row.macs for row in profile.rows) == module.report().totals["macs"]["offloaded"]
    assert module.report().notes == ("For N = 2.",)
    assert module.report().regions[0].bytes_in == 2 * 8 * 8 * 4
    assert module.report().regions[0].seconds == step.seconds
    assert module.report().totals["seconds"]["share"] == 1.0
    assert "GFLOP/s" in str(profile)
    assert json.loads(json.dumps(profile.to_dict()))["runs"] == 3


def calling(*ops: str) -> tinycomp.Graph:
    """Return a graph that calls a function twice, once from inside another one."""
    body = [
        helper.make_node(op, [f"v{i}"], [f"v{i + 1}"], name=op.lower(), domain=DOMAIN if op == NAME else "")
        for i, op in enumerate(ops)
    ]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    inner = helper.make_function("local", "Inner", ["v0"], [f"v{len(ops)}"], body, opsets)
    call = helper.make_node("Inner", ["a"], ["b"], domain="local", name="inner")
    outer = helper.make_function("local", "Outer", ["a"], ["b"], [call], opsets)
    nodes = [
        helper.make_node("Outer", ["x"], ["m"], domain="local", name="first"),
        helper.make_node("Inner", ["m"], ["y"], domain="local", name="second"),
    ]
    model = make_model(nodes, {"x": X}, {}, ["y"])
    model.functions.extend([inner, outer])
    model.opset_import.append(opsets[1])
    return tinycomp.from_onnx(model)


def test_regions_in_functions_are_reported(tmp_path):
    passes = partitioning_passes([TARGET])  # without those that inline functions
    module = tinycomp.compile(calling("Relu", "Neg"), "c", passes=passes, strict=True)
    report = module.report()
    assert [(r.symbol, r.position, r.sources) for r in report.regions] == [
        ("c_1", (0, 0, 0, 0, 0), ("first/inner/relu", "first/inner/neg")),
        ("c_0", (1, 0, 0), ("second/relu", "second/neg")),
    ]
    assert report.hosts == ()
    assert report.totals["nodes"] == {"offloaded": 4, "host": 0, "share": 1.0}
    np.testing.assert_array_equal(module(X), np.zeros_like(X))
    module.profile(X, runs=2)
    assert all(row.seconds is not None for row in module.report().regions)
    module.save(tmp_path / "m.tcm")
    assert tinycomp.load(tmp_path / "m.tcm").report().totals["nodes"] == report.totals["nodes"]


def test_host_nodes_in_functions_are_reported_and_refused_by_strict():
    passes = partitioning_passes([TARGET])
    graph = calling("Relu", NAME)
    report = tinycomp.compile(graph, "c", passes=passes).report()
    assert [(h.name, h.op) for h in report.hosts] == [
        ("first/inner/hostonly", QUALIFIED),
        ("second/hostonly", QUALIFIED),
    ]
    assert [str(r) for r in report.why("second/hostonly")[0].reasons] == [f"c: {NO_RULE}"]
    with pytest.raises(FallbackError, match=r"2 node\(s\) would run on the host.*second/hostonly"):
        tinycomp.compile(graph, "c", passes=passes, strict=True)
