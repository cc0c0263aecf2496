"""The search for the fewest regions, against brute force and on graphs that have misled other partitioners."""

from __future__ import annotations

import random

import pytest

from tests.graphs_partition import is_acyclic, is_valid, oracle, problem_of, random_problem
from tinycomp.passes.search.regions import (
    SMALL,
    RegionSearch,
    colored,
    contract,
    join_pairs,
    joined,
    lower_bound,
    reach,
    safe_joins,
    split,
    strong_components,
    sweep,
    topological_order,
)


def problems(count: int, size: int, *, seed: int = 0):
    for number in range(seed, seed + count):
        rng = random.Random(number)
        density = rng.choice([0.2, 0.35, 0.5, 0.7])
        host = rng.choice([0.0, 0.15, 0.3, 0.5])
        yield random_problem(rng, rng.randint(2, size), rng.randint(1, 3), density, host)


def hard_problems(count: int):
    """Problems that splitting and reducing alone do not solve."""
    number = 0
    while count:
        number += 1
        rng = random.Random(number)
        problem = random_problem(rng, rng.randint(8, 10), rng.randint(1, 2), rng.choice([0.25, 0.35, 0.5]), 0.3)
        if sum(problem.colors[v] != 0 for v in range(len(problem))) <= 9 and split(problem)[1]:
            count -= 1
            yield problem


@pytest.mark.long
def test_the_minimum_is_found_on_every_small_graph():
    for problem in problems(3000, 8):
        search = RegionSearch()
        groups = search.minimum(problem)
        assert is_valid(problem, groups), problem
        assert search.proven
        assert len(groups) == oracle(problem), problem


@pytest.mark.long
def test_the_minimum_is_found_where_greedy_groupings_miss_it():
    missed = 0
    for problem in hard_problems(70):
        groups = RegionSearch().minimum(problem)
        best = oracle(problem)
        assert is_valid(problem, groups), problem
        assert len(groups) == best, problem
        missed += len(colored(contract(problem, sweep(problem)))) > best
    assert missed, "these graphs test nothing that a greedy grouping could not do"


@pytest.mark.long
def test_bounds_and_greedy_groupings_enclose_the_minimum():
    for problem in problems(1500, 8, seed=50_000):
        best = oracle(problem)
        assert lower_bound(problem, reach(problem)) <= best
        for labels in (sweep(problem), join_pairs(problem), list(range(len(problem)))):
            groups = colored(contract(problem, labels))
            assert is_valid(problem, groups), problem
            assert len(groups) >= best


@pytest.mark.long
def test_safe_joins_lose_nothing():
    joined_some = 0
    for problem in problems(1500, 8, seed=90_000):
        labels = safe_joins(problem)
        reduced = contract(problem, labels)
        assert topological_order(reduced.successors) is not None
        joined_some += len(reduced) < len(problem)
        groups = RegionSearch().minimum(reduced)
        assert is_valid(problem, groups), problem
        assert len(groups) == oracle(problem), problem
    assert joined_some > 500


@pytest.mark.long
@pytest.mark.parametrize("size", [60, 400, 600])
def test_larger_graphs_stay_valid_and_no_worse_than_greedy(size):
    for seed in range(3):
        rng = random.Random(seed)
        problem = random_problem(rng, size, 2, 0.4, 0.3)
        edges = [(max(0, v - rng.randint(1, 25)), v) for v in range(1, size) for _ in range(2)]
        wide = problem_of(problem.colors, edges)
        for case in (problem, wide):
            groups = RegionSearch().minimum(case)
            assert is_valid(case, groups) if size < 500 else is_acyclic(case, groups)
            assert len(groups) <= len(colored(contract(case, sweep(case))))


def test_two_convex_regions_that_depend_on_each_other_are_not_both_formed():
    """a1->h1->b1 and b2->h2->a2 with links a1-a2 and b1-b2: each pair alone is fine, both together are a cycle."""
    problem = problem_of([1, 1, 1, 1, 0, 0], [(0, 1), (2, 3), (0, 4), (4, 3), (2, 5), (5, 1)])
    assert is_acyclic(problem, [[0, 1], [2], [3]])
    assert is_acyclic(problem, [[2, 3], [0], [1]])
    assert not is_acyclic(problem, [[0, 1], [2, 3]])
    assert len(RegionSearch().minimum(problem)) == 3


def test_a_join_that_both_greedy_rules_take_too_early():
    """u->v joins at once; keeping v for its users instead saves a region."""
    problem = problem_of([1, 1, 1, 1, 0, 0], [(0, 1), (1, 2), (1, 3), (0, 4), (4, 2), (0, 5), (5, 3)])
    groups = sorted(sorted(g) for g in RegionSearch().minimum(problem))
    assert groups == [[0], [1, 2, 3]]


def test_vertices_that_are_legal_only_together_are_joined_together():
    """0->1->2 and 0->2: joining 0 and 2 alone would close a cycle through 1."""
    problem = problem_of([1, 1, 1], [(0, 1), (1, 2), (0, 2)])
    assert not is_acyclic(problem, [[0, 2]])
    assert RegionSearch().minimum(problem) == [[0, 1, 2]]


def test_a_link_that_must_not_be_used():
    """The sweeps and joining the busiest link both end at three regions."""
    edges = [
        (0, 4), (0, 5), (0, 6), (1, 4), (1, 6), (2, 0), (2, 1), (2, 3), (2, 4), (2, 5), (3, 5), (3, 6), (5, 4),
        (7, 1), (7, 3), (7, 4), (7, 6),
    ]  # fmt: skip
    problem = problem_of([1, 0, 1, 1, 1, 1, 1, 1], edges)
    assert len(colored(contract(problem, sweep(problem)))) == 3
    groups = RegionSearch().minimum(problem)
    assert is_valid(problem, groups)
    assert len(groups) == oracle(problem) == 2


def test_targets_alternate_without_a_cycle():
    """Two targets whose regions would feed each other."""
    problem = problem_of([1, 1, 2, 2], [(0, 1), (2, 3), (0, 3), (2, 1)])
    assert len(RegionSearch().minimum(problem)) == 3


def test_small_problems_are_proven_minimal_and_large_ones_say_when_not():
    rng = random.Random(7)
    problem = random_problem(rng, SMALL, 2, 0.4, 0.3)
    search = RegionSearch(steps=0)
    search.minimum(problem)
    assert search.proven
    edges = [(max(0, v - rng.randint(1, 25)), v) for v in range(1, 500) for _ in range(2)]
    wide = problem_of([rng.randint(0, 2) for _ in range(500)], edges)
    search = RegionSearch(steps=0)
    groups = search.minimum(wide)
    assert is_valid(wide, groups)
    assert not search.proven


def test_strong_components_and_order():
    assert strong_components([{1}, {2}, {0, 3}, set()]) == [[0, 1, 2], [3]]
    assert topological_order([{1}, {0}]) is None
    assert topological_order([{2}, {2}, set()]) == [0, 1, 2]


def test_joined_numbers_groups_by_first_vertex():
    assert joined(5, [[3, 4], [1, 3]]) == [0, 1, 2, 1, 1]


def test_a_long_chain_needs_no_recursion():
    size = 20_000
    problem = problem_of([1] * size, [(v, v + 1) for v in range(size - 1)])
    assert [sorted(g) for g in RegionSearch().minimum(problem)] == [list(range(size))]


def doubtful() -> tuple[list[int], list[tuple[int, int]]]:
    """Colours and dependencies of a tangle that the search gives up on."""
    rng = random.Random(3)
    edges = [(max(0, v - rng.randint(1, 25)), v) for v in range(1, 200) for _ in range(2)]
    return [rng.choice([0, 1, 1]) for _ in range(200)], edges


def test_the_bound_says_how_far_an_answer_can_be_off():
    search = RegionSearch(steps=0)
    groups = search.minimum(problem_of(*doubtful()))
    assert 1 < search.bound < search.found == len(groups)
    search.minimum(problem_of([1, 0, 1], [(0, 1), (1, 2)]))
    assert search.found == len(groups) + 2
    assert not search.proven


def test_one_exhausted_problem_does_not_make_the_others_doubtful():
    """A pair that cannot be joined, before and after a tangle: its two regions count in full."""
    colors, edges = doubtful()
    alone, together = RegionSearch(steps=0), RegionSearch(steps=0)
    alone.minimum(problem_of(colors, edges))
    together.minimum(problem_of([1, 0, 1, *colors], [(0, 1), (1, 2), (0, 2), *((u + 3, v + 3) for u, v in edges)]))
    assert (together.found, together.bound) == (alone.found + 2, alone.bound + 2)
