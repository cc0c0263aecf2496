"""What devices report shows in profiles and traces."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tinycomp
from tests.runtime.device.units import Listening, chain, data, diamond, mixed, unit
from tinycomp.data import digits, digits_model
from tinycomp.target_api import Activity
from tinycomp.targets.device_sim import simulated
from tinycomp.targets.npu_sim import TARGET


def test_every_command_has_a_row_and_every_device_a_track(tmp_path: Path) -> None:
    targets = [unit("npu", "Relu", "Neg", "Sub"), unit("dsp", "Mul")]
    with tinycomp.compile(mixed(), targets) as module:
        profile = module.profile(data((32, 32)), runs=3)
        rows = [(row.step, row.kernel, row.tier) for row in profile.rows]
        assert rows[:3] == [("npu_0", "copy in", "npu"), ("npu_0", "run", "npu"), ("npu_0", "copy out", "npu")]
        assert ("Tanh", "numpy") in [(kernel, tier) for _, kernel, tier in rows]
        assert profile.elapsed > 0
        assert {event.track for event in profile.timeline} == {"host", "npu:0", "dsp:0"}
        assert [event.start for event in profile.timeline] == sorted(event.start for event in profile.timeline)
        assert all(region.seconds for region in module.report().regions)
        assert "from begin to end" in str(profile)
        profile.save_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    assert set(names.values()) == {"host", "npu:0", "dsp:0"}
    run = next(e for e in events if e["ph"] == "X" and names[e["tid"]] == "dsp:0" and e["name"] == "run")
    assert run["args"] == {"nodes": ["b"], "step": "dsp_0", "bytes": 2 * 32 * 32 * 4}
    assert json.dumps(profile.to_dict())


def test_layers_that_a_device_reports_take_the_place_of_its_commands() -> None:
    with tinycomp.compile(digits_model(), simulated(TARGET), shapes={"image": (2, 1, 8, 8)}) as module:
        images = digits()[0][:2]
        expected = tinycomp.compile(digits_model(), TARGET, shapes={"image": (2, 1, 8, 8)})(images)
        np.testing.assert_array_equal(module(images), expected)
        profile = module.profile(images, runs=2)
        layers = [row for row in profile.rows if row.tier == "npu_sim"]
        assert {"conv", "Add", "MaxPool"} <= {row.kernel for row in layers}
        assert all(row.bytes and row.sources for row in layers if row.kernel == "conv")


def test_a_device_whose_reports_differ_from_run_to_run() -> None:
    class Moody(Listening):
        def wait(self, event: Any, timeout: float | None = None) -> Sequence[Activity]:
            done = super().wait(event, timeout)
            return [] if len(self.asked) % 2 else done

    target = unit("npu", "Neg")
    target.device(lambda index: Moody("npu:0"))
    with tinycomp.compile(chain("Neg"), target) as module:
        assert module.profile(data(), runs=4).rows


def test_a_plan_without_devices_has_no_timeline() -> None:
    profile = tinycomp.compile(diamond(), "c").profile(data(), runs=1)
    assert (profile.elapsed, profile.timeline) == (0.0, ())
