"""The backtracking search behind every match: a goal stack with a trail, no recursion.

A *goal* asks a sub-pattern to stand for a value. A leaf does or does not; any other sub-pattern answers with *choices*,
each a tuple of further goals. Choices are generated lazily, and everything that a choice records is undone before the
next one is tried. So whoever consumes the matches (predicates, the escape test) takes part in the search simply by
asking for the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.rewrite.match import Rejection
from tinycomp.rewrite.traits import looks_through

if TYPE_CHECKING:
    from tinycomp.rewrite.feasibility import Feasibility
    from tinycomp.rewrite.op_pattern import OpPattern
    from tinycomp.rewrite.pattern import ValuePattern

_K = TypeVar("_K")
_V = TypeVar("_V")


Goal = tuple["ValuePattern", Value | None, bool]
"""A pattern, the value that it must stand for, and whether looking through a no-op on the way is forbidden (roots)."""
Choice = tuple[Goal, ...]
_Pending = tuple[Goal, Any] | None
_Open = tuple[int, Iterator[Choice], _Pending]
"""A goal with choices left: the length of the trail before it, the choices, and what is pending behind it."""

STEPS = 20_000
"""Steps after which one attempt gives up; a pattern with n swappable operands can have 2ⁿ orders."""


class Search:
    """What has been matched so far on the current branch of the search.

    Args:
        graph: The graph that holds the node, or None; it counts graph outputs as uses.
        through: Names of the no-ops to look through; None means every structural operator.
        size: Number of operators that the pattern asks for at least.
        feasible: What spares the search its blind alleys; without it, :attr:`failure` tells of each of them.

    Attributes:
        values: The value that each sub-pattern stands for.
        nodes: The node that each operator pattern stands for.
        members: Every matched node of the graph itself, root first.
        rest: Operands that ``...`` and chains leave unconstrained.
        attrs: Attribute bindings.
        dims: Sizes bound by ``where(shape=…)``.
    """

    def __init__(
        self, graph: Graph | None, through: frozenset[str] | None, size: int, feasible: Feasibility | None
    ) -> None:
        self.graph = graph
        self.values: dict[ValuePattern, Value | None] = {}
        self.nodes: dict[OpPattern, Node] = {}
        self.members: dict[Node, None] = {}
        self.rest: dict[Value, None] = {}
        self.attrs: dict[str, Any] = {}
        self.dims: dict[str, Any] = {}
        self._failure = Rejection("")
        self._through = through
        self._size = max(size, 1)
        self._feasible = feasible
        self._furthest = -1
        self._expected: dict[str, None] = {}
        self._found: Value | None = None
        self._steps = 0
        self._formals: dict[Value, Value] = {}
        self._bodies: dict[Graph, None] = {}
        self._trail: list[tuple[dict[Any, Any], Any]] = []

    # Recording -----------------------------------------------------------------------------------------------------

    def record(self, table: dict[_K, _V], key: _K, value: _V) -> None:
        """Enter ``key`` into one of the tables until the search goes back beyond this point."""
        if key not in table:
            table[key] = value
            self._trail.append((table, key))

    def add_member(self, node: Node) -> None:
        """Record a matched node, unless it lies in a body of another matched node."""
        if not any(node in body for body in self._bodies):
            self.record(self.members, node, None)

    def enter(self, node: Node, body: Graph) -> None:
        """Let the values that ``body`` captures stand for the operands of ``node``."""
        self.record(self._bodies, body, None)
        count = len(node.inputs) if node.is_call else node.captures
        for formal, actual in zip(body.inputs[::-1][:count], node.inputs[::-1], strict=False):
            if actual is not None:
                self.record(self._formals, formal, actual)

    def fail(self, reason: str, node: Node | None = None) -> None:
        """Remember a failure if the search has never come further."""
        done = len(self.nodes)
        if done > self._furthest:
            self._furthest = done
            self._expected = {}
            self._failure = Rejection(reason, node, min(done / self._size, 1.0), tuple(self.members))

    def fail_operator(self, expected: tuple[str, ...], found: Value | None) -> None:
        """Like :meth:`fail`, for an operator that is none of those ``expected``; alternatives are named together."""
        node = None if found is None else found.producer
        further = len(self.nodes) > self._furthest
        if further:
            self.fail("", node)
        if further or (len(self.nodes) == self._furthest and self._expected and self._failure.node is node):
            self._expected.update(dict.fromkeys(expected))
            self._found = found

    @property
    def is_guided(self) -> bool:
        """Whether blind alleys are left out, so that :attr:`failure` does not tell of them."""
        return self._feasible is not None

    @property
    def failure(self) -> Rejection:
        """The furthest failure so far."""
        if not self._expected:
            return self._failure
        *most, last = self._expected
        text = f"{', '.join(most)} or {last}" if most else last
        return replace(self._failure, reason=f"expected {text}, found {self.describe(self._found)}")

    # Reading -------------------------------------------------------------------------------------------------------

    def resolve(self, value: Value | None) -> Value | None:
        """Return the outer value that a captured one stands for."""
        while value is not None and value in self._formals:
            value = self._formals[value]
        return value

    def looks_through(self, value: Value) -> bool:
        """Whether ``value`` is only its producer's first operand handed on, and the pattern may ignore that."""
        return looks_through(value, self._through)

    def uses(self, value: Value) -> int:
        """Number of uses, graph outputs included where the graph is known."""
        return sum(value.users.values()) if self.graph is None else self.graph.use_count(value)

    def describe(self, value: Value | None) -> str:
        """Name a value for a message."""
        if value is None:
            return "no operand"
        if value.const is not None:
            return f"constant {value.name}"
        if value.producer is None:
            return f"graph input {value.name}"
        return f"{value.producer.qualified_op} at {value.producer.label}"

    # Searching -----------------------------------------------------------------------------------------------------

    def solve(self, goals: Iterable[Goal]) -> Iterator[None]:
        """Yield once per way to satisfy all goals, with the tables describing that way until the next step."""
        pending: _Pending = _push(tuple(goals), None)
        stack: list[_Open] = []
        while pending is not _NONE:
            if pending is None:
                yield
            elif self._steps >= STEPS:
                self._furthest = -1
                self.fail(f"gave up after {STEPS} steps of backtracking")
                return
            else:
                self._steps += 1
                (pattern, value, anchored), rest = pending
                value = self.resolve(value)
                if not pattern.is_leaf:
                    stack.append((len(self._trail), pattern.choices(value, anchored, self), rest))
                elif pattern.stands(value, self):
                    pending = rest
                    continue
            pending = self._next_choice(stack)

    def _next_choice(self, stack: list[_Open]) -> _Pending:
        """Return what is pending after the next choice of the last goal that has one left."""
        while stack:
            mark, choices, rest = stack[-1]
            if len(self._trail) > mark:
                self._undo(mark)
            choice = next(choices, None)
            if choice is None:
                stack.pop()
            elif self._is_feasible(choice):
                return _push(choice, rest)
        return _NONE

    def _is_feasible(self, choice: Choice) -> bool:
        feasible = self._feasible
        if feasible is None:
            return True
        for pattern, value, anchored in choice:
            if pattern.rules_out and not feasible.may_stand(pattern, value, anchored):
                return False
        return True

    def _undo(self, mark: int) -> None:
        while len(self._trail) > mark:
            table, key = self._trail.pop()
            del table[key]


def _push(goals: Choice, rest: _Pending) -> _Pending:
    for goal in reversed(goals):
        rest = (goal, rest)
    return rest


_NONE = cast("_Pending", object())
"""In the place of what is pending when no choice is left."""
