"""Sub-patterns that ask for an operator: names, attributes, operands, bodies, results."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tinycomp.errors import PatternError
from tinycomp.ir.graph import COMPOSITE, TINYCOMP, Node, Value
from tinycomp.rewrite.constraints import check_attr
from tinycomp.rewrite.engine import Head
from tinycomp.rewrite.pattern import AnyValue, Const, ValuePattern
from tinycomp.rewrite.search import Choice, Goal, Search
from tinycomp.rewrite.traits import has_trait, permutable

if TYPE_CHECKING:
    from tinycomp.rewrite.feasibility import Feasibility

_MOST_PERMUTED = 6
"""Variadic operators with more operands are tried in the given order only: 7! orders are too many."""


class OpPattern(ValuePattern):
    """One operator application; as a value it stands for the first result.

    Args:
        names: Accepted operators as (domain, name); None for any.
        operands: One pattern per operand. An operand without a pattern must be absent, unless ``variadic``.
        variadic: Whether further operands may follow (``...``).
        attrs: Constraint per attribute.
        bodies: Patterns of the results of each nested graph, by attribute name.
        trait: A trait that the operator must have, or an empty text.
        anywhere: The only operand pattern may stand at any operand; the others are unconstrained.
    """

    rules_out = True
    only_at_heads = True

    def __init__(
        self,
        names: frozenset[Head] | None,
        operands: Sequence[ValuePattern],
        *,
        variadic: bool = False,
        attrs: Mapping[str, Any] | None = None,
        bodies: Mapping[str, Sequence[ValuePattern]] | None = None,
        trait: str = "",
        anywhere: bool = False,
    ) -> None:
        self.names = names
        self.operands = tuple(operands)
        self.variadic = variadic
        self.attrs = dict(attrs or {})
        self.bodies = dict(bodies or {})
        self.trait = trait
        self.anywhere = anywhere

    def __getitem__(self, index: int) -> ValuePattern:
        """Return the pattern of result ``index``."""
        return self if index == 0 else Result(self, index)

    def __iter__(self) -> Iterator[ValuePattern]:
        raise PatternError(
            "the number of results of an operator pattern is not known",
            where=self.text,
            hint="Write P.Split(x)[1], or a, b = P.Split(x).results(2).",
        )

    def results(self, count: int) -> tuple[ValuePattern, ...]:
        """Return the patterns of the first ``count`` results."""
        return tuple(self[i] for i in range(count))

    @functools.cached_property
    def expected(self) -> tuple[str, ...]:
        """What it asks for, in messages."""
        if self.names is None:
            return ("an element-wise operator" if self.trait == "elementwise" else "any operator",)
        return tuple(sorted(_display(head) for head in self.names))

    @functools.cached_property
    def _telling(self) -> Sequence[tuple[int, ValuePattern]]:
        """The operand patterns that rule values out, with their places; constants, which are cheap to judge, first."""
        telling = [pair for pair in enumerate(self.operands) if type(pair[1]) is not AnyValue]
        return sorted(telling, key=lambda pair: not isinstance(pair[1], Const))

    @property
    def text(self) -> str:
        """The operator in messages."""
        return " or ".join(self.expected)

    @property
    def heads(self) -> frozenset[Head] | None:
        """The accepted operators."""
        return self.names

    def children(self) -> Sequence[ValuePattern]:
        """Return operands, then what the bodies hold."""
        return (*self.operands, *itertools.chain.from_iterable(self.bodies.values()))

    def choices(self, value: Value | None, anchored: bool, search: Search) -> Iterator[Choice]:
        """Yield the ways to stand for ``value`` as the first result."""
        return self.result_choices(value, 0, anchored, search)

    def result_choices(self, value: Value | None, index: int, anchored: bool, search: Search) -> Iterator[Choice]:
        """Yield the ways in which ``value`` can be result ``index``, directly or behind no-ops."""
        crossed: list[Node] = []
        while value is not None and value.producer is not None:
            node = value.producer
            if self.accepts(node):
                choice = self._at(node, value, index, crossed, search)
                if choice is not None:
                    yield choice
            if anchored or not search.looks_through(value):
                break
            crossed = [*crossed, node]
            value = search.resolve(node.inputs[0])
        if value is None or value.producer is None or not self.accepts(value.producer):
            search.fail_operator(self.expected, value)

    def may_stand(self, value: Value | None, anchored: bool, feasible: Feasibility) -> bool:
        """Whether ``value`` can be the first result, directly or behind no-ops."""
        return self.result_may_stand(value, 0, anchored, feasible)

    def result_may_stand(self, value: Value | None, index: int, anchored: bool, feasible: Feasibility) -> bool:
        """Whether ``value`` can be result ``index``, directly or behind no-ops."""
        while value is not None and value.producer is not None:
            node = value.producer
            if self.accepts(node) and value in node.outputs[index : index + 1] and self._operands_may(node, feasible):
                return True
            if anchored or not feasible.looks_through(value):
                return False
            value = node.inputs[0]
        return False

    def _operands_may(self, node: Node, feasible: Feasibility) -> bool:
        """Whether each operand pattern can stand at one of the places that are open to it."""
        found = _own_operands(node)
        if self.anywhere:
            return any(feasible.may_stand(self.operands[0], value) for value in found)
        if len(found) > len(self.operands) and not self.variadic:
            return False
        found += [None] * (len(self.operands) - len(found))
        swapped = _permuted(found, node)
        for index, pattern in self._telling:
            places = found[:swapped] if index < swapped else found[index : index + 1]
            for value in places:
                if feasible.may_stand(pattern, value):
                    break
            else:
                return False
        return True

    def accepts(self, node: Node) -> bool:
        """Whether the operator of ``node`` is one of those asked for, whatever its operands."""
        if self.names is not None and (node.domain, node.op) not in self.names:
            return False
        return not self.trait or has_trait(node, self.trait)

    def _at(self, node: Node, value: Value, index: int, crossed: list[Node], search: Search) -> Choice | None:
        """Stand at ``node``, and return the goals that remain; None where that is not possible."""
        held = search.nodes.get(self)
        if held is not None and held is not node:
            search.fail(f"expected {self.text} at {held.label} again, found {search.describe(value)}", node)
            return None
        if index >= len(node.outputs) or node.outputs[index] is not value:
            search.fail(f"expected result {index} of {self.text}, found {value.name} at {node.label}", node)
            return None
        for no_op in crossed:
            search.add_member(no_op)
        search.record(search.values, self[index], value)
        if held is not None:
            return ()
        search.record(search.nodes, self, node)
        search.add_member(node)
        return self._inside(node, search)

    def _inside(self, node: Node, search: Search) -> Choice | None:
        for name, wanted in self.attrs.items():
            reason = check_attr(node, name, wanted, search)
            if reason:
                search.fail(f"{reason} at {node.label}", node)
                return None
        bodies = self._body_goals(node, search)
        if bodies is None:
            return None
        found = _own_operands(node)
        if self.anywhere or _permuted(found, node):
            return ((_Operands(self, node), None, False), *bodies)
        operands = self.in_order(found, node, search)
        return None if operands is None else (*operands, *bodies)

    def in_order(self, found: Sequence[Value | None], node: Node, search: Search) -> Choice | None:
        """Return the goals of the operand patterns for operands of ``node`` in an order; None if those are too many."""
        wanted = len(self.operands)
        if len(found) > wanted and not self.variadic:
            plural = "" if wanted == 1 else "s"
            search.fail(f"expected {wanted} operand{plural}, found {len(found)} at {node.label}", node)
            return None
        for extra in found[wanted:]:
            _note_rest(extra, search)
        return tuple([(p, v, False) for p, v in itertools.zip_longest(self.operands, found[:wanted])])

    def _body_goals(self, node: Node, search: Search) -> list[Goal] | None:
        goals: list[Goal] = []
        for name, patterns in self.bodies.items():
            body = node.bodies.get(name)
            if body is None or len(body.outputs) != len(patterns):
                found = "none" if body is None else f"{len(body.outputs)} results"
                search.fail(f"expected {name} with {len(patterns)} results, found {found} at {node.label}", node)
                return None
            search.enter(node, body)
            goals += [(p, v, False) for p, v in zip(patterns, body.outputs, strict=True)]
        return goals


class _Operands(ValuePattern):
    """The operands of one matched node, in every order that the operator allows."""

    def __init__(self, op: OpPattern, node: Node) -> None:
        self.op = op
        self.node = node

    def choices(self, value: Value | None, anchored: bool, search: Search) -> Iterator[Choice]:
        found = _own_operands(self.node)
        if self.op.anywhere:
            yield from self._positions(found, search)
            return
        for order in _permutations(found, _permuted(found, self.node)):
            goals = self.op.in_order(order, self.node, search)
            if goals is None:
                return
            yield goals

    def _positions(self, found: list[Value | None], search: Search) -> Iterator[Choice]:
        for index, value in enumerate(found):
            if value is None or value in found[:index]:
                continue
            for other in found[:index] + found[index + 1 :]:
                _note_rest(other, search)
            yield ((self.op.operands[0], value, False),)


class Result(ValuePattern):
    """Result ``index`` of an operator pattern (never 0, which the operator pattern itself stands for)."""

    rules_out = True
    only_at_heads = True

    def __init__(self, op: OpPattern, index: int) -> None:
        self.op = op
        self.index = index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Result) and other.op is self.op and other.index == self.index

    def __hash__(self) -> int:
        return hash((id(self.op), self.index))

    @property
    def heads(self) -> frozenset[Head] | None:
        """Those of the operator."""
        return self.op.heads

    def children(self) -> Sequence[ValuePattern]:
        """Return the operator."""
        return (self.op,)

    def choices(self, value: Value | None, anchored: bool, search: Search) -> Iterator[Choice]:
        """Yield the ways in which ``value`` can be this result."""
        return self.op.result_choices(value, self.index, anchored, search)

    def may_stand(self, value: Value | None, anchored: bool, feasible: Feasibility) -> bool:
        """Whether ``value`` can be this result."""
        return self.op.result_may_stand(value, self.index, anchored, feasible)


def _note_rest(value: Value | None, search: Search) -> None:
    resolved = search.resolve(value)
    if resolved is not None:
        search.record(search.rest, resolved, None)


def _own_operands(node: Node) -> list[Value | None]:
    """Return the operands without captured values, and without absent ones at the end."""
    found = list(node.inputs[: len(node.inputs) - node.captures])
    while found and found[-1] is None:
        found.pop()
    return found


def _permuted(operands: Sequence[Value | None], node: Node) -> int:
    """Return how many of the leading ``operands`` of ``node`` are tried in every order; 0 for none."""
    count = permutable(node)
    return count if 2 <= count <= min(len(operands), _MOST_PERMUTED) else 0


def _permutations(values: list[Value | None], count: int) -> Iterator[list[Value | None]]:
    """Yield ``values`` with their first ``count`` entries in every distinct order, the given one first."""
    if not count:
        yield values
        return
    seen = set()
    for head in itertools.permutations(values[:count]):
        if head not in seen:
            seen.add(head)
            yield [*head, *values[count:]]


def _display(head: Head) -> str:
    domain, name = head
    return name if domain in ("", COMPOSITE, TINYCOMP) else f"{domain}::{name}"
