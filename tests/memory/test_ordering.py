"""The order of steps for the lowest peak: equal to the best of all orders, and the old one where there are too many."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from tinycomp.memory.ordering import Use, order_of_steps


def peak(steps: Sequence[Use], sizes: Sequence[int], order: Sequence[int]) -> int:
    """The most bytes alive in a step, counted plainly."""
    place = {step: number for number, step in enumerate(order)}
    lives = []
    for buffer, size in enumerate(sizes):
        used = [place[i] for i, step in enumerate(steps) if buffer in step.reads | step.writes]
        lives.append((min(used, default=0), max(used, default=-1), size))
    return max(sum(size for first, last, size in lives if first <= at <= last) for at in range(len(order)))


def random_graph(seed: int, count: int) -> tuple[list[Use], list[int]]:
    """Steps that each write a buffer and read up to two that were written before."""
    rng = np.random.default_rng(seed)
    steps = [
        Use(
            frozenset(rng.choice(i, min(i, int(rng.integers(1, 3))), replace=False).tolist() if i else ()),
            frozenset({i}),
        )
        for i in range(count)
    ]
    return steps, rng.integers(1, 100, count).tolist()


def is_sound(steps: Sequence[Use], order: Sequence[int]) -> bool:
    place = {step: number for number, step in enumerate(order)}
    return all(
        place[writer] < place[i]
        for i, step in enumerate(steps)
        for writer in range(i)
        if steps[writer].writes & step.reads
    )


@pytest.mark.parametrize("seed", range(12))
def test_no_order_is_better(seed: int) -> None:
    steps, sizes = random_graph(seed, 7)
    order = order_of_steps(steps, sizes)
    assert sorted(order) == list(range(len(steps)))
    assert is_sound(steps, order)
    best = min(peak(steps, sizes, o) for o in itertools.permutations(range(len(steps))) if is_sound(steps, o))
    assert peak(steps, sizes, order) == best


def test_where_too_much_would_be_looked_at_the_order_stays() -> None:
    steps = [Use(frozenset(), frozenset({i})) for i in range(40)]
    assert order_of_steps([*steps, Use(frozenset(range(40)), frozenset({40}))], [1] * 41, states=10) == list(range(41))


def test_a_buffer_that_is_read_is_not_written_before() -> None:
    steps = [
        Use(frozenset(), frozenset({0})), Use(frozenset({0}), frozenset({1})), Use(frozenset(), frozenset({0})),
        Use(frozenset({0, 1}), frozenset({2})),
    ]  # fmt: skip
    assert order_of_steps(steps, [100, 1, 1]) == [0, 1, 2, 3]
