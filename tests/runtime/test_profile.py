"""Profiles of plans with bodies and with repeated names: every step has its own time, and the totals add up."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import tinycomp
from tests.host_only import QUALIFIED, host_only
from tests.targets.c.harness import make_model
from tinycomp.errors import OptionError, WriteError
from tinycomp.runtime.module import Module
from tinycomp.runtime.native.processor import available_isas
from tinycomp.runtime.profile import Profile, ProfileRow, StepTime
from tinycomp.runtime.report import Report
from tinycomp.target import Policy

X = np.linspace(-2, 2, 12, dtype=np.float32).reshape(3, 4)
W = np.ones((4, 4), np.float32)
TRIPS = 5


def loop_model() -> Module:
    """``x`` times ``w`` on c, then halved on the host, five times over."""
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["carried", "w"], ["p"], name="product"),
            host_only("p", "next", name="half"),
            helper.make_node("Identity", ["going"], ["still"], name="same"),
        ],
        "body",
        [
            helper.make_tensor_value_info("trip", TensorProto.INT64, ()),
            helper.make_tensor_value_info("going", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("carried", TensorProto.FLOAT, (3, 4)),
        ],
        [
            helper.make_tensor_value_info("still", TensorProto.BOOL, ()),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, (3, 4)),
        ],
    )
    loop = helper.make_node("Loop", ["trips", "", "x"], ["y"], name="loop", body=body)
    return tinycomp.compile(make_model([loop], {"x": X, "trips": np.array(TRIPS)}, {"w": W}, ["y"]))


@pytest.fixture(scope="module")
def module() -> Module:
    module = loop_model()
    module.profile({"x": X, "trips": np.array(TRIPS)}, runs=3)
    return module


def test_steps_in_bodies_have_times(module: Module):
    report = module.report()
    assert {h.name for h in report.hosts} == {"loop", "half"}
    (region,) = report.regions
    assert region.seconds is not None
    assert region.seconds > 0
    assert all(h.seconds is not None and h.seconds > 0 for h in report.hosts)
    assert 0 < report.totals["seconds"]["share"] < 1


def test_a_loop_counts_its_own_time_without_its_body(module: Module):
    profile = module.profile({"x": X, "trips": np.array(TRIPS)}, runs=3)
    times = profile.by_position()
    assert set(times) == {(0,), *((0, 0, i) for i in range(len(times) - 1))}
    seconds = module.report().totals["seconds"]
    assert profile.seconds == pytest.approx(seconds["offloaded"] + seconds["host"])


def test_calls_in_a_loop_count_every_trip(module: Module):
    rows = module.profile({"x": X, "trips": np.array(TRIPS)}, runs=3).rows
    assert sum(row.macs for row in rows) == TRIPS * 3 * 4 * 4


def test_a_branch_that_was_not_taken_took_no_time():
    branches = {}
    for name in ("then_branch", "else_branch"):
        product = helper.make_node("MatMul", ["x", f"{name}_w"], [f"{name}_y"], name=f"{name}_product")
        info = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, (3, 4))
        branches[name] = helper.make_graph([product], name, [], [info])
    choice = helper.make_node("If", ["c"], ["y"], name="if", **branches)
    feeds = {"x": X, "c": np.array(False)}
    weights = {"then_branch_w": 2 * W, "else_branch_w": 3 * W}
    policy = Policy(exclude=("If",))
    module = tinycomp.compile(make_model([choice], feeds, weights, ["y"]), policy=policy)
    profile = module.profile(feeds, runs=2)
    seconds = {r.sources: r.seconds for r in module.report().regions}
    assert seconds[("then_branch_product",)] == 0
    assert (seconds[("else_branch_product",)] or 0) > 0
    assert [row.sources for row in profile.rows if row.macs] == [("else_branch_product",)]


def test_nodes_of_equal_names_have_times_and_reasons_of_their_own():
    nodes = [
        host_only("x", "a", name="same"),
        helper.make_node("IsInf", ["a"], ["b"], name="same"),
    ]
    module = tinycomp.compile(make_model(nodes, {"x": X}, {}, ["b"]), target="host")
    profile = module.profile(X, runs=2)
    hosts = module.report().hosts
    assert [(h.name, h.op, h.position) for h in hosts] == [("same", QUALIFIED, (0,)), ("same#2", "IsInf", (1,))]
    assert [h.seconds for h in hosts] == [step.seconds for step in profile.steps]
    offloading = tinycomp.compile(make_model(nodes, {"x": X}, {}, ["b"])).report()
    for host in offloading.hosts:
        assert all(host.op in str(reason) for reason in host.reasons), host


def test_a_module_with_symbolic_sizes_reports_what_ran():
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
        host_only("p", "y", name="half"),
    ]
    model = make_model(nodes, {"x": X}, {"w": W}, ["y"])
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    module = tinycomp.compile(model)
    assert module.report().totals["macs"]["offloaded"] == 4 * 4
    module.profile(X, runs=2)
    report = module.report()
    assert "For n = 3." in report.notes
    assert report.totals["macs"]["offloaded"] == 3 * 4 * 4
    assert report.totals["seconds"]["share"] > 0
    assert Report.from_dict({k: v for k, v in report.to_dict().items() if k != "totals"}) == report


@pytest.fixture(scope="module")
def convolution() -> Module:
    """Two 3x3 convolutions with enough channels for Winograd, then what only the host computes."""
    rng = np.random.default_rng(0)
    weights = {f"w{i}": rng.standard_normal((32, 32, 3, 3)).astype(np.float32) for i in range(2)}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["a", "w1"], ["b"], name="second", pads=[1, 1, 1, 1]),
        host_only("b", "y", name="half"),
    ]
    return tinycomp.compile(make_model(nodes, {"x": IMAGE}, weights, ["y"]), threads=1)


IMAGE = np.ones((1, 32, 20, 20), np.float32)


def test_calls_show_rates_and_their_share_of_the_measured_peak(convolution: Module):
    profile = convolution.profile(IMAGE, runs=2)
    assert profile.machine.isa in available_isas()
    assert profile.machine.threads == 1
    calls = {row.sources: row for row in profile.rows if row.macs}
    assert {("first",), ("second",)} == calls.keys()
    for row in calls.values():
        assert row.flops == 2 * row.macs == 2 * 32 * 32 * 9 * 400
        assert row.bytes >= 2 * IMAGE.nbytes
        assert row.gflops == pytest.approx(row.flops / row.seconds / 1e9)
        assert row.gigabytes == pytest.approx(row.bytes / row.seconds / 1e9)
        assert row.share_of_peak == pytest.approx(row.flops_done / row.seconds / profile.machine.peak)
        assert (row.flops_done < row.flops) == row.algorithm.startswith("Winograd")


def test_steps_on_the_host_show_the_bytes_of_their_arrays(convolution: Module):
    (host,) = [row for row in convolution.profile(IMAGE, runs=3).rows if row.tier != "c"]
    assert (host.sources, host.bytes, host.flops) == (("half",), 2 * IMAGE.nbytes, 0)
    assert host.share_of_peak == 0


def test_the_json_form_holds_the_rates(convolution: Module):
    profile = convolution.profile(IMAGE, runs=2)
    data = json.loads(json.dumps(profile.to_dict()))
    assert data["machine"]["peak"] == profile.machine.peak
    assert [row["gflops"] for row in data["rows"]] == [row.gflops for row in profile.rows]
    assert [row["sources"] for row in data["rows"]] == [list(row.sources) for row in profile.rows]


def test_without_native_regions_there_is_no_peak():
    module = tinycomp.compile(make_model([helper.make_node("Relu", ["x"], ["y"])], {"x": X}, {}, ["y"]), target="host")
    profile = module.profile(X, runs=2)
    assert (profile.machine.isa, profile.machine.peak) == ("", 0)
    assert "GFLOP/s" not in str(profile)  # figures that nobody has have no column


def test_calls_of_one_kernel_for_the_same_nodes_are_one_line() -> None:
    strip = ProfileRow("c_0", "conv2d_f32", "c", ("conv",), 2e-3, macs=5, flops=10, bytes=4000, share_of_peak=0.5)
    last = dataclasses.replace(strip, seconds=1e-3, share_of_peak=0.2)
    other, nameless = dataclasses.replace(strip, sources=("other",)), dataclasses.replace(strip, sources=())
    rows = (strip, other, last, nameless, nameless)
    profile = Profile(rows, (StepTime("c_0", (0,), 9e-3),), 1)
    lines = [line.split("│")[1:-1] for line in str(profile).splitlines() if line.startswith("│")]
    cells = [[cell.strip() for cell in line] for line in lines]
    assert cells[0] == ["2 x conv2d_f32", "c_0", "conv", "3.000 ms", "33.3%", "0.0", "40%", "0.008", "0.0"]
    assert [line[0] for line in cells[1:]] == ["conv2d_f32"] * 3
    assert len(profile.rows) == 5, "the rows themselves stay apart"


def test_a_trace_holds_every_call_with_its_nodes_end_to_end(convolution: Module, tmp_path: Path):
    profile = convolution.profile(IMAGE, runs=2)
    profile.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    names = {e["args"]["name"] for e in events if e["ph"] == "M"}
    assert "tinycomp" in names
    spans = [e for e in events if e["ph"] == "X"]
    calls = [e for e in spans if "bytes" in e["args"]]
    assert [(e["name"], tuple(e["args"]["nodes"])) for e in calls] == [(r.kernel, r.sources) for r in profile.rows]
    ends = [e["ts"] + e["dur"] for e in calls]
    assert ends[-1] == pytest.approx(1e6 * sum(row.seconds for row in profile.rows))
    assert [e["ts"] for e in calls] == pytest.approx([0, *ends[:-1]])
    (region,) = [e for e in spans if "bytes" not in e["args"]]
    assert {"first", "second"} <= set(region["args"]["nodes"])
    assert (region["ts"], region["ts"] + region["dur"]) == pytest.approx((0, ends[-2]))


@pytest.mark.parametrize("runs", [0, -1, 1.5])
def test_a_profile_needs_runs(convolution: Module, runs: int):
    with pytest.raises(
        OptionError, match=f"runs: the option does not take this value; expected int, 1 or more; found {runs}"
    ):
        convolution.profile(IMAGE, runs=runs)


def test_a_trace_that_cannot_be_written_says_so(convolution: Module, tmp_path: Path):
    with pytest.raises(WriteError):
        convolution.profile(IMAGE, runs=1).save_trace(tmp_path / "missing" / "trace.json")
