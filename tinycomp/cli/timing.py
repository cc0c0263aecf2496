"""Fair timing of several contenders: they take turns, so that whatever slows the machine slows them all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

BLOCKS = 10
_WARM_UP = 3


@dataclass(frozen=True)
class Timing:
    """How long one run of a contender takes.

    Attributes:
        name: Whose.
        median: Seconds; the figure to quote.
        minimum: Seconds; what the machine can do undisturbed.
        runs: How many runs were measured.
    """

    name: str
    median: float
    minimum: float
    runs: int

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able form."""
        return asdict(self)


def measure(
    contenders: Mapping[str, Callable[[], Any]], *, runs: int | None = None, seconds: float = 3.0
) -> list[Timing]:
    """Time the contenders in interleaved blocks.

    Every block begins with a run that is not counted, because the one before has left the caches to the other.

    Args:
        contenders: What to run, by name.
        runs: Counted runs of each, rounded up to fill :data:`BLOCKS` blocks; by default as many as fit ``seconds``.
        seconds: About how long each is measured.
    """
    per_block = {name: _runs_per_block(run, runs, seconds) for name, run in contenders.items()}
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(BLOCKS):
        for name, run in contenders.items():
            run()
            samples[name] += [_once(run) for _ in range(per_block[name])]
    return [Timing(name, statistics.median(s), min(s), len(s)) for name, s in samples.items()]


def _runs_per_block(run: Callable[[], Any], runs: int | None, seconds: float) -> int:
    estimate = min(_once(run) for _ in range(_WARM_UP))
    if runs is not None:
        return -(-runs // BLOCKS)
    return max(1, int(seconds / BLOCKS / max(estimate, 1e-7)))


def _once(run: Callable[[], Any]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started
