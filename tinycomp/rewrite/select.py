"""Choosing matches: which may stand together, and why another may not.

A match is accepted when its predicates hold, no node of it is taken, no value of a non-root node is used outside, and
making one node of it closes no cycle, asked in this order. The first three questions take part in the search: a match
that fails one is followed by the next way to match at the same root. A refused match reserves nothing.
"""

from __future__ import annotations

import bisect
import sys
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.rewrite.composite import Composite
from tinycomp.rewrite.engine import Head
from tinycomp.rewrite.feasibility import Feasibility
from tinycomp.rewrite.landmarks import within_reach
from tinycomp.rewrite.match import Match, Rejection, reject
from tinycomp.rewrite.matcher import find, may_start
from tinycomp.rewrite.traits import is_duplicable


@dataclass(frozen=True, eq=False)
class Chosen:
    """An accepted match.

    Attributes:
        composite: What was matched.
        match: Where.
        owned: The nodes that belong to it alone; the others are copied for it.
    """

    composite: Composite
    match: Match
    owned: frozenset[Node]


class Selection:
    """Matches on one graph that can all be made composites; the graph does not change meanwhile."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.chosen: list[Chosen] = []
        self.taken: dict[Node, Chosen] = {}
        self._place = {node: index for index, node in enumerate(graph.nodes)}
        self._spans = _Spans()
        self._by_head: dict[Head, list[Node]] = {}
        for node in reversed(self._place):
            self._by_head.setdefault((node.domain, node.op), []).append(node)

    def choose(
        self, composite: Composite, explained: Callable[[Node], bool] = lambda root: False
    ) -> list[tuple[Node, Rejection]]:
        """Add every acceptable match of ``composite``, roots from the outputs back; return the failed attempts.

        Args:
            composite: What to look for.
            explained: Whether nobody will ask why ``composite`` does not stand at a root. Such a root is not even
                tried where an operator that every match holds is out of reach, or operators and constants rule a
                match out, which saves most attempts.
        """
        failed: list[tuple[Node, Rejection]] = []
        roots = [n for n in self._roots(composite) if n not in self.taken and _may_take(n, composite)]
        if not roots:
            return failed
        accept = [*composite.predicates, lambda m: self._is_free(m, composite), self._is_closed, self._stays_acyclic]
        hopeful, feasible = self._hopeful(composite), Feasibility(composite.pattern)
        for root in roots:
            if root in self.taken:
                continue
            if explained(root) and not (root in hopeful and may_start(composite.pattern, root, feasible)):
                continue
            answer = find(composite.pattern, root, self.graph, accept, feasible)
            if isinstance(answer, Match):
                self._take(composite, answer)
            else:
                failed.append((root, answer))
        return failed

    def _roots(self, composite: Composite) -> Iterable[Node]:
        heads = composite.pattern.heads
        if heads is None:
            return reversed(self._place)
        found = [node for head in heads for node in self._by_head.get(head, ())]
        return found if len(heads) == 1 else sorted(found, key=self._place.__getitem__, reverse=True)

    def _hopeful(self, composite: Composite) -> Container[Node]:
        """Return the nodes within reach of the rarest operator that every match holds."""
        marked = [
            (sum(len(self._by_head.get(head, ())) for head in mark.heads), mark) for mark in composite.pattern.landmarks
        ]
        if not marked:
            return self._place
        _, rarest = min(marked, key=lambda pair: pair[0])
        starts = (node for head in rarest.heads for node in self._by_head.get(head, ()))
        return within_reach(self.graph, starts, rarest.depth)

    def _take(self, composite: Composite, match: Match) -> None:
        copies = copies_needed(match, self.graph)
        assert not isinstance(copies, Rejection)
        chosen = Chosen(composite, match, frozenset(n for n in match.matched if n not in copies))
        self.chosen.append(chosen)
        self.taken.update(dict.fromkeys(chosen.owned, chosen))
        if len({v.producer for v in match.outputs}) > 1:
            self._spans.add(self._place[n] for n in chosen.owned)

    # The tests of a match, in order ----------------------------------------------------------------------------------

    def _is_free(self, match: Match, composite: Composite) -> Rejection | None:
        for node in match.matched:
            if node in self.taken:
                return Rejection(f"lost {node.label} to {self.taken[node].composite.qualified_name}", node)
            if not _may_take(node, composite):
                return Rejection(f"{node.label} belongs to {node.target or node.op} already", node)
        return None

    def _is_closed(self, match: Match) -> Rejection | None:
        copies = copies_needed(match, self.graph)
        return copies if isinstance(copies, Rejection) else None

    def _stays_acyclic(self, match: Match) -> Rejection | None:
        """Refuse a match with several roots from which a path leads back into it.

        With one root there is no such path: every member is an ancestor of the root, and only the root's value leaves.
        """
        if len({v.producer for v in match.outputs}) == 1:
            return None
        copies = copies_needed(match, self.graph)
        assert not isinstance(copies, Rejection)
        members = {n for n in match.matched if n not in copies}
        through = self._way_back(members)
        return None if through is None else reject(f"would close a cycle through {through.label}")

    def _way_back(self, members: set[Node]) -> Node | None:
        limit = self._spans.horizon(max(self._place[n] for n in members))
        first = [u for n in members for u in self.graph.successors(n) if u not in members]
        came_from = {u: u for u in first}
        stack = list(came_from)
        while stack:
            node = stack.pop()
            group = self.taken[node].owned if node in self.taken else (node,)
            for user in (u for n in group for u in self.graph.successors(n)):
                if user in members:
                    return came_from[node]
                if user not in came_from and self._place[user] <= limit:
                    came_from[user] = came_from[node]
                    stack.append(user)
        return None


class _Spans:
    """Disjoint ranges of places that matches with several roots bridge: a path can go back inside one of them."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []

    def add(self, places: Iterable[int]) -> None:
        held = list(places)
        low, high = min(held), max(held)
        at = bisect.bisect_left(self._ranges, (low, low))
        if at and self._ranges[at - 1][1] >= low:
            at -= 1
        end = at
        while end < len(self._ranges) and self._ranges[end][0] <= high:
            low, high = min(low, self._ranges[end][0]), max(high, self._ranges[end][1])
            end += 1
        self._ranges[at:end] = [(low, high)]

    def horizon(self, place: int) -> int:
        """Return the last place from which a path can lead back to ``place``."""
        at = bisect.bisect_right(self._ranges, (place, sys.maxsize)) - 1
        return max(place, self._ranges[at][1]) if at >= 0 else place


def _may_take(node: Node, composite: Composite) -> bool:
    """Whether the node is nobody's, or a composite of the same target, which a larger one may hold."""
    if node.is_region or (node.target is not None and not node.is_composite):
        return False
    return node.target in (None, composite.target)


def copies_needed(match: Match, graph: Graph) -> set[Node] | Rejection:
    """Return the members that the match needs copies of, because their values are used outside too.

    A cheap, pure producer is copied, so that each match owns one. What a copied node reads from other members is then
    used outside as well, by the original.

    Returns:
        The nodes to copy, or a rejection when a value escapes whose producer cannot be copied.
    """
    members = set(match.matched)
    roots = {v.producer for v in match.outputs}
    copies: set[Node] = set()
    stack = [n for n in match.matched if n not in roots and _escape(n, members, graph) is not None]
    while stack:
        node = stack.pop()
        if node in copies or node in roots:
            continue
        if not is_duplicable(node):
            return Rejection(_escape_text(node, members - copies, graph), node)
        copies.add(node)
        stack += [v.producer for v in node.inputs if v is not None and v.producer in members]
    return copies


def _escape(node: Node, members: set[Node], graph: Graph) -> Value | None:
    for value in node.outputs:
        if graph.is_output(value) or any(user not in members for user in value.users):
            return value
    return None


def _escape_text(node: Node, members: set[Node], graph: Graph) -> str:
    value = _escape(node, members, graph) or node.output
    if graph.is_output(value):
        return f"the result of {node.label} is also an output of the graph"
    user = next((u for u in value.users if u not in members), None)
    return f"the result of {node.label} is also used by {user.label if user else 'another node'}"
