"""What can be said about a region search without searching: forced separations, safe joins, and a lower bound.

Two vertices of one colour are *separated* when a path between them runs through another colour: a region that held
both would depend on itself. Separation along a path is transitive, so a chain of separated vertices needs as many
regions as it has vertices.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinycomp.passes.quotient import HOST, Problem, joined, linked_components, topological_order


@dataclass(frozen=True, slots=True)
class Reach:
    """Reachability as bit sets: bit ``w`` of entry ``v`` says that ``w`` depends on ``v``.

    Attributes:
        order: A topological order.
        all: By any path.
        foreign: By a path through another colour (or, for the host colour, through anything).
    """

    order: list[int]
    all: list[int]
    foreign: list[int]


def reach(problem: Problem) -> Reach:
    """Return the reachability of an acyclic problem, in O(edges * vertices / word size)."""
    order = topological_order(problem.successors)
    assert order is not None, "a region search starts from an acyclic graph"
    everything = [0] * len(problem)
    foreign = [0] * len(problem)
    for vertex in reversed(order):
        color = problem.colors[vertex]
        for user in problem.successors[vertex]:
            everything[vertex] |= everything[user] | (1 << user)
            foreign[vertex] |= foreign[user] if problem.colors[user] == color != HOST else everything[user]
    return Reach(order, everything, foreign)


def drop_separated_links(problem: Problem, known: Reach) -> bool:
    """Remove every link between separated vertices; return whether there was one."""
    changed = False
    for vertex, links in enumerate(problem.links):
        cut = [w for w in links if known.foreign[vertex] >> w & 1]
        for other in cut:
            links.discard(other)
            problem.links[other].discard(vertex)
        changed |= bool(cut)
    return changed


def lower_bound(problem: Problem, known: Reach) -> int:
    """Return a number of regions that no valid grouping undercuts: the longest separated chain of every component."""
    labels = linked_components(problem)
    chain = [1] * len(problem)
    best: dict[int, int] = {}
    peers: dict[int, int] = {}
    for vertex, label in enumerate(labels):
        peers[label] = peers.get(label, 0) | (1 << vertex)
    for vertex in reversed(known.order):
        if problem.colors[vertex] == HOST:
            continue
        later = known.foreign[vertex] & peers[labels[vertex]]
        while later:
            low = later & -later
            chain[vertex] = max(chain[vertex], chain[low.bit_length() - 1] + 1)
            later ^= low
        best[labels[vertex]] = max(best.get(labels[vertex], 0), chain[vertex])
    return sum(best.values())


def safe_joins(problem: Problem) -> list[int]:
    """Return labels that join what some best grouping joins anyway, in near-linear time.

    A vertex whose only user is ``v`` may always move into the region of ``v``: what it depends on, that region depends
    on already. It may do so without tearing its old region apart if it holds that together with at most one other
    link. The same holds with producers for users. Host vertices never need links, and joining them along such an edge
    adds no dependency.
    """
    search = _SafeJoins(problem)
    search.run()
    return joined(len(problem), search.pairs)


class _SafeJoins:
    def __init__(self, problem: Problem) -> None:
        self.colors = problem.colors
        self.after = [set(s) for s in problem.successors]
        self.before = problem.predecessors()
        self.links = [set(s) for s in problem.links]
        self.pairs: list[tuple[int, int]] = []
        self.gone = [False] * len(problem)

    def run(self) -> None:
        waiting = list(reversed(range(len(self.colors))))
        while waiting:
            vertex = waiting.pop()
            if self.gone[vertex]:
                continue
            partner = self._partner(vertex, self.after)
            if partner is None:
                partner = self._partner(vertex, self.before)
            if partner is not None:
                waiting.extend(self._absorb(vertex, partner))

    def _partner(self, vertex: int, side: list[set[int]]) -> int | None:
        if len(side[vertex]) != 1:
            return None
        (other,) = side[vertex]
        if self.colors[vertex] != self.colors[other]:
            return None
        if self.colors[vertex] == HOST:
            return other
        return other if other in self.links[vertex] and len(self.links[vertex]) <= 2 else None

    def _absorb(self, vertex: int, into: int) -> list[int]:
        """Join the two vertices; return the vertices whose situation has changed."""
        if self._degree(vertex) > self._degree(into):
            vertex, into = into, vertex
        self.gone[vertex] = True
        self.pairs.append((vertex, into))
        changed = {into}
        for table, mirror in ((self.after, self.before), (self.before, self.after), (self.links, self.links)):
            for other in table[vertex]:
                mirror[other].discard(vertex)
                changed.add(other)
                if other != into:
                    table[into].add(other)
                    mirror[other].add(into)
            table[vertex] = set()
        return sorted(changed, reverse=True)

    def _degree(self, vertex: int) -> int:
        return len(self.after[vertex]) + len(self.before[vertex]) + len(self.links[vertex])
