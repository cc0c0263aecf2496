"""The search for the cheapest placement, against brute force over all placements."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator

import pytest

from benchmarks.partition_fuzz import MismatchError, check_costs
from tinycomp.passes.search import placement as search
from tinycomp.passes.search.placement import Flow, Option, PlacementProblem, cheapest

COUNT = 300


def random_problem(rng: random.Random, count: int, *, chain: bool = False) -> PlacementProblem:
    """Return a problem with three targets, two of them in one memory, and options of up to three nodes."""
    options = [Option(0, (i,), rng.choice([1.0, 3.0, 9.0])) for i in range(count)]
    for target in (1, 2):
        options += [Option(target, (i,), rng.choice([0.5, 1.0, 2.0])) for i in range(count) if rng.random() < 0.7]
        at = 0
        while at < count - 1:
            size = min(rng.randint(1, 3), count - at)
            if size > 1 and rng.random() < 0.5:
                options.append(Option(target, tuple(range(at, at + size)), rng.choice([0.5, 1.0, 3.0])))
            at += size
    flows = []
    for i in range(-1, count):
        later = range(i + 1, count)
        users = later[:1] if chain else sorted(rng.sample(later, min(rng.choice([0, 1, 1, 2]), len(later))))
        pair = rng.choice([0.0, 0.5, 2.0, 4.0])
        seconds = ((0.0, pair), (pair, 0.0))
        leaves = i == count - 1 or (i >= 0 and rng.random() < 0.1)
        flows.append(Flow(None if i < 0 else i, tuple(users), leaves, seconds))
    launch = rng.choice([0.0, 0.5, 2.0])
    return PlacementProblem(count, tuple(options), tuple(flows), (0.0, launch, launch), (0, 1, rng.choice([0, 1])))


def every_placement(problem: PlacementProblem) -> Iterator[list[int]]:
    stack = [[-1] * problem.count]
    while stack:
        choice = stack.pop()
        if -1 not in choice:
            yield choice
            continue
        node = choice.index(-1)
        for number, option in enumerate(problem.options):
            if node in option.members and all(choice[m] < 0 for m in option.members):
                stack.append([number if i in option.members else other for i, other in enumerate(choice)])


@pytest.mark.parametrize("seed", range(40))
def test_small_problems_are_solved_exactly(seed: int):
    problem = random_problem(random.Random(seed), 2 + seed % 4)
    answer = cheapest(problem)
    assert answer.exact
    assert answer.cost == pytest.approx(problem.cost(answer.choice))
    assert answer.cost == pytest.approx(min(map(problem.cost, every_placement(problem))))


def judging_regions(problem: PlacementProblem, rng: random.Random) -> PlacementProblem:
    """Return the problem with one or both targets telling what whole regions take."""
    first, each, square = rng.choice([0.0, 2.0]), rng.choice([0.1, 1.0]), rng.choice([0.0, 0.3])

    def seconds(group: tuple[int, ...]) -> float:
        return first + each * len(group) + square * len(group) ** 2

    return dataclasses.replace(problem, wholes=(None, seconds, rng.choice([None, seconds])))


@pytest.mark.parametrize("seed", range(60))
def test_small_problems_whose_regions_are_judged_are_solved_exactly(seed: int):
    rng = random.Random(seed)
    problem = judging_regions(random_problem(rng, 2 + seed % 4), rng)
    answer = cheapest(problem)
    assert answer.exact
    assert answer.cost == pytest.approx(problem.cost(answer.choice))
    assert answer.cost == pytest.approx(min(map(problem.cost, every_placement(problem))))


@pytest.mark.parametrize("seed", range(20))
def test_no_single_option_makes_what_is_found_for_judged_regions_cheaper(seed: int, monkeypatch):
    monkeypatch.setattr(search, "EXACT", 0)
    rng = random.Random(seed)
    problem = judging_regions(random_problem(rng, 6, chain=True), rng)
    answer = cheapest(problem)
    assert not answer.exact
    for number in set(range(len(problem.options))) - set(answer.choice):
        assert problem.cost(problem.taking(answer.choice, number)) >= answer.cost
        assert problem.difference(answer.choice, number) >= 0


@pytest.mark.parametrize("seed", range(20))
def test_the_rough_cost_is_no_more_than_the_cost_and_right_on_chains(seed: int):
    rng = random.Random(seed)
    for chain in (False, True):
        problem = random_problem(rng, 4, chain=chain)
        for choice in every_placement(problem):
            assert problem.rough_cost(choice) <= problem.cost(choice) + 1e-9
            assert not chain or problem.rough_cost(choice) == pytest.approx(problem.cost(choice))


def test_many_nodes_whose_regions_are_judged():
    rng = random.Random(2)
    problem = judging_regions(random_problem(rng, 70), rng)
    start = list(range(70))
    answer = cheapest(problem, [start])
    assert answer.cost == pytest.approx(problem.cost(answer.choice))
    assert sum(problem.shares) <= answer.cost <= problem.cost(start)


@pytest.mark.parametrize("seed", range(30))
def test_chains_are_solved_exactly_however_long(seed: int, monkeypatch):
    """The sweep is taken where branch and bound would not be, and gives what that gives."""
    problem = random_problem(random.Random(seed), 8, chain=True)
    wanted = cheapest(problem)
    monkeypatch.setattr(search, "EXACT", 0)
    answer = cheapest(problem)
    assert answer.exact
    assert answer.cost == pytest.approx(wanted.cost)


def test_a_long_problem_is_never_worse_than_what_it_starts_from():
    rng = random.Random(1)
    problem = random_problem(rng, 200)
    start = list(range(200))
    answer = cheapest(problem, [start])
    assert sorted(m for n in set(answer.choice) for m in problem.options[n].members) == list(range(200))
    assert sum(problem.shares) <= answer.cost <= problem.cost(start)
    assert answer.cost == pytest.approx(problem.cost(answer.choice))
    assert cheapest(problem, [answer.choice]).cost <= answer.cost


def test_random_graphs_are_placed_as_cheaply_as_brute_force():
    for seed in range(COUNT):
        check_costs(seed)


def test_a_placement_that_is_too_dear_is_noticed(monkeypatch):
    from tinycomp.passes import place_by_cost

    def host(problem, starts=()):
        return search.Cheapest(tuple(range(problem.count)), 0.0, exact=True)

    monkeypatch.setattr(place_by_cost, "cheapest", host)
    with pytest.raises(MismatchError, match="is enough"):
        sum(check_costs(seed) or 0 for seed in range(COUNT))
