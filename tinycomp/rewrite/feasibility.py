"""Where sub-patterns can stand at all, by operators and constants alone: what keeps the search from blind alleys.

A pair of sub-pattern and value is judged once per graph, without the bindings that a search makes on the way. So a
"no" holds for every search and a "yes" promises nothing. Patterns with nested graphs, repetition or dominance are not
judged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tinycomp.ir.graph import Value
from tinycomp.rewrite.traits import looks_through

if TYPE_CHECKING:
    from tinycomp.rewrite.compiled import Pattern
    from tinycomp.rewrite.pattern import ValuePattern

_DEPTH = 48
"""Operators that one judgement follows into a pattern; what lies deeper may stand."""


class Feasibility:
    """What is known about one pattern on a graph that does not change meanwhile.

    Args:
        pattern: The compiled pattern.
    """

    def __init__(self, pattern: Pattern) -> None:
        self.through = pattern.through
        self._judges = pattern.is_plain
        self._known: dict[tuple[ValuePattern, Value | None, bool], bool] = {}
        self._depth = 0

    def may_stand(self, pattern: ValuePattern, value: Value | None, anchored: bool = False) -> bool:
        """Whether ``pattern`` can stand for ``value`` as far as operators and constants tell.

        Args:
            pattern: A sub-pattern.
            value: A value of the graph, or None for an absent operand.
            anchored: Whether looking through no-ops is forbidden.
        """
        if not (pattern.rules_out and self._judges) or self._depth > _DEPTH:
            return True
        key = (pattern, value, anchored)
        known = self._known.get(key)
        if known is None:
            self._depth += 1
            known = self._known[key] = pattern.may_stand(value, anchored, self)
            self._depth -= 1
        return known

    def looks_through(self, value: Value) -> bool:
        """Whether ``value`` is only its producer's first operand handed on, and the pattern may ignore that."""
        return looks_through(value, self.through)
