"""Several runs of a module at once: futures, and results of a stream of requests in order.

A run keeps its thread, so as many threads run requests as may be under way. Who asks for more is made to wait: a
thread until there is room for its request, a coroutine when it awaits the future.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

from tinycomp.arguments import checked
from tinycomp.errors import ExecutionError
from tinycomp.memory.budget import Cancellation, end_with

Results = dict[str, Any]
RunRequest = Callable[[Mapping[str, Any]], Results]


class RunFuture(Future[Results]):
    """The results of a run that is under way: a ``concurrent.futures.Future`` that may also be awaited.

    Attributes:
        cancellation: Ends the run.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cancellation = Cancellation()

    def cancel(self) -> bool:
        """Cancel a run that has not begun; have one that has end soon, where a timeout would end it."""
        if super().cancel():
            return True
        self.cancellation.ask()
        return False

    def __await__(self) -> Generator[Any, None, Results]:
        return asyncio.wrap_future(self).__await__()


class Requests:
    """Runs requests in threads of their own, so many at a time.

    Args:
        limit: The most requests that are under way at once.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.process = os.getpid()
        self._threads = ThreadPoolExecutor(limit, thread_name_prefix="tinycomp, request")
        self._room = threading.Semaphore(limit)

    def begin(self, run: Callable[[], Results]) -> RunFuture:
        """Return the future of a run; waits for room first, except on the thread of a running event loop."""
        future = RunFuture()
        waits = not _in_event_loop()
        if waits:
            self._room.acquire()
        try:
            self._threads.submit(self._fulfil, future, run, waits)
        except BaseException:
            if waits:
                self._room.release()
            raise
        return future

    def _fulfil(self, future: RunFuture, run: Callable[[], Results], counted: bool) -> None:
        try:
            if future.set_running_or_notify_cancel():
                end_with(future.cancellation)
                try:
                    results = run()
                except Exception as error:
                    future.set_exception(error)
                except BaseException as error:  # it would end the event loop of who awaits it
                    future.set_exception(_exit(error))
                else:
                    future.set_result(results)
        finally:
            if counted:
                self._room.release()

    def close(self, *, wait: bool) -> None:
        """Take no more requests; those under way are finished, before this returns if ``wait``."""
        self._threads.shutdown(wait=wait)


def _exit(error: BaseException) -> ExecutionError:
    """Return the error of a run that wanted to end the program, which code of a region may not."""
    made = ExecutionError(f"{type(error).__name__}: {error}", where="a run", hint="Let the code raise another error.")
    made.__cause__ = error
    return made


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def pipelined(run: RunRequest, requests: Iterable[Mapping[str, Any]], limit: int) -> Iterator[Results]:
    """Yield the results of requests in their order, with up to ``limit`` of them under way.

    The next request is asked for when there is room for it. An error ends the stream where its result would stand.
    """
    pool = Requests(limit)
    under_way: deque[RunFuture] = deque()
    try:
        for feeds in requests:
            if len(under_way) == limit:
                under_way[0].result()  # while it waits, the run is one that is left if the caller is interrupted
                yield under_way.popleft().result()
            under_way.append(pool.begin(lambda feeds=feeds: run(feeds)))  # type: ignore[misc]
        while under_way:
            under_way[0].result()
            yield under_way.popleft().result()
    finally:
        for future in under_way:
            future.cancel()
        pool.close(wait=True)


class Running(Protocol):
    """What runs requests, as a :class:`tinycomp.Module` does."""

    in_flight: int

    def run(self, feeds: Mapping[str, Any]) -> Results:
        """Return the results by name."""


@checked(least={"in_flight": 1})
def pipeline_requests(
    module: Running, requests: Iterable[Mapping[str, Any]], *, in_flight: int | None = None
) -> Iterator[Results]:
    """Yield the results of a stream of requests in order, while up to ``in_flight`` of them are under way.

    While one request is on a device, the next one may be on another, or on the host. The stream is read no further
    than there is room for.

    Args:
        module: A :class:`tinycomp.Module`.
        requests: Inputs by name, one after the other.
        in_flight: The most requests under way at once; by default :attr:`tinycomp.Module.in_flight`.

    Yields:
        Results by name, as :meth:`tinycomp.Module.run` returns them.

    Raises:
        OptionError: If ``in_flight`` is not a number from 1 on.
        DeviceFault: Where a request fails, in the place of its results; so are the other errors of a run.

    Example:
        >>> import tinycomp
        >>> from tinycomp.data import digits, digits_model
        >>> module = tinycomp.compile(digits_model())
        >>> name, images = module.inputs[0].name, digits()[0]
        >>> results = tinycomp.pipeline_requests(module, ({name: images[i : i + 2]} for i in range(3)))
        >>> [next(iter(result.values())).shape for result in results]
        [(2, 10), (2, 10), (2, 10)]
    """
    return pipelined(module.run, requests, module.in_flight if in_flight is None else in_flight)
