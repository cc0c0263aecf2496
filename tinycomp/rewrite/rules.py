"""Rewrite rules: a pattern and what to put in its place."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tinycomp.errors import PatternError
from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.types import compatible, refine
from tinycomp.rewrite.compiled import Pattern
from tinycomp.rewrite.emit import Emitter
from tinycomp.rewrite.engine import Engine, Head, Rule
from tinycomp.rewrite.match import Match, Rejection
from tinycomp.rewrite.matcher import Check, find


class RewriteRule:
    """Puts something else in the place of a match.

    The replacement is a function of ``op``, which inserts nodes, and of bindings of the pattern by name (``match`` is
    the whole match). It returns the new result (a tuple for several), which must have a type that the old one could
    have. It may return :func:`reject` to decline. New nodes inherit the source names of those they replace; replaced
    nodes that nobody reads any more are erased. Nodes that a target has claimed are left alone.

    >>> from tinycomp.rewrite import P, RewriteRule, pattern
    >>> @pattern
    ... def negated_twice(x):
    ...     return P.Neg(P.Neg(x))
    >>> RewriteRule(negated_twice, lambda op, x: x)
    <RewriteRule negated_twice>

    Args:
        pattern: What to look for.
        replacement: What to put there.
        check: A predicate, or several, besides the pattern's own.
        name: Name for messages, by default the pattern's.
    """

    def __init__(
        self,
        pattern: Pattern,
        replacement: Callable[..., Any],
        check: Check | Sequence[Check] = (),
        *,
        name: str = "",
    ) -> None:
        self.pattern = pattern
        self.replacement = replacement
        self.checks = [check] if callable(check) else list(check)
        self._name = name or pattern.name
        self._wanted = list(inspect.signature(replacement).parameters)[1:]

    @property
    def name(self) -> str:
        """Name for messages."""
        return self._name

    @property
    def heads(self) -> frozenset[Head] | None:
        """Operators at which the pattern can be anchored."""
        return self.pattern.heads

    def apply(self, graph: Graph, node: Node) -> bool:
        """Rewrite at ``node`` if the pattern matches there; return whether it did.

        Raises:
            PatternError: If the replacement does not fit what it replaces.
        """
        accept = [self._is_unclaimed, *self.pattern.checks, *self.checks]
        match = find(self.pattern, node, graph, accept)
        return isinstance(match, Match) and self._replace(graph, match)

    def _is_unclaimed(self, match: Match) -> Rejection | None:
        for node in match.matched:
            if node.target is not None and not (node.is_composite and self.pattern.mentions_composites):
                return Rejection(f"{node.label} belongs to {node.target} already", node)
        return None

    def _replace(self, graph: Graph, match: Match) -> bool:
        sources = tuple(dict.fromkeys(s for n in match.nodes for s in n.sources))
        emitter = Emitter(graph, match.root, sources)
        arguments = {name: match if name == "match" else match[name] for name in self._wanted}
        answer = self.replacement(emitter, **arguments)
        if answer is None or isinstance(answer, Rejection) or answer is False:
            emitter.undo()
            return False
        new = self._results(match, answer)
        if all(a is b for a, b in zip(match.outputs, new, strict=True)) or _closes_cycle(graph, match, new):
            emitter.undo()
            return False
        for old, value in zip(match.outputs, new, strict=True):
            _substitute(graph, old, value)
        return True

    def _results(self, match: Match, answer: Any) -> list[Value]:
        new = list(answer) if isinstance(answer, tuple) else [answer]
        where = f"rule {self.name} at {match.root.label}"
        if len(new) != len(match.outputs) or not all(isinstance(v, Value) for v in new):
            raise PatternError(
                "the replacement returns the wrong results",
                where=where,
                expected=f"{len(match.outputs)} value{'' if len(match.outputs) == 1 else 's'}",
                found=repr(answer),
            )
        for old, value in zip(match.outputs, new, strict=True):
            if not compatible(old.type, value.type):
                raise PatternError(
                    "the replacement has another type than what it replaces",
                    where=where,
                    expected=str(old.type),
                    found=str(value.type),
                    hint="Narrow the pattern with a check, or cast or reshape the replacement.",
                )
        return new

    def __repr__(self) -> str:
        return f"<RewriteRule {self.name}>"


def rewrite(graph: Graph, rules: Iterable[Rule], *, max_changes: int | None = None, bodies: bool = True) -> int:
    """Apply rules until none applies any more, and return how often one did.

    Args:
        graph: Changed in place.
        rules: Rewrite rules and function rules, tried in this order.
        max_changes: Bound on the number of changes per graph; by default it grows with the graph.
        bodies: Whether the bodies of unclaimed nodes are rewritten too.

    Raises:
        PatternError: If the rules do not come to an end; the message names those that keep applying.
    """
    return Engine(rules, max_changes=max_changes, bodies=bodies).run(graph)


def _closes_cycle(graph: Graph, match: Match, new: list[Value]) -> bool:
    """Whether a new result depends on an outside user of an old one; one root alone cannot bring that about."""
    if len(new) < 2:
        return False
    matched = set(match.matched)
    users = {u for v in match.outputs for u in v.users if u not in matched}
    stack = [v.producer for v in new if v.producer is not None]
    seen = set(stack)
    while stack:
        node = stack.pop()
        if node in users:
            return True
        found = [p for p in graph.predecessors(node) if p not in seen]
        seen.update(found)
        stack += found
    return False


def _substitute(graph: Graph, old: Value, new: Value) -> None:
    if old is new:
        return
    if new.producer is not None:
        new.type = refine(old.type, new.type)
    users = list(old.users) if new.type != old.type else []
    graph.replace_uses(old, new)
    queue = deque(users)
    while queue:
        node = queue.popleft()
        if node in graph and not node.bodies and graph.infer_again(node):
            queue.extend(graph.successors(node))
