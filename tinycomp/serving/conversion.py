"""Bodies become arrays, and arrays bodies: small ones at once, large ones in processes of their own.

To parse JSON holds the interpreter's lock until it is done: in a thread, too, it would keep everyone else from an
answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import anyio

from tinycomp.memory.system import usable_processors
from tinycomp.runtime.child import Child, EndedError
from tinycomp.serving.protocol import RequestError

LARGE = 1 << 17
"""Bytes of JSON or of texts from which on another process has them: about a millisecond of work."""
_MOST_PROCESSES = 4
_Result = TypeVar("_Result")


class Conversions:
    """Calls about bodies, with a process for each processor, up to four, which start when they are first needed."""

    def __init__(self) -> None:
        self._free: asyncio.LifoQueue[Child] = asyncio.LifoQueue()
        self._all = [Child() for _ in range(min(_MOST_PROCESSES, usable_processors()))]
        for child in self._all:
            self._free.put_nowait(child)

    async def call(self, size: int, deadline: float, function: Callable[..., _Result], *arguments: Any) -> _Result:
        """Return what a function of a module returns.

        Args:
            size: Bytes that it goes through one by one.
            deadline: When to give up, on the clock of the event loop.
            function: The function.
            arguments: Its arguments.

        Raises:
            RequestError: If the time is up, or the process ends.
        """
        if size < LARGE:
            return function(*arguments)
        try:
            with anyio.fail_after(deadline - asyncio.get_running_loop().time()):
                child = await self._free.get()
                try:
                    return await asyncio.to_thread(child.call, function, *arguments)
                except asyncio.CancelledError:
                    child.end()
                    raise
                finally:
                    self._free.put_nowait(child)
        except TimeoutError as error:
            raise RequestError("the time is up", status=504, hint="Allow more with --timeout.") from error
        except EndedError as error:
            raise RequestError(
                "the process that converts large bodies ended", status=503, found=str(error),
                hint="Send tensors as bytes, or fewer rows.",
            ) from error  # fmt: skip

    async def close(self) -> None:
        """End the processes."""
        for child in self._all:
            await asyncio.to_thread(child.end)
