"""Devices that return anything, fail anywhere with anything, and are left at any time: every run ends, right or clear.

Rows share a module, so each also shows that what came before has left nothing behind.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import tinycomp
from tests.arrays import unaligned
from tests.runtime.device.units import chain, data
from tinycomp.errors import DeviceFault, ExecutionError, MemoryLimitError, TinycompError
from tinycomp.target_api import Activity, DeviceProgram, FaultPolicy, Target
from tinycomp.targets.device_sim import Behaviour, SimulatedDevice

PATIENCE = 20.0
X = data()
Y = -X


class Script:
    """What goes wrong next, and where."""

    def __init__(self) -> None:
        self.place, self.error = "", None
        self.returned: Callable[[np.ndarray], Any] = np.negative
        self.go_on = threading.Event()
        self.go_on.set()

    def at(self, place: str) -> None:
        if place == self.place and self.error is not None:
            error, self.error = self.error, None
            raise error


SCRIPT = Script()


class Scripted(SimulatedDevice):
    """A device that does what the script says."""

    def load(self, program: DeviceProgram) -> Any:
        SCRIPT.at("load")
        return super().load(program)

    def allocate(self, size: int, memory: Any) -> Any:
        SCRIPT.at("allocate")
        return super().allocate(size, memory)

    def free(self, handle: Any) -> None:
        SCRIPT.at("free")
        super().free(handle)

    def copy(self, source: Any, target: Any) -> Any:
        SCRIPT.at("copy in" if isinstance(source, np.ndarray) else "copy out")
        return super().copy(source, target)

    def submit(self, *arguments: Any) -> Any:
        SCRIPT.at("submit")
        return super().submit(*arguments)

    def wait(self, event: Any, timeout: float | None = None) -> Sequence[Activity]:
        SCRIPT.at(f"wait, {event.name}")
        if not SCRIPT.go_on.wait(timeout):
            raise TimeoutError("no answer")
        return super().wait(event, timeout)

    def close(self) -> None:
        try:
            SCRIPT.at("close")
        finally:
            super().close()


def code(x: np.ndarray) -> Any:
    SCRIPT.at("region")
    return SCRIPT.returned(x)


def opened(index: int) -> Scripted:
    SCRIPT.at("open")
    return Scripted(f"npu:{index}", Behaviour(memory=1 << 14))


def made(policy: FaultPolicy = FaultPolicy()) -> tinycomp.Module:  # noqa: B008  # it cannot be changed
    target = Target("npu")
    target.accept("Neg")
    target.device(opened)
    target.codegen(lambda region: DeviceProgram(code, policy))
    return tinycomp.compile(chain("Neg"), target)


def by_asyncio(module: tinycomp.Module) -> Any:
    async def ask() -> Any:
        return (await module.run_async({"x0": X}))["y"]

    return asyncio.run(asyncio.wait_for(ask(), PATIENCE))


FORMS: dict[str, Callable[[tinycomp.Module], Any]] = {
    "call": lambda module: module(X),
    "run": lambda module: module.run({"x0": X}, timeout=PATIENCE)["y"],
    "into": lambda module: module.run({"x0": X}, outputs={"y": np.empty_like(X)})["y"],
    "future": lambda module: module.run_async({"x0": X}).result(PATIENCE)["y"],
    "asyncio": by_asyncio,
    "stream": lambda module: next(tinycomp.pipeline_requests(module, [{"x0": X}]))["y"],
    "bound": lambda module: module.bind(X, np.empty_like(X))(),
}


def with_attributes(**attributes: Any) -> Any:
    return types.SimpleNamespace(**attributes)


def masked(x: np.ndarray) -> Any:
    return np.ma.masked_array(-x, x > 0)


RETURNED: dict[str, Callable[[np.ndarray], Any]] = {
    "an array": np.negative,
    "a tuple": lambda x: (-x,),
    "a list": lambda x: [-x],
    "Fortran's order": lambda x: np.asfortranarray(-x),
    "strides": lambda x: np.repeat(-x, 2, 1)[:, ::2],
    "negative strides": lambda x: (-x)[::-1].copy()[::-1],
    "read-only": lambda x: np.broadcast_to(-x, x.shape),
    "misaligned": lambda x: unaligned(-x),
    "a matrix": lambda x: (-x).view(np.matrix),
    "masked": masked,
    "masked nowhere": lambda x: np.ma.masked_array(-x),
    "a record array": lambda x: (-x).view(np.recarray),
    "its operand": lambda x: x,
    "one row": lambda x: -x[:1],
    "one column": lambda x: -x[:, :1],
    "a row too few": lambda x: -x[1:],
    "turned": lambda x: -x.T,
    "flat": lambda x: -x.ravel(),
    "a dimension more": lambda x: -x[None],
    "no dimensions": lambda x: np.float32(1),
    "empty": lambda x: x[:0],
    "float64": lambda x: -x.astype(np.float64),
    "float16": lambda x: -x.astype(np.float16),
    "int32": lambda x: -x.astype(np.int32),
    "uint32 of its bits": lambda x: (-x).view(np.uint32),
    "bool": lambda x: x > 0,
    "complex": lambda x: -x.astype(np.complex64),
    "objects": lambda x: -x.astype(object),
    "texts": lambda x: x.astype(str),
    "times": lambda x: x.astype("m8[s]"),
    "another byte order": lambda x: (-x).astype(">f4"),
    "fields": lambda x: np.zeros(x.shape, [("a", "f4")]),
    "None": lambda x: None,
    "True": lambda x: True,
    "a number": lambda x: 1.0,
    "a text": lambda x: "text",
    "bytes": lambda x: (-x).tobytes(),
    "nested lists": lambda x: (-x).tolist(),
    "memory": lambda x: memoryview(-x),
    "a generator": lambda x: (each for each in [-x]),
    "a dict": lambda x: {"y": -x},
    "a set": lambda x: {1},
    "nothing": lambda x: (),
    "too many": lambda x: (-x, -x),
    "None in a list": lambda x: [None],
    "an error": lambda x: ValueError("returned"),
    "a class": lambda x: np.ndarray,
    "NotImplemented": lambda x: NotImplemented,
    "a function": lambda x: np.negative,
    "an interface": lambda x: with_attributes(__array_interface__=3),
}
RIGHT = [*RETURNED][:9] + ["masked nowhere", "a record array"]


@pytest.fixture(scope="module")
def module() -> Iterator[tinycomp.Module]:
    with made() as one:
        yield one


@pytest.fixture(autouse=True)
def reset() -> Iterator[None]:
    yield
    SCRIPT.__init__()  # type: ignore[misc]


@pytest.mark.parametrize("returned", RETURNED)
def test_results_are_taken_or_refused_alike_in_all_forms(module: tinycomp.Module, returned: str) -> None:
    for form, ask in FORMS.items():
        SCRIPT.returned = RETURNED[returned]
        if returned in RIGHT:
            np.testing.assert_array_equal(ask(module), Y, err_msg=form)
        elif returned == "its operand":
            found = ask(module)
            np.testing.assert_array_equal(found, X, err_msg=form)
            assert not np.shares_memory(found, X), form
        else:
            with pytest.raises(DeviceFault, match=r"npu:0, region .*wrong results; expected float32\[4, 8\]; found"):
                ask(module)
        SCRIPT.returned = np.negative
        np.testing.assert_array_equal(module(X), Y, err_msg=form)


def outcome(ask: Callable[[tinycomp.Module], Any], module: tinycomp.Module) -> Any:
    try:
        return ask(module)
    except BaseException as error:
        return error


class OwnExit(BaseException):
    """What no library knows."""


class WordlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


ERRORS: dict[str, Callable[[], BaseException]] = {
    "RuntimeError": lambda: RuntimeError("broken"),
    "OSError": lambda: OSError(5, "input/output"),
    "MemoryError": MemoryError,
    "MemoryLimitError": lambda: MemoryLimitError("no room", where="npu"),
    "DeviceFault": lambda: DeviceFault("a parity error"),
    "TimeoutError": lambda: TimeoutError("late"),
    "StopIteration": StopIteration,
    "AssertionError": AssertionError,
    "RecursionError": RecursionError,
    "WordlessError": WordlessError,
    "CancelledError": asyncio.CancelledError,
    "GeneratorExit": GeneratorExit,
    "KeyboardInterrupt": KeyboardInterrupt,
    "SystemExit": lambda: SystemExit(3),
    "OwnExit": OwnExit,
}
PLACES = [
    "open", "load", "allocate", "copy in", "submit", "region", "wait, copy in", "wait, run", "wait, copy out",
    "copy out",
]  # fmt: skip
POLICIES = {
    "raised": FaultPolicy(), "tried again": FaultPolicy(retries=1), "on the host": FaultPolicy(fallback=True),
}  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("place", PLACES)
def test_a_failure_ends_its_run_alone(place: str, policy: str) -> None:
    ends = place not in ("open", "load", "allocate")
    one = made(POLICIES[policy])
    for (kind, error), (form, ask) in zip(ERRORS.items(), itertools.cycle(FORMS.items()), strict=False):
        if not ends:  # which happens once in the life of a module
            one.close()
            one = made(POLICIES[policy])
        raised = error()
        SCRIPT.place, SCRIPT.error = place, raised
        what = f"{kind} at {place}, {policy}, {form}"
        found = outcome(ask, one)
        if isinstance(found, TinycompError):
            assert str(found).strip(), what
            assert policy == "raised" or not ends or not isinstance(raised, Exception), what
        elif isinstance(found, BaseException):
            assert found is raised, what
            assert not isinstance(raised, Exception), what
        else:
            np.testing.assert_array_equal(found, Y, err_msg=what)
            assert policy != "raised", what
        assert SCRIPT.error is None, what
        np.testing.assert_array_equal(one.run_async({"x0": X}).result(PATIENCE)["y"], Y, err_msg=what)
    one.close()


@pytest.mark.parametrize("place", ["free", "close"])
def test_a_failure_in_the_end_leaves_no_thread_behind(place: str) -> None:
    for kind, error in ERRORS.items():
        before = {*threading.enumerate()}
        one = made()
        one(X)
        threads = {*threading.enumerate()} - before
        SCRIPT.place, SCRIPT.error = place, error()
        found = outcome(tinycomp.Module.close, one)
        assert isinstance(found, DeviceFault) if place == "close" else found is None or not isinstance(found, Exception)
        assert SCRIPT.error is None, kind
        one.close()
        for each in threads:
            each.join(PATIENCE)
            assert not each.is_alive(), kind
        with pytest.raises(DeviceFault, match="closed"):
            one(X)


@pytest.mark.parametrize("form", FORMS)
def test_a_run_on_a_device_that_does_not_answer_is_left(module: tinycomp.Module, form: str) -> None:
    """Ctrl-C and timeouts end the wait of who has asked; others wait their turn."""
    module(X)
    SCRIPT.go_on.clear()
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    with pytest.raises((KeyboardInterrupt, asyncio.CancelledError)):
        FORMS[form](module)
    timer.join()
    with pytest.raises(ExecutionError, match="the time is up"):
        module.run({"x0": X}, timeout=0.02)
    waiting = module.run_async({"x0": X})
    SCRIPT.go_on.set()
    np.testing.assert_array_equal(waiting.result(PATIENCE)["y"], Y)
    np.testing.assert_array_equal(FORMS[form](module), Y)


def test_a_module_that_is_closed_during_runs_finishes_them() -> None:
    for count in (1, 2):
        one = made()
        SCRIPT.go_on.clear()
        futures = [one.run_async({"x0": X}) for _ in range(count)]
        while not all(future.running() for future in futures):
            pass
        closing = threading.Thread(target=one.close)
        closing.start()
        SCRIPT.go_on.set()
        for future in futures:
            np.testing.assert_array_equal(future.result(PATIENCE)["y"], Y)
        closing.join(PATIENCE)
        assert not closing.is_alive()
