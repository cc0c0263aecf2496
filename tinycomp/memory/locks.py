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

    def acquire(self, timeout: float = -1) -> bool:
        """Take the lock, or return False if it is not free after so many seconds; -1 for no limit."""
        return self._lock.acquire(timeout=timeout)

    def release(self) -> None:
        """Open the lock, unless that has happened in a child that was forked meanwhile."""
        if self._lock.locked():
            self._lock.release()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


_locks: weakref.WeakSet[Lock] = weakref.WeakSet()


def _open_all() -> None:
    for lock in list(_locks):
        lock._lock = threading.Lock()


after_fork_in_child(_open_all)
