"""A compiled pattern: what the :func:`pattern` decorator makes of a Python function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, overload

from tinycomp.errors import PatternError
from tinycomp.ir.graph import COMPOSITE, Graph, Node
from tinycomp.rewrite.engine import Head
from tinycomp.rewrite.landmarks import landmarks
from tinycomp.rewrite.match import Match, Rejection
from tinycomp.rewrite.matcher import Check, find, matches
from tinycomp.rewrite.op_pattern import OpPattern, Result
from tinycomp.rewrite.pattern import AnyOf, AnyValue, ValuePattern, Where
from tinycomp.rewrite.roots import distances

_F = TypeVar("_F", bound=Callable[..., Any])


class Pattern:
    """A pattern ready for matching.

    Attributes:
        name: Name for messages.
        outputs: The sub-patterns of its results.
        arguments: The sub-patterns of its arguments, in order.
        named: Every named sub-pattern by name; arguments first.
        through: Names of the no-ops looked through; None means every structural operator.
        checks: Predicates over the whole match.
        size: Number of operators that every match has at least.
        heads: Operators at which it can be anchored; None means any.
        landmarks: Operators that every match holds, with their distance from the root.
        is_plain: Whether it is made of operators, their results, alternatives and constraints only.
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
        self.landmarks = landmarks(self.outputs[0]) if self.outputs else ()
        self._parts = [distances(p) for p in self.outputs]
        self.mentions_composites = any(_asks_for_composites(item) for part in self._parts for item, _ in part)
        """Whether it asks for composites that an earlier pattern may have made."""
        self.is_plain = all(_is_plain(item) for part in self._parts for item, _ in part)
        self.named = self._collect_names()
        self._validate()

    def check(self, predicate: _F) -> _F:
        """Add a predicate over the whole match: True or None is yes, ``reject("why")`` or False is no."""
        self.checks.append(predicate)
        return predicate

    def matches(self, node: Node, graph: Graph | None = None) -> Iterator[Match]:
        """Yield the ways to match at ``node``, best first, before any predicate."""
        return matches(self, node, graph)

    def match(self, node: Node, graph: Graph | None = None) -> Match | Rejection:
        """Return the first match at ``node`` that all predicates accept, or a rejection that says why there is none."""
        return find(self, node, graph, self.checks)

    def can_start_at(self, node: Node) -> bool:
        """Whether the operator of ``node`` can be the root."""
        return self.heads is None or (node.domain, node.op) in self.heads

    def find_all(self, graph: Graph) -> Iterator[Match]:
        """Yield one match per root of ``graph``, from the outputs back; matches may overlap."""
        for node in reversed(graph.nodes):
            match = self.match(node, graph) if self.can_start_at(node) else None
            if isinstance(match, Match):
                yield match

    def __repr__(self) -> str:
        return f"<Pattern {self.name}>"

    def _collect_names(self) -> dict[str, ValuePattern]:
        found = {p.name: p for p in self.arguments}
        for part in self._parts:
            for item, _ in part:
                if item.name and found.setdefault(item.name, item) is not item:
                    raise PatternError(
                        f'the name "{item.name}" is given to two sub-patterns',
                        where=f"pattern {self.name}",
                        hint="Use one sub-pattern object twice to ask for the same value.",
                    )
        return found

    def _validate(self) -> None:
        where = f"pattern {self.name}"
        if self.heads is not None and not self.heads:
            raise PatternError(
                "the result is not an operator",
                where=where,
                expected="P.Op(…) as result",
                hint="A pattern is anchored at a node; return the operator that it ends with.",
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


def _asks_for_composites(item: ValuePattern) -> bool:
    return isinstance(item, OpPattern) and any(domain == COMPOSITE for domain, _ in item.names or ())


def _is_plain(item: ValuePattern) -> bool:
    if isinstance(item, OpPattern):
        return not item.bodies
    return isinstance(item, (Result, Where, AnyOf)) or not item.children()


def _required_ops(outputs: Sequence[ValuePattern]) -> set[ValuePattern]:
    seen: set[ValuePattern] = set()
    stack = list(outputs)
    while stack:
        item = stack.pop()
        if item not in seen:
            seen.add(item)
            stack.extend(item.required())
    return {p for p in seen if isinstance(p, OpPattern)}


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
    if function is None:
        return lambda f: _trace(f, name, through)
    return _trace(function, name, through)


def _trace(function: Callable[..., Any], name: str, through: bool | Iterable[str]) -> Pattern:
    name = name or function.__name__
    arguments = [_argument(p, name) for p in inspect.signature(function).parameters.values()]
    result = function(*arguments)
    outputs = result if isinstance(result, tuple) else (result,)
    for item in outputs:
        if not isinstance(item, ValuePattern):
            raise PatternError("a pattern returns patterns", where=f"pattern {name}", found=repr(item))
    return Pattern(name, outputs, arguments, through=through)


def _argument(parameter: inspect.Parameter, where: str) -> ValuePattern:
    if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
        raise PatternError(
            f'the argument "{parameter.name}" cannot be traced',
            where=f"pattern {where}",
            expected="plain positional arguments",
        )
    default = parameter.default
    if isinstance(default, ValuePattern):
        return default.named(parameter.name)
    return AnyValue(parameter.name, optional=default is None)
