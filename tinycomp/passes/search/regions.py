"""Search for the fewest regions whose quotient graph has no cycle, in what contraction alone does not decide.

The search splits, reduces, bounds and branches:

* *Split.* Contract every component of links at once. A cycle of any finer grouping maps to a closed walk of this
  coarsest quotient, so its strongly connected components are independent problems, and a component of links that is
  one by itself is a region of every best grouping.
* *Reduce.* Join what some best grouping joins anyway, cut links between separated vertices, and split again.
* *Bound and branch.* In what remains take a link: either its ends share a region (then all between them do), or the
  grouping does not need the link. Groupings by level give the first solutions, chains of separated vertices the bound.

Two vertices of one colour are *separated* when a path between them runs through another colour: a region that held both
would depend on itself. Separation along a path is transitive, so a chain of separated vertices needs as many regions as
it has vertices. A *level* rises along every dependency whose ends must not or cannot share a region, and never falls
along the others: grouping what is linked and on one level is free of cycles whatever the graph looks like, for all
targets at once, in linear time.

Problems of up to :data:`SMALL` vertices may take :data:`SMALL_STEPS` branchings each, which only rare tangles of
that size exhaust; larger ones share :data:`STEPS`, so that the time stays near-linear. Where branchings run out, the
answer is the best one found; :attr:`RegionSearch.proven` says so, and :attr:`RegionSearch.bound` how far it can be off.

The search contracts, restricts and copies graphs thousands of times, so it works on integers. What decides is only
which vertex has which colour, who depends on whom, and which pairs may be joined.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from tinycomp.records import dataclass

HOST = 0
"""The colour of vertices that are never joined with another one."""


WINDOW = 128
"""Vertices that pairwise joining looks at together."""
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


@dataclass(frozen=True, slots=True)
class Problem:
    """A coloured dependency graph whose vertices are to be grouped into as few regions as possible.

    Attributes:
        colors: Per vertex, :data:`HOST` or the number of its target.
        successors: Per vertex, the vertices that depend on it directly.
        links: Per vertex, the vertices of its colour with which it may be joined; symmetric. A region must be
            connected by links, so a link that is missing where a dependency exists forbids nothing by itself.
        members: Per vertex, the vertices of the original graph that it stands for.
    """

    colors: list[int]
    successors: list[set[int]]
    links: list[set[int]]
    members: list[list[int]]

    def __len__(self) -> int:
        return len(self.colors)

    def predecessors(self) -> list[set[int]]:
        """Return, per vertex, the vertices on which it depends directly."""
        result: list[set[int]] = [set() for _ in self.colors]
        for vertex, users in enumerate(self.successors):
            for user in users:
                result[user].add(vertex)
        return result


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

    def accept(self, count: int) -> None:
        """Count regions that are certain without a search."""
        self.found += count
        self.bound += count

    def minimum(self, problem: Problem) -> Groups:
        """Return the vertices of every region; the host's vertices are left out."""
        groups, hard = split(problem)
        self.bound += len(groups)
        for piece in hard:
            best = self._piece(piece)
            self.bound += _bound(piece) if self._exhausted else len(best)
            groups += best
        self.found += len(groups)
        return groups

    def _piece(self, problem: Problem) -> Groups:
        """Return the best grouping found for a problem that does not split."""
        self._exhausted = False
        self._small_steps = SMALL_STEPS
        self._known.clear()
        if len(problem) > MEDIUM:
            best = self._approximate(problem)
            self._exhausted = True
            return best
        fewest = self._branch(problem, len(problem))
        assert fewest is not None, "every vertex alone is a valid grouping"
        return fewest

    def _solve(self, problem: Problem, limit: int) -> Groups | None:
        """Return a best grouping if it has at most ``limit`` regions."""
        groups, hard = split(problem)
        bounds = [_bound(piece) for piece in hard]
        total = len(groups) + sum(bounds)
        for piece, bound in zip(hard, bounds, strict=True):
            if total > limit:
                return None
            best = self._branch(piece, limit - total + bound)
            if best is None:
                return None
            groups += best
            total += len(best) - bound
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
        fewer = self._solve(problem, len(regions) - 1) if len(problem) <= MEDIUM else None
        return regions if fewer is None else fewer


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


def sweep(problem: Problem) -> list[int]:
    """Return the better of the groupings that begin forwards and backwards; each alternates until nothing changes."""
    candidates = [_alternate(problem, forwards) for forwards in (True, False)]
    return min(candidates, key=lambda labels: max(labels, default=0))


def _alternate(problem: Problem, forwards: bool) -> list[int]:
    labels = list(range(len(problem)))
    idle = 0
    while idle < 2:
        step = _level_groups(problem, forwards)
        quotient = contract(problem, step)
        idle = idle + 1 if len(quotient) == len(problem) else 0
        labels = [step[label] for label in labels]
        problem, forwards = quotient, not forwards
    return labels


def _level_groups(problem: Problem, forwards: bool) -> list[int]:
    order = topological_order(problem.successors)
    assert order is not None, "levels need an acyclic graph"
    level = [0] * len(problem)
    neighbours = problem.successors
    if not forwards:
        order.reverse()
        neighbours = problem.predecessors()
    for vertex in order:
        for user in neighbours[vertex]:
            together = problem.colors[vertex] == problem.colors[user] == HOST or user in problem.links[vertex]
            level[user] = max(level[user], level[vertex] + (not together))
    return joined(
        len(problem), ((v, *(w for w in links if level[w] == level[v])) for v, links in enumerate(problem.links))
    )


def join_pairs(problem: Problem) -> list[int]:
    """Return labels after joining linked pairs, with all that lies between them, as long as no cycle arises.

    A window is a run of consecutive vertices of a topological order: a path that leaves it cannot come back, so joins
    inside are independent of everything outside. Two rounds with shifted windows keep the whole near-linear.
    """
    labels = list(range(len(problem)))
    for offset in (0, WINDOW // 2):
        order = topological_order(problem.successors)
        assert order is not None, "joining needs an acyclic graph"
        starts = range(-offset, len(order), WINDOW)
        groups = [g for s in starts for g in _join_window(problem, order[max(s, 0) : s + WINDOW])]
        step = joined(len(problem), groups)
        labels = [step[label] for label in labels]
        problem = contract(problem, step)
    return labels


def _join_window(problem: Problem, vertices: Sequence[int]) -> list[list[int]]:
    window = restrict(problem, vertices)
    window = Problem(window.colors, window.successors, window.links, [[v] for v in vertices])
    while True:
        known = reach(window)
        drop_separated_links(window, known)
        pair = next(((u, v) for u in known.order for v in sorted(window.links[u])), None)
        if pair is None:
            return window.members
        window = join(window, known, *pair)


def join(problem: Problem, known: Reach, a: int, b: int) -> Problem:
    """Return ``problem`` with the linked, not separated vertices ``a`` and ``b``, and all between them, as one.

    What lies on a path from one to the other has their colour, or they would be separated, and hangs together with
    them: dependencies between vertices of one colour are data edges.
    """
    group = [a, b, *(v for v in range(len(problem)) if _between(known, a, v, b) or _between(known, b, v, a))]
    return contract(problem, joined(len(problem), [group]))


def _between(known: Reach, first: int, vertex: int, last: int) -> int:
    return known.all[first] >> vertex & known.all[vertex] >> last & 1


def restrict(problem: Problem, vertices: Sequence[int]) -> Problem:
    """Return the part of ``problem`` that ``vertices`` induce."""
    index = {v: i for i, v in enumerate(vertices)}
    return Problem(
        [problem.colors[v] for v in vertices],
        [{index[w] for w in problem.successors[v] if w in index} for v in vertices],
        [{index[w] for w in problem.links[v] if w in index} for v in vertices],
        [problem.members[v] for v in vertices],
    )


def contract(problem: Problem, labels: Sequence[int]) -> Problem:
    """Return the quotient of ``problem`` under ``labels``, which number the groups from 0 without gaps."""
    count = max(labels, default=-1) + 1
    result = Problem(
        [HOST] * count, [set() for _ in range(count)], [set() for _ in range(count)], [[] for _ in range(count)]
    )
    for vertex, group in enumerate(labels):
        result.colors[group] = problem.colors[vertex]
        result.members[group].extend(problem.members[vertex])
        result.successors[group].update([labels[w] for w in problem.successors[vertex]])
        result.links[group].update([labels[w] for w in problem.links[vertex]])
    for group in range(count):
        result.successors[group].discard(group)
        result.links[group].discard(group)
    return result


def joined(size: int, groups: Iterable[Iterable[int]]) -> list[int]:
    """Return labels, numbered by first vertex, in which the vertices of each group (groups may overlap) are one."""
    parent = list(range(size))
    for group in groups:
        first: int | None = None
        for vertex in group:
            root = _root(parent, vertex)
            if first is None:
                first = root
            elif root != first:
                parent[max(root, first)] = first = min(root, first)
    names: dict[int, int] = {}
    return [names.setdefault(_root(parent, v), len(names)) for v in range(size)]


def _root(parent: list[int], vertex: int) -> int:
    while parent[vertex] != vertex:
        parent[vertex] = vertex = parent[parent[vertex]]
    return vertex


def linked_components(problem: Problem) -> list[int]:
    """Return labels of the components that links make: the coarsest grouping one could wish for."""
    return joined(len(problem), ((v, *links) for v, links in enumerate(problem.links)))


def topological_order(successors: Sequence[Iterable[int]]) -> list[int] | None:
    """Return a depth-first topological order, or None if there is a cycle."""
    waiting = [0] * len(successors)
    for users in successors:
        for user in users:
            waiting[user] += 1
    ready = [v for v in reversed(range(len(successors))) if not waiting[v]]
    order = []
    while ready:
        vertex = ready.pop()
        order.append(vertex)
        for user in sorted(successors[vertex], reverse=True):
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    return order if len(order) == len(successors) else None


def strong_components(successors: Sequence[Iterable[int]]) -> list[list[int]]:
    """Return the strongly connected components, each sorted (Kosaraju and Sharir 1981, iterative)."""
    reverse: list[list[int]] = [[] for _ in successors]
    for vertex, users in enumerate(successors):
        for user in users:
            reverse[user].append(vertex)
    seen = [False] * len(reverse)
    components = []
    for start in reversed(_postorder(successors)):
        if seen[start]:
            continue
        seen[start] = True
        component = [start]
        for vertex in component:  # grows while it is read
            for other in reverse[vertex]:
                if not seen[other]:
                    seen[other] = True
                    component.append(other)
        components.append(sorted(component))
    return components


def _postorder(successors: Sequence[Iterable[int]]) -> list[int]:
    seen = [False] * len(successors)
    order = []
    for start in range(len(successors)):
        if seen[start]:
            continue
        seen[start] = True
        work = [(start, iter(successors[start]))]
        while work:
            vertex, users = work[-1]
            for user in users:
                if not seen[user]:
                    seen[user] = True
                    work.append((user, iter(successors[user])))
                    break
            else:
                work.pop()
                order.append(vertex)
    return order
