"""What tests do to processes: find those that another has started, and wait for what they do."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any


def children(pid: int) -> list[int]:
    """The processes that the threads of a process have started; threads may end while they are looked at."""
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            found += [int(c) for c in (thread / "children").read_text().split()]
    return found


def wait_for(what: Callable[[], Any]) -> Any:
    for _ in range(3000):
        if found := what():
            return found
        time.sleep(0.01)
    raise AssertionError("nothing happened")
