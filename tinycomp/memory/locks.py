"""Locks that are open in a forked child, whoever holds them in the parent, because those threads do not exist there."""

from __future__ import annotations

import threading
import weakref
from types import TracebackType

from tinycomp.memory.system import after_fork_in_child


class Lock:
    """A lock as ``threading.Lock``, for use in a ``with`` statement."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._lock.locked():  # not in a child that was forked meanwhile
            self._lock.release()


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


def _open_all() -> None:
    for lock in list(_locks):
        lock._lock = threading.Lock()


after_fork_in_child(_open_all)
