"""From a compiled pattern and a node to matches, lazily, or to the best explanation why there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.rewrite.feasibility import Feasibility
from tinycomp.rewrite.match import Match, Rejection
from tinycomp.rewrite.pattern import ValuePattern, Where
from tinycomp.rewrite.roots import OtherRoot
from tinycomp.rewrite.search import Goal, Search

if TYPE_CHECKING:
    from tinycomp.rewrite.compiled import Pattern

Check = Callable[[Match], Any]
"""A predicate over the whole match: True or None is yes; False or a :class:`Rejection` is no."""


def matches(pattern: Pattern, node: Node, graph: Graph | None = None) -> Iterator[Match]:
    """Yield every match of ``pattern`` anchored at ``node``, best first; predicates are the caller's business.

    Args:
        pattern: The compiled pattern.
        node: The node that the (first) output of the pattern must stand at.
        graph: The graph that holds the node; without it graph outputs do not count as uses.
    """
    feasible = Feasibility(pattern)
    if may_start(pattern, node, feasible):
        yield from _Attempt(pattern, node, graph, feasible)


def find(
    pattern: Pattern,
    node: Node,
    graph: Graph | None = None,
    accept: Sequence[Check] = (),
    feasible: Feasibility | None = None,
) -> Match | Rejection:
    """Return the first match that every predicate accepts, or the rejection that came furthest.

    Args:
        pattern: The compiled pattern.
        node: The node that the (first) output of the pattern must stand at.
        graph: The graph that holds the node; without it graph outputs do not count as uses.
        accept: The predicates.
        feasible: What is known of the pattern on the graph already.
    """
    refusal: Rejection | None = None
    for match in _Attempt(pattern, node, graph, feasible or Feasibility(pattern)):
        answer = judge(match, accept)
        if answer is None:
            return match
        refusal = answer if refusal is None else refusal
    return _explanation(pattern, node, graph) if refusal is None else refusal


def may_start(pattern: Pattern, node: Node, feasible: Feasibility) -> bool:
    """Whether operators and constants leave room for a match anchored at ``node``."""
    index = _result_index(pattern.outputs[0])
    return index < len(node.outputs) and feasible.may_stand(pattern.outputs[0], node.outputs[index], anchored=True)


def _explanation(pattern: Pattern, node: Node, graph: Graph | None) -> Rejection:
    """Return why nothing matches, from a search that goes into every blind alley."""
    attempt = _Attempt(pattern, node, graph)
    for _ in attempt:
        pass
    return attempt.search.failure


def judge(match: Match, checks: Iterable[Check]) -> Rejection | None:
    """Return the first refusal among ``checks``, or None."""
    for check in checks:
        try:
            answer = check(match)
        except Exception as error:
            error.add_note(f"while a predicate looked at the match at {match.root!r}")
            raise
        if answer is None or (not isinstance(answer, Rejection) and bool(answer)):
            continue
        name = getattr(check, "__name__", "a predicate")
        reason = answer.reason if isinstance(answer, Rejection) else f"{'a predicate' if name == '_' else name} said no"
        node = answer.node if isinstance(answer, Rejection) and answer.node is not None else match.root
        return Rejection(reason, node, 1.0, match.matched)
    return None


class _Attempt:
    """One pattern at one node; iterating runs the search."""

    def __init__(self, pattern: Pattern, node: Node, graph: Graph | None, feasible: Feasibility | None = None) -> None:
        self.pattern = pattern
        self.node = node
        self.search = Search(graph, pattern.through, pattern.size, feasible)

    def __iter__(self) -> Iterator[Match]:
        first, *others = self.pattern.outputs
        index = _result_index(first)
        if index >= len(self.node.outputs):
            self.search.fail(f"expected result {index}, found {len(self.node.outputs)} at {self.node.label}", self.node)
            return
        goals: list[Goal] = [(first, self.node.outputs[index], True)]
        goals += [(OtherRoot(p, self.pattern.outputs[:i]), None, False) for i, p in enumerate(others, 1)]
        for _ in self.search.solve(goals):
            yield self._snapshot()

    def _snapshot(self) -> Match:
        search, pattern = self.search, self.pattern
        outputs = [search.values[p] for p in pattern.outputs]
        return Match(
            root=self.node,
            outputs=tuple(v for v in outputs if v is not None),
            matched=tuple(search.members),
            bindings={name: search.values.get(p) for name, p in pattern.named.items()},
            attrs=dict(search.attrs),
            dims=dict(search.dims),
            free=self._free(),
            values=dict(search.values),
        )

    def _free(self) -> tuple[Value, ...]:
        search = self.search
        arguments = [p for p in self.pattern.arguments if p.is_free]
        others = [p for p in search.values if p.is_free]
        found = [*(search.values.get(p) for p in [*arguments, *others]), *search.rest]
        read = {v for n in search.members for v in n.inputs if v is not None and v.producer not in search.members}
        return tuple(v for v in dict.fromkeys(found) if v in read)


def _result_index(pattern: ValuePattern) -> int:
    while isinstance(pattern, Where):
        pattern = pattern.inner
    return int(getattr(pattern, "index", 0))
