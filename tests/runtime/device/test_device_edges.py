"""What devices return that is no result, code that wants to end the program, and waits that have a bound."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tinycomp
from tests.runtime.device.units import Listening, chain, data, graph_of, unit
from tinycomp.errors import DeviceFault, ExecutionError, TimeLimitError
from tinycomp.runtime.device.instances import Instance
from tinycomp.target_api import Activity, DeviceProgram, FaultPolicy, Target

PATIENCE = 20.0
X = data()


def module_of(code: Callable[..., Any], device: type[Listening] = Listening, **options: Any) -> tinycomp.Module:
    """A module whose region runs ``code`` on a device."""
    target = Target("npu")
    target.accept("Neg")
    target.device(lambda index: device(f"npu:{index}"))
    target.codegen(lambda region: DeviceProgram(code))
    return tinycomp.compile(chain("Neg"), target, **options)


@pytest.mark.parametrize(
    ("returned", "found"),
    [
        (X[:1], "float32[1, 8]"),
        (X[:, :1], "float32[4, 1]"),
        (X[0], "float32[8]"),
        (X[None], "float32[1, 4, 8]"),
        (X.ravel(), "float32[32]"),
        (X[:, ::2], "float32[4, 4]"),
        (np.float32(1), "float32[]"),
        (X.astype(np.float64), "float64[4, 8]"),
        (X.astype(np.float16), "float16[4, 8]"),
        (X.astype(np.int32), "int32[4, 8]"),
        (X > 0, "bool[4, 8]"),
        (X.astype(">f4"), ">f4[4, 8]"),
        (X.astype(object), "object[4, 8]"),
        (X.astype(np.complex64), "complex64[4, 8]"),
        (X.astype(str), r"<U\d+\[4, 8]"),
        (None, "NoneType"),
        (1.0, "float"),
        ("text", "str"),
        (iter([X]), "list_iterator"),
        ({"y": X}, "dict"),
        (memoryview(X), "memoryview"),
        (X.tolist(), "list, list, list, list"),
        ([None], "NoneType"),
        ([], "none"),
        ((X, X), r"float32\[4, 8], float32\[4, 8]"),
    ],
)
def test_results_are_held_to_what_the_region_declares(returned: Any, found: str) -> None:
    found = found if "\\" in found else found.replace("[", r"\[")
    message = rf"wrong results; expected float32\[4, 8]; found {found}; nodes Neg0"
    with module_of(lambda x: returned) as module, pytest.raises(DeviceFault, match=message):
        module(X)


@pytest.mark.parametrize("returned", [X, [X], (X,), np.asfortranarray(X), X[::-1][::-1], X.view(np.matrix)])
def test_results_of_every_kind_of_memory_are_taken(returned: Any) -> None:
    with module_of(lambda x: returned) as module:
        np.testing.assert_array_equal(module(X), X)


def test_operands_on_a_device_cannot_be_written() -> None:
    with module_of(lambda x: np.negative(x, out=x)) as module, pytest.raises(DeviceFault, match="array is read-only"):
        module(X)


class WordlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("where", ["region", "wait", "submit", "asked later"])
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), WordlessError()])
def test_an_exit_ends_its_run_and_nothing_else(where: str, error: BaseException) -> None:
    left = [error]

    def fail(place: str) -> None:
        if place == where and left:
            raise left.pop()

    class Leaving(Listening):
        def wait(self, event: Any, timeout: float | None = None) -> Sequence[Activity]:
            fail("wait")
            return super().wait(event, timeout)

        def submit(self, *arguments: Any) -> Any:
            fail("submit")
            return super().submit(*arguments)

    def code(x: np.ndarray) -> np.ndarray:
        fail("region")
        fail("asked later")
        return -x

    with module_of(code, Leaving) as module:
        with pytest.raises((ExecutionError, type(error))):
            module.run_async({"x0": X}).result(PATIENCE) if where == "asked later" else module(X)
        np.testing.assert_array_equal(module.run_async({"x0": X}).result(PATIENCE)["y"], -X)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_an_exit_in_a_run_does_not_end_the_event_loop(error: BaseException) -> None:
    def leave(node: Any) -> None:
        raise error

    async def ask(module: tinycomp.Module) -> None:
        with pytest.raises(ExecutionError, match=type(error).__name__):
            await module.run_async({"x0": X})

    with tinycomp.compile(chain("Neg"), unit("npu", "Neg", before=leave, on_device=False)) as module:
        asyncio.run(ask(module))


@pytest.mark.parametrize("place", ["constant", "input", "output", "region"])
def test_a_device_that_hangs_holds_no_run_beyond_its_time_and_can_be_closed(place: str) -> None:
    go_on, copies = threading.Event(), {"constant": ["in"], "input": ["out"], "output": ["in"], "region": []}[place]

    class Hanging(Listening):
        hangs = False

        def wait(self, event: Any, timeout: float | None = None) -> Sequence[Activity]:
            hangs = self.hangs and (self.asked[-1] in copies or (place == "region" and "run" in self.asked))
            if hangs and not go_on.wait(timeout):
                raise TimeoutError("no answer")
            return super().wait(event, timeout)

    graph = graph_of()
    value = graph.add("Mul", [graph.inputs[0], graph.add_const(data(seed=3), "w")]).output
    graph.set_outputs([value if place != "output" else graph.add("Tanh", [value]).output], ["y"])
    target = unit("npu", "Mul", bind_constants=False)
    target.device(lambda index: Hanging(f"npu:{index}"))
    other = Hanging("other")
    other.behaviour = type(other.behaviour)(peers=False)
    given, result = other.put(X), other.empty(X.shape, X.dtype)
    feeds = {"x0": given if place == "input" else X}
    outputs = {"y": result} if place == "output" else None
    module = tinycomp.compile(graph, target)
    Hanging.hangs = True
    try:
        with pytest.raises(ExecutionError, match="the time is up"):
            module.run(feeds, outputs=outputs, timeout=0.1)
        closing = threading.Thread(target=module.close)
        closing.start()
        closing.join(PATIENCE)
        assert not closing.is_alive()
    finally:
        go_on.set()
    module.close()
    other.close()


@pytest.mark.parametrize("way", ["timeout", "policy", "cancelled", "plain", "buffer", "buffer, plain", "close"])
def test_a_device_that_does_not_return_from_its_wait_is_named_and_not_used(way: str, monkeypatch: Any) -> None:
    """Its wait looks at no time: who has one returns, and others are refused until it has."""
    monkeypatch.setattr("tinycomp.runtime.device.instances._LATE", 0.05)
    monkeypatch.setattr("tinycomp.runtime.device.instances._TURN", 0.05)
    go_on = threading.Event()

    class Deaf(Listening):
        def wait(self, event: Any, timeout: float | None = None) -> Sequence[Activity]:
            go_on.wait(PATIENCE)
            return super().wait(event)

    target = unit("npu", "Neg", faults=FaultPolicy(timeout=0.05 if way == "policy" else None))
    device = Deaf("npu:0")
    instance, module = Instance.of(device), tinycomp.compile(chain("Neg"), target, devices={"npu": [device]})
    deaf = "npu:0: the device does not return from its wait, whose time is up"
    try:
        if way in ("timeout", "close"):
            with pytest.raises(TimeLimitError, match="waiting for npu:0: the time is up"):
                module.run({"x0": X}, timeout=0.05)
        elif way == "cancelled":
            future = module.run_async({"x0": X})
            while "run" not in device.asked:
                time.sleep(0.001)
            assert not future.cancel()
            with pytest.raises(TimeLimitError, match="waiting for npu:0: the run was cancelled"):
                future.result(PATIENCE)
        else:
            buffer, seconds = device.empty((4,), np.float32), 0.05 if way == "buffer" else None
            with pytest.raises(DeviceFault, match=deaf):
                module(X) if way in ("policy", "plain") else buffer.numpy(timeout=seconds)
        with pytest.raises(DeviceFault, match=deaf):
            instance.close() if way == "close" else module(X)
    finally:
        go_on.set()
    if way == "close":
        return
    while True:
        try:
            np.testing.assert_array_equal(module(X), -X)
            break
        except DeviceFault:  # it is about to return
            time.sleep(0.001)
    instance.close()


@pytest.mark.parametrize("way", ["cancelled", "interrupted"])
def test_commands_of_a_run_that_was_left_hold_up_nobody(way: str, monkeypatch: Any) -> None:
    """The device says that its command has not ended, and would say so for ever."""
    monkeypatch.setattr("tinycomp.runtime.device.instances._TURN", 0.02)
    go_on = threading.Event()

    def code(x: np.ndarray) -> np.ndarray:
        go_on.wait(PATIENCE)
        return -x

    module = module_of(code)
    try:
        if way == "cancelled":
            future = module.run_async({"x0": X})
            time.sleep(0.05)
            future.cancel()
            with pytest.raises(TimeLimitError, match="waiting for npu:0: the run was cancelled"):
                future.result(PATIENCE)
        else:
            with monkeypatch.context() as patch:
                patch.setattr("tinycomp.runtime.device.request.heard", _interrupted)
                with pytest.raises(KeyboardInterrupt):
                    module(X)
        with pytest.raises(TimeLimitError, match="the time is up"):
            module.run({"x0": X}, timeout=0.1)
    finally:
        go_on.set()
    np.testing.assert_array_equal(module(X), -X)
    module.close()


def test_who_cancels_a_run_is_not_held_up_by_a_device_that_does_not_return() -> None:
    """Its ``submit`` must return, which nobody can make it do; whoever cancels may be an event loop."""
    begun, go_on = threading.Event(), threading.Event()

    class Stuck(Listening):
        def submit(self, *arguments: Any) -> Any:
            begun.set()
            go_on.wait(PATIENCE)
            return super().submit(*arguments)

    with module_of(lambda x: -x, Stuck) as module:
        future = module.run_async({"x0": X})
        begun.wait(PATIENCE)
        cancelling = threading.Thread(target=future.cancel)
        cancelling.start()
        cancelling.join(PATIENCE / 2)
        held_up = cancelling.is_alive()
        go_on.set()
        assert not held_up
        with pytest.raises(TimeLimitError, match="waiting for npu:0: the run was cancelled"):
            future.result(PATIENCE)


def _interrupted(*arguments: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize("time_is_up", [True, False])
def test_a_device_may_end_its_turn_but_not_at_once(time_is_up: bool, monkeypatch: Any) -> None:
    """An error of its own, such as that of a socket, is a fault; the end of a turn is none."""
    monkeypatch.setattr("tinycomp.runtime.device.instances._TURN", 0.02)
    turns = iter(range(3))

    class Slow(Listening):
        def wait(self, event: Any, timeout: float | None = None) -> Sequence[Activity]:
            if next(turns, None) is not None:
                time.sleep(timeout or 0 if time_is_up else 0)
                raise TimeoutError("the socket")
            return super().wait(event, timeout)

    with module_of(lambda x: -x, Slow) as module:
        if time_is_up:
            np.testing.assert_array_equal(module(X), -X)
        else:
            with pytest.raises(DeviceFault, match="has not ended in time; found the socket"):
                module(X)


def test_a_device_that_does_not_close_is_named(monkeypatch: Any) -> None:
    monkeypatch.setattr("tinycomp.runtime.device.instances._CLOSING", 0.05)
    go_on = threading.Event()

    class Open(Listening):
        def close(self) -> None:
            go_on.wait(PATIENCE)
            super().close()

    module = module_of(lambda x: -x, Open)
    module(X)
    try:
        with pytest.raises(DeviceFault, match="npu:0: the device does not return from its close, whose time is up"):
            module.close()
    finally:
        go_on.set()
