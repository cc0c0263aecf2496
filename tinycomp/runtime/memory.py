"""Where each intermediate buffer lives: offsets in one arena, by liveness.

A freed block is handed out again at once, the last one freed first, because its bytes are still in the cache
(``docs/performance.md`` has the measurement that chose this order over best fit).
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT = 64
"""Every buffer starts at a multiple of this many bytes: one cache line, one AVX-512 register."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A buffer to place.

    Attributes:
        size: Bytes.
        first: Index of the step that writes it first.
        last: Index of the last step that touches it.
    """

    size: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Arena:
    """The result of planning.

    Attributes:
        offsets: Byte offset of each buffer, in the order given.
        size: Bytes of the whole arena.
        lower_bound: The largest number of bytes alive during one step; no plan can be smaller.
    """

    offsets: tuple[int, ...]
    size: int
    lower_bound: int


def aligned(size: int) -> int:
    """Round ``size`` up to a multiple of :data:`ALIGNMENT`.

    >>> aligned(1), aligned(64), aligned(0)
    (64, 64, 0)
    """
    return -(-size // ALIGNMENT) * ALIGNMENT


def plan_arena(buffers: Sequence[Lifetime]) -> Arena:
    """Give every buffer an offset such that no two live at the same step overlap.

    >>> plan_arena([Lifetime(100, 0, 1), Lifetime(64, 1, 2), Lifetime(128, 2, 3)])
    Arena(offsets=(0, 128, 0), size=192, lower_bound=192)
    """
    order = sorted(range(len(buffers)), key=lambda i: (buffers[i].first, i))
    deaths = sorted(range(len(buffers)), key=lambda i: (buffers[i].last, i))
    offsets = [0] * len(buffers)
    live = _LiveBlocks()
    dead = 0
    size = lower_bound = live_bytes = 0
    for index in order:
        buffer = buffers[index]
        while buffers[deaths[dead]].last < buffer.first:
            gone = deaths[dead]
            live.free(offsets[gone], aligned(buffers[gone].size))
            live_bytes -= aligned(buffers[gone].size)
            dead += 1
        need = aligned(buffer.size)
        offsets[index] = live.place(need)
        live_bytes += need
        lower_bound = max(lower_bound, live_bytes)
        size = max(size, offsets[index] + need)
    return Arena(tuple(offsets), size, lower_bound)


class _LiveBlocks:
    """The arena while it is planned: live blocks in address order and freed offsets, newest last."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._freed: list[int] = []

    def free(self, offset: int, size: int) -> None:
        if not size:
            return
        at = bisect.bisect_left(self._starts, offset)
        del self._starts[at], self._ends[at]
        self._freed.append(offset)

    def place(self, size: int) -> int:
        if not size:
            return 0
        offset = self._place_in_freed(size)
        if offset is None:
            offset = self._place_lowest(size)
        at = bisect.bisect_left(self._starts, offset)
        self._starts.insert(at, offset)
        self._ends.insert(at, offset + size)
        return offset

    def _place_in_freed(self, size: int) -> int | None:
        """The gap around the block freed last, if it is large enough; else the one before it, and so on."""
        for index in range(len(self._freed) - 1, -1, -1):
            freed = self._freed[index]
            gap = self._gap_at(freed)
            if gap is None:
                del self._freed[index]
            elif gap[1] is not None and gap[1] - gap[0] >= size:
                return freed if gap[1] - freed >= size else gap[0]
        return None

    def _gap_at(self, offset: int) -> tuple[int, int | None] | None:
        """Bounds of the gap that holds ``offset`` (end None: open), or None if a live block covers it."""
        at = bisect.bisect_right(self._starts, offset)
        if at and self._ends[at - 1] > offset:
            return None
        return (self._ends[at - 1] if at else 0, self._starts[at] if at < len(self._starts) else None)

    def _place_lowest(self, size: int) -> int:
        end = 0
        for start, stop in zip(self._starts, self._ends, strict=True):
            if start - end >= size:
                return end
            end = stop
        return end
