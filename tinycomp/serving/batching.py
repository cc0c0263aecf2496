"""Requests that run together: those that wait while the model is busy, or for a short time, become one batch."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

import anyio
import numpy as np
from numpy.typing import NDArray

from tinycomp.analysis.independent_rows import batch_of
from tinycomp.errors import DeviceFault, FeedError
from tinycomp.ir.graph import Graph
from tinycomp.records import dataclass
from tinycomp.runtime.module import Module
from tinycomp.runtime.spec import TensorSpec
from tinycomp.serving.metrics import Observer
from tinycomp.serving.protocol import Arrays, RequestError

_SHORT = 0.01
"""Seconds of a request without a look at whether its client is still there."""
RUNS = 2
"""Runs at once of what is no module: while the answers of one are written, the next one computes, as for modules."""


class Runnable(Protocol):
    """What is served: a :class:`tinycomp.Module`, or what does the same."""

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        """What it takes."""

    @property
    def outputs(self) -> Sequence[TensorSpec]:
        """What it gives."""

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Values of inputs that may be left out."""

    def run_async(self, feeds: Mapping[str, Any], *, timeout: float | None = None) -> Future[dict[str, Any]]:
        """Begin a run."""

    def close(self) -> None:
        """Finish what is under way."""


def batch_size_of(specs: Sequence[TensorSpec], results: Sequence[TensorSpec]) -> str | None:
    """Return the name of the first dimension that all inputs and outputs share; None if they do not."""
    first = {spec.shape[0] if spec.shape else None for spec in (*specs, *results)}
    name = first.pop() if len(first) == 1 else None
    return name if isinstance(name, str) else None


def rows_are_independent(module: Module) -> bool:
    """Tell whether each row of the results is known to depend on the same row of the inputs alone."""
    graph: Graph = module.graph.clone()
    regions = [node for node in graph.nodes if node.is_region]
    for region in regions:
        graph.inline(region)
    return batch_of(graph) is not None


@dataclass(eq=False)
class _Pending:
    """A request that waits."""

    feeds: Arrays
    rows: int
    kind: tuple[Any, ...]
    arrived: float
    deadline: float
    answer: asyncio.Future[Arrays]


class Batcher:
    """Run the requests of one model.

    Args:
        model: What runs them.
        most_rows: Rows of a batch; 1 for no batches.
        delay: Seconds that a request waits for others while the model is free.
        most_waiting: Requests that may wait; more are turned away.
        observer: Is told what happens.
    """

    def __init__(self, model: Runnable, *, most_rows: int, delay: float, most_waiting: int, observer: Observer) -> None:
        self._model, self._observer = model, observer
        self._most_rows, self._delay, self._most_waiting = most_rows, delay, most_waiting
        self._waiting: deque[_Pending] = deque()
        self._arrived = asyncio.Event()
        self._room = asyncio.Semaphore(model.in_flight if isinstance(model, Module) else RUNS)
        self._runs: set[asyncio.Task[None]] = set()
        self._dispatcher: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to run what arrives."""
        self._dispatcher = asyncio.create_task(self._dispatch())

    async def stop(self) -> None:
        """Finish what is under way."""
        assert self._dispatcher is not None
        self._dispatcher.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._dispatcher
        await asyncio.gather(*self._runs)

    async def infer(
        self, feeds: Arrays, deadline: float, watch: Callable[[asyncio.Future[Arrays]], object] = lambda answer: None
    ) -> Arrays:
        """Return the results for inputs that fit the model; a run that nobody waits for any more is cancelled.

        Args:
            feeds: All inputs by name.
            deadline: When to give up, on the clock of the event loop.
            watch: Is given the answer of a request that takes long, and gives it an error once nobody wants it.

        Raises:
            RequestError: If too many requests wait, or the time is up.
            TinycompError: If the run fails.
        """
        if len(self._waiting) >= self._most_waiting:
            raise RequestError(
                "too many requests are waiting", status=429, found=str(len(self._waiting)), hint="Try again later."
            )
        loop = asyncio.get_running_loop()
        first = next(iter(feeds.values()), None)
        rows = len(first) if self._most_rows > 1 and first is not None else 1
        kind = tuple(array.shape[1:] for array in feeds.values()) if 0 < rows < self._most_rows else (object(),)
        pending = _Pending(feeds, rows, kind, loop.time(), deadline, loop.create_future())
        self._waiting.append(pending)
        self._arrived.set()
        watching = loop.call_later(_SHORT, watch, pending.answer)
        try:
            with anyio.fail_after(deadline - loop.time()):
                return await pending.answer
        except TimeoutError as error:
            raise RequestError("the time is up", status=504, hint="Allow more with --timeout.") from error
        finally:
            watching.cancel()
            with contextlib.suppress(ValueError):  # of what has run
                self._waiting.remove(pending)

    async def _dispatch(self) -> None:
        while True:
            await self._room.acquire()
            try:
                members = await self._next_batch()
            except BaseException:
                self._room.release()
                raise
            task = asyncio.create_task(self._run(members))
            self._runs.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._runs.discard(task)
        self._room.release()

    async def _next_batch(self) -> list[_Pending]:
        """Wait for a request, and for others that may run with it until its delay is over or the batch is full."""
        loop = asyncio.get_running_loop()
        while True:
            while self._waiting and self._waiting[0].answer.done():
                self._waiting.popleft()
            if not self._waiting:
                self._arrived.clear()
                await self._arrived.wait()
                continue
            first = self._waiting[0]
            left = first.arrived + self._delay - loop.time()
            members = self._members(first)
            if left <= 0 or self._most_rows == 1 or sum(each.rows for each in members) >= self._most_rows:
                break
            self._arrived.clear()
            with anyio.move_on_after(left):
                await self._arrived.wait()
        chosen = set(map(id, members))
        self._waiting = deque(each for each in self._waiting if id(each) not in chosen)
        now = loop.time()
        self._observer.batch(sum(each.rows for each in members), [now - each.arrived for each in members])
        return members

    def _members(self, first: _Pending) -> list[_Pending]:
        """Return the requests that may run with the first one, in their order, as far as there is room."""
        members, rows = list[_Pending](), 0
        for each in self._waiting:
            if each.kind != first.kind or each.answer.done():
                continue
            if members and rows + each.rows > self._most_rows:
                break
            members.append(each)
            rows += each.rows
        return members

    async def _run(self, members: Sequence[_Pending]) -> None:
        """Run a batch; if that fails, each request alone, so that none spoils the others."""
        try:
            results = await self._results(members)
        except asyncio.CancelledError:
            if not all(each.answer.done() for each in members):
                raise
            return  # all have gone before the run began
        except Exception as error:
            if len(members) == 1 or isinstance(error, DeviceFault):
                for each in members:
                    if not each.answer.done():
                        each.answer.set_exception(error)
                return
            for each in members:
                if not each.answer.done():
                    await self._run([each])
            return
        start = 0
        for each in members:
            if not each.answer.done():
                stop = start + each.rows
                alone = len(members) == 1
                each.answer.set_result(results if alone else {n: array[start:stop] for n, array in results.items()})
            start += each.rows

    async def _results(self, members: Sequence[_Pending]) -> dict[str, NDArray[Any]]:
        loop = asyncio.get_running_loop()
        left = max(each.deadline for each in members) - loop.time()
        feeds = members[0].feeds
        if len(members) > 1:
            feeds = {name: np.concatenate([each.feeds[name] for each in members]) for name in feeds}
        started = loop.time()
        timeout = None if math.isinf(left) else max(left, 1e-3)
        running = self._model.run_async(feeds, timeout=timeout)

        def cancel_if_unwanted(answer: asyncio.Future[Arrays]) -> None:
            if all(each.answer.done() for each in members):
                running.cancel()

        for each in members:
            each.answer.add_done_callback(cancel_if_unwanted)
        results = await asyncio.wrap_future(running)
        self._observer.run(loop.time() - started)
        rows = sum(each.rows for each in members)
        for name, array in results.items():
            if len(members) > 1 and len(array) != rows:
                raise FeedError(
                    "the output does not have one entry per row", where=f'output "{name}"', found=f"{len(array)}"
                )
        return results
