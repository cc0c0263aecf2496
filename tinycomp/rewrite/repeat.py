"""Repetition: a chain of one or more links."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tinycomp.ir.graph import Value
from tinycomp.rewrite.engine import Head
from tinycomp.rewrite.pattern import ValuePattern
from tinycomp.rewrite.search import Choice, Search


class Repeat(ValuePattern):
    """``P.repeat``: a chain of steps above ``start``; the longest chain is tried first.

    Args:
        step: Builds one link of the chain from what stands below it.
        start: What the chain begins with.
        at_least: Fewest links.
        at_most: Most links, or None for any number.
    """

    def __init__(
        self, step: Callable[[ValuePattern], ValuePattern], start: ValuePattern, at_least: int, at_most: int | None
    ) -> None:
        self.step = step
        self.start = start
        self.at_least = at_least
        self.at_most = at_most
        self._link: ValuePattern | None = None

    @property
    def link(self) -> ValuePattern:
        """One more step, above the rest of the chain."""
        if self._link is None:
            rest = None if self.at_most is None else self.at_most - 1
            self._link = self.step(Repeat(self.step, self.start, max(self.at_least - 1, 0), rest))
        return self._link

    @property
    def heads(self) -> frozenset[Head] | None:
        """Those of one link, and of the start where no link is needed."""
        first = self.link.heads
        if self.at_least or first is None:
            return first
        return None if self.start.heads is None else first | self.start.heads

    def children(self) -> Sequence[ValuePattern]:
        """Return the start and, where at least one link is needed, a link."""
        return (self.link, self.start) if self.at_least else (self.start,)

    def fresh_choices(self, value: Value | None, anchored: bool, search: Search) -> Iterable[Choice]:
        """Try one more link, then the start."""
        if self.at_most is None or self.at_most > 0:
            yield ((self.link, value, anchored),)
        if self.at_least <= 0:
            yield ((self.start, value, anchored),)
