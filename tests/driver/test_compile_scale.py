"""Compiling large graphs: near-linear in function calls, which no other load on the machine changes, and flat."""

from __future__ import annotations

import sys

import pytest

import tinycomp
from benchmarks.compile_time import GRAPHS
from tinycomp.runtime.module import Module


def counted_compile(model: bytes) -> tuple[Module, int, int]:
    """Return the module, the number of Python calls that compiling takes, and the most that are open at once."""
    calls = depth = deepest = 0

    def watch(frame: object, event: str, argument: object) -> None:
        nonlocal calls, depth, deepest
        if event == "call":
            calls += 1
            depth += 1
            deepest = max(deepest, depth)
        elif event == "return":
            depth -= 1

    sys.setprofile(watch)
    try:
        module = tinycomp.compile(model, threads=1)
    finally:
        sys.setprofile(None)
    return module, calls, deepest


@pytest.mark.long
@pytest.mark.parametrize("kind", GRAPHS)
def test_calls_grow_with_the_graph_and_depth_does_not(kind):
    tinycomp.compile(GRAPHS[kind](40), threads=1)  # what is cached for good is not counted
    _, small, shallow = counted_compile(GRAPHS[kind](400))
    module, large, deep = counted_compile(GRAPHS[kind](1600))
    assert module.report().hosts == ()
    assert large / small < 4.6, "four times the nodes"
    assert deep <= shallow + 5
