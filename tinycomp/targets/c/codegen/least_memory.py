"""Programs that need little memory: the option ``memory="least"``, or a number of bytes.

Calls are ordered for the lowest peak (:mod:`tinycomp.memory.ordering`). Then they are cut into segments, each of which
is a call as it is, or several computed strip by strip (:mod:`strips`), in place where that saves something: the
segments that take the fewest calls within a number of bytes, by dynamic programming; and that number is lowered until
there are none. Results are the same to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tinycomp.memory.ordering import STATES, Use, order_of_steps
from tinycomp.memory.planner import Lifetime, aligned, plan_tied
from tinycomp.records import dataclass, field
from tinycomp.runtime.native.library import kernel_named
from tinycomp.targets.c.codegen.emitter import Buffer, Call
from tinycomp.targets.c.codegen.strips import (
    ChannelTiles,
    Constant,
    Segment,
    Strips,
    Uses,
    Whole,
    channel_tiles,
    schedule,
    works_of,
)

LONGEST = 12
"""Calls that are computed together, at most."""
FEWEST_CHANNELS = 8
"""Channels in a tile, at least."""
LINES = (1, 2, 4, 8, 16)
"""Lines of the last result in a strip; all of them is tried, too."""
GRAIN = 128
"""A gain of less than this share of the peak does not count."""
STEP = 8
"""The share by which the peak is lowered while that is possible."""
_RETRIES = 4
_MANY = 1 << 40
EFFORT = 1_000_000
"""Steps times sets of steps that are looked at when calls are ordered, about."""


def lower_peak(
    calls: Sequence[Call], constant: Constant, budget: int = 0
) -> tuple[list[Call], Mapping[Buffer, tuple[Buffer, int]]]:
    """Return calls that compute the same with fewer bytes alive at a time, and what lies in place.

    Args:
        calls: What a program does, its results placed; every size is a number.
        constant: Stores an array in the program.
        budget: Bytes that are few enough.
    """
    segments = _Search(Uses(_ordered(calls))).best(budget)
    emitted = [call for segment in segments for call in segment.emit(constant)]
    overlays = [segment.overlay for segment in segments if segment.overlay is not None]
    return emitted, {overlay.result: (overlay.operand, overlay.ahead) for overlay in overlays}


def _ordered(calls: Sequence[Call]) -> list[Call]:
    numbers: dict[Buffer, int] = {}
    steps = []
    for call in calls:
        letters = "b" * len(call.operands) if call.control is not None else kernel_named(call.kernel).signature.lower()
        reads, writes = set(), set()
        for letter, view in zip(letters, call.operands, strict=True):
            if view is not None and view.buffer.space in ("arena", "output"):
                number = numbers.setdefault(view.buffer, len(numbers))
                if letter in "ob":
                    writes.add(number)
                if letter != "o":
                    reads.add(number)
        works = works_of(Uses([call]), 0, 0)
        alike = () if works is None else works[0][0].in_place
        over = [
            (w, numbers[v.buffer]) for w in writes for i in alike if (v := call.operands[i]) and v.buffer in numbers
        ]
        steps.append(Use(frozenset(reads), frozenset(writes), tuple(over)))
    sizes = [aligned(int(buffer.nbytes)) if buffer.space == "arena" else 0 for buffer in numbers]
    return [calls[index] for index in order_of_steps(steps, sizes, min(STATES, EFFORT // max(len(steps), 1)))]


@dataclass
class _Search:
    """Find the segments of the calls that need the fewest calls within a number of bytes."""

    uses: Uses
    _found: dict[tuple[int, int], list[tuple[int, Segment]]] = field(default_factory=dict)
    _whole: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._whole = [self._bytes(index, index, Whole([call])) for index, call in enumerate(self.uses.calls)]

    def best(self, budget: int) -> list[Segment]:
        """Return segments within ``budget`` bytes, or else those found that need the fewest bytes."""
        limit = budget
        for _ in range(_RETRIES):
            segments = self._within(limit)
            if segments is None:
                break
            over = _planned(segments) - budget
            if over <= 0:
                return segments
            limit -= over
        return min(self._least(), key=lambda segments: (_planned(segments), sum(s.count for s in segments)))

    def _least(self) -> list[list[Segment]]:
        """Return ways whose segments need fewer and fewer bytes, so that one of them may be placed best."""
        high = max(self._whole, default=0)
        found: list[list[Segment]] = []
        segments = self._within(high)
        grain = high // GRAIN + 1
        while segments is not None:  # in small steps, because a budget far too low makes the search long
            found.append(segments)
            high -= max(high // STEP, 1)
            segments = self._within(high)
        low, high = high, high + max(high // STEP, 1) + 1
        while high - low > grain:
            middle = (low + high) // 2
            segments = self._within(middle)
            if segments is None:
                low = middle
            else:
                found.append(segments)
                high = middle
        return found

    def _within(self, limit: int) -> list[Segment] | None:
        """Return the segments that take the fewest calls and ``limit`` bytes each at most; None if there are none."""
        count = len(self.uses.calls)
        fewest = [0, *[_MANY] * count]
        came: list[tuple[int, Segment] | None] = [None] * (count + 1)
        for end in range(count):
            is_heavy = False
            for begin in range(end, max(end - LONGEST, -1), -1):
                is_heavy |= self._whole[begin] > limit
                if fewest[begin] >= _MANY:
                    continue
                if begin == end and not is_heavy:
                    options: list[tuple[int, Segment]] = [(self._whole[end], Whole([self.uses.calls[end]]))]
                else:
                    options = self._options(begin, end) if is_heavy else []
                for nbytes, segment in options:
                    total = fewest[begin] + segment.count
                    if nbytes <= limit and total < fewest[end + 1]:
                        fewest[end + 1], came[end + 1] = total, (begin, segment)
        segments: list[Segment] = []
        at = count
        while at:
            step = came[at]
            if step is None:
                return None
            at, segment = step
            segments.insert(0, segment)
        return segments

    def _options(self, begin: int, end: int) -> list[tuple[int, Segment]]:
        """Return the ways to compute some calls together, with the bytes that each needs."""
        if (begin, end) not in self._found:
            found = [(self._bytes(begin, end, segment), segment) for segment in self._variants(begin, end)]
            self._found[begin, end] = found
        return self._found[begin, end]

    def _variants(self, first: int, last: int) -> Iterator[Segment]:
        if last == first + 1 and (tiles := channel_tiles(self.uses, first)) is not None:
            calls, table = tiles
            tile = int(calls[1].params["channels"]) // 2
            while tile >= FEWEST_CHANNELS:
                yield ChannelTiles(calls, tile, table)
                tile //= 2
        found = works_of(self.uses, first, last)
        if found is None:
            return
        works, links, whole = found
        total = works[-1].lines
        for lines in dict.fromkeys(min(lines, total) for lines in (*LINES, total)):
            plan = schedule([work.lines for work in works], links, whole, lines)
            strips = Strips(self.uses.calls[first : last + 1], works, links, whole, plan)
            if last > first:
                yield strips
            for operand in self._dying(first, last):
                if (in_place := strips.over(operand)) is not None:
                    yield in_place

    def _dying(self, first: int, last: int) -> list[Buffer]:
        """Return the operands of some calls that nobody reads afterwards, where the last result may lie in them."""
        result = self.uses.calls[last].operands[0]
        if result is None or result.buffer.space != "arena":
            return []
        views = [view for call in self.uses.calls[first : last + 1] for view in call.operands[1:] if view is not None]
        buffers = dict.fromkeys(view.buffer for view in views if view.buffer.space == "arena")
        return [b for b in buffers if self.uses.first[b] < first and self.uses.last[b] <= last]

    def _bytes(self, begin: int, end: int, segment: Segment) -> int:
        """Return the bytes that are alive in a segment, as if no other were in place."""
        alive = sum(
            aligned(int(buffer.nbytes))
            for buffer, first in self.uses.first.items()
            if first <= end and self.uses.last[buffer] >= begin and buffer not in segment.within
        )
        if (overlay := segment.overlay) is not None:
            result, operand = int(overlay.result.nbytes), int(overlay.operand.nbytes)
            alive += aligned(max(result, overlay.ahead + operand)) - aligned(result) - aligned(operand)
        return alive + sum(segment.rooms)


def _planned(segments: Sequence[Segment]) -> int:
    """Return the bytes of memory that segments take when their buffers are placed."""
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    for index, segment in enumerate(segments):
        views = [view for call in segment.calls for view in call.operands if view is not None]
        for buffer in (view.buffer for view in views if view.buffer.space == "arena"):
            if buffer not in segment.within:
                first.setdefault(buffer, index)
                last[buffer] = index
    lives = [Lifetime(int(buffer.nbytes), first[buffer], last[buffer]) for buffer in first]
    lives += [Lifetime(room, index, index) for index, segment in enumerate(segments) for room in segment.rooms]
    numbers = {buffer: number for number, buffer in enumerate(first)}
    overlays = [segment.overlay for segment in segments if segment.overlay is not None]
    return plan_tied(lives, {numbers[o.result]: (numbers[o.operand], o.ahead) for o in overlays}).size
