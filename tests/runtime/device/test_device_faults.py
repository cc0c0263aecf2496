"""What becomes of a region whose device fails: raised, run again, or computed on the host, and never in silence."""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tinycomp
from tests.runtime.device.units import Listening, chain, data, diamond, graph_of, mixed, unit
from tinycomp.errors import DeviceFault, ExecutionError, OptionError, TargetError
from tinycomp.target_api import Activity, DeviceBuffer, DeviceProgram, FaultPolicy, Node, Target
from tinycomp.targets.device_sim import Behaviour


class Failing(Listening):
    """A device whose regions fail so many times first, each with what it has done spoilt."""

    def __init__(self, times: int, fault: Exception | None = None) -> None:
        super().__init__("npu:0")
        self.times = times
        self.fault = fault or DeviceFault("a parity error", command="layer 3")

    def submit(self, region: Any, operands: Sequence[DeviceBuffer], results: Sequence[DeviceBuffer]) -> Any:
        event = super().submit(region, operands, results)
        if self.times:
            self.times -= 1
            self.copy(np.full(results[0].shape, np.nan, results[0].dtype), results[0])
            event.ended.wait()
            event.fault = self.fault
        return event


def failing(times: int, *ops: str, fault: Exception | None = None, **options: Any) -> Target:
    target = unit("npu", *ops, **options)
    target.device(lambda index: Failing(times, fault))
    return target


def test_a_fault_is_raised_with_region_command_and_nodes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING", logger="tinycomp.device")
    with tinycomp.compile(chain("Neg", "Relu"), failing(1, "Neg", "Relu")) as module:
        with pytest.raises(DeviceFault) as caught:
            module(data())
        fault = caught.value
        assert (fault.region, fault.command, fault.sources) == ("npu_0", "layer 3", ("Neg0", "Relu1"))
        assert str(fault) == (
            "npu:0, region npu_0, command layer 3: a parity error; found nodes Neg0, Relu1. Choose what is done about"
            " faults with faults=FaultPolicy(retries=…, fallback=True)."
        )
        assert [record.levelname for record in caplog.records if record.name == "tinycomp.device.faults"] == ["ERROR"]
        assert isinstance(fault, ExecutionError)
        np.testing.assert_array_equal(module(data()), np.maximum(-data(), 0))
        assert module.report().devices[0].faults == 1


def test_a_fault_survives_pickling() -> None:
    fault = DeviceFault("no", command="x", region="r", sources=("a", "b"), where="here", hint="Do.")
    again = pickle.loads(pickle.dumps(fault))
    assert (str(again), again.command, again.region, again.sources) == (str(fault), "x", "r", ("a", "b"))


def test_a_region_is_run_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING", logger="tinycomp.device")
    target = failing(2, "Neg", "Relu", single=True)
    with tinycomp.compile(chain("Neg", "Relu"), target, faults=FaultPolicy(retries=2)) as module:
        np.testing.assert_array_equal(module(data()), np.maximum(-data(), 0))
        row = module.report().devices[0]
        assert (row.runs, row.faults, row.retries, row.fallbacks) == (2, 2, 2, 0)
    assert sum("the region is run again" in record.getMessage() for record in caplog.records) == 2


def test_a_region_runs_on_the_host_when_nothing_else_helps(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING", logger="tinycomp.device")
    target = failing(3, "Neg", "Relu", "Abs", single=True)
    policy = FaultPolicy(retries=1, fallback=True)
    with tinycomp.compile(chain("Relu", "Neg", "Abs"), target, faults=policy) as module:
        np.testing.assert_array_equal(module(data()), np.maximum(data(), 0))
        row = module.report().devices[0]
        assert (row.runs, row.faults, row.retries, row.fallbacks) == (2, 3, 2, 1)
        np.testing.assert_array_equal(module(data()), np.maximum(data(), 0))
        assert module.report().devices[0].fallbacks == 1
        assert "on numpy" in str(module.report())
    messages = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "the region runs on the numpy kernels instead" in messages[1]


@pytest.mark.parametrize("seed", range(4))
def test_faults_in_every_place_leave_results_as_they_are(seed: int) -> None:
    """Several retries, as what only a device has is copied to the host before a region can run there."""
    plain = [unit("npu", "Relu", "Neg", "Sub", on_device=False), unit("dsp", "Mul", on_device=False)]
    host = tinycomp.compile(mixed(), plain)
    behaviour = Behaviour(fault_rate=0.4, seed=seed, peers=seed % 2 == 0)
    targets = [unit("npu", "Relu", "Neg", "Sub", behaviour=behaviour), unit("dsp", "Mul", behaviour=behaviour)]
    policy = FaultPolicy(retries=3, fallback=True)
    logging.disable(logging.WARNING)
    try:
        with tinycomp.compile(mixed(), targets, faults=policy, devices={"npu": 2}) as module:
            for number in range(10):
                results, expected = (each(data((32, 32), number)) for each in (module, host))
                for result, right in zip(results, expected, strict=True):
                    np.testing.assert_array_equal(result, right)
            assert sum(row.fallbacks for row in module.report().devices)
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.parametrize("rate", [0.5, 1.0])
def test_constants_that_do_not_arrive(rate: float, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("WARNING", logger="tinycomp.device")
    graph = graph_of()
    graph.set_outputs([graph.add("Mul", [graph.inputs[0], graph.add_const(data(seed=3), "w")]).output], ["y"])
    target = unit("npu", "Mul", bind_constants=False, behaviour=Behaviour(fault_rate=rate))
    with tinycomp.compile(graph, target, faults=FaultPolicy(retries=2, fallback=True)) as module:
        for number in range(5):
            np.testing.assert_array_equal(module(data(seed=number)), data(seed=number) * data(seed=3))
        assert (module.report().devices[0].fallbacks == 5) is (rate == 1.0)
    assert any("a constant is missing there" in record.getMessage() for record in caplog.records) is (rate == 1.0)


def test_a_policy_is_for_regions_by_their_names() -> None:
    target = unit("npu", "Relu", "Neg", behaviour=Behaviour(fault_rate=1.0))
    faults = {"Relu": FaultPolicy(fallback=True)}
    with tinycomp.compile(diamond(), target, faults=faults) as module:
        with pytest.raises(DeviceFault) as caught:
            module(data())
        assert caught.value.sources == ("Neg",)
    with tinycomp.compile(diamond(), target, faults={"np?": FaultPolicy(fallback=True)}) as module:
        np.testing.assert_array_equal(module(data()), np.maximum(data(), 0) + data())
        assert module.report().devices[0].fallbacks == 2


def test_the_vendor_has_a_policy_of_its_own() -> None:
    target = failing(1, "Neg", faults=FaultPolicy(retries=1))
    with tinycomp.compile(chain("Neg"), target) as module:
        np.testing.assert_array_equal(module(data()), -data())
    with (
        tinycomp.compile(
            chain("Neg"), failing(1, "Neg", faults=FaultPolicy(retries=1)), faults=FaultPolicy()
        ) as module,
        pytest.raises(DeviceFault),
    ):
        module(data())


@pytest.mark.parametrize("fallback", [True, False])
def test_a_command_that_takes_too_long(fallback: bool) -> None:
    go_on = threading.Event()
    waiting = [True]

    def before(node: Node) -> None:
        if waiting:
            waiting.clear()
            go_on.wait()

    policy = FaultPolicy(timeout=0.05, fallback=fallback)
    with tinycomp.compile(chain("Neg"), unit("npu", "Neg", before=before), faults=policy) as module:
        try:
            if fallback:
                np.testing.assert_array_equal(module(data()), -data())
                assert module.report().devices[0].fallbacks == 1
            else:
                with pytest.raises(
                    DeviceFault, match="the command has not ended in time; found run runs for more than"
                ):
                    module(data())
        finally:
            go_on.set()
        module(data(seed=1))  # the late command and this one use the same memory, in order
        np.testing.assert_array_equal(module(data(seed=2)), -data(seed=2))


def test_the_time_of_a_run_ends_while_a_device_works() -> None:
    go_on = threading.Event()
    with tinycomp.compile(chain("Neg"), unit("npu", "Neg", before=lambda node: go_on.wait())) as module:
        try:
            with pytest.raises(ExecutionError, match="waiting for npu:0: the time is up"):
                module.run({"x0": data()}, timeout=0.05)
        finally:
            go_on.set()
        np.testing.assert_array_equal(module(data()), -data())


def test_mistakes_of_a_vendor_are_faults_and_stop_nothing_else() -> None:
    with tinycomp.compile(chain("Neg"), failing(1, "Neg", fault=ZeroDivisionError("no"))) as module:
        with pytest.raises(DeviceFault, match="ZeroDivisionError: no"):
            module(data())
        np.testing.assert_array_equal(module(data()), -data())

    class Nonsense(Listening):
        def wait(self, event: Any, timeout: float | None = None) -> Sequence[Activity]:
            super().wait(event, timeout)
            return 3  # type: ignore[return-value]

    target = unit("npu", "Neg")
    target.device(lambda index: Nonsense("npu:0"))
    with tinycomp.compile(chain("Neg"), target) as module, pytest.raises(DeviceFault, match="TypeError"):
        module(data())


def test_a_program_that_does_not_load() -> None:
    class Picky(Listening):
        def load(self, program: DeviceProgram) -> Any:
            raise ValueError("too large")

    target = unit("npu", "Neg")
    target.device(lambda index: Picky("npu:0"))
    module = tinycomp.compile(chain("Neg"), target)
    with pytest.raises(TargetError, match="npu:0, region npu_0: the device does not load the program: ValueError"):
        module(data())


def test_a_step_on_the_host_that_fails_ends_the_run() -> None:
    def broken(node: Node) -> None:
        raise ArithmeticError("host")

    targets = [unit("npu", "Relu"), unit("other", "Neg", before=broken, on_device=False)]
    with tinycomp.compile(diamond(), targets) as module:
        for _ in range(3):
            with pytest.raises(ExecutionError, match="ArithmeticError: host"):
                module(data())


def test_a_closed_device_is_refused() -> None:
    module = tinycomp.compile(chain("Neg"), unit("npu", "Neg"))
    module(data())
    module.close()
    with pytest.raises(DeviceFault, match="npu:0: the device has been closed"):
        module(data())


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"retries": -1}, "retries: .*; expected int, 0 or more; found -1"),
        ({"retries": True}, "retries: .*; expected int, 0 or more; found True"),
        ({"fallback": 1}, "fallback: .*; expected True or False; found 1"),
        ({"timeout": 0}, "timeout: not a limit; expected seconds"),
    ],
)
def test_a_policy_has_numbers_of_their_kinds(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        FaultPolicy(**fields)
