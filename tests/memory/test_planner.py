"""The arena planner: no overlap, alignment, reuse order, bounds."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinycomp.memory.planner import ALIGNMENT, Lifetime, aligned, placed_above, plan_arena, plan_tied

lifetimes = st.lists(
    st.tuples(st.integers(0, 5000), st.integers(0, 30), st.integers(0, 10)).map(
        lambda t: Lifetime(t[0], t[1], t[1] + t[2])
    ),
    max_size=40,
)


@given(lifetimes)
def test_buffers_alive_together_never_overlap(buffers):
    arena = plan_arena(buffers)
    spans = [(o, o + b.size, b) for o, b in zip(arena.offsets, buffers, strict=True)]
    for i, (start, end, a) in enumerate(spans):
        assert start % ALIGNMENT == 0
        assert end <= arena.size
        for start2, end2, b in spans[i + 1 :]:
            if a.first <= b.last and b.first <= a.last and a.size and b.size:
                assert end <= start2 or end2 <= start


@given(lifetimes)
def test_lower_bound_is_the_largest_live_set(buffers):
    arena = plan_arena(buffers)
    steps = range(50)
    live = [sum(aligned(b.size) for b in buffers if b.first <= s <= b.last) for s in steps]
    assert arena.lower_bound == max(live)
    assert arena.size >= arena.lower_bound


def test_the_block_freed_last_is_reused_first():
    # a and b are both free when d is placed; b died later, so its (warm) bytes are taken.
    a, b, c, d = Lifetime(64, 0, 0), Lifetime(64, 0, 1), Lifetime(64, 0, 9), Lifetime(64, 2, 3)
    arena = plan_arena([a, b, c, d])
    assert arena.offsets[3] == arena.offsets[1]


def test_neighbouring_free_blocks_serve_a_larger_buffer():
    arena = plan_arena([Lifetime(64, 0, 0), Lifetime(64, 0, 0), Lifetime(64, 0, 5), Lifetime(128, 1, 2)])
    assert arena.offsets[3] == 0
    assert arena.size == 192


def test_nothing_to_place():
    assert plan_arena([]).size == 0


def smallest(buffers):
    """The smallest arena of all: some order of placing each buffer as low as it can be leads to it."""

    def height(order):
        placed = []
        for buffer in order:
            size = aligned(buffer.size)
            others = sorted((o, s) for o, s, b in placed if b.first <= buffer.last and buffer.first <= b.last)
            offset = 0
            for other, length in others:
                if other - offset >= size:
                    break
                offset = max(offset, other + length)
            placed.append((offset, size, buffer))
        return max((offset + size for offset, size, _ in placed), default=0)

    return min(height(order) for order in itertools.permutations(buffers))


@settings(max_examples=200, deadline=None)
@given(lifetimes.filter(lambda buffers: len(buffers) <= 6))
def test_no_plan_is_smaller_than_the_smallest(buffers):
    arena = plan_arena(buffers)
    assert arena.lower_bound <= smallest(buffers) <= arena.size <= sum(aligned(b.size) for b in buffers)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_plans_of_networks_are_near_the_bound(seed):
    # As in a residual network: every result is read by the next step, and some once more a few steps later.
    rng = np.random.default_rng(seed)
    sizes = 64 * rng.choice([1, 2, 4], 60) * rng.integers(50, 60)
    buffers = [Lifetime(int(s), i, i + (4 if i % 4 == 0 else 1)) for i, s in enumerate(sizes)]
    arena = plan_arena(buffers)
    assert arena.size <= 1.2 * arena.lower_bound


def test_gaps_that_add_up_make_the_largest_go_first():
    # In the order of lives, c would lie behind a, and d, the largest, behind c.
    a, b, c, d = Lifetime(128, 0, 0), Lifetime(64, 0, 1), Lifetime(64, 1, 3), Lifetime(192, 2, 3)
    arena = plan_arena([a, b, c, d])
    assert arena.size == arena.lower_bound == 256


def test_very_many_buffers_take_no_quadratic_time():
    buffers = [Lifetime(64 * (1 + i % 7), i, i + i % 5) for i in range(20_000)]
    arena = plan_arena(buffers)
    assert arena.size < 2 * arena.lower_bound


def placed(sizes, above):
    """Place every buffer as low as those that it begins behind allow; returns the offsets."""
    starts = {}
    while len(starts) < len(sizes):
        ready = [i for i in range(len(sizes)) if i not in starts and all(other in starts for other in above[i])]
        assert ready, "buffers that begin behind each other"
        starts |= {i: max((starts[other] + aligned(sizes[other]) for other in above[i]), default=0) for i in ready}
    return [starts[i] for i in range(len(sizes))]


@given(lifetimes, st.lists(st.integers(0, 5000) | st.just(0), min_size=40, max_size=40))
def test_an_order_keeps_buffers_apart_whatever_their_sizes(buffers, sizes):
    arena = plan_arena(buffers)
    above = placed_above(buffers, arena.offsets)
    starts = placed(sizes[: len(buffers)], above)
    for (start, size, a), (start2, size2, b) in itertools.combinations(zip(starts, sizes, buffers, strict=False), 2):
        if a.first <= b.last and b.first <= a.last and size and size2:
            assert start + size <= start2 or start2 + size2 <= start


@given(lifetimes)
def test_an_order_takes_no_more_than_its_plan(buffers):
    arena = plan_arena(buffers)
    starts = placed([b.size for b in buffers], placed_above(buffers, arena.offsets))
    assert all(start <= planned for start, planned, b in zip(starts, arena.offsets, buffers, strict=True) if b.size)
    assert max((start + aligned(b.size) for start, b in zip(starts, buffers, strict=True)), default=0) <= arena.size


def test_a_buffer_of_no_size_pushes_no_other_up():
    buffers = [Lifetime(64, 0, 0), Lifetime(0, 0, 9), Lifetime(64, 5, 6)]
    above = placed_above(buffers, plan_arena(buffers).offsets)
    assert placed([b.size for b in buffers], above)[2] == 0


def random_tied(seed: int) -> tuple[list[Lifetime], dict[int, tuple[int, int]]]:
    """Buffers of which some lie over one that dies in the step that writes them."""
    rng = np.random.default_rng(seed)
    lives: list[Lifetime] = []
    over: dict[int, tuple[int, int]] = {}
    taken = set[int]()
    for number in range(12):
        first = int(rng.integers(0, 10))
        lives.append(Lifetime(int(rng.integers(0, 9)) * 64, first, first + int(rng.integers(0, 4))))
        under = [i for i in range(number) if lives[i].last == first and lives[i].first < first and i not in taken]
        if under and rng.random() < 0.7:
            taken.add(under[0])
            over[number] = under[0], int(rng.integers(0, 3)) * 64
    return lives, over


@pytest.mark.parametrize("seed", range(20))
def test_tied_buffers_keep_their_distance_and_no_others_overlap(seed: int) -> None:
    lives, over = random_tied(seed)
    arena = plan_tied(lives, over)
    assert arena.lower_bound <= arena.size
    for index, (other, ahead) in over.items():
        assert arena.offsets[other] - arena.offsets[index] == ahead
    for a in range(len(lives)):
        assert 0 <= arena.offsets[a] <= arena.size - lives[a].size
        for b in range(a):
            apart = lives[a].last < lives[b].first or lives[b].last < lives[a].first
            tied = over.get(a, (None,))[0] == b or over.get(b, (None,))[0] == a
            ends = arena.offsets[a] + lives[a].size, arena.offsets[b] + lives[b].size
            free = ends[0] <= arena.offsets[b] or ends[1] <= arena.offsets[a]
            assert apart or tied or free or not lives[a].size * lives[b].size
