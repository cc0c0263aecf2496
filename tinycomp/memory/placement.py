"""Where the buffers of a device lie that has several memories: in the first that they fit into, in place where allowed.

:mod:`tinycomp.memory.planner` places buffers in one memory of any size. Here memories have budgets, such as 256 kB of
scratchpad before the DRAM. What is used most per byte and step is placed first, so that fast memories hold that; each
buffer goes into the tightest gap between those that live with it.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence

from tinycomp.errors import MemoryLimitError, OptionError, shown
from tinycomp.memory.planner import ALIGNMENT
from tinycomp.records import dataclass


@dataclass(frozen=True, slots=True)
class Memory:
    """Describe a memory.

    Attributes:
        name: Its name.
        size: Its bytes; None for as many as it takes.
        alignment: What every offset is a multiple of, in bytes.
    """

    name: str
    size: int | None = None
    alignment: int = ALIGNMENT


@dataclass(frozen=True, slots=True)
class Buffer:
    """Describe a buffer to place.

    Attributes:
        size: Bytes.
        first: Index of the step that writes it first.
        last: Index of the last step that touches it.
        memories: Names of the memories in which it may lie, the best first; empty for all of them, in their order.
        over: Index of a buffer that it may take the bytes of, for an instruction that works in place: the step that
            writes the one is the last that reads the other. A hint, followed where the sizes and memories allow it.
        traffic: Bytes that are read and written over its life, which tells what deserves a fast memory; None for twice
            the size.
    """

    size: int
    first: int
    last: int
    memories: tuple[str, ...] = ()
    over: int | None = None
    traffic: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a buffer.

    Attributes:
        memory: Name of the memory.
        offset: Byte offset in it.
    """

    memory: str
    offset: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Hold the result of planning.

    Attributes:
        places: Where each buffer lies, in the order given.
        used: Bytes of each memory that the buffers take, by its name.
    """

    places: tuple[Place, ...]
    used: Mapping[str, int]


@dataclass(slots=True)
class _Unit:
    """Buffers that take each other's place, and so lie together."""

    size: int
    first: int
    last: int
    members: list[int]
    memories: tuple[str, ...]
    traffic: int

    @property
    def density(self) -> float:
        return self.traffic / ((self.last - self.first + 1) * max(self.size, 1))


def plan_memories(buffers: Sequence[Buffer], memories: Sequence[Memory]) -> MemoryPlan:
    """Give every buffer a place such that no two that live at the same step overlap, and no memory is overfull.

    Args:
        buffers: What to place.
        memories: The memories, the fastest first.

    Raises:
        MemoryLimitError: If a buffer fits into none of its memories beside the others.
        OptionError: If a buffer names a memory or a buffer that does not exist, or ends before it begins.

    Example:
        >>> scratchpad, dram = Memory("scratchpad", 256), Memory("dram")
        >>> lives = [Buffer(128, 0, 1), Buffer(128, 1, 2, over=0), Buffer(192, 2, 3), Buffer(64, 0, 3)]
        >>> plan = plan_memories(lives, [scratchpad, dram])
        >>> [(place.memory, place.offset) for place in plan.places]
        [('scratchpad', 0), ('scratchpad', 0), ('dram', 0), ('scratchpad', 128)]
        >>> plan.used
        {'scratchpad': 192, 'dram': 192}
    """
    by_name = {memory.name: memory for memory in memories}
    _check(buffers, by_name)
    placed: dict[str, list[tuple[int, int, _Unit]]] = {name: [] for name in by_name}
    places = [Place("", 0)] * len(buffers)
    for unit in sorted(_units(buffers), key=lambda unit: (-unit.density, -unit.size, unit.first)):
        place = _placed(unit, by_name, placed)
        for index in unit.members:
            places[index] = place
    used = {name: max((end for _, end, _ in blocks), default=0) for name, blocks in placed.items()}
    return MemoryPlan(tuple(places), used)


def _check(buffers: Sequence[Buffer], memories: Mapping[str, Memory]) -> None:
    for index, buffer in enumerate(buffers):
        where = f"buffer {index}"
        unknown = [name for name in buffer.memories if name not in memories]
        if unknown or not memories:
            raise OptionError(
                "unknown memory", where=where, expected=f"some of {', '.join(memories) or 'none'}",
                found=", ".join(unknown),
            )  # fmt: skip
        if buffer.size < 0 or buffer.last < buffer.first:
            raise OptionError("not a lifetime of a buffer", where=where, found=shown(buffer))
        if buffer.over is not None and not 0 <= buffer.over < len(buffers):
            raise OptionError(
                "it is to take the place of a buffer that does not exist", where=where, found=str(buffer.over)
            )


def _units(buffers: Sequence[Buffer]) -> list[_Unit]:
    """Join buffers with those whose place they may take; a place is taken once."""
    units: dict[int, _Unit] = {}
    for index in sorted(range(len(buffers)), key=lambda i: (buffers[i].first, i)):
        buffer = buffers[index]
        traffic = 2 * buffer.size if buffer.traffic is None else buffer.traffic
        unit = units.get(-1 if buffer.over is None else buffer.over)
        if unit is not None and unit.members[-1] == buffer.over and _in_place(buffer, buffers[buffer.over], unit):
            unit.members.append(index)
            unit.last = buffer.last
            unit.traffic += traffic
            units[index] = unit
        else:
            units[index] = _Unit(buffer.size, buffer.first, buffer.last, [index], buffer.memories, traffic)
    return [unit for index, unit in units.items() if unit.members[0] == index]


def _in_place(buffer: Buffer, before: Buffer, unit: _Unit) -> bool:
    in_turn = before.first < buffer.first == before.last
    return in_turn and buffer.size <= unit.size and buffer.memories == unit.memories


def _placed(unit: _Unit, memories: Mapping[str, Memory], placed: Mapping[str, list[tuple[int, int, _Unit]]]) -> Place:
    """Place a unit in the first of its memories with a gap for it."""
    names = unit.memories or tuple(memories)
    for name in names:
        memory = memories[name]
        if not unit.size:
            return Place(name, 0)
        offset = _gap(placed[name], unit, memory)
        if offset is not None:
            bisect.insort(placed[name], (offset, offset + unit.size, unit), key=lambda block: block[:2])
            return Place(name, offset)
    free = (f"{_free(placed[name], unit, memories[name])} bytes in {name}" for name in names)
    raise MemoryLimitError(
        "a buffer fits into none of its memories",
        where=f"buffer {unit.members[0]}, alive from step {unit.first} to {unit.last}",
        expected=f"at most {', '.join(free)}",
        found=f"{unit.size} bytes",
        hint="Compute the layer in tiles, let the buffer lie in a larger memory, or shorten the lifetimes of others.",
    )


def _gaps(placed: Sequence[tuple[int, int, _Unit]], unit: _Unit, memory: Memory) -> list[tuple[int, int | None]]:
    """Return start and end of what the units alive with this one leave, the end None for an open one."""
    gaps: list[tuple[int, int | None]] = []
    top = 0
    for start, end, other in placed:
        if other.last < unit.first or unit.last < other.first:
            continue
        if start > top:
            gaps.append((top, start))
        top = max(top, -(-end // memory.alignment) * memory.alignment)
    return [*gaps, (top, memory.size)]


def _gap(placed: Sequence[tuple[int, int, _Unit]], unit: _Unit, memory: Memory) -> int | None:
    """Return where the tightest gap starts that takes the unit; None if there is none."""
    wide = [(start, end) for start, end in _gaps(placed, unit, memory) if end is None or end - start >= unit.size]
    return min(wide, key=lambda gap: (gap[1] is None, (gap[1] or 0) - gap[0]))[0] if wide else None


def _free(placed: Sequence[tuple[int, int, _Unit]], unit: _Unit, memory: Memory) -> int:
    return max(max((end or 0) - start, 0) for start, end in _gaps(placed, unit, memory))
