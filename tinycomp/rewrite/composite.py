"""Composites: a named pattern with predicates, as a target's table lists them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tinycomp.ir.graph import Graph, Node
from tinycomp.rewrite.compiled import Pattern, pattern
from tinycomp.rewrite.match import Match, Rejection
from tinycomp.rewrite.matcher import Check, find

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(eq=False)
class Composite:
    """What a target takes as one atom.

    Attributes:
        name: Name within the target.
        pattern: What it looks like.
        checks: Predicates over the whole match, asked after the pattern's own.
        target: Name of the target that owns it; may be empty.
    """

    name: str
    pattern: Pattern
    checks: list[Check] = field(default_factory=list)
    target: str = ""

    @classmethod
    def trace(cls, function: Callable[..., Any], *, target: str = "", name: str | None = None) -> Composite:
        """Make a composite of a pattern function (or a :class:`Pattern`), named after it unless ``name`` says other.

        Raises:
            PatternError: If the function does not describe a pattern.
        """
        traced = function if isinstance(function, Pattern) else pattern(function)
        return cls(name or traced.name, traced, target=target)

    @property
    def qualified_name(self) -> str:
        """Name with the target in front, such as ``npu.conv_relu``; the operator name of its nodes."""
        return f"{self.target}.{self.name}" if self.target else self.name

    @property
    def predicates(self) -> Sequence[Check]:
        """Every predicate in the order in which they are asked."""
        return [*self.pattern.checks, *self.checks]

    def check(self, predicate: _F) -> _F:
        """Add a predicate over the whole match: True or None is yes, ``reject("why")`` or False is no."""
        self.checks.append(predicate)
        return predicate

    def match(self, node: Node, graph: Graph | None = None) -> Match | Rejection:
        """Return the first match at ``node`` that the predicates accept, or the rejection that came furthest."""
        return find(self.pattern, node, graph, self.predicates)
