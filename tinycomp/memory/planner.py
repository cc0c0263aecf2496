"""Where each intermediate buffer lives: offsets in one arena, by liveness.

A freed block is handed out again at once, the last one freed first, because its bytes are still in the cache. Where
that leaves gaps that add up, the largest buffers are placed first instead, each into the tightest gap between those
that live with it, which comes close to the lower bound whatever the order of lives (Pisarchyk and Lee, "Efficient
Memory Management for Deep Neural Net Inference", 2020). What then still ends too high up goes before all others in
another round.
"""

from __future__ import annotations

import bisect
import itertools
import sys
from collections.abc import Mapping, Sequence

from tinycomp.errors import MemoryLimitError
from tinycomp.records import dataclass

ALIGNMENT = 64
"""Every buffer starts at a multiple of this many bytes: one cache line, one AVX-512 register."""

SLACK = 1.05
"""How far above the lower bound the order that favours the cache may be before the other one is tried, usually."""
_MANY = 2000
"""More buffers than this are not placed by size, which takes time quadratic in their number."""
_ROUNDS = 16
"""How often buffers are placed by size, at most; many buffers fewer times, for the time of ``_MANY`` placed once."""
_OPEN = sys.maxsize
_LOOKBACK = 64
"""How many freed blocks are tried for a new one: more would make planning quadratic, and the cache lost the rest."""


@dataclass(slots=True)
class Lifetime:
    """Describe a buffer to place.

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
    """Hold the result of planning.

    Attributes:
        offsets: Byte offset of each buffer, in the order given.
        size: Bytes of the whole arena.
        lower_bound: The largest number of bytes alive during one step; no plan can be smaller.
    """

    offsets: tuple[int, ...]
    size: int
    lower_bound: int


def aligned(size: int, alignment: int = ALIGNMENT) -> int:
    """Round ``size`` up to a multiple of ``alignment``.

    >>> aligned(1), aligned(64), aligned(0)
    (64, 64, 0)
    """
    return -(-size // alignment) * alignment


def plan_arena(buffers: Sequence[Lifetime], alignment: int = ALIGNMENT, slack: float = SLACK) -> Arena:
    """Give every buffer an offset such that no two live at the same step overlap.

    Args:
        buffers: What to place.
        alignment: What every offset is a multiple of.
        slack: How far above the lower bound a plan that favours the cache may be.

    >>> plan_arena([Lifetime(100, 0, 1), Lifetime(64, 1, 2), Lifetime(128, 2, 3)])
    Arena(offsets=(0, 128, 0), size=192, lower_bound=192)
    """
    warm = _last_freed_first(buffers, alignment)
    if warm.size <= warm.lower_bound * slack or len(buffers) > _MANY:
        return warm
    return min(warm, _largest_first(buffers, warm.lower_bound, alignment, slack), key=lambda arena: arena.size)


def plan_tied(buffers: Sequence[Lifetime], over: Mapping[int, tuple[int, int]], alignment: int = ALIGNMENT) -> Arena:
    """Give every buffer an offset as tightly as is found, where some lie over others that die meanwhile.

    Args:
        buffers: What to place.
        over: By buffer another one, and how many bytes it begins before that: these two may overlap while both are
            alive.
        alignment: What every offset is a multiple of.

    >>> lives = [Lifetime(128, 0, 1), Lifetime(128, 1, 2), Lifetime(64, 0, 2)]
    >>> plan_tied(lives, {1: (0, 64)})
    Arena(offsets=(64, 0, 192), size=256, lower_bound=256)
    """
    if not over:
        return plan_arena(buffers, alignment, slack=1.0)
    groups = _tied(buffers, over)
    bound = _bound(buffers, groups, alignment)
    order = sorted(range(len(groups)), key=lambda g: (-max(buffers[i].size for i in groups[g]), groups[g].keys()))
    best: Arena | None = None
    for _ in range(_ROUNDS):
        arena, highest = _tied_in_order(buffers, [groups[g] for g in order], bound, alignment)
        if best is None or arena.size < best.size:
            best = arena
        if best.size <= bound or highest == 0:
            break
        order.insert(0, order.pop(highest))
    assert best is not None
    return best


def _tied(buffers: Sequence[Lifetime], over: Mapping[int, tuple[int, int]]) -> list[dict[int, int]]:
    """Return the groups of buffers that are placed together: the offset of each, relative to the first one."""
    groups: dict[int, dict[int, int]] = {index: {index: 0} for index in range(len(buffers))}
    for index, (other, ahead) in over.items():
        mine, group = groups[index], groups[other]
        by = group[other] - ahead - mine[index]
        for member, at in mine.items():
            group[member] = at + by
            groups[member] = group
    found = {id(group): group for group in groups.values()}.values()
    return [{index: at - min(group.values()) for index, at in group.items()} for group in found]


def _bound(buffers: Sequence[Lifetime], groups: Sequence[Mapping[int, int]], alignment: int) -> int:
    """Return the most bytes that are alive in a step."""
    most = 0
    for step in sorted({buffer.first for buffer in buffers}):
        total = 0
        for group in groups:
            end = 0
            for index, at in sorted(group.items(), key=lambda item: item[1]):
                life = buffers[index]
                if life.first <= step <= life.last and at + life.size > end:
                    total += aligned(at + life.size - max(at, end), alignment)
                    end = at + life.size
        most = max(most, total)
    return most


def _tied_in_order(
    buffers: Sequence[Lifetime], groups: Sequence[Mapping[int, int]], bound: int, alignment: int
) -> tuple[Arena, int]:
    """Place groups in an order, each as low as those before it allow; return which of them ends highest, too."""
    offsets = [0] * len(buffers)
    placed: list[int] = []
    size, highest = 0, 0
    for number, group in enumerate(groups):
        taken = []  # where the group must not begin
        for index, at in group.items():
            life = buffers[index]
            for other in placed if life.size else ():
                if buffers[other].first <= life.last and life.first <= buffers[other].last:
                    begin, end = offsets[other], offsets[other] + buffers[other].size
                    taken.append((begin - at - life.size, aligned(max(end - at, 0), alignment)))
        base = 0
        for below, above in sorted(taken):
            if below >= base:
                break
            base = max(base, above)
        # Intervals that begin later may still reach over what is free; they are sorted by where they begin.
        while any(below < base < above for below, above in taken):
            base = max(above for below, above in taken if below < base < above)
        for index, at in group.items():
            offsets[index] = base + at
            if buffers[index].size:
                placed.append(index)
            if base + at + buffers[index].size > size:
                size, highest = base + at + buffers[index].size, number
    return Arena(tuple(offsets), aligned(size, alignment), bound), highest


def placed_above(buffers: Sequence[Lifetime], offsets: Sequence[int]) -> list[tuple[int, ...]]:
    """Return, for each buffer of a plan, those after which it must begin, whatever their sizes.

    Of two buffers that are alive together, the one that lies higher in the plan begins behind the end of the other,
    by itself or since it begins behind one that does. Placing every buffer as low as that allows gives a plan for any
    sizes; with the sizes of the plan it is no larger.

    >>> lives = [Lifetime(100, 0, 1), Lifetime(64, 1, 2), Lifetime(128, 2, 3)]
    >>> placed_above(lives, plan_arena(lives).offsets)
    [(), (2, 0), ()]
    """
    above: list[tuple[int, ...]] = [()] * len(buffers)
    below = [0] * len(buffers)  # sets of buffers that end before one begins, as bits
    lower: list[int] = []
    # Of buffers at one place, those that take no room must not be pushed up by the one that does.
    for index in sorted(range(len(buffers)), key=lambda i: (offsets[i], buffers[i].size > 0, buffers[i].first, i)):
        life, kept = buffers[index], []
        for other in reversed(lower):
            apart = buffers[other].last < life.first or life.last < buffers[other].first
            if not apart and not below[index] >> other & 1:
                kept.append(other)
                below[index] |= below[other] | 1 << other
        above[index] = tuple(kept)
        lower.append(index)
    return above


def _largest_first(buffers: Sequence[Lifetime], lower_bound: int, alignment: int, slack: float) -> Arena:
    """Place the largest buffers first; while that takes too much, the one that ends highest before all others."""
    order = sorted(range(len(buffers)), key=lambda i: (-buffers[i].size, buffers[i].first, i))
    best = _in_gaps(buffers, order, lower_bound, alignment)
    arena = best
    for _ in range(1, min(_ROUNDS, (_MANY // len(buffers)) ** 2)):
        if best.size <= lower_bound * slack:
            break
        highest = max(order, key=lambda i: arena.offsets[i] + aligned(buffers[i].size, alignment))
        order.remove(highest)
        order.insert(0, highest)
        arena = _in_gaps(buffers, order, lower_bound, alignment)
        best = min(best, arena, key=lambda arena: arena.size)
    return best


def _in_gaps(buffers: Sequence[Lifetime], order: Sequence[int], lower_bound: int, alignment: int) -> Arena:
    """Place buffers in an order, each into the tightest gap that the ones alive with it leave."""
    offsets = [0] * len(buffers)
    placed: list[tuple[int, int, Lifetime]] = []  # start, end, by start
    for index in order:
        buffer = buffers[index]
        need = aligned(buffer.size, alignment)
        if need:
            offsets[index] = _tightest_gap(placed, buffer, need)
            bisect.insort(placed, (offsets[index], offsets[index] + need, buffer), key=lambda block: block[0])
    return Arena(tuple(offsets), max((end for _, end, _ in placed), default=0), lower_bound)


def _tightest_gap(placed: Sequence[tuple[int, int, Lifetime]], buffer: Lifetime, need: int) -> int:
    """Return where the smallest gap of at least ``need`` bytes starts, among blocks by start; else the top of them."""
    best, tightest, top = -1, _OPEN, 0
    for start, end, other in placed:
        if other.last < buffer.first or buffer.last < other.first:
            continue
        if need <= start - top < tightest:
            best, tightest = top, start - top
        top = max(top, end)
    return top if best < 0 else best


def _last_freed_first(buffers: Sequence[Lifetime], alignment: int) -> Arena:
    """Place buffers in the order of their lives, each where the last one ended."""
    order = sorted(range(len(buffers)), key=lambda i: (buffers[i].first, i))
    deaths = sorted(range(len(buffers)), key=lambda i: (buffers[i].last, i))
    offsets = [0] * len(buffers)
    space = _FreeSpace()
    dead = 0
    size = lower_bound = live_bytes = 0
    for index in order:
        buffer = buffers[index]
        while buffers[deaths[dead]].last < buffer.first:
            gone = deaths[dead]
            space.free(offsets[gone], aligned(buffers[gone].size, alignment))
            live_bytes -= aligned(buffers[gone].size, alignment)
            dead += 1
        need = aligned(buffer.size, alignment)
        offsets[index] = space.place(need)
        live_bytes += need
        lower_bound = max(lower_bound, live_bytes)
        size = max(size, offsets[index] + need)
    return Arena(tuple(offsets), size, lower_bound)


class _FreeSpace:
    """Hold what is free while the arena is planned: gaps in address order, the last one open, and freed offsets.

    Neighbouring gaps are always joined, so there are at most as many as live blocks, and few where blocks are dense.
    """

    def __init__(self) -> None:
        self._starts = [0]
        self._ends = [_OPEN]
        self._freed: dict[int, None] = {}

    def free(self, offset: int, size: int) -> None:
        if not size:
            return
        self._freed.pop(offset, None)
        self._freed[offset] = None
        at = bisect.bisect_right(self._starts, offset)
        begin, end, first, last = offset, offset + size, at, at
        if at and self._ends[at - 1] == begin:
            begin, first = self._starts[at - 1], at - 1
        if at < len(self._starts) and self._starts[at] == end:
            end, last = self._ends[at], at + 1
        self._starts[first:last] = [begin]
        self._ends[first:last] = [end]

    def place(self, size: int) -> int:
        if not size:
            return 0
        place = self._in_freed(size) or self._lowest(size)
        self._take(*place, size)
        return place[1]

    def _in_freed(self, size: int) -> tuple[int, int] | None:
        """Return gap and offset of the block freed last, if it is large enough; else of the one before, and so on."""
        covered = []
        place = None
        for offset in itertools.islice(reversed(self._freed), _LOOKBACK):
            at = bisect.bisect_right(self._starts, offset) - 1
            if at < 0 or self._ends[at] <= offset:
                covered.append(offset)
            elif self._ends[at] != _OPEN and self._ends[at] - self._starts[at] >= size:
                place = at, offset if self._ends[at] - offset >= size else self._starts[at]
                break
        for offset in covered:
            del self._freed[offset]
        return place

    def _lowest(self, size: int) -> tuple[int, int]:
        for at, start in enumerate(self._starts):
            if self._ends[at] - start >= size:
                return at, start
        raise MemoryLimitError("no memory has room for a value", expected=f"less than {_OPEN} bytes", found=str(size))

    def _take(self, at: int, offset: int, size: int) -> None:
        start, end = self._starts[at], self._ends[at]
        left = [(start, offset)] if start < offset else []
        right = [(offset + size, end)] if offset + size < end else []
        self._starts[at : at + 1] = [gap[0] for gap in left + right]
        self._ends[at : at + 1] = [gap[1] for gap in left + right]
