"""Groupings found without search: sweeps over levels in both directions, and joins of single pairs.

A *level* rises along every dependency whose ends must not or cannot share a region, and never falls along the others.
Grouping what is linked and on one level is therefore free of cycles whatever the graph looks like, for all targets at
once, in linear time. Sweeping forwards puts vertices on the first level that they can stand on, backwards on the last.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinycomp.passes.quotient import HOST, Problem, contract, joined, restrict, topological_order
from tinycomp.passes.region_bounds import Reach, drop_separated_links, reach

WINDOW = 128
"""Vertices that pairwise joining looks at together."""


def count_regions(problem: Problem) -> int:
    """Return how many vertices are not the host's."""
    return sum(color != HOST for color in problem.colors)


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
