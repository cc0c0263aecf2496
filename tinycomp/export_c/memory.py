"""The memory of an exported project: what lies where in it and when, and the step at which most of it is in use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tinycomp.memory.planner import Lifetime, plan_tied
from tinycomp.records import dataclass, field


@dataclass(frozen=True)
class Buffer:
    """A piece of memory.

    Attributes:
        offset: Where it begins.
        nbytes: Its size.
        first: The first step that it is in use at.
        last: The last one.
        what: What it holds, for people.
    """

    offset: int
    nbytes: int
    first: int
    last: int
    what: str


@dataclass(frozen=True)
class Peak:
    """The step at which most memory is in use.

    Attributes:
        step: Its number.
        nbytes: How much.
        kernel: What is called then.
        sources: Names of the model's nodes that this computes.
    """

    step: int
    nbytes: int
    kernel: str
    sources: tuple[str, ...]


@dataclass(frozen=True)
class MemoryMap:
    """A plan of memory.

    Attributes:
        size: Bytes in all.
        buffers: What lies in it.
        steps: What is called at each step, and for which nodes of the model.
    """

    size: int
    buffers: Sequence[Buffer]
    steps: Sequence[tuple[str, tuple[str, ...]]]

    def offset(self, number: int) -> int:
        """Return where a buffer lies."""
        return self.buffers[number].offset

    @property
    def peak(self) -> Peak | None:
        """The step at which most is in use; None if nothing ever is."""
        used = [0] * (len(self.steps) + 1)
        for buffer in self.buffers:
            for step in range(buffer.first, buffer.last + 1):
                used[step] += buffer.nbytes
        if not any(used):
            return None
        step = used.index(max(used))
        kernel, sources = self.steps[step] if step < len(self.steps) else ("", ())
        return Peak(step, used[step], kernel, sources)

    def alive(self, step: int) -> list[Buffer]:
        """Return what is in use at a step, by offset."""
        alive = [b for b in self.buffers if b.nbytes and b.first <= step <= b.last]
        return sorted(alive, key=lambda buffer: buffer.offset)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as values that ``json`` can write."""
        return {
            "bytes": self.size,
            "steps": [{"kernel": kernel, "sources": list(sources)} for kernel, sources in self.steps],
            "buffers": [
                {"offset": b.offset, "bytes": b.nbytes, "first": b.first, "last": b.last, "what": b.what}
                for b in self.buffers
                if b.nbytes
            ],
        }


@dataclass
class Memory:
    """Collects buffers and when they are in use, step by step.

    A step has two halves, so that a result may take the place of an operand that has been read by then.
    """

    _sizes: list[int] = field(default_factory=list)
    _what: list[str] = field(default_factory=list)
    _first: dict[int, int] = field(default_factory=dict)
    _last: dict[int, int] = field(default_factory=dict)
    _over: dict[int, tuple[int, int]] = field(default_factory=dict)
    _in_turn: list[tuple[int, int, int]] = field(default_factory=list)
    _steps: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    def add(self, nbytes: int, what: str, over: tuple[int, int] | None = None) -> int:
        """Return the number of a new buffer.

        Args:
            nbytes: Its size.
            what: What it holds.
            over: A buffer that it may overlap, and how many bytes it begins before that.
        """
        if over is not None:
            self._over[len(self._sizes)] = over
        self._sizes.append(nbytes)
        self._what.append(what)
        return len(self._sizes) - 1

    def touch(self, buffer: int) -> None:
        """State that the step at hand uses a buffer."""
        self._first.setdefault(buffer, 2 * len(self._steps))
        self._last[buffer] = 2 * len(self._steps) + 1

    def read_before_written(self, operand: int, result: int) -> None:
        """State that the step at hand has read all of an operand before it writes a result."""
        self._in_turn.append((len(self._steps), operand, result))

    def tick(self, kernel: str, sources: Sequence[str]) -> None:
        """Go on to the next step; the one that ends was a call of ``kernel``."""
        self._steps.append((kernel, tuple(sources)))

    def plan(self, alignment: int) -> MemoryMap:
        """Return where everything lies, as tightly as is found."""
        for step, operand, result in self._in_turn:
            if self._last[operand] == 2 * step + 1 and self._first[result] == 2 * step:
                self._last[operand], self._first[result] = 2 * step, 2 * step + 1
        lives = [
            Lifetime(size, self._first.get(number, 0), self._last.get(number, 0))
            for number, size in enumerate(self._sizes)
        ]
        arena = plan_tied(lives, self._over, alignment)
        buffers = [
            Buffer(offset, life.size, life.first // 2, life.last // 2, what)
            for offset, life, what in zip(arena.offsets, lives, self._what, strict=True)
        ]
        return MemoryMap(arena.size, buffers, self._steps)
