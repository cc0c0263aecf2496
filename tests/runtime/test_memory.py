"""The arena planner: no overlap, alignment, reuse order, bounds."""

from hypothesis import given
from hypothesis import strategies as st

from tinycomp.runtime.memory import ALIGNMENT, Lifetime, aligned, plan_arena

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
