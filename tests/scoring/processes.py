"""What tests do to processes: find those that another has started, and wait for what they do."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task")
    return [int(c) for t in tasks.iterdir() for c in (t / "children").read_text().split()]


def wait_for(what: Callable[[], Any]) -> Any:
    for _ in range(3000):
        if found := what():
            return found
        time.sleep(0.01)
    raise AssertionError("nothing happened")
