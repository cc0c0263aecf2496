from __future__ import annotations

from tinycomp.cli.peer import BLOCKS, measure


def test_contenders_take_turns() -> None:
    order: list[str] = []
    timings = measure({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, runs=BLOCKS)
    assert [t.runs for t in timings] == [BLOCKS, BLOCKS]
    assert order[-4 * BLOCKS :] == ["a", "a", "b", "b"] * BLOCKS  # one run of each block does not count


def test_runs_fill_whole_blocks() -> None:
    (timing,) = measure({"a": lambda: None}, runs=BLOCKS + 1)
    assert timing.runs == 2 * BLOCKS


def test_time_limits_the_runs() -> None:
    (timing,) = measure({"a": lambda: sum(range(10_000))}, seconds=0.05)
    assert timing.runs >= BLOCKS
    assert 0 < timing.minimum <= timing.median
