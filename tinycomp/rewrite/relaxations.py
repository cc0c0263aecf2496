"""Relaxations: a pattern with one demand less, to find out which of its demands a graph does not fulfil.

>>> from tinycomp.ir.text.parser import parse_graph
>>> from tinycomp.rewrite import P, pattern
>>> graph = parse_graph('''
... graph @main opset {"" = 17} (%x: float32[1, 4, 8, 8]) -> (%y) {
...   %w: float32[4, 2, 1, 1] = const [1, 2, 3, 4, 5, 6, 7, 8]
...   %c: float32[1, 4, 8, 8] = Conv(%x, %w) {group = 2}
...   %y: float32[1, 4, 8, 8] = Relu(%c)
... }''')
>>> @pattern
... def conv_relu(x, w):
...     return P.Relu(P.Conv(x, w, group=1))
>>> [(text, str(match.root.op)) for text, _, match in relaxations(conv_relu, graph.nodes[-1], graph)]
[('Conv with group=2', 'Relu')]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.rewrite.matcher import Check, Match, Pattern, judge
from tinycomp.rewrite.pattern import (
    Absent,
    AnyOf,
    AnyValue,
    Const,
    Constraints,
    Head,
    OpPattern,
    Result,
    ValuePattern,
    Where,
)
from tinycomp.rewrite.traits import attribute

_MOST = 50
"""Matches of one relaxed pattern that are shown to the predicates."""


class Relaxation(NamedTuple):
    """A pattern that demands less, but no less than a match needs.

    Attributes:
        text: What it takes besides, such as ``Conv with group=2``.
        pattern: The pattern.
        match: How it matches.
    """

    text: str
    pattern: Pattern
    match: Match


class _Variant(NamedTuple):
    """One demand less: what stands in the place of a sub-pattern, and what to make of that once there is a match."""

    item: ValuePattern
    loose: ValuePattern
    narrowed: Callable[[Node | None, Value | None], tuple[str, ValuePattern] | None]


def relaxations(
    pattern: Pattern, node: Node, graph: Graph, checks: Sequence[Check] = (), *, operators: bool = False
) -> Iterator[Relaxation]:
    """Yield the patterns with one demand less that match at a node.

    Demands are an attribute, a constraint of ``where``, a constant, an absent operand and, if asked for, an operator.
    What is yielded takes what is at the node instead, not anything.

    Args:
        pattern: A pattern that does not match there; one with repetitions, dominance or nested graphs has none.
        node: The node at which it is anchored.
        graph: The graph of the node.
        checks: Predicates over the whole match, which must hold.
        operators: Whether to put other operators in the place of the pattern's, instead of the other demands.
    """
    if not pattern.is_plain:
        return
    for variant in _variants(pattern, operators):
        wide, twins = _with(pattern, {variant.item: variant.loose})
        match = _first(wide, node, graph, checks)
        if match is None:
            continue
        value = match.values.get(twins[variant.item])
        narrow = variant.narrowed(None if value is None else value.producer, value)
        if narrow is None:
            continue
        text, item = narrow
        relaxed, _ = _with(pattern, {variant.item: item})
        final = _first(relaxed, node, graph, checks)
        if final is not None:
            yield Relaxation(text, relaxed, final)


def _first(pattern: Pattern, node: Node, graph: Graph, checks: Sequence[Check]) -> Match | None:
    if pattern.heads is not None and (node.domain, node.op) not in pattern.heads:
        return None
    for number, match in enumerate(pattern.matches(node, graph)):
        if number == _MOST:
            return None
        try:
            if judge(match, checks) is None:
                return match
        except Exception:  # a predicate need not understand what its pattern keeps from it
            return None
    return None


def _variants(pattern: Pattern, operators: bool) -> Iterator[_Variant]:
    for item in _items(pattern):
        if isinstance(item, OpPattern) and operators:
            yield from _any_operator(item)
        elif operators:
            continue
        elif isinstance(item, OpPattern):
            yield from _without_attributes(item)
        elif isinstance(item, Where):
            yield from _without_constraints(item)
        elif isinstance(item, (Absent, Const)):
            yield _any_value(item)


def _any_operator(item: OpPattern) -> Iterator[_Variant]:
    names = item.names
    if names is None:
        return
    loose = _named(dataclasses.replace(item, names=None, attrs={}), item)

    def narrowed(node: Node | None, value: Value | None) -> tuple[str, ValuePattern] | None:
        head: Head | None = None if node is None else (node.domain, node.op)
        if node is None or head is None or head in names:
            return None
        kept = _named(dataclasses.replace(item, names=names | {head}, attrs={}), item)
        return f"{node.op} in the place of {item.text}", kept

    yield _Variant(item, loose, narrowed)


def _without_attributes(item: OpPattern) -> Iterator[_Variant]:
    for name in item.attrs:
        others = {key: wanted for key, wanted in item.attrs.items() if key != name}

        def narrowed(
            node: Node | None, value: Value | None, name: str = name, others: Mapping[str, object] = others
        ) -> tuple[str, ValuePattern] | None:
            found = None if node is None else attribute(node, name)
            if node is None or found is None:
                return None
            kept = _named(dataclasses.replace(item, attrs={**others, name: found}), item)
            return f"{node.op} with {name}={found}", kept

        yield _Variant(item, _named(dataclasses.replace(item, attrs=others), item), narrowed)


def _without_constraints(item: Where) -> Iterator[_Variant]:
    for field in dataclasses.fields(Constraints):
        if getattr(item.constraints, field.name) is None:
            continue
        fields: dict[str, Any] = {field.name: None}
        loose = _named(dataclasses.replace(item, constraints=dataclasses.replace(item.constraints, **fields)), item)

        def narrowed(
            node: Node | None, value: Value | None, name: str = field.name, loose: ValuePattern = loose
        ) -> tuple[str, ValuePattern] | None:
            return None if value is None else (f'"{value.name}" ({value.type}) whatever its {name}', loose)

        yield _Variant(item, loose, narrowed)


def _any_value(item: Absent | Const) -> _Variant:
    loose = AnyValue(item.name, optional=True)

    def narrowed(node: Node | None, value: Value | None) -> tuple[str, ValuePattern] | None:
        if value is None:
            return None
        what = "an operand that it leaves out" if isinstance(item, Absent) else "a constant"
        return f'"{value.name}" in the place of {what}', loose

    return _Variant(item, loose, narrowed)


# Patterns anew ------------------------------------------------------------------------------------------------------


def _items(pattern: Pattern) -> list[ValuePattern]:
    """Return every sub-pattern once, parts before what they are parts of."""
    order: dict[ValuePattern, None] = {}
    stack = list(pattern.outputs)[::-1]
    while stack:
        item = stack[-1]
        waiting = [child for child in item.children() if child not in order]
        if waiting:
            stack += reversed(waiting)
            continue
        order.setdefault(stack.pop())
    return list(order)


def _with(
    pattern: Pattern, exchanged: Mapping[ValuePattern, ValuePattern]
) -> tuple[Pattern, Mapping[ValuePattern, ValuePattern]]:
    """Return a pattern with other sub-patterns in the place of some, and what stands for each of the old ones."""
    twins: dict[ValuePattern, ValuePattern] = {}
    for item in _items(pattern):
        twins[item] = _rebuilt(exchanged.get(item, item), twins)
    outputs = [twins[item] for item in pattern.outputs]
    arguments = [twins.get(item, item) for item in pattern.arguments]
    through = True if pattern.through is None else pattern.through
    return Pattern(pattern.name, outputs, arguments, through=through, checks=pattern.checks), twins


def _rebuilt(item: ValuePattern, twins: Mapping[ValuePattern, ValuePattern]) -> ValuePattern:
    """Return a sub-pattern with the twins of its parts; itself if these are its parts."""
    if all(twins.get(child, child) is child for child in item.children()):
        return item
    if isinstance(item, OpPattern):
        made: ValuePattern = dataclasses.replace(item, operands=tuple(twins.get(p, p) for p in item.operands))
    elif isinstance(item, AnyOf):
        made = dataclasses.replace(item, options=tuple(twins.get(p, p) for p in item.options))
    elif isinstance(item, Where):
        made = dataclasses.replace(item, inner=twins.get(item.inner, item.inner))
    else:
        assert isinstance(item, Result), item
        op = twins[item.op]
        assert isinstance(op, OpPattern), op
        made = dataclasses.replace(item, op=op)
    return _named(made, item)


def _named(made: ValuePattern, item: ValuePattern) -> ValuePattern:
    made.name = item.name
    return made
