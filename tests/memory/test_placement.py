"""Placing buffers in several memories: no overlap, within the budgets, in place where allowed, refusals."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinycomp.errors import MemoryLimitError, OptionError
from tinycomp.memory.placement import Buffer, Memory, plan_memories

SCRATCHPAD, DRAM = Memory("scratchpad", 4096, 32), Memory("dram", None, 64)


@st.composite
def lives(draw: st.DrawFn) -> list[Buffer]:
    """Buffers of which some may take another's place, wherever that one lives."""
    count = draw(st.integers(0, 25))
    buffers = []
    for _ in range(count):
        first = draw(st.integers(0, 12))
        over = draw(st.none() | st.integers(0, count - 1))
        memories = draw(st.sampled_from([(), ("scratchpad", "dram"), ("dram",)]))
        traffic = draw(st.none() | st.integers(0, 10_000))
        size = draw(st.integers(0, 3000))
        buffers.append(Buffer(size, first, first + draw(st.integers(0, 4)), memories, over, traffic))
    return buffers


def shares(a: int, b: int, buffers: list[Buffer]) -> bool:
    """Whether one of two buffers was allowed to take the place of the other."""
    return any(
        buffers[new].over == old
        and buffers[old].last == buffers[new].first > buffers[old].first
        and buffers[old].memories == buffers[new].memories
        for old, new in ((a, b), (b, a))
    )


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(lives())
def test_buffers_alive_together_never_overlap_and_fit(buffers: list[Buffer]) -> None:
    memories = {m.name: m for m in (SCRATCHPAD, DRAM)}
    plan = plan_memories(buffers, [*memories.values()])
    for buffer, place in zip(buffers, plan.places, strict=True):
        memory = memories[place.memory]
        assert place.offset % memory.alignment == 0
        assert place.offset + buffer.size <= max(plan.used[place.memory], place.offset)
        assert place.memory in (buffer.memories or memories)
    assert plan.used["scratchpad"] <= 4096
    for a, b in itertools.combinations(range(len(buffers)), 2):
        one, other = buffers[a], buffers[b]
        alive = one.first <= other.last and other.first <= one.last
        if alive and one.size and other.size and plan.places[a].memory == plan.places[b].memory:
            start, start2 = plan.places[a].offset, plan.places[b].offset
            apart = start + one.size <= start2 or start2 + other.size <= start
            assert apart or (start == start2 and shares(a, b, buffers))


def test_a_chain_in_place_takes_one_buffer() -> None:
    chain = [Buffer(100, i, i + 1, over=i - 1 if i else None) for i in range(10)]
    plan = plan_memories(chain, [Memory("scratchpad", 100)])
    assert {place.offset for place in plan.places} == {0}
    assert plan.used == {"scratchpad": 100}
    with pytest.raises(MemoryLimitError):
        plan_memories([Buffer(b.size, b.first, b.last) for b in chain], [Memory("scratchpad", 100)])


@pytest.mark.parametrize(
    "buffers",
    [
        [Buffer(64, 0, 2), Buffer(64, 1, 2, over=0)],  # still read afterwards
        [Buffer(64, 0, 1), Buffer(128, 1, 2, over=0)],  # larger
        [Buffer(64, 0, 1, ("a",)), Buffer(64, 1, 2, over=0)],  # elsewhere
        [Buffer(64, 0, 1), Buffer(64, 1, 2, over=0), Buffer(64, 1, 2, over=0)],  # taken
    ],
)
def test_a_hint_that_cannot_be_followed_is_none(buffers: list[Buffer]) -> None:
    places = plan_memories(buffers, [Memory("a")]).places
    assert places[0] != places[-1]


def test_what_is_used_most_lies_in_the_fast_memory() -> None:
    buffers = [Buffer(100, 0, 1, traffic=200), Buffer(100, 0, 1, traffic=900)]
    plan = plan_memories(buffers, [Memory("fast", 128), Memory("slow")])
    assert [place.memory for place in plan.places] == ["slow", "fast"]


def test_the_tightest_gap_is_taken() -> None:
    memory = Memory("m", 1 << 10, 1)
    buffers = [Buffer(300, 0, 9, traffic=9000), Buffer(100, 0, 0, traffic=1000), Buffer(50, 0, 9, traffic=400)]
    plan = plan_memories([*buffers, Buffer(90, 5, 6, traffic=1)], [memory])
    assert plan.places[3].offset == plan.places[1].offset


def test_a_buffer_that_fits_nowhere() -> None:
    message = (
        r"^buffer 1, alive from step 1 to 2: a buffer fits into none of its memories; expected at most 28 bytes in a,"
        r" 0 bytes in b; found 64 bytes\. Compute the layer in tiles"
    )
    buffers = [Buffer(100, 0, 2, traffic=999), Buffer(64, 1, 2)]
    with pytest.raises(MemoryLimitError, match=message):
        plan_memories(buffers, [Memory("a", 156, 64), Memory("b", 0)])


@pytest.mark.parametrize(
    ("buffer", "message"),
    [
        (Buffer(1, 0, 1, ("x",)), "buffer 0: unknown memory; expected some of m; found x"),
        (Buffer(1, 1, 0), "buffer 0: not a lifetime of a buffer"),
        (Buffer(-1, 0, 0), "buffer 0: not a lifetime of a buffer"),
        (Buffer(1, 0, 0, over=7), "buffer 0: it is to take the place of a buffer that does not exist; found 7"),
    ],
)
def test_wrong_buffers(buffer: Buffer, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        plan_memories([buffer], [Memory("m")])
    with pytest.raises(OptionError, match="unknown memory; expected some of none"):
        plan_memories([Buffer(1, 0, 0)], [])


def test_nothing_to_place() -> None:
    assert plan_memories([], [SCRATCHPAD]).used == {"scratchpad": 0}
