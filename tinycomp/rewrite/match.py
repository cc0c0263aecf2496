"""What a pattern answers: a :class:`Match`, or a :class:`Rejection` that says why not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tinycomp.errors import PatternError, did_you_mean
from tinycomp.ir.graph import Node, Value

if TYPE_CHECKING:
    from tinycomp.rewrite.pattern import ValuePattern


@dataclass(frozen=True)
class Rejection:
    """A refusal with its reason; false in conditions.

    Attributes:
        reason: Why not, as one clause for the reader.
        node: The node at which the attempt failed, if there is one.
        progress: Share of the pattern that had matched, between 0 and 1.
        nodes: The nodes that had matched, root first.
    """

    reason: str
    node: Node | None = None
    progress: float = 0.0
    nodes: tuple[Node, ...] = ()

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return self.reason


def reject(reason: str) -> Rejection:
    """Say no with a reason, in a predicate.

    >>> channels = 12
    >>> print(channels % 16 == 0 or reject(f"output channels must be a multiple of 16, got {channels}"))
    output channels must be a multiple of 16, got 12
    """
    return Rejection(reason)


@dataclass(frozen=True, eq=False)
class Match:
    """Where a pattern stands in a graph; true in conditions.

    A binding is read as an attribute or an item: ``m.w`` is ``m["w"]``. Operands are bound to their
    :class:`~tinycomp.ir.Value` (None where an optional operand is absent), ``P.attr`` bindings to the attribute.

    Attributes:
        root: The node at which the pattern is anchored; for several outputs, that of the first.
        outputs: The value that each output of the pattern stands for.
        matched: Every matched node, root first, with the no-ops that were looked through.
        bindings: Values by argument name or ``named`` sub-pattern.
        attrs: Attributes by ``P.attr`` name.
        dims: Sizes by the symbol of a ``where(shape=…)``.
        free: The values that the matched nodes read from outside: those that the pattern's arguments stand for in
            argument order, then the others in the order of the pattern; no value twice, and no ``P.const``.
        values: The value that each sub-pattern object stands for.
    """

    root: Node
    outputs: tuple[Value, ...]
    matched: tuple[Node, ...]
    bindings: Mapping[str, Value | None]
    attrs: Mapping[str, Any]
    dims: Mapping[str, Any]
    free: tuple[Value, ...]
    values: Mapping[ValuePattern, Value | None] = field(repr=False, default_factory=dict)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The matched nodes, producers first."""
        return tuple(_producers_first(self.matched))

    def __getitem__(self, key: str | ValuePattern) -> Any:
        """Return what a name or a sub-pattern is bound to.

        Raises:
            PatternError: If the pattern has no such binding.
        """
        if not isinstance(key, str):
            return self.values[key]
        for scope in (self.bindings, self.attrs, self.dims):
            if key in scope:
                return scope[key]
        known = [*self.bindings, *self.attrs, *self.dims]
        raise PatternError(
            f'the pattern binds no "{key}"',
            where=self.root.label,
            expected=f"one of {sorted(known)}",
            hint=did_you_mean(key, known),
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]


def _producers_first(nodes: tuple[Node, ...]) -> list[Node]:
    members = dict.fromkeys(nodes)
    order: dict[Node, None] = {}
    stack = list(nodes)
    while stack:
        node = stack[-1]
        waiting = [p for p in _producers(node) if p in members and p not in order]
        if waiting:
            stack += reversed(waiting)
            continue
        order.setdefault(stack.pop())
    return list(order)


def _producers(node: Node) -> list[Node]:
    return [v.producer for v in node.inputs if v is not None and v.producer is not None]
