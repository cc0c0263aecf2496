"""Match a compiled pattern at a node: yield the matches lazily, or explain as well as possible why there is none.

The search is a backtracking one with a stack of goals and a trail; it does not recurse. A *goal* asks a sub-pattern to
stand for a value. A leaf can be decided at once; any other sub-pattern answers with *choices*, each a tuple of further
goals. Choices are generated lazily, and everything that a choice records is undone before the next one is tried. So a
consumer that rejects a match (a predicate, the escape test) makes the search backtrack simply by asking for the next.

:class:`Feasibility` prunes the search: from operators and constants alone, it judges where sub-patterns can stand.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple, TypeVar, cast, overload

import numpy as np

from tinycomp.errors import PatternError, did_you_mean
from tinycomp.ir.graph import COMPOSITE, Graph, Node, Value
from tinycomp.records import dataclass, field
from tinycomp.remark import Remark
from tinycomp.rewrite.pattern import (
    Absent,
    AnyOf,
    AnyValue,
    AttrBinding,
    Const,
    Constraints,
    Dominance,
    Head,
    NotConst,
    OpPattern,
    Repeat,
    Result,
    ValuePattern,
    Where,
    distances,
    trace,
)
from tinycomp.rewrite.traits import attribute, has_trait, is_same_view, is_structural, looks_through, permutable

_F = TypeVar("_F", bound=Callable[..., Any])
_K = TypeVar("_K")
_V = TypeVar("_V")

STEPS = 20_000
"""Steps after which one attempt gives up; a pattern with n swappable operands can have 2ⁿ orders."""
_DEPTH = 48
"""Operators that :class:`Feasibility` follows into a pattern; what lies deeper is taken to be possible."""
_MOST_PERMUTED = 6
"""Variadic operators with more operands are tried in the given order only: 7! orders are too many."""
_FILLED_DEFAULTS = {"dilations": 1, "pads": 0, "strides": 1}


# Matches ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Match:
    """One place where a pattern matches a graph; true in conditions, unlike a remark.

    A binding is read as an attribute or an item: ``m.w`` is ``m["w"]``. Operands are bound to their
    :class:`~tinycomp.ir.Value` (None where an optional operand is absent), ``P.attr`` bindings to the attribute.

    Attributes:
        root: The node at which the pattern is anchored; for several outputs, that of the first.
        outputs: The value that each output of the pattern stands for.
        matched: Every matched node, root first, with the no-ops that were looked through.
        bindings: Values by argument name or ``named`` sub-pattern.
        attrs: Attributes by ``P.attr`` name.
        dims: Sizes by the symbol of a ``where(shape=…)``.
        free: The distinct values that the matched nodes read from outside: first those of the pattern's arguments, in
            argument order, then the others in the order of the pattern. Values of ``P.const`` are not among them.
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
        order: dict[Node, None] = {}
        members = set(self.matched)
        stack = list(self.matched)
        while stack:
            node = stack[-1]
            waiting = [p for p in _producers(node) if p in members and p not in order]
            if waiting:
                stack += reversed(waiting)
                continue
            order.setdefault(stack.pop())
        return tuple(order)

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


Check = Callable[[Match], Any]
"""A predicate over the whole match: True or None is yes; False or a :class:`Remark` is no."""


def judge(match: Match, checks: Iterable[Check]) -> Remark | None:
    """Return the first refusal among ``checks``, or None."""
    for check in checks:
        try:
            answer = check(match)
        except Exception as error:
            if hasattr(error, "add_note"):  # from Python 3.11 on
                error.add_note(f"while a predicate checked the match at {match.root!r}")
            raise
        if isinstance(answer, Remark):
            reason, where = answer.reason, answer.where
        elif answer is None or bool(answer):
            continue
        else:
            name = getattr(check, "__name__", "_")
            reason, where = f"{'a predicate' if name == '_' else name} refused the match", ""
        sources = _sources(match.matched)
        return Remark(sources=sources, reason=reason, progress=1.0, where=where or match.root.label)
    return None


def _sources(nodes: Iterable[Node]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(itertools.chain.from_iterable(node.sources or (node.label,) for node in nodes)))


def _producers(node: Node) -> list[Node]:
    return [v.producer for v in node.inputs if v is not None and v.producer is not None]


# Compiled patterns --------------------------------------------------------------------------------------------------


class Landmark(NamedTuple):
    """An operator that every match holds, and the most operators that lie between it and the root."""

    heads: frozenset[Head]
    depth: int


class Pattern:
    """A pattern that is compiled for matching.

    Attributes:
        name: Name for messages.
        outputs: The sub-patterns of its results.
        arguments: The sub-patterns of its arguments, in order.
        named: Every named sub-pattern by name; arguments first.
        through: Names of the no-ops looked through; None means every structural operator.
        checks: Predicates over the whole match.
        size: The fewest operators that a match has.
        heads: Operators at which it can be anchored; None means any.
        operators: Every operator that it mentions.
        landmarks: Operators that every match holds, with their distance from the root.
        is_plain: Whether it consists of operators, their results, alternatives and constraints only.
        mentions_composites: Whether it mentions composites that an earlier pattern may have created.
    """

    def __init__(
        self,
        name: str,
        outputs: Sequence[ValuePattern],
        arguments: Sequence[ValuePattern] = (),
        *,
        through: bool | Iterable[str] = True,
        checks: Sequence[Check] = (),
    ) -> None:
        self.name = name
        self.outputs = tuple(outputs)
        self.arguments = tuple(arguments)
        self.through = None if through is True else frozenset(through or ())
        self.checks: list[Check] = list(checks)
        self.heads: frozenset[Head] | None = self.outputs[0].heads if self.outputs else frozenset()
        self.size = len(_required_ops(self.outputs))
        self._parts = [distances(p) for p in self.outputs]
        items = [item for part in self._parts for item, _ in part]
        self.landmarks = _landmarks(self.outputs[0], self._parts[0]) if self.outputs else ()
        self.operators = frozenset(head for p in items if isinstance(p, OpPattern) for head in p.names or ())
        self.mentions_composites = any(domain == COMPOSITE for domain, _ in self.operators)
        self.is_plain = all(map(_is_plain, items))
        self._below = _below(self.outputs[0]) if self.outputs and self.is_plain else {}
        self.named = self._collect_names(items)
        self._validate()

    def check(self, predicate: _F) -> _F:
        """Add a predicate over the whole match: True or None is yes, ``reject("why")`` or False is no."""
        self.checks.append(predicate)
        return predicate

    def matches(self, node: Node, graph: Graph | None = None) -> Iterator[Match]:
        """Yield the ways to match at ``node``, best first, before any predicate."""
        return matches(self, node, graph)

    def match(self, node: Node, graph: Graph | None = None) -> Match | Remark:
        """Return the first match at ``node`` that all predicates accept, or a remark that says why there is none."""
        return find(self, node, graph, self.checks)

    def can_start_at(self, node: Node) -> bool:
        """Tell whether ``node`` can be the root, by its operator and those that make its operands."""
        head = node.domain, node.op
        if self.heads is not None and head not in self.heads:
            return False
        for makers in self._below.get(head, ()):
            for value in node.inputs:
                if value is not None and (value.const is not None if makers is None else self._makes(makers, value)):
                    break
            else:
                return False
        return True

    def _makes(self, makers: frozenset[Head], value: Value) -> bool:
        node = value.producer
        if node is None or (node.domain, node.op) in makers:
            return node is not None
        return self.through != frozenset() and is_structural(node)

    def find_all(self, graph: Graph) -> Iterator[Match]:
        """Yield one match per root of ``graph``, from the outputs back; matches may overlap."""
        for node in reversed(graph.nodes):
            match = self.match(node, graph) if self.can_start_at(node) else None
            if isinstance(match, Match):
                yield match

    def __repr__(self) -> str:
        return f"<Pattern {self.name}>"

    def _collect_names(self, items: Iterable[ValuePattern]) -> dict[str, ValuePattern]:
        named = {p.name: p for p in self.arguments}
        for item in items:
            if item.name and named.setdefault(item.name, item) is not item:
                raise PatternError(
                    f'the name "{item.name}" is given to two sub-patterns',
                    where=f"pattern {self.name}",
                    hint="Use one sub-pattern object twice to ask for the same value.",
                )
        return named

    def _validate(self) -> None:
        where = f"pattern {self.name}"
        if self.heads is not None and not self.heads:
            raise PatternError(
                "the result is not an operator",
                where=where,
                expected="P.Op(…) as result",
                hint="A pattern is anchored at a node: return its last operator.",
            )
        used = {p for part in self._parts for p, _ in part}
        for argument in self.arguments:
            if argument not in used:
                raise PatternError(f'the argument "{argument.name}" is not used', where=where)
        known = {p for p, _ in self._parts[0]}
        for part in self._parts[1:]:
            here = {p for p, _ in part}
            if known.isdisjoint(here):
                raise PatternError("the results share no sub-pattern", where=where, hint="Use two patterns.")
            known |= here


def _is_plain(item: ValuePattern) -> bool:
    if isinstance(item, OpPattern):
        return not item.bodies
    return isinstance(item, (Result, Where, AnyOf)) or not item.children()


def _below(root: ValuePattern) -> dict[Head, tuple[frozenset[Head] | None, ...]]:
    """Return, by root operator, the operators that must produce its operands in any order; None means a constant.

    Root operators of several alternatives are left out.
    """
    options = [root]
    for option in options:
        options += option.options if isinstance(option, AnyOf) else ()
    options = [option for option in options if not isinstance(option, AnyOf)]
    heads = Counter(head for option in options for head in option.heads or ())
    roots = [p for p in options if isinstance(p, OpPattern) and not p.anywhere]
    return {head: _makers(p) for p in roots for head in p.names or () if heads[head] == 1}


def _makers(root: OpPattern) -> tuple[frozenset[Head] | None, ...]:
    operands = [p.inner if isinstance(p, Where) else p for p in root.operands]
    constants = (None,) if any(isinstance(p, Const) for p in operands) else ()
    return (*constants, *(p.names for p in operands if isinstance(p, OpPattern) and p.names is not None))


def _required_ops(outputs: Sequence[ValuePattern]) -> set[ValuePattern]:
    seen: set[ValuePattern] = set()
    stack = list(outputs)
    while stack:
        item = stack.pop()
        if item not in seen:
            seen.add(item)
            stack.extend(item.required())
    return {p for p in seen if isinstance(p, OpPattern)}


def always_holds(pattern: ValuePattern, heads: Collection[Head]) -> bool:
    """Tell whether every match of a pattern holds at least one of these operators."""
    holds: dict[ValuePattern, bool] = {}
    stack = [pattern]
    while stack:
        item = stack[-1]
        children = item.operands if isinstance(item, OpPattern) else item.children()  # no nested graphs
        waiting = [child for child in children if child not in holds]
        if waiting:
            stack += waiting
            continue
        below = [holds[child] for child in children]
        if isinstance(item, OpPattern) and item.names is not None and item.names <= set(heads):
            below = [True]
        holds[stack.pop()] = all(below) if isinstance(item, AnyOf) else any(below)
    return holds[pattern]


def _landmarks(pattern: ValuePattern, parts: list[tuple[ValuePattern, int]]) -> tuple[Landmark, ...]:
    """Return the landmarks of a pattern; none for one of unbounded reach or with nested graphs."""
    if not all(_is_plain(item) for item, _ in parts):
        return ()
    needed = _needed(pattern)
    return tuple(
        Landmark(item.names, depth)
        for item, depth in parts
        if isinstance(item, OpPattern) and item.names is not None and item in needed
    )


def _needed(pattern: ValuePattern) -> frozenset[ValuePattern]:
    """Return the operator patterns that are part of every match."""
    needs: dict[ValuePattern, frozenset[ValuePattern]] = {}
    stack = [pattern]
    while stack:
        item = stack[-1]
        waiting = [child for child in item.children() if child not in needs]
        if waiting:
            stack += waiting
            continue
        below = [needs[child] for child in item.children()]
        joined = frozenset[ValuePattern]().union(*below)
        if isinstance(item, AnyOf):
            joined = joined.intersection(*below)
        needs[stack.pop()] = joined | {item} if isinstance(item, OpPattern) else joined
    return needs[pattern]


@overload
def pattern(function: Callable[..., Any]) -> Pattern: ...
@overload
def pattern(
    function: None = None, *, name: str = "", through: bool | Iterable[str] = True
) -> Callable[[Callable[..., Any]], Pattern]: ...
def pattern(
    function: Callable[..., Any] | None = None, *, name: str = "", through: bool | Iterable[str] = True
) -> Pattern | Callable[[Callable[..., Any]], Pattern]:
    """Trace a function into a :class:`Pattern`; its argument names are the bindings.

    A plain argument stands for any value. An argument with the default None may also be absent, and one with a pattern
    as default (``w=P.const``) stands for what that pattern accepts.

    >>> from tinycomp.rewrite import P, pattern
    >>> @pattern
    ... def conv_relu(x, w=P.const, b=None):
    ...     return P.Relu(P.Conv(x, w, b, group=1))
    >>> conv_relu
    <Pattern conv_relu>

    Args:
        function: The function to trace, once; it returns one sub-pattern, or a tuple of several.
        name: Name for messages, by default the function's.
        through: Whether no-ops (Identity, StopFusion, Dropout at inference) that stand between two matched nodes are
            looked through and become part of the match; or the names of those that are.

    Raises:
        PatternError: If the function does not describe a pattern.
    """

    def compiled(function: Callable[..., Any]) -> Pattern:
        title = name or function.__name__
        return Pattern(title, *trace(function, title), through=through)

    return compiled if function is None else compiled(function)


# Matching -----------------------------------------------------------------------------------------------------------


def matches(pattern: Pattern, node: Node, graph: Graph | None = None) -> Iterator[Match]:
    """Yield every match of ``pattern`` anchored at ``node``, best first; predicates are the caller's business.

    Args:
        pattern: The compiled pattern.
        node: The node that the (first) output of the pattern must stand at.
        graph: The graph that holds the node; without it graph outputs do not count as uses.
    """
    feasible = Feasibility(pattern)
    if may_start(pattern, node, feasible):
        yield from Search(pattern, node, graph, feasible)


def find(
    pattern: Pattern,
    node: Node,
    graph: Graph | None = None,
    accept: Sequence[Check] = (),
    feasible: Feasibility | None = None,
) -> Match | Remark:
    """Return the first match that every predicate accepts, or a remark on the attempt that came furthest.

    Args:
        pattern: The compiled pattern.
        node: The node that the (first) output of the pattern must stand at.
        graph: The graph that holds the node; without it graph outputs do not count as uses.
        accept: The predicates.
        feasible: Judgements on this pattern and graph that earlier searches have made.
    """
    refusal: Remark | None = None
    for match in Search(pattern, node, graph, feasible or Feasibility(pattern)):
        answer = judge(match, accept)
        if answer is None:
            return match
        refusal = answer if refusal is None else refusal
    if refusal is not None:
        return refusal
    thorough = Search(pattern, node, graph)
    for _ in thorough:
        pass
    return thorough.failure


def may_start(pattern: Pattern, node: Node, feasible: Feasibility) -> bool:
    """Tell whether operators and constants allow a match anchored at ``node``."""
    index = _result_index(pattern.outputs[0])
    return index < len(node.outputs) and feasible.may_stand(pattern.outputs[0], node.outputs[index], anchored=True)


def _result_index(pattern: ValuePattern) -> int:
    while isinstance(pattern, Where):
        pattern = pattern.inner
    return pattern.index if isinstance(pattern, Result) else 0


Goal = tuple[ValuePattern, Value | None, bool]
"""A pattern, the value that it must stand for, and whether it may not look through no-ops (at roots)."""
Choice = tuple[Goal, ...]
_Pending = tuple[Goal, Any] | None
_Open = tuple[int, Iterator[Choice], _Pending]
"""A goal with choices left: the length of the trail before it, the choices, and the goals pending after it."""
_NEW = object()
"""Marks an entry on the trail whose key was not in its table before."""
_NONE = cast("_Pending", object())
"""Means that no choice is left, where an empty list of pending goals means a match."""


class Search:
    """Search for the matches of one pattern at one node; iterating yields them.

    Args:
        pattern: The compiled pattern.
        node: The node that the (first) output of the pattern must stand at.
        graph: The graph that holds the node, or None; it counts graph outputs as uses.
        feasible: Prunes the search; without it, the search is exhaustive, so that :attr:`failure` misses nothing.

    Attributes:
        values: The value that each sub-pattern stands for.
        nodes: The node that each operator pattern stands for.
        members: Every matched node of the graph itself, root first.
        rest: Operands that ``...`` and repetitions leave unconstrained.
        attrs: Attribute bindings.
        dims: Sizes bound by ``where(shape=…)``.
    """

    def __init__(
        self, pattern: Pattern, node: Node, graph: Graph | None = None, feasible: Feasibility | None = None
    ) -> None:
        self.pattern = pattern
        self.node = node
        self.graph = graph
        self.feasible = feasible
        self.values: dict[ValuePattern, Value | None] = {}
        self.nodes: dict[OpPattern, Node] = {}
        self.members: dict[Node, None] = {}
        self.rest: dict[Value, None] = {}
        self.attrs: dict[str, Any] = {}
        self.dims: dict[str, Any] = {}
        self._steps = 0
        self._formals: dict[Value, Value] = {}
        self._bodies: dict[Graph, None] = {}
        self._trail: list[tuple[dict[Any, Any], Any, Any]] = []
        self._furthest = -1
        self._reason = ""
        self._failed_at: Node | None = None
        self._failed_with: tuple[Node, ...] = ()
        self._expected: dict[str, None] = {}
        self._unexpected: Value | None = None

    def __iter__(self) -> Iterator[Match]:
        first, *others = self.pattern.outputs
        index = _result_index(first)
        if index >= len(self.node.outputs):
            self.fail(f"expected result {index}, found {len(self.node.outputs)} at {self.node.label}", self.node)
            return
        goals: list[Goal] = [(first, self.node.outputs[index], True)]
        goals += [(_OtherRoot(p, self.pattern.outputs[:i]), None, False) for i, p in enumerate(others, 1)]
        for _ in self._solve(goals):
            yield self._match()

    def _match(self) -> Match:
        outputs = [self.values[p] for p in self.pattern.outputs]
        return Match(
            root=self.node,
            outputs=tuple([v for v in outputs if v is not None]),
            matched=tuple(self.members),
            bindings={name: self.values.get(p) for name, p in self.pattern.named.items()},
            attrs=dict(self.attrs),
            dims=dict(self.dims),
            free=self._free(),
            values=dict(self.values),
        )

    def _free(self) -> tuple[Value, ...]:
        values = [self.values.get(p) for p in (*self.pattern.arguments, *self.values) if isinstance(p, AnyValue)]
        read = {v for n in self.members for v in n.inputs if v is not None and v.producer not in self.members}
        return tuple([v for v in dict.fromkeys([*values, *self.rest]) if v in read])

    # Recording -----------------------------------------------------------------------------------------------------

    def record(self, table: dict[_K, _V], key: _K, value: _V) -> None:
        """Enter ``key`` into one of the tables, until the search backtracks past this point."""
        if key not in table:
            table[key] = value
            self._trail.append((table, key, _NEW))

    def add_member(self, node: Node) -> None:
        """Record a matched node, unless it lies in a body of another matched node."""
        if not self._bodies or not any(node in body for body in self._bodies):
            self.record(self.members, node, None)

    def note_rest(self, value: Value | None) -> None:
        """Record an operand that the pattern leaves unconstrained."""
        resolved = self.resolve(value)
        if resolved is not None:
            self.record(self.rest, resolved, None)

    def enter(self, node: Node, body: Graph) -> None:
        """Identify the values that ``body`` captures with the operands of ``node``."""
        self.record(self._bodies, body, None)
        count = len(node.inputs) if node.is_call else node.captures
        for formal, actual in zip(body.inputs[::-1][:count], node.inputs[::-1], strict=False):
            if actual is not None:
                self.record(self._formals, formal, actual)

    def fail(self, reason: str, node: Node | None = None) -> None:
        """Remember a failure, unless the search has come further before."""
        done = len(self.nodes)
        if done > self._furthest:
            self._furthest = done
            self._expected = {}
            self._reason, self._failed_at, self._failed_with = reason, node, tuple(self.members)

    def fail_operator(self, expected: tuple[str, ...], unexpected: Value | None) -> None:
        """Remember that an operator is not among those ``expected``; the message will list all alternatives."""
        node = None if unexpected is None else unexpected.producer
        further = len(self.nodes) > self._furthest
        if further:
            self.fail("", node)
        if further or (len(self.nodes) == self._furthest and self._expected and self._failed_at is node):
            self._expected.update(dict.fromkeys(expected))
            self._unexpected = unexpected

    @property
    def failure(self) -> Remark:
        """The failure of the attempt that came furthest so far."""
        reason = self._reason
        if self._expected:
            *most, last = self._expected
            text = f"{', '.join(most)} or {last}" if most else last
            reason = f"expected {text}, found {self.describe(self._unexpected)}"
        where = "" if self._failed_at is None else self._failed_at.label
        progress = min(max(self._furthest, 0) / max(self.pattern.size, 1), 1.0)
        return Remark(sources=_sources(self._failed_with), reason=reason, progress=progress, where=where)

    # Reading -------------------------------------------------------------------------------------------------------

    def resolve(self, value: Value | None) -> Value | None:
        """Return the outer value of a captured one, and any other value as it is."""
        while value is not None and value in self._formals:
            value = self._formals[value]
        return value

    def looks_through(self, value: Value) -> bool:
        """Tell whether ``value`` comes from a no-op that the pattern looks through."""
        return looks_through(value, self.pattern.through)

    def uses(self, value: Value) -> int:
        """Return the number of uses, including graph outputs if the graph is known."""
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

    def _solve(self, goals: Iterable[Goal]) -> Iterator[None]:
        """Yield once per way to satisfy all goals; the tables describe that way until the next step."""
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
                if self._formals:
                    value = self.resolve(value)
                fits = _FITS.get(type(pattern))
                if fits is None:
                    stack.append((len(self._trail), _CHOICES[type(pattern)](pattern, value, anchored, self), rest))
                elif self._holds(pattern, value) if pattern in self.values else fits(pattern, value, self):
                    self.record(self.values, pattern, value)
                    pending = rest
                    continue
            pending = self._next_choice(stack)

    def _next_choice(self, stack: list[_Open]) -> _Pending:
        """Return the pending goals after the next feasible choice of the last goal that has one left."""
        may_stand = None if self.feasible is None else self.feasible.may_stand
        while stack:
            mark, choices, rest = stack[-1]
            if len(self._trail) > mark:
                self._undo(mark)
            choice = next(choices, None)
            if choice is None:
                stack.pop()
                continue
            for pattern, value, anchored in choice:
                if may_stand is not None and type(pattern) in _MAY and not may_stand(pattern, value, anchored):
                    break
            else:
                return _push(choice, rest)
        return _NONE

    def _undo(self, mark: int) -> None:
        while len(self._trail) > mark:
            table, key, before = self._trail.pop()
            if before is _NEW:
                del table[key]
            else:
                table[key] = before

    def _holds(self, pattern: ValuePattern, value: Value | None) -> bool:
        """Tell whether ``value`` is the value that ``pattern`` already stands for."""
        held = self.values[pattern]
        if held is value or self._meet(held, value):
            return True
        text = f"{pattern.name or 'the value'} ({held.name})" if held is not None else f"{pattern.name} absent"
        self.fail(f"expected {text} again, found {self.describe(value)}")
        return False

    def _meet(self, held: Value | None, value: Value | None) -> bool:
        """Tell whether two values are the same one behind no-ops; these then join the match, and that value is bound.

        For example, both operands of ``Mul(v, Sigmoid(StopFusion(v)))`` may be the ``x`` of a pattern.
        """
        ours, theirs = self._behind_no_ops(held), self._behind_no_ops(value)
        common = next((each for each in theirs if each in ours), None)
        if common is None:
            return False
        for chain in (ours, theirs):
            for crossed in itertools.takewhile(lambda each: each is not common, chain):
                assert crossed.producer is not None, "a no-op makes it"
                self.add_member(crossed.producer)
        for pattern in [p for p, v in self.values.items() if v is held and common is not held]:
            if not isinstance(pattern, (OpPattern, Result)):
                self._trail.append((self.values, pattern, held))
                self.values[pattern] = common
        return True

    def _behind_no_ops(self, value: Value | None) -> list[Value]:
        """Return a value and those behind it, as far as the pattern looks through no-ops, the nearest first."""
        chain: list[Value] = []
        while value is not None:
            chain.append(value)
            value = self.resolve(_first_operand(value)) if self.looks_through(value) else None
        return chain

    def combined(self, pattern: ValuePattern, value: Value | None, choices: Iterable[Choice]) -> Iterator[Choice]:
        """Yield ``choices`` with ``pattern`` bound to ``value``, or one empty choice if it is bound to it already."""
        if pattern in self.values:
            if self._holds(pattern, value):
                yield ()
            return
        for choice in choices:
            self.record(self.values, pattern, value)
            yield choice


def _first_operand(value: Value) -> Value | None:
    return None if value.producer is None else value.producer.inputs[0]


def _push(goals: Choice, rest: _Pending) -> _Pending:
    for goal in reversed(goals):
        rest = (goal, rest)
    return rest


# Leaves: whether a sub-pattern without parts can stand for a value --------------------------------------------------


def _fits_any(pattern: AnyValue, value: Value | None, search: Search) -> bool:
    if value is None and not pattern.optional:
        search.fail(f"expected {f'an operand {pattern.name}' if pattern.name else 'an operand'}, found none")
        return False
    return True


def _fits_not_const(pattern: NotConst, value: Value | None, search: Search) -> bool:
    if value is None or value.const is not None:
        search.fail(f"expected anything but a constant, found {search.describe(value)}")
        return False
    return True


def _fits_const(pattern: Const, value: Value | None, search: Search) -> bool:
    if value is None or value.const is None:
        search.fail(f"expected a constant, found {search.describe(value)}", value.producer if value else None)
        return False
    judged = search.feasible is not None and search.feasible.fits(pattern, value)
    reason = "" if pattern.value is None or judged else _check_const(value.const, pattern.value)
    if reason:
        search.fail(reason)
    return not reason


def _fits_absent(pattern: Absent, value: Value | None, search: Search) -> bool:
    if value is not None:
        search.fail(f"expected an absent operand, found {search.describe(value)}")
    return value is None


@dataclass(eq=False, repr=False)
class _Test(ValuePattern):
    """The constraints of a :class:`Where`, asked once its inner pattern stands."""

    constraints: Constraints


def _fits_test(pattern: _Test, value: Value | None, search: Search) -> bool:
    reason = "" if value is None else _check_value(pattern.constraints, value, search)
    if reason and value is not None:
        search.fail(reason, value.producer)
    return not reason


# The others: the ways to stand for a value, each as a tuple of remaining goals --------------------------------------


def _alternatives(pattern: AnyOf, value: Value | None, anchored: bool, search: Search) -> Iterator[Choice]:
    """Try the alternatives in order; without feasibility all of them, so that a failure mentions each."""
    options = pattern.options if search.feasible is None else _open_options(pattern, value, anchored, search)
    return search.combined(pattern, value, [((option, value, anchored),) for option in options])


def _open_options(
    pattern: AnyOf, value: Value | None, anchored: bool, looking: Search | Feasibility
) -> tuple[ValuePattern, ...]:
    """Return the alternatives that the operator of a value allows; all of them where no-ops are looked through."""
    if value is None or value.producer is None or (not anchored and looking.looks_through(value)):
        return pattern.options
    return pattern.options_at((value.producer.domain, value.producer.op))


def _constrained(pattern: Where, value: Value | None, anchored: bool, search: Search) -> Iterator[Choice]:
    """Match the inner pattern first, so that a failure shows how far the match had come."""
    goals = (pattern.inner, value, anchored), (_Test(pattern.constraints), value, anchored)
    return search.combined(pattern, value, (goals,))


def _repeated(pattern: Repeat, value: Value | None, anchored: bool, search: Search) -> Iterator[Choice]:
    """Try one more step, then the start."""
    choices: list[Choice] = []
    if pattern.at_most is None or pattern.at_most > 0:
        choices.append(((pattern.link, value, anchored),))
    if pattern.at_least <= 0:
        choices.append(((pattern.start, value, anchored),))
    return search.combined(pattern, value, choices)


def _dominated(pattern: Dominance, value: Value | None, anchored: bool, search: Search) -> Iterator[Choice]:
    """Match the root, then look for the parent."""
    goals = (pattern.root, value, anchored), (_Parent(pattern), value, False)
    return search.combined(pattern, value, (goals,))


def _operator(
    pattern: OpPattern, value: Value | None, anchored: bool, search: Search, index: int = 0
) -> Iterator[Choice]:
    """Yield the ways in which ``value`` can be result ``index``, directly or behind no-ops."""
    crossed: list[Node] = []
    while value is not None and value.producer is not None:
        node = value.producer
        if _accepts(pattern, node):
            choice = _at_node(pattern, node, value, index, crossed, search)
            if choice is not None:
                yield choice
        if anchored or not search.looks_through(value):
            break
        crossed = [*crossed, node]
        value = search.resolve(node.inputs[0])
    if value is None or value.producer is None or not _accepts(pattern, value.producer):
        search.fail_operator(pattern.expected, value)


def _accepts(pattern: OpPattern, node: Node) -> bool:
    """Tell whether the operator of ``node`` is among those asked for; operands do not count."""
    if pattern.names is not None and (node.domain, node.op) not in pattern.names:
        return False
    if pattern.view and node.op == "Reshape" and not is_same_view(node, pattern.view, pattern.attrs.get("axis")):
        return False
    return not pattern.trait or has_trait(node, pattern.trait)


def _is_respelled(pattern: OpPattern, node: Node) -> bool:
    """Tell whether the node is a Reshape where the pattern asks for another change of shape."""
    return node.op == "Reshape" and bool(pattern.view)


def _at_node(
    pattern: OpPattern, node: Node, value: Value, index: int, crossed: list[Node], search: Search
) -> Choice | None:
    """Let ``pattern`` stand at ``node``, and return the remaining goals; None if it cannot."""
    held = search.nodes.get(pattern)
    if held is not None and held is not node:
        search.fail(f"expected {pattern.text} at {held.label} again, found {search.describe(value)}", node)
        return None
    if index >= len(node.outputs) or node.outputs[index] is not value:
        search.fail(f"expected result {index} of {pattern.text}, found {value.name} at {node.label}", node)
        return None
    for no_op in crossed:
        search.add_member(no_op)
    search.record(search.values, pattern[index], value)
    if held is not None:
        return ()
    search.record(search.nodes, pattern, node)
    search.add_member(node)
    for name, wanted in () if pattern.view and _is_respelled(pattern, node) else pattern.attrs.items():
        reason = _check_attr(node, name, wanted, search)
        if reason:
            search.fail(f"{reason} at {node.label}", node)
            return None
    bodies = _body_goals(pattern, node, search) if pattern.bodies else ()
    if bodies is None:
        return None
    operands = _own_operands(node, pattern)
    if pattern.anywhere or _permuted(operands, node):
        return ((_Operands(pattern, node), None, False), *bodies)
    goals = _in_order(pattern, operands, node, search)
    return None if goals is None else (*goals, *bodies)


def _in_order(pattern: OpPattern, operands: Sequence[Value | None], node: Node, search: Search) -> Choice | None:
    """Return the goals of the operand patterns for operands in one order; None if there are too many operands."""
    wanted = len(pattern.operands)
    if len(operands) > wanted and not pattern.variadic:
        plural = "" if wanted == 1 else "s"
        search.fail(f"expected {wanted} operand{plural}, found {len(operands)} at {node.label}", node)
        return None
    for extra in operands[wanted:]:
        search.note_rest(extra)
    return tuple([(p, v, False) for p, v in itertools.zip_longest(pattern.operands, operands[:wanted])])


def _body_goals(pattern: OpPattern, node: Node, search: Search) -> Choice | None:
    goals: list[Goal] = []
    for name, patterns in pattern.bodies.items():
        body = node.bodies.get(name)
        if body is None or len(body.outputs) != len(patterns):
            results = "none" if body is None else f"{len(body.outputs)} results"
            search.fail(f"expected {name} with {len(patterns)} results, found {results} at {node.label}", node)
            return None
        search.enter(node, body)
        goals += [(p, v, False) for p, v in zip(patterns, body.outputs, strict=True)]
    return tuple(goals)


@dataclass(eq=False, repr=False)
class _Operands(ValuePattern):
    """The operands of one matched node, in every order that the operator allows."""

    op: OpPattern
    node: Node


def _operand_orders(pattern: _Operands, value: Value | None, anchored: bool, search: Search) -> Iterator[Choice]:
    operands = _own_operands(pattern.node, pattern.op)
    if pattern.op.anywhere:
        for index, operand in enumerate(operands):
            if operand is None or operand in operands[:index]:
                continue
            for other in operands[:index] + operands[index + 1 :]:
                search.note_rest(other)
            yield ((pattern.op.operands[0], operand, False),)
        return
    for order in _permutations(operands, _permuted(operands, pattern.node)):
        goals = _in_order(pattern.op, order, pattern.node, search)
        if goals is None:
            return
        yield goals


def _own_operands(node: Node, pattern: OpPattern) -> list[Value | None]:
    """Return the operands that patterns see: without captured values, absent ones at the end, or a view's shape."""
    if pattern.view and _is_respelled(pattern, node):
        return [node.inputs[0]]
    operands = list(node.inputs[: len(node.inputs) - node.captures])
    while operands and operands[-1] is None:
        operands.pop()
    return operands


def _permuted(operands: Sequence[Value | None], node: Node) -> int:
    """Return how many of the leading ``operands`` of ``node`` are tried in every order; 0 for none."""
    count = permutable(node)
    return count if 2 <= count <= min(len(operands), _MOST_PERMUTED) else 0


def _permutations(values: list[Value | None], count: int) -> Iterator[list[Value | None]]:
    """Yield ``values`` with their first ``count`` entries in every distinct order, the given one first."""
    for head in dict.fromkeys(itertools.permutations(values[:count])):
        yield [*head, *values[count:]]


# Dominance: all paths from one node meet again at another -----------------------------------------------------------


@dataclass(eq=False, repr=False)
class _Parent(ValuePattern):
    """The parent of a :class:`Dominance`, looked for once its root stands."""

    dominance: Dominance


def _parents(pattern: _Parent, value: Value | None, anchored: bool, search: Search) -> Iterator[Choice]:
    rule = pattern.dominance
    root = search.nodes[rule.root]
    between, closed = _reach(rule, root, search), False
    for candidate in _parent_candidates(rule, root, between):
        paths = _on_paths(candidate, between)
        if not _encloses(candidate, paths, root, search):
            continue
        closed = True
        for node in paths:
            search.add_member(node)
        for node in (*paths, root):
            for operand in node.inputs:
                if operand is not None:
                    search.record(search.rest, operand, None)
        yield ((rule.parent, candidate, False),)
    if not closed:
        search.fail(f"expected all paths to {rule.root.text} at {root.label} to come from one node", root)


def _reach(rule: Dominance, root: Node, search: Search) -> dict[Node, None]:
    """Return the path operators below ``root``, nearest first."""
    reached: dict[Node, None] = {}
    queue = deque([root])
    while queue and len(reached) <= rule.at_most:
        for producer in _producers(queue.popleft()):
            if producer not in reached and (_accepts(rule.path, producer) or search.looks_through(producer.output)):
                reached[producer] = None
                queue.append(producer)
    return reached


def _parent_candidates(rule: Dominance, root: Node, between: dict[Node, None]) -> list[Value]:
    """Return the values below the paths at which the parent can stand, nearest first."""
    heads = rule.parent.heads
    candidates: dict[Value, None] = {}
    for node in [root, *between]:
        for value in node.inputs:
            if value is None or value.const is not None:
                continue
            producer = value.producer
            stands = producer is not None and (heads is None or (producer.domain, producer.op) in heads)
            if heads == frozenset() or stands:
                candidates[value] = None
    return list(candidates)


def _on_paths(start: Value, between: dict[Node, None]) -> dict[Node, None]:
    """Return the nodes of ``between`` that ``start`` leads to."""
    reached: dict[Node, None] = {}
    queue = deque(u for u in start.users if u in between)
    while queue:
        node = queue.popleft()
        if node not in reached:
            reached[node] = None
            queue.extend(u for v in node.outputs for u in v.users if u in between)
    return reached


def _encloses(start: Value, paths: dict[Node, None], root: Node, search: Search) -> bool:
    """Tell whether every use of ``start`` and of the paths lies on the paths or at the root."""
    for value in [start, *(v for n in paths for v in n.outputs)]:
        inside = sum(slots for user, slots in value.users.items() if user is root or user in paths)
        if inside != search.uses(value):
            return False
    return True


# Further outputs of a pattern: found from the sub-patterns that they share with earlier outputs ---------------------


@dataclass(eq=False, repr=False)
class _OtherRoot(ValuePattern):
    """Ask ``pattern`` to stand for some value that no earlier output stands for."""

    pattern: ValuePattern
    earlier: Sequence[ValuePattern]


def _other_roots(pattern: _OtherRoot, value: Value | None, anchored: bool, search: Search) -> Iterator[Choice]:
    """Try the value if it is known already, else the values above the nearest shared sub-pattern."""
    taken = [search.values.get(p) for p in pattern.earlier]
    candidates = [v for v in _root_candidates(pattern.pattern, search) if v not in taken]
    for candidate in candidates:
        yield ((pattern.pattern, candidate, True),)
    if not candidates:
        texts = (p.text for p, _ in distances(pattern.pattern) if isinstance(p, OpPattern))
        search.fail(f"expected {next(texts, 'a value')} on another branch, found none")


def _root_candidates(pattern: ValuePattern, search: Search) -> list[Value]:
    held = _held(pattern, search)
    if held is not None:
        return [held]
    for shared, depth in distances(pattern):
        value = _held(shared, search)
        if value is not None:
            return _above(value, depth, pattern)
    return []


def _held(pattern: ValuePattern, search: Search) -> Value | None:
    if isinstance(pattern, Result) and pattern.op in search.nodes:
        results = search.nodes[pattern.op].outputs
        return results[pattern.index] if pattern.index < len(results) else None
    if isinstance(pattern, OpPattern) and pattern in search.nodes:
        return search.nodes[pattern].output
    return search.values.get(pattern)


def _above(value: Value, depth: int, pattern: ValuePattern) -> list[Value]:
    """Return the results of nodes up to ``depth`` operators above ``value`` at which ``pattern`` can stand."""
    heads = pattern.heads
    index = pattern.index if isinstance(pattern, Result) else None
    results: dict[Value, None] = {}
    reached: set[Node] = set()
    queue = deque((user, 1) for user in _users(value))
    while queue:
        node, level = queue.popleft()
        if node in reached or level > depth:
            continue
        reached.add(node)
        if heads is None or (node.domain, node.op) in heads:
            results.update(dict.fromkeys(node.outputs if index is None else node.outputs[index : index + 1]))
        step = 0 if is_structural(node) else 1
        queue.extend((user, level + step) for v in node.outputs for user in _users(v))
    return list(results)


def _users(value: Value) -> list[Node]:
    return sorted(value.users, key=lambda n: (n.position, n.serial))


_FITS: Mapping[type[ValuePattern], Callable[[Any, Value | None, Search], bool]] = {
    AnyValue: _fits_any,
    NotConst: _fits_not_const,
    Const: _fits_const,
    Absent: _fits_absent,
    _Test: _fits_test,
}
"""How a leaf, which has no parts and leaves no goals, is decided."""
_CHOICES: Mapping[type[ValuePattern], Callable[[Any, Value | None, bool, Search], Iterator[Choice]]] = {
    OpPattern: _operator,
    Result: lambda pattern, value, anchored, search: _operator(pattern.op, value, anchored, search, pattern.index),
    AnyOf: _alternatives,
    Where: _constrained,
    Repeat: _repeated,
    Dominance: _dominated,
    _Operands: _operand_orders,
    _Parent: _parents,
    _OtherRoot: _other_roots,
}
"""How any other sub-pattern generates its choices."""


# Feasibility --------------------------------------------------------------------------------------------------------


class Feasibility:
    """Judge where the sub-patterns of one pattern can stand in a graph that does not change meanwhile.

    A pair of sub-pattern and value is judged once, without the bindings that a search makes on the way. So a "no" holds
    for every search, and a "yes" promises nothing. Patterns with nested graphs, repetition or dominance are not judged.

    Args:
        pattern: The compiled pattern.
    """

    def __init__(self, pattern: Pattern) -> None:
        self.through = pattern.through
        self._judges = pattern.is_plain
        self._known: dict[tuple[ValuePattern, Value | None, bool], bool] = {}
        self._depth = 0

    def may_stand(self, pattern: ValuePattern, value: Value | None, anchored: bool = False) -> bool:
        """Tell whether ``pattern`` can stand for ``value`` as far as operators and constants tell.

        ``value`` is None for an absent operand; with ``anchored``, no-ops are not looked through.
        """
        may = _MAY.get(type(pattern))
        if may is None or not self._judges or self._depth > _DEPTH:
            return True
        key = (pattern, value, anchored)
        known = self._known.get(key)
        if known is None:
            self._depth += 1
            known = self._known[key] = may(pattern, value, anchored, self)
            self._depth -= 1
        return known

    def fits(self, pattern: Const, value: Value) -> bool:
        """Tell whether a constant has been judged to fit ``pattern``."""
        return self._known.get((pattern, value, False), False)

    def looks_through(self, value: Value) -> bool:
        """Tell whether ``value`` comes from a no-op that the pattern looks through."""
        return looks_through(value, self.through)


def _may_be_const(pattern: Const, value: Value | None, anchored: bool, feasible: Feasibility) -> bool:
    if value is None or value.const is None:
        return False
    return pattern.value is None or _is_const(value.const, pattern.value)


def _may_be_one(pattern: AnyOf, value: Value | None, anchored: bool, feasible: Feasibility) -> bool:
    node = None if value is None else value.producer
    if value is None or node is None or (not anchored and feasible.looks_through(value)):
        options = pattern.leaves
    else:
        options = pattern.leaves_at((node.domain, node.op))
    for option in options:  # noqa: SIM110 (a generator would cost)
        if feasible.may_stand(option, value, anchored):
            return True
    return False


def _may_be_operator(
    pattern: OpPattern, value: Value | None, anchored: bool, feasible: Feasibility, index: int = 0
) -> bool:
    """Tell whether ``value`` can be result ``index``, directly or behind no-ops."""
    while value is not None and value.producer is not None:
        node = value.producer
        if (
            (pattern.names is None or (node.domain, node.op) in pattern.names)
            and value in node.outputs[index : index + 1]
            and _accepts(pattern, node)
            and _operands_may(pattern, node, feasible)
        ):
            return True
        if anchored or not looks_through(value, feasible.through):
            return False
        value = node.inputs[0]
    return False


def _operands_may(pattern: OpPattern, node: Node, feasible: Feasibility) -> bool:
    """Tell whether each operand pattern can stand at one of the places that are open to it."""
    operands = _own_operands(node, pattern)
    if pattern.anywhere:
        return any(feasible.may_stand(pattern.operands[0], value) for value in operands)
    if len(operands) > len(pattern.operands) and not pattern.variadic:
        return False
    operands += [None] * (len(pattern.operands) - len(operands))
    swapped = _permuted(operands, node)
    for index, part in pattern.telling:
        for value in operands[:swapped] if index < swapped else operands[index : index + 1]:
            if feasible.may_stand(part, value):
                break
        else:
            return False
    return True


_MAY: Mapping[type[ValuePattern], Callable[[Any, Value | None, bool, Feasibility], bool]] = {
    OpPattern: _may_be_operator,
    Result: lambda pattern, value, anchored, feasible: _may_be_operator(
        pattern.op, value, anchored, feasible, pattern.index
    ),
    AnyOf: _may_be_one,
    Where: lambda pattern, value, anchored, feasible: feasible.may_stand(pattern.inner, value, anchored),
    Const: _may_be_const,
    Absent: lambda pattern, value, anchored, feasible: value is None,
}
"""The judgements of the sub-patterns that can rule a value out; any other may always stand."""


# Tests of attributes, types and constants: each returns the reason of a refusal, or an empty text -------------------


def _check_attr(node: Node, name: str, wanted: Any, search: Search) -> str:
    held = attribute(node, name)
    if isinstance(wanted, AttrBinding):
        if wanted.name in search.attrs:
            bound = search.attrs[wanted.name]
            return "" if _same(held, bound) else f"expected {name}={bound!r} as bound, found {name}={held!r}"
        search.record(search.attrs, wanted.name, held)
        return "" if wanted.constraint is None else _check_attr(node, name, wanted.constraint, search)
    if held is None and name in _FILLED_DEFAULTS:
        held = _filled(_FILLED_DEFAULTS[name], wanted)
    reason = _check_plain(held, wanted)
    return reason and (f"{name}: {reason}" if callable(wanted) else f"expected {name}={_text(wanted)}, found {held!r}")


def _filled(default: int, wanted: Any) -> list[int] | None:
    """Return the default of a spatial attribute, with as many entries as the literals that it is compared with."""
    literals = wanted if isinstance(wanted, (set, frozenset)) else [wanted]
    length = next((len(w) for w in literals if isinstance(w, (list, tuple))), None)
    return None if length is None else [default] * length


def _check_plain(held: Any, wanted: Any) -> str:
    """Test a plain value against a literal, a set of literals, or a predicate."""
    if callable(wanted):
        return _answer(wanted(held), held)
    literals = wanted if isinstance(wanted, (set, frozenset)) else (wanted,)
    return "" if any(_same(held, w) for w in literals) else f"expected {_text(wanted)}, found {held!r}"


def _answer(answer: Any, held: Any) -> str:
    if isinstance(answer, Remark):
        return answer.reason
    return "" if answer is None or bool(answer) else f"{_short(held)} is refused"


def _same(a: Any, b: Any) -> bool:
    """Tell whether two attributes are equal; floats up to single precision, lists and tuples alike."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        return bool(np.array_equal(a, b))
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) or isinstance(b, float):
        numeric = isinstance(a, (int, float)) and isinstance(b, (int, float))
        return numeric and bool(a == b or np.isclose(a, b, rtol=1e-6, atol=0.0))
    return bool(a == b)


def _text(wanted: Any) -> str:
    if isinstance(wanted, Set):
        return " or ".join(repr(w) for w in sorted(wanted, key=str))
    return repr(wanted)


def _short(held: Any) -> str:
    if isinstance(held, np.ndarray) and held.size > 8:
        return f"{held.dtype}{list(held.shape)}"
    return str(held)


def _check_const(array: np.ndarray, wanted: Any) -> str:
    if callable(wanted):
        return _answer(wanted(array), array)
    return "" if _is_const(array, wanted) else f"expected the constant {wanted}, found {_short(array)}"


def _is_const(array: np.ndarray, wanted: Any) -> bool:
    """Tell whether a constant satisfies a number, an array or a predicate.

    A number asks that every element has that value, whatever the shape; an array or list asks for shape and elements.
    Floats are compared up to single precision.
    """
    if callable(wanted):
        answer = wanted(array)
        return answer is None or bool(answer)
    literal = np.asarray(wanted)
    if (literal.ndim and literal.shape != array.shape) or not array.size:
        return False
    if literal.dtype.kind not in "fiub" or array.dtype.kind in "OUSiub":
        return bool(np.all(array == literal))
    same = array == literal.astype(array.dtype)
    if bool(same.all()):
        return True
    wide, exact = array.astype(np.float64), literal.astype(np.float64)
    with np.errstate(invalid="ignore"):
        close = np.isfinite(exact) & (np.abs(wide - exact) <= 1e-6 * np.abs(exact))
    return bool(np.all(same | close))


def _check_value(constraints: Constraints, value: Value, search: Search) -> str:
    """Test what ``where`` asks of a value."""
    wants_const = constraints.const is True or constraints.value is not None
    if wants_const and value.const is None:
        return "expected a constant, found " + search.describe(value)
    if constraints.const is False and value.const is not None:
        return "expected anything but a constant, found " + search.describe(value)
    tests = (
        ("dtype", constraints.dtype, value.dtype),
        ("rank", constraints.rank, value.rank),
        ("layout", constraints.layout, getattr(value.type, "layout", "")),
        ("uses", constraints.uses, search.uses(value)),
    )
    for name, wanted, held in tests:
        reason = "" if wanted is None else _check_plain(held, wanted)
        if reason:
            return f"{name} of {value.name}: {reason}"
    reason = "" if constraints.shape is None else _check_shape(value.shape, constraints.shape, search)
    if reason:
        return f"shape of {value.name}: {reason}"
    return "" if constraints.value is None or value.const is None else _check_const(value.const, constraints.value)


def _check_shape(shape: Any, constraint: Any, search: Search) -> str:
    if callable(constraint):
        return _check_plain(shape, constraint)
    wanted = list(constraint)
    refusal = f"expected {_shape_text(wanted)}, found {_shape_text(shape)}"
    if shape is None:
        return "" if wanted == [...] else refusal
    if ... in wanted:
        at = wanted.index(...)
        wanted[at : at + 1] = [None] * (len(shape) - len(wanted) + 1)
    fits = len(wanted) == len(shape) and all(_fits_dim(w, d, search) for w, d in zip(wanted, shape, strict=True))
    return "" if fits else refusal


def _fits_dim(wanted: Any, dim: Any, search: Search) -> bool:
    if wanted is None:
        return True
    if isinstance(wanted, str):
        if wanted not in search.dims:
            search.record(search.dims, wanted, dim)
        return dim is not None and bool(search.dims[wanted] == dim)
    return bool(wanted == dim)


def _shape_text(shape: Any) -> str:
    if shape is None:
        return "unknown rank"
    return "[" + ", ".join("..." if d is ... else "?" if d is None else str(d) for d in shape) + "]"
