"""The fewest regions whose quotient graph has no cycle.

The search splits, reduces, bounds and branches:

* *Split.* Contract every component of links at once. A cycle of any finer grouping maps to a closed walk of this
  coarsest quotient, so its strongly connected components are independent problems, and a component of links that is
  one by itself is a region of every best grouping. Most models need no more than that.
* *Reduce.* Join what some best grouping joins anyway, cut links between separated vertices, and split again.
* *Bound and branch.* In what remains take a link: either its ends share a region (then all between them do), or the
  grouping does not need the link. Groupings by level give the first solutions, chains of separated vertices the bound.

Problems of up to :data:`SMALL` vertices may take :data:`SMALL_STEPS` branchings each, which only rare tangles of
that size exhaust; larger ones share :data:`STEPS`, so that the time stays near-linear. Where branchings run out, the
answer is the best one found; :attr:`RegionSearch.proven` says so, and :attr:`RegionSearch.bound` how far it can be off.
"""

from __future__ import annotations

from collections.abc import Hashable

from tinycomp.passes.quotient import (
    HOST,
    Problem,
    contract,
    joined,
    linked_components,
    restrict,
    strong_components,
    topological_order,
)
from tinycomp.passes.region_bounds import drop_separated_links, lower_bound, reach, safe_joins
from tinycomp.passes.region_greedy import join, join_pairs, sweep

SMALL = 20
"""Problems of up to this many vertices have a generous allowance of branchings each."""
SMALL_STEPS = 2000
"""Branchings that one such problem may take."""
MEDIUM = 96
"""Problems of up to this many vertices are searched, within :data:`STEPS`."""
STEPS = 400
"""Branchings that a whole search may spend on problems larger than :data:`SMALL`."""
BITSETS = 2048
"""Problems of up to this many vertices get full reachability."""
SLAB = 40
"""Vertices that re-partitioning of a large solution frees at a time."""

Groups = list[list[int]]


class RegionSearch:
    """One search.

    Attributes:
        found: Regions of all answers given so far.
        bound: A number of regions that these answers cannot undercut.
        steps: Branchings left for problems that are not small.
    """

    def __init__(self, steps: int = STEPS) -> None:
        self.found = 0
        self.bound = 0
        self.steps = steps
        self._exhausted = False
        self._small_steps = 0
        self._known: dict[Hashable, tuple[int, Groups | None]] = {}

    @property
    def proven(self) -> bool:
        """Whether the answers given so far are known to be minimal."""
        return self.found == self.bound

    def minimum(self, problem: Problem) -> Groups:
        """Return the vertices of every region; the host's vertices are left out."""
        groups, hard = split(problem)
        self.bound += len(groups)
        for piece in hard:
            found = self._piece(piece)
            self.bound += _bound(piece) if self._exhausted else len(found)
            groups += found
        self.found += len(groups)
        return groups

    def _piece(self, problem: Problem) -> Groups:
        """Return the best grouping found for a problem that does not split."""
        self._exhausted = False
        self._small_steps = SMALL_STEPS
        self._known.clear()
        if len(problem) > MEDIUM:
            found = self._approximate(problem)
            self._exhausted = True
            return found
        best = self._branch(problem, len(problem))
        assert best is not None, "every vertex alone is a valid grouping"
        return best

    def _solve(self, problem: Problem, limit: int) -> Groups | None:
        """Return a best grouping if it has at most ``limit`` regions."""
        groups, hard = split(problem)
        bounds = [_bound(piece) for piece in hard]
        total = len(groups) + sum(bounds)
        for piece, bound in zip(hard, bounds, strict=True):
            if total > limit:
                return None
            found = self._branch(piece, limit - total + bound)
            if found is None:
                return None
            groups += found
            total += len(found) - bound
        return groups if total <= limit else None

    def _branch(self, problem: Problem, limit: int) -> Groups | None:
        """Like :meth:`_solve`, for a problem that does not split."""
        bound = _bound(problem)
        groups = colored(contract(problem, sweep(problem)))
        best = groups if len(groups) <= limit else None
        if bound > limit or len(groups) == bound:
            return best
        key = _key(problem)
        refuted, known = self._known.get(key, (-1, None))
        if known is not None:
            return known if len(known) <= limit else None
        if refuted >= (limit if best is None else len(best) - 1):
            return best
        if not self._spend(len(problem)):
            return best
        for child in _children(problem):
            limit = limit if best is None else len(best) - 1
            if limit < bound:
                break
            best = self._solve(child, limit) or best
        if not self._exhausted:
            self._known[key] = (limit, best) if best is None else (-1, best)
        return best

    def _spend(self, size: int) -> bool:
        """Take one branching from the allowance; return whether there was one left."""
        left = self._small_steps if size <= SMALL else self.steps
        if not left:
            self._exhausted = True
            return False
        if size <= SMALL:
            self._small_steps -= 1
        else:
            self.steps -= 1
        return True

    def _approximate(self, problem: Problem) -> Groups:
        """Sweep, join pairs, and search again in slabs of the result."""
        labels = sweep(problem)
        step = join_pairs(contract(problem, labels))
        labels = [step[label] for label in labels]
        quotient = contract(problem, labels)
        if len(problem) > BITSETS:
            return colored(quotient)
        return self._improve(problem, labels, quotient)

    def _improve(self, problem: Problem, labels: list[int], quotient: Problem) -> Groups:
        """Free the vertices of consecutive regions, whose grouping nothing outside depends on, and search anew."""
        order = topological_order(quotient.successors)
        assert order is not None, "a grouping has no cycle"
        vertices: Groups = [[] for _ in order]
        for vertex, label in enumerate(labels):
            vertices[label].append(vertex)
        result: Groups = []
        slab: list[int] = []
        regions: Groups = []
        for label in order:
            if slab and len(slab) + len(vertices[label]) > SLAB:
                result += self._improve_slab(restrict(problem, slab), regions)
                slab, regions = [], []
            slab += vertices[label]
            if quotient.colors[label] != HOST:
                regions.append(quotient.members[label])
        return result + self._improve_slab(restrict(problem, slab), regions)

    def _improve_slab(self, problem: Problem, regions: Groups) -> Groups:
        found = self._solve(problem, len(regions) - 1) if len(problem) <= MEDIUM else None
        return regions if found is None else found


def colored(problem: Problem) -> Groups:
    """Return the members of every vertex that is not the host's."""
    return [members for color, members in zip(problem.colors, problem.members, strict=True) if color != HOST]


def split(problem: Problem) -> tuple[Groups, list[Problem]]:
    """Return regions that are certain, and the independent problems that remain."""
    groups: Groups = []
    hard: list[Problem] = []
    waiting = [problem]
    while waiting:
        whole = waiting.pop()
        certain, pieces = _split_once(whole)
        groups += certain
        for piece in pieces:
            reduced, cut = _reduce(piece)
            progress = len(whole) - len(reduced)
            if cut or progress > (len(whole) // 8 if len(whole) > BITSETS else 0):
                waiting.append(reduced)
            else:
                hard.append(reduced)
    return groups, hard


def _split_once(problem: Problem) -> tuple[Groups, list[Problem]]:
    labels = linked_components(problem)
    coarse = contract(problem, labels)
    groups: Groups = []
    number = [-1] * len(coarse)
    count = 0
    for component in strong_components(coarse.successors):
        if len(component) > 1:
            for label in component:
                number[label] = count
            count += 1
        elif coarse.colors[component[0]] != HOST:
            groups.append(coarse.members[component[0]])
    vertices: Groups = [[] for _ in range(count)]
    for vertex, label in enumerate(labels):
        if number[label] >= 0:
            vertices[number[label]].append(vertex)
    return groups, [restrict(problem, members) for members in vertices]


def _reduce(problem: Problem) -> tuple[Problem, bool]:
    reduced = contract(problem, safe_joins(problem))
    cut = len(reduced) <= BITSETS and drop_separated_links(reduced, reach(reduced))
    return reduced, cut


def _bound(problem: Problem) -> int:
    """Return a lower bound for a problem that does not split, where one region per component of links never works."""
    components = joined(len(problem), ((v, *links) for v, links in enumerate(problem.links)))
    hosts = sum(color == HOST for color in problem.colors)
    chains = lower_bound(problem, reach(problem)) if len(problem) <= BITSETS else 0
    return max(chains, max(components) + 2 - hosts)


def _key(problem: Problem) -> Hashable:
    """Return what tells problems of one search apart; the search only ever joins vertices and drops links."""
    names = [frozenset(members) for members in problem.members]
    links = frozenset(frozenset((names[v], names[w])) for v, links in enumerate(problem.links) for w in links)
    return frozenset(names), links


def _children(problem: Problem) -> tuple[Problem, Problem]:
    """Return the problem with the ends of one link joined, and the problem without that link."""
    known = reach(problem)
    a, b = max(
        ((u, v) for u, links in enumerate(problem.links) for v in links if u < v),
        key=lambda pair: (len(problem.links[pair[0]]) + len(problem.links[pair[1]]), -pair[0], -pair[1]),
    )
    links = [set(others) for others in problem.links]
    links[a].discard(b)
    links[b].discard(a)
    return join(problem, known, a, b), Problem(problem.colors, problem.successors, links, problem.members)
