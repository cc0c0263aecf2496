"""Integer graphs for region search: contraction, components, and the test that a quotient has no cycle.

Region search works on plain lists instead of nodes: it contracts, restricts and copies graphs thousands of times, and
what decides is only which vertex has which colour, who depends on whom, and which pairs may be joined.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

HOST = 0
"""The colour of vertices that are never joined with another one."""


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


def separate(problem: Problem, pairs: Iterable[tuple[int, int]]) -> None:
    """Keep vertices apart of which the second depends on the first, by a vertex of the host's between each pair.

    A region that held both would depend on itself.
    """
    for vertex, user in pairs:
        between = len(problem)
        problem.colors.append(HOST)
        problem.successors.append({user})
        problem.links.append(set())
        problem.members.append([between])
        problem.successors[vertex].add(between)
        problem.links[vertex].discard(user)
        problem.links[user].discard(vertex)


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
    found = []
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
        found.append(sorted(component))
    return found


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
