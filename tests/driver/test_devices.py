"""The choice of devices and policies: of a compilation, and of a saved module."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest

import tinycomp
from tests.runtime.device.units import Listening, chain, data, diamond, unit
from tinycomp.errors import ArtifactError, OptionError, TargetError
from tinycomp.runtime.archive import Archive
from tinycomp.target_api import Array, Blob, DeviceProgram, FaultPolicy, Node, Target
from tinycomp.targets.device_sim import SimulatedDevice


@pytest.mark.parametrize(
    ("devices", "names"),
    [
        (None, ["npu:0"]),
        (2, ["npu:0", "npu:1"]),
        ([3], ["npu:3"]),
        ({"npu": [2, 0]}, ["npu:2", "npu:0"]),
        (type("Whole", (int,), {})(1), ["npu:0"]),
    ],
)
def test_which_devices_are_used(devices: Any, names: list[str]) -> None:
    with tinycomp.compile(chain("Neg"), unit("npu", "Neg"), devices=devices) as module:
        assert module.devices == ()
        module(data())
        assert [device.name for device in module.devices] == names


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        (0, "devices of npu: not a choice of devices; expected a number of them from 1 on"),
        ([], "not a choice of devices"),
        ([1, 1], "not a choice of devices"),
        (-1, "not a choice of devices"),
        (1 << 31, "not a choice of devices"),
        ("two", "not a choice of devices"),
        ({"npu": True}, "not a choice of devices"),
        ({"nbu": 1}, 'there are devices for "nbu", which is not a target of this module with devices.*"npu"'),
    ],
)
def test_what_is_no_choice_of_devices_is_refused(devices: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        tinycomp.compile(chain("Neg"), unit("npu", "Neg"), devices=devices)


def test_it_must_be_clear_whose_devices_are_meant() -> None:
    with pytest.raises(
        OptionError, match=r"expected one target with devices, or a dict .* found 2 targets with devices"
    ):
        tinycomp.compile(diamond(), [unit("npu", "Neg"), unit("dsp", "Relu")], devices=2)
    with pytest.raises(OptionError, match="found 0 targets with devices"):
        tinycomp.compile(diamond(), "c", devices=2)


@pytest.mark.parametrize("faults", ["retry", {"npu": 3}, {1: FaultPolicy()}])
def test_what_is_no_policy_is_refused(faults: Any) -> None:
    with pytest.raises(OptionError, match="faults: not a policy for faults"):
        tinycomp.compile(chain("Neg"), unit("npu", "Neg"), faults=faults)


def stored() -> Target:
    """A target whose regions are blobs, for devices that run them."""
    target = Target("npu", version="1.0")
    target.accept("Neg", "Relu")
    target.device(lambda index: Listening(f"npu:{index}"))

    @target.codegen
    def build(region: Node) -> Blob:
        return Blob(",".join(node.op for node in region.body.nodes).encode())

    @target.loader
    def load(blob: Blob) -> DeviceProgram:
        names = blob.data.decode().split(",")

        def run(x: Array) -> Array:
            for name in names:
                x = -x if name == "Neg" else np.maximum(x, 0)
            return x

        return DeviceProgram(run)

    return target


@pytest.mark.parametrize("shape", [(4, 8), ("n", 8)])
def test_a_saved_module_binds_its_regions_again(shape: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYCOMP_CACHE", str(tmp_path))
    policy = FaultPolicy(retries=3, fallback=True, timeout=2.5)
    with tinycomp.compile(chain("Neg", "Relu", shape=shape), stored(), devices=[1, 4], faults=policy) as module:
        expected = module(data())
        saved = module.to_bytes()
    with tinycomp.load(saved, targets=[stored()]) as again:
        np.testing.assert_array_equal(again(data()), expected)
        assert [device.name for device in again.devices] == ["npu:1", "npu:4"]
        assert again.plan.steps[0].run.faults == policy
        assert again.report().copies == again.plan.copies
        assert again.to_bytes() == saved
    with tinycomp.load(saved, targets=[stored()], devices=1, faults={"npu": FaultPolicy()}) as other:
        np.testing.assert_array_equal(other(data()), expected)
        assert [device.name for device in other.devices] == ["npu:0"]
        assert other.plan.steps[0].run.faults == FaultPolicy()


def test_open_devices_are_remembered_by_their_number() -> None:
    target = unit("npu", "Neg")
    with SimulatedDevice("a") as first, SimulatedDevice("b") as second:
        saved = tinycomp.compile(chain("Neg"), target, devices=[first, second]).to_bytes()
    with tinycomp.load(saved, targets=[target]) as again:
        again(data())
        assert [device.name for device in again.devices] == ["npu:0", "npu:1"]


def test_a_loaded_region_falls_back_to_the_kernels_of_the_saved_graph() -> None:
    target = unit("npu", "Neg")
    with tinycomp.compile(chain("Neg"), target, faults=FaultPolicy(fallback=True)) as module:
        saved = module.to_bytes()

    def broken(node: Node) -> None:
        raise OSError("gone")

    with tinycomp.load(saved, targets=[unit("npu", "Neg", before=broken)]) as again:
        np.testing.assert_array_equal(again(data()), -data())
        assert again.report().devices[0].fallbacks == 1


def test_a_pickled_module_opens_devices_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tinycomp.driver.restore.find", lambda name: unit("npu", "Neg"))
    with tinycomp.compile(chain("Neg"), unit("npu", "Neg")) as module:
        module(data())
        with pickle.loads(pickle.dumps(module)) as again:
            np.testing.assert_array_equal(again(data()), -data())
            assert again.devices[0] is not module.devices[0]


def test_a_native_module_has_no_devices_to_choose() -> None:
    saved = tinycomp.compile(chain("Neg"), "c").to_bytes()
    with pytest.raises(OptionError, match="no region of the module runs on a device"):
        tinycomp.load(saved, devices=2)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("devices", {"npu": [0, 0]}),
        ("devices", {"npu": []}),
        ("devices", {"npu": 1 << 60}),
        ("devices", {"npu": [-1]}),
        ("devices", {"npu": [True]}),
        ("devices", 3),
        ("faults", {"*": {"retries": 1}}),
        ("faults", {"*": {"retries": 1.5, "fallback": False, "timeout": None}}),
        ("faults", {"*": {"retries": 1, "fallback": 1, "timeout": None}}),
        ("faults", {"*": {"retries": 1, "fallback": True, "timeout": -1}}),
        ("faults", []),
    ],
)
def test_what_a_damaged_file_says_of_devices_is_refused(field: str, value: Any) -> None:
    saved = tinycomp.compile(chain("Neg"), unit("npu", "Neg")).to_bytes()
    archive = Archive.from_bytes(saved)
    archive.manifest[field] = json.loads(json.dumps(value))
    with pytest.raises(
        ArtifactError, match=rf"saved module, {field}.*(is damaged|no devices of|not a policy).*expected"
    ):
        tinycomp.load(archive.to_bytes(), targets=[unit("npu", "Neg")])


def test_a_saved_module_without_its_target() -> None:
    saved = tinycomp.compile(chain("Neg"), unit("npu", "Neg")).to_bytes()
    with pytest.raises(TargetError, match="npu"):
        tinycomp.load(saved)
