"""Runs that nobody waits for any more end, wherever they are."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Any

import numpy as np
import onnx
import pytest

import tinycomp
from tests.runtime.device.units import Listening, chain, data, unit
from tinycomp.errors import ExecutionError
from tinycomp.memory.budget import Cancellation, limited
from tinycomp.target_api import Activity

PATIENCE = 30.0
X = data()


def loop(body: str) -> bytes:
    """A loop that does not end."""
    return onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 17]>
        g (float[4,8] x0) => (float[4,8] y) {{ go = Constant<value: tensor = bool {{1}}>() y = Loop (, go, x0) <body =
        b (int64 i, bool g, float[4,8] v) => (bool h, float[4,8] w) {{ h = Identity(g) {body} }}> }}
    """).SerializeToString()


def products(count: int) -> bytes:
    """One region whose calls take long together, and each a while."""
    lines = "".join(f"v{i + 1} = MatMul(v{i}, v0)\n" for i in range(count))
    return onnx.parser.parse_model(f"""<ir_version: 10, opset_import: ["" : 17]>
        g (float[n, n] v0) => (float[n, n] v{count}) {{ {lines} }}
    """).SerializeToString()


class Hanging(Listening):
    """A device whose commands end when they are let."""

    go_on = threading.Event()

    def wait(self, event: Any, timeout: float | None = None) -> Sequence[Activity]:
        self.go_on.wait(PATIENCE)
        return super().wait(event, timeout)


def hanging() -> tinycomp.Module:
    target = unit("npu", "Neg")
    target.device(lambda index: Hanging(f"npu:{index}"))
    Hanging.go_on.clear()
    return tinycomp.compile(chain("Neg"), target)


LONG: dict[str, Callable[[], tuple[tinycomp.Module, dict[str, Any]]]] = {
    "a loop in C": lambda: (tinycomp.compile(loop("w = Neg(v)"), threads=1), {"x0": X}),
    "a loop on the host": lambda: (tinycomp.compile(loop("w = Neg(v)"), "host"), {"x0": X}),
    "calls in C": lambda: (tinycomp.compile(products(400), threads=1), {"v0": np.eye(1024, dtype=np.float32)}),
    "calls in C on threads": lambda: (tinycomp.compile(products(400), threads=2), {"v0": np.eye(1024, dtype="f")}),
    "a device": lambda: (hanging(), {"x0": X}),
}


@pytest.fixture(scope="module", params=LONG)
def long(request: pytest.FixtureRequest) -> Iterator[tuple[tinycomp.Module, dict[str, Any]]]:
    module, feeds = LONG[request.param]()
    with module:
        yield module, feeds
        Hanging.go_on.set()


@pytest.mark.parametrize("timeout", [None, 1000.0])
def test_a_run_under_way_ends_when_it_is_cancelled(long: Any, timeout: float | None) -> None:
    module, feeds = long
    future = module.run_async(feeds, timeout=timeout)
    while not future.running():
        time.sleep(0.001)
    time.sleep(0.01)
    assert not future.cancel()
    assert isinstance(error := future.exception(PATIENCE), ExecutionError)
    assert "the run was cancelled" in str(error)


def test_a_task_that_is_cancelled_or_late_cancels_its_run(long: Any) -> None:
    module, feeds = long

    async def ask() -> None:
        for _ in range(module.in_flight + 1):  # each makes room for the next
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(module.run_async(feeds), 0.02)

    asyncio.run(asyncio.wait_for(ask(), PATIENCE))


def test_a_run_that_waits_is_cancelled_before_it_begins() -> None:
    with hanging() as module:
        futures = [module.run_async({"x0": X}) for _ in range(module.in_flight)]
        waiting: list[Any] = []

        async def ask() -> None:
            waiting.append(module.run_async({"x0": X}))

        asyncio.run(ask())
        assert waiting[0].cancel()
        Hanging.go_on.set()
        for future in futures:
            np.testing.assert_array_equal(future.result(PATIENCE)["y"], -X)
        with pytest.raises(CancelledError):
            waiting[0].result(PATIENCE)
        assert not futures[0].cancel()  # which has ended
        np.testing.assert_array_equal(futures[0].result()["y"], -X)


def test_a_stream_that_is_left_ends_its_runs() -> None:
    module = tinycomp.compile(loop("w = Neg(v)"), threads=1)
    started = threading.Event()

    def requests() -> Iterator[dict[str, Any]]:
        yield {"x0": X}
        started.set()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        next(tinycomp.pipeline_requests(module, requests()))
    assert started.is_set()


def test_what_has_been_cancelled_does_not_begin() -> None:
    cancellation = Cancellation()
    cancellation.ask()
    for target in ("c", "host", unit("npu", "Neg")):
        module = tinycomp.compile(chain("Neg"), target)
        with limited(cancellation=cancellation), pytest.raises(ExecutionError, match="the run was cancelled"):
            module.run({"x0": X})
        np.testing.assert_array_equal(module.run({"x0": X})["y"], -X)
