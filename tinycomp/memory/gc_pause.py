"""Python's search for cyclic garbage, put off while a graph grows or modules are imported.

Both are large tangles of references that stay alive. The collector walks them again and again as they grow, which
finds nothing and costs a fifth of the time to compile a large model, a twentieth of the time to import.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from tinycomp.memory.locks import Lock
from tinycomp.memory.system import after_fork_in_child

_lock = Lock()
_was_on: list[bool] = []
"""Whether the collector was on, for every pause that has not ended; the first one counts."""


@contextmanager
def gc_paused() -> Iterator[None]:
    """Keep the cyclic garbage collector of this process from running; what nothing refers to is freed all the same."""
    with _lock:
        _was_on.append(gc.isenabled())
        gc.disable()
    try:
        yield
    finally:
        with _lock:
            if _was_on and _was_on.pop() and not _was_on:
                gc.enable()


def _end_pauses() -> None:
    """End the pauses of the parent's other threads, which do not go on in a child."""
    if _was_on:
        was_on = _was_on[0]
        _was_on.clear()
        if was_on:
            gc.enable()


after_fork_in_child(_end_pauses)
