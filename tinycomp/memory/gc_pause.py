"""Python's search for cyclic garbage, put off while a graph grows or modules are imported.

Both are large tangles of references that stay alive. The collector walks them again and again as they grow, which
finds nothing and costs a fifth of the time to compile a large model, a twentieth of the time to import.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Pauses:
    """How many callers want the collector off; the last one out turns it on again if it was on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0
        self._was_on = False

    def enter(self) -> None:
        with self._lock:
            if not self._open:
                self._was_on = gc.isenabled()
                gc.disable()
            self._open += 1

    def leave(self) -> None:
        with self._lock:
            self._open -= 1
            if not self._open and self._was_on:
                gc.enable()


_PAUSES = _Pauses()


@contextmanager
def gc_paused() -> Iterator[None]:
    """Keep the cyclic garbage collector of this process from running; what nothing refers to is freed all the same."""
    _PAUSES.enter()
    try:
        yield
    finally:
        _PAUSES.leave()
