"""Several calls in a row computed strip by strip, so that images between them are never whole.

Lines of the last result are asked for some at a time; what that takes of the results before follows backwards from the
windows. Lines that are read once more stay in a result's room: they move to its beginning. So the work is the same as
for whole images, and so are the bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tinycomp.lazy import cached_property
from tinycomp.memory.planner import aligned
from tinycomp.records import dataclass, field, replace
from tinycomp.symbolic import Size
from tinycomp.targets.c.codegen.emitter import Buffer, Call, View, nd_params
from tinycomp.targets.c.codegen.lines import LineWork, Read, cut_lines, table_of_floats, whole_pool, window_lines

Constant = Callable[[np.ndarray[Any, Any]], View]
"""Stores an array in the program."""


@dataclass(slots=True)
class Compute:
    """Lines of one result that a call computes.

    Attributes:
        link: Which call of the segment.
        lines: Which lines of its result.
        first: The line that the result's room begins with.
        firsts: Those that the rooms of the results begin with that it reads, by operand.
    """

    link: int
    lines: range
    first: int
    firsts: Mapping[int, int]


@dataclass(frozen=True)
class Move:
    """Lines of one result that are read once more: from ``source`` on, ``count`` of its room move to its beginning."""

    link: int
    source: int
    count: int


@dataclass(frozen=True)
class Schedule:
    """The calls of a segment, in order.

    Attributes:
        steps: The calls.
        rooms: Lines that are held of each result.
    """

    steps: Sequence[Compute | Move]
    rooms: Sequence[int]


Links = Sequence[Sequence[tuple[int, Read]]]
"""For each call of a segment, the calls that read its result, and how."""


def schedule(heights: Sequence[int], links: Links, kept_whole: frozenset[int], lines: int) -> Schedule:
    """Return how calls are computed in strips.

    Args:
        heights: The lines of the result of each call.
        links: Who reads the result of each.
        kept_whole: Those whose results are wanted whole.
        lines: Lines of the last result in a strip.

    >>> from tinycomp.targets.c.codegen.lines import Read
    >>> three = Read(1, 8, 16, 3, 1, 1)
    >>> for step in schedule([8, 8], [[(1, three)], []], frozenset({1}), 4).steps:
    ...     print(step)
    Compute(link=0, lines=range(0, 5), first=0, firsts={})
    Compute(link=1, lines=range(0, 4), first=0, firsts={1: 0})
    Move(link=0, source=3, count=2)
    Compute(link=0, lines=range(5, 8), first=3, firsts={})
    Compute(link=1, lines=range(4, 8), first=0, firsts={1: 3})
    """
    count, total = len(heights), heights[-1]
    done, first, rooms = [0] * count, [0] * count, [0] * count
    steps: list[Compute | Move] = []
    sources = [
        {read.operand: of for of in range(count) for to, read in links[of] if to == link} for link in range(count)
    ]
    for strip in range(lines, total + lines, lines):
        ends = [0] * count
        for link in reversed(range(count)):
            is_last = strip >= total and link in kept_whole
            own = min(strip, total) if link == count - 1 else heights[link] if is_last else 0
            asked = [read.of(range(ends[to] - 1, ends[to])).stop for to, read in links[link] if ends[to]]
            ends[link] = max([own, done[link], *asked])
        for link, end in enumerate(ends):
            if end == done[link]:
                continue
            if link not in kept_whole:
                move = _moved(link, heights, links, done, first)
                steps += [move] if move is not None else []
                rooms[link] = max(rooms[link], end - first[link])
            firsts = {operand: first[of] for operand, of in sources[link].items() if of not in kept_whole}
            steps.append(Compute(link, range(done[link], end), first[link], firsts))
            done[link] = end
    return Schedule(steps, rooms)


def _moved(link: int, heights: Sequence[int], links: Links, done: Sequence[int], first: list[int]) -> Move | None:
    """Let the room of a result begin with the first line that is wanted again; return the move that this takes."""
    wanted = [read.of(range(done[to], done[to] + 1)).start for to, read in links[link] if done[to] < heights[to]]
    begin = min([done[link], *wanted])
    kept, by = done[link] - begin, begin - first[link]
    if not by or kept > by:  # they would overlap
        return None
    first[link] = begin
    return Move(link, by, kept) if kept else None


@dataclass(frozen=True)
class Overlay:
    """A result that takes the memory of an operand, whose lines are dead when those of the result come there.

    Attributes:
        result: The result.
        operand: The operand.
        ahead: Bytes that the result begins before the operand.
    """

    result: Buffer
    operand: Buffer
    ahead: int


class Segment(Protocol):
    """Calls that are computed together."""

    @property
    def calls(self) -> Sequence[Call]:
        """How they were emitted."""

    @property
    def within(self) -> frozenset[Buffer]:
        """The buffers that nobody else needs, and that are replaced by rooms."""

    @property
    def rooms(self) -> Sequence[int]:
        """The bytes of the rooms."""

    @property
    def count(self) -> int:
        """How many calls it becomes."""

    @property
    def overlay(self) -> Overlay | None:
        """What lies in place."""

    def emit(self, constant: Constant) -> list[Call]:
        """Return the calls that it becomes."""


@dataclass(eq=False)
class Whole:
    """A call as it was emitted."""

    calls: Sequence[Call]
    within: frozenset[Buffer] = frozenset()
    rooms: Sequence[int] = ()
    count: int = 1
    overlay: Overlay | None = None

    def emit(self, constant: Constant) -> list[Call]:
        """Return it."""
        return list(self.calls)


@dataclass(eq=False)
class Strips:
    """Calls strip by strip.

    Attributes:
        works: Their work on lines.
        links: Who reads the result of each.
        kept_whole: Those whose results are wanted whole.
        plan: The order of the parts.
        overlay: What lies in place.
    """

    calls: Sequence[Call]
    works: Sequence[LineWork]
    links: Links
    kept_whole: frozenset[int]
    plan: Schedule
    overlay: Overlay | None = None

    @cached_property
    def within(self) -> frozenset[Buffer]:
        """The buffers that nobody else needs, and that are replaced by rooms."""
        return frozenset(_result(call).buffer for i, call in enumerate(self.calls) if i not in self.kept_whole)

    @cached_property
    def rooms(self) -> Sequence[int]:
        """The bytes of the rooms."""
        return [
            aligned(lines * work.step)
            for i, (lines, work) in enumerate(zip(self.plan.rooms, self.works, strict=True))
            if i not in self.kept_whole
        ]

    @property
    def count(self) -> int:
        """How many calls it becomes."""
        return len(self.plan.steps)

    def over(self, operand: Buffer) -> Strips | None:
        """Return the same with the last result in the memory of an operand; None if that saves nothing."""
        work, last = self.works[-1], len(self.calls) - 1
        result = _result(self.calls[last])
        reads = [self._read_bytes(step, operand) for step in self.plan.steps]
        written = [
            step.lines.stop * work.step if isinstance(step, Compute) and step.link == last else None
            for step in self.plan.steps
        ]
        alike = self._element_by_element(operand)
        ahead = _ahead(reads, written, skip_own=True) if alike else 1
        if ahead > 0:
            ahead = aligned(_ahead(reads, written, skip_own=False))
        if ahead >= aligned(int(result.buffer.nbytes)):
            return None
        return replace(self, overlay=Overlay(result.buffer, operand, max(ahead, 0)))

    def _element_by_element(self, operand: Buffer) -> bool:
        """Tell whether the last call reads an operand only element by element, as it writes its result."""
        call, work = self.calls[-1], self.works[-1]
        reads = {read.operand: read for read in work.reads}
        places = [index for index, view in enumerate(call.operands) if view is not None and view.buffer is operand]
        return all(
            index in work.in_place
            and index in reads
            and reads[index].step == work.step
            and not _offset(call.operands[index])
            for index in places
        )

    def _read_bytes(self, step: Compute | Move, operand: Buffer) -> int | None:
        """Return the first byte of an operand that a step reads."""
        if isinstance(step, Move):
            return None
        call, reads = self.calls[step.link], {read.operand: read for read in self.works[step.link].reads}
        lowest = [
            int(view.offset) + (reads[index].of(step.lines).start * reads[index].step if index in reads else 0)
            for index, view in enumerate(call.operands)
            if view is not None and view.buffer is operand
        ]
        return min(lowest, default=None)

    def emit(self, constant: Constant) -> list[Call]:
        """Return the calls, with new buffers for rooms."""
        rooms = {
            _result(self.calls[link]).buffer: Buffer(lines * self.works[link].step)
            for link, lines in enumerate(self.plan.rooms)
            if link not in self.kept_whole
        }
        finished = {step.link: number for number, step in enumerate(self.plan.steps) if isinstance(step, Compute)}
        tables: dict[bytes, View] = {}
        emitted = []
        for number, step in enumerate(self.plan.steps):
            call, work = self.calls[step.link], self.works[step.link]
            if isinstance(step, Move):
                room, nbytes = View(rooms[_result(call).buffer]), step.count * work.step
                moved = {"element_size": 1, **nd_params((nbytes,), to_stride=(1,), from_stride=(1,))}
                emitted.append(Call("copy", (room, room.at(step.source * work.step)), moved, call.sources))
                continue
            params, changed = work.part(step.lines)
            reads = {read.operand: read for read in work.reads}
            views: list[View | None] = []
            for index, view in enumerate(call.operands):
                if index == 0:
                    line, size = step.lines.start - step.first, work.step
                elif index in reads:
                    line, size = reads[index].of(step.lines).start - step.firsts.get(index, 0), reads[index].step
                else:
                    line, size = 0, 0
                if view is not None and view.buffer in rooms:
                    view = View(rooms[view.buffer], view.offset)
                views.append(view if view is None or not line * size else view.at(line * size))
            for index, array in changed.items():
                views[index] = tables.setdefault(array.tobytes(), constant(array))
            macs = call.macs if finished[step.link] == number else 0
            emitted.append(replace(call, operands=tuple(views), params=params, macs=macs))
        return emitted


@dataclass(eq=False)
class ChannelTiles:
    """A dequantisation and the pooling of its whole image, some channels at a time.

    Attributes:
        calls: Both.
        tile: Channels at a time.
        table: What the dequantisation makes of each byte.
        overlay: Nothing lies in place.
    """

    calls: Sequence[Call]
    tile: int
    table: np.ndarray[Any, Any]
    overlay: Overlay | None = None

    @property
    def _pixels(self) -> int:
        p = self.calls[1].params
        return int(p["height"]) * int(p["width"])

    @property
    def _channels(self) -> int:
        return int(self.calls[1].params["channels"])

    @cached_property
    def within(self) -> frozenset[Buffer]:
        """The buffers that nobody else needs, and that are replaced by rooms."""
        return frozenset({_result(self.calls[0]).buffer})

    @cached_property
    def rooms(self) -> Sequence[int]:
        """The bytes of the rooms."""
        return [aligned(self._pixels * self.tile * 4)]

    @property
    def count(self) -> int:
        """How many calls it becomes."""
        return 2 * -(-self._channels // self.tile)

    def emit(self, constant: Constant) -> list[Call]:
        """Return the calls, with the table in the place of arithmetic, which gives the same bits."""
        dequantize, pool = self.calls
        x, y = dequantize.operands[1], pool.operands[0]
        assert x is not None
        assert y is not None
        room, table = View(Buffer(self._pixels * self.tile * 4)), constant(self.table)
        emitted = []
        for begin in range(0, self._channels, self.tile):
            width = min(self.tile, self._channels - begin)
            looked = {
                "element_size": 4, "rows": self._pixels, "columns": width, "x_row_stride": self._channels,
                "y_row_stride": width,
            }  # fmt: skip
            pooled = {**pool.params, "channels": width, "x_pixel_stride": width, "y_pixel_stride": width}
            emitted.append(Call("qlookup", (room, x.at(begin), table), looked, dequantize.sources))
            emitted.append(
                replace(pool, operands=(y.at(4 * begin), room), params=pooled, macs=0 if begin else pool.macs)
            )
        return emitted


@dataclass
class Uses:
    """When each buffer is in use.

    Attributes:
        calls: All calls.
        first: By buffer, the first call that touches it.
        last: The last one.
    """

    calls: Sequence[Call]
    first: dict[Buffer, int] = field(default_factory=dict)
    last: dict[Buffer, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for index, call in enumerate(self.calls):
            for view in call.operands:
                if view is not None and view.buffer.space == "arena":
                    self.first.setdefault(view.buffer, index)
                    self.last[view.buffer] = index


def works_of(uses: Uses, begin: int, end: int) -> tuple[list[LineWork], Links, frozenset[int]] | None:
    """Return the work of the calls from ``begin`` to ``end``, who reads what, and which results are wanted whole.

    Returns:
        None if they cannot be computed line by line together.
    """
    calls = uses.calls[begin : end + 1]
    found = [window_lines(call) for call in calls]
    writers = {_result(call).buffer: index for index, call in enumerate(calls) if call.operands and call.operands[0]}
    if len(writers) < len(calls):
        return None
    for index in [*range(len(calls)), *reversed(range(len(calls)))]:
        if found[index] is None:
            lines = _lines_beside(calls, found, writers, index) or (1 if len(calls) == 1 else None)
            found[index] = None if lines is None else cut_lines(calls[index], lines)
    works = [work for work in found if work is not None]
    if len(works) < len(calls):
        return None
    links: list[list[tuple[int, Read]]] = [[] for _ in calls]
    for to, (call, work) in enumerate(zip(calls, works, strict=True)):
        reads = {read.operand: read for read in work.reads}
        for index, view in enumerate(call.operands[1:], 1):
            if view is None or view.buffer not in writers:
                continue
            of, read = writers[view.buffer], reads.get(index)
            if read is None or of >= to or (read.lines, read.step) != (works[of].lines, works[of].step) or view.offset:
                return None
            links[of].append((to, read))
    whole = set()
    for index, (call, work) in enumerate(zip(calls, works, strict=True)):
        view = _result(call)
        in_arena = view.buffer.space == "arena"
        if in_arena and (
            view.offset or view.buffer.nbytes != work.lines * work.step or uses.first[view.buffer] < begin
        ):
            return None
        if not in_arena or uses.last[view.buffer] > end:
            whole.add(index)
        elif uses.first[view.buffer] != begin + index or not links[index]:
            return None
    return (works, links, frozenset(whole)) if len(calls) - 1 in whole else None


def _lines_beside(
    calls: Sequence[Call], found: Sequence[LineWork | None], writers: Mapping[Buffer, int], index: int
) -> int | None:
    """Return how many lines the images of an element-wise call have for the calls around it."""
    for view in calls[index].operands[1:]:
        if view is not None and view.buffer in writers and (work := found[writers[view.buffer]]) is not None:
            return work.lines
    result = _result(calls[index]).buffer
    for call, work in zip(calls, found, strict=True):
        for read in () if work is None else work.reads:
            view = call.operands[read.operand]
            if view is not None and view.buffer is result:
                return read.lines
    return None


def channel_tiles(uses: Uses, begin: int) -> tuple[Sequence[Call], np.ndarray[Any, Any]] | None:
    """Return the dequantisation that a call is, and the pooling behind it, with the table of the former."""
    calls = uses.calls[begin : begin + 2]
    if len(calls) < 2 or not whole_pool(calls[1]) or (table := table_of_floats(calls[0])) is None:
        return None
    between, read = calls[0].operands[0], calls[1].operands[1]
    if between is None or read is None or between.buffer is not read.buffer or between.offset or read.offset:
        return None
    if between.buffer.space != "arena" or (uses.first[between.buffer], uses.last[between.buffer]) != (begin, begin + 1):
        return None
    return calls, table


def _ahead(reads: Sequence[int | None], written: Sequence[int | None], skip_own: bool) -> int:
    """Return how far a result must begin before an operand, so that what is written has been read for the last time."""
    ahead, lowest = -(1 << 62), 1 << 62
    for read, end in zip(reversed(reads), reversed(written), strict=True):
        if read is not None and not skip_own:
            lowest = min(lowest, read)
        if end is not None:
            ahead = max(ahead, end - lowest)
        if read is not None:
            lowest = min(lowest, read)
    return ahead


def _offset(view: View | None) -> Size:
    return 0 if view is None else view.offset


def _result(call: Call) -> View:
    view = call.operands[0]
    assert view is not None, call
    return view
