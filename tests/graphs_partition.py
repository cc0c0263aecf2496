"""Random dependency graphs and a brute-force oracle for region merging."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from tinycomp.passes.search.regions import HOST, Problem, topological_order


def random_problem(rng: random.Random, size: int, targets: int, density: float, host: float) -> Problem:
    """Return an acyclic problem in which vertices of one colour that depend on each other are linked."""
    colors = [HOST if rng.random() < host else rng.randint(1, targets) for _ in range(size)]
    reach = rng.choice([2, 3, size])
    edges = [(u, v) for v in range(size) for u in range(max(0, v - reach), v) if rng.random() < density]
    names = list(range(size))
    rng.shuffle(names)
    return problem_of([colors[names.index(i)] for i in range(size)], [(names[u], names[v]) for u, v in edges])


def problem_of(colors: Sequence[int], edges: Sequence[tuple[int, int]]) -> Problem:
    """Return the problem with these colours and dependencies."""
    successors: list[set[int]] = [set() for _ in colors]
    links: list[set[int]] = [set() for _ in colors]
    for u, v in edges:
        successors[u].add(v)
        if colors[u] == colors[v] != HOST:
            links[u].add(v)
            links[v].add(u)
    return Problem(list(colors), successors, links, [[v] for v in range(len(colors))])


def is_valid(problem: Problem, groups: Sequence[Sequence[int]]) -> bool:
    """Whether groups hold every vertex once, one colour each, hang together, and have an acyclic quotient."""
    vertices = [v for g in groups for v in g]
    if sorted(vertices) != [v for v, c in enumerate(problem.colors) if c != HOST]:
        return False
    return all(_connected(problem, g) for g in groups) and is_acyclic(problem, groups)


def is_acyclic(problem: Problem, groups: Sequence[Sequence[int]]) -> bool:
    """Whether the quotient, with every vertex outside the groups alone, has no cycle."""
    label = {v: ("g", i) for i, g in enumerate(groups) for v in g}
    name = {key: i for i, key in enumerate(dict.fromkeys(label.get(v, v) for v in range(len(problem.colors))))}
    number = [name[label.get(v, v)] for v in range(len(problem.colors))]
    successors: list[set[int]] = [set() for _ in name]
    for u, users in enumerate(problem.successors):
        successors[number[u]] |= {number[v] for v in users if number[v] != number[u]}
    return topological_order(successors) is not None


def _connected(problem: Problem, group: Sequence[int]) -> bool:
    todo, seen = [group[0]], {group[0]}
    for vertex in todo:
        new = [w for w in problem.links[vertex] if w in group and w not in seen]
        seen.update(new)
        todo += new
    return len(seen) == len(group) and len({problem.colors[v] for v in group}) == 1


def oracle(problem: Problem) -> int:
    """Return the least number of regions by trying every grouping."""
    colored = [v for v, c in enumerate(problem.colors) if c != HOST]
    return min(len(groups) for groups in _groupings(problem, colored) if is_valid(problem, groups))


def _groupings(problem: Problem, vertices: list[int]) -> Iterator[list[list[int]]]:
    if not vertices:
        yield []
        return
    first, rest = vertices[0], vertices[1:]
    for groups in _groupings(problem, rest):
        for i, group in enumerate(groups):
            if problem.colors[group[0]] == problem.colors[first]:
                yield [*groups[:i], [first, *group], *groups[i + 1 :]]
        yield [[first], *groups]
