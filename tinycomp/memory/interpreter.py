"""Settings of the interpreter that hold while a model is compiled: of this process, so that they are counted.

Python's search for cyclic garbage is put off while a graph grows or modules are imported. Both are large tangles of
references that stay alive. The collector walks them again and again as they grow, which finds nothing and costs a fifth
of the time to compile a large model, a twentieth of the time to import.

A thread that computes in Python keeps the interpreter for 5 ms after another asks for it, which is a hundred times what
a small model takes: that is what every run in another thread would wait for while a model is compiled.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

from tinycomp.memory.locks import Lock
from tinycomp.memory.system import after_fork_in_child

_T = TypeVar("_T")

SWITCH_INTERVAL = 0.0002
"""Seconds until a thread that compiles lets another one go on."""


class _Setting(Generic[_T]):
    """A setting of the interpreter that is changed while somebody needs it; several may, and end in any order."""

    def __init__(self, read: Callable[[], _T], write: Callable[[_T], None]) -> None:
        self._read, self._write = read, write
        self._lock = Lock()
        self._before: list[_T] = []
        """What was set for every change that has not ended; the first one counts."""
        self._now: _T | None = None
        """What the last change has set: something else is there because somebody else wants it so."""
        after_fork_in_child(self._end_all)

    @contextmanager
    def changed(self, change: Callable[[_T], _T]) -> Iterator[None]:
        """Set what ``change`` makes of the setting, and set what was there before once nobody needs it any more."""
        with self._lock:
            before = self._read()
            self._before.append(before)
            wanted = change(before)
            if wanted != before:  # to write the interval that was read makes it shorter
                self._write(wanted)
            self._now = self._read()
        try:
            yield
        finally:
            with self._lock:
                first = self._before[:1]
                del self._before[-1:]
                if not self._before:
                    self._restore(first)

    def _end_all(self) -> None:
        """End the changes of the parent's other threads, which do not go on in a child."""
        first = self._before[:1]
        self._before.clear()
        self._restore(first)

    def _restore(self, first: Sequence[_T]) -> None:
        if first and self._read() == self._now:
            self._write(first[0])


_collector = _Setting(gc.isenabled, lambda on: gc.enable() if on else gc.disable())
_interval = _Setting(sys.getswitchinterval, sys.setswitchinterval)


@contextmanager
def importing() -> Iterator[None]:
    """Keep the collector from running, and let it take for old what is there at the end, as modules stay.

    It would else walk over all of that as soon as it may, which takes a twentieth of the time of a small model.
    """
    with _collector.changed(lambda _: False):
        known = len(sys.modules)
        yield
        if len(sys.modules) > known and not gc.get_freeze_count():  # what somebody has frozen shall stay so
            gc.freeze()
            gc.unfreeze()


@contextmanager
def compiling() -> Iterator[None]:
    """Keep the collector from running, and let other threads go on soon."""
    with _collector.changed(lambda _: False), _interval.changed(lambda now: min(now, SWITCH_INTERVAL)):
        yield
