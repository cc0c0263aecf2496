"""How good and how dear the region search is: figures that may improve but must not get worse.

The graphs are tangles, in which nearly everything depends on nearly everything before; models are much easier.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from benchmarks.partition_fuzz import fewest
from tests.graphs_partition import is_valid, problem_of
from tinycomp.passes.search import regions
from tinycomp.passes.search.regions import STEPS, Problem, RegionSearch, contract, join_pairs, safe_joins, split, sweep


def count_regions(problem: Problem) -> int:
    """Return how many vertices are not the host's."""
    return sum(color != regions.HOST for color in problem.colors)


def tangle(size: int, reach: int, seed: int, colors: Sequence[int] = (0, 1, 1)) -> Problem:
    rng = random.Random(seed)
    edges = [(max(0, v - rng.randint(1, reach)), v) for v in range(1, size) for _ in range(2)]
    return problem_of([rng.choice(colors) for _ in range(size)], edges)


def mirrored(problem: Problem) -> Problem:
    return problem_of(problem.colors, [(v, u) for u, users in enumerate(problem.successors) for v in users])


def swept(problem: Problem) -> int:
    return count_regions(contract(problem, sweep(problem)))


def needs(problem: Problem) -> list[int]:
    return [sum(1 << p for p in before) for before in problem.predecessors()]


def test_graphs_of_up_to_fifteen_vertices_against_brute_force():
    searched = 0
    for seed in range(150):
        rng = random.Random(seed)
        colors = rng.choice([(0, 1, 1), (0, 1, 1, 2)])
        problem = tangle(rng.randint(12, 15), rng.choice([4, 6, 8]), seed, colors)
        groups = RegionSearch().minimum(problem)
        assert is_valid(problem, groups), seed
        assert len(groups) == fewest(needs(problem), [c or None for c in problem.colors]), seed
        searched += bool(split(problem)[1])
    assert searched >= 30


def test_sweeps_are_as_good_forwards_as_backwards():
    for seed in range(60):
        problem = tangle(40, 12, seed, (0, 1, 1, 2))
        assert swept(problem) == swept(mirrored(problem)), seed


def test_groupings_without_search_are_as_good_as_they_were():
    problems = [tangle(40, 12, seed) for seed in range(100)]
    assert sum(map(swept, problems)) <= 680
    assert sum(count_regions(contract(p, join_pairs(p))) for p in problems) <= 723
    wide = [tangle(300, 12, seed) for seed in range(4)]
    assert sum(count_regions(contract(p, join_pairs(p))) for p in wide) <= 198


def test_safe_joins_make_graphs_as_small_as_they_did():
    problems = [tangle(60, 6, seed, (0, 0, 1, 1, 1, 2)) for seed in range(100)]
    assert sum(len(contract(p, safe_joins(p))) for p in problems) <= 5033


@pytest.mark.long
def test_forty_vertices_cost_few_branchings():
    spent = found = proven = 0
    for seed in range(30):
        search = RegionSearch()
        search.minimum(tangle(40, 12, seed))
        spent += STEPS - search.steps
        found += search.found
        proven += search.proven
    assert (found, proven) == (183, 30)
    assert spent <= 306


class Counting(RegionSearch):
    """Counts branchings of every kind."""

    spent = 0

    def _spend(self, size: int) -> bool:
        self.spent += 1
        return super()._spend(size)


def test_twenty_vertices_cost_hardly_any():
    searches = [Counting() for _ in range(200)]
    for seed, search in enumerate(searches):
        search.minimum(tangle(20, 8, seed))
    assert all(search.proven for search in searches)
    assert sum(search.spent for search in searches) <= 51


@pytest.mark.long
def test_slabs_improve_what_is_too_large_to_search():
    better = 0
    for size, reach, seed in ((100, 15, 0), (100, 15, 1), (140, 12, 6)):
        problem = tangle(size, reach, seed)
        greedy = contract(problem, sweep(problem))
        plain = count_regions(contract(greedy, join_pairs(greedy)))
        groups = RegionSearch().minimum(problem)
        assert is_valid(problem, groups)
        assert len(groups) <= plain
        better += plain - len(groups)
    assert better >= 4


@pytest.mark.parametrize("size", [20, 40])
def test_an_allowance_is_kept_to(size: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(regions, "SMALL_STEPS", 1)
    doubtful = 0
    for seed in range(200 if size == 20 else 20):
        search = Counting(steps=1)
        problem = tangle(size, 8, seed)
        groups = search.minimum(problem)
        assert is_valid(problem, groups)
        assert search.bound <= search.found
        assert search.steps >= 0
        doubtful += not search.proven
    assert doubtful
