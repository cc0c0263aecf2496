"""Nothing recurses over the depth of a graph, and time grows with its size, not its square."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tinycomp.ir import COMPOSITE, Graph, TensorType
from tinycomp.ir.equality import equal
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ir.text.printer import print_graph
from tinycomp.ir.verify import verify

DEPTH = 20_000
SECONDS = 60.0
"""A bound that only quadratic work breaks: each step takes a few seconds on one slow core."""


def chain(depth: int) -> Graph:
    graph = Graph(opsets={"": 17})
    value = graph.add_input("x", TensorType("float32", ("N", 8)))
    for index in range(depth):
        value = graph.add("Relu", [value], version=14, outputs=[f"v{index}"]).output
    graph.set_outputs([value])
    return graph


def timed(action: Callable[..., Any], *args: Any) -> Any:
    start = time.perf_counter()
    result = action(*args)
    assert time.perf_counter() - start < SECONDS
    return result


@pytest.fixture(scope="module")
def long_chain() -> Iterator[Graph]:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield timed(chain, DEPTH)
    sys.setrecursionlimit(limit)


@pytest.mark.long
def test_a_long_chain_is_ordered_and_verified(long_chain: Graph) -> None:
    nodes = timed(lambda: long_chain.nodes)
    assert [nodes[0].label, nodes[-1].label] == ["v0", f"v{DEPTH - 1}"]
    timed(verify, long_chain)


@pytest.mark.long
def test_a_long_chain_survives_text_and_clone(long_chain: Graph) -> None:
    text = timed(print_graph, long_chain)
    back = timed(parse_graph, text)
    assert timed(equal, long_chain, back)
    assert timed(print_graph, timed(long_chain.clone)) == text


@pytest.mark.long
def test_a_long_chain_is_outlined_and_inlined(long_chain: Graph) -> None:
    graph = long_chain.clone()
    node = timed(lambda: graph.outline(graph.nodes[1:-1], "f", domain=COMPOSITE))
    assert len(graph) == 3
    timed(verify, graph)
    timed(graph.inline, node)
    assert timed(equal, long_chain, graph)


def test_wide_graphs_are_as_cheap_as_deep_ones() -> None:
    """One value with many users: replacing it must not look at each user once per user."""
    graph = Graph(opsets={"": 17})
    x = graph.add_input("x", TensorType("float32", ("N", 8)))
    hub = graph.add("Relu", [x], version=14).output
    users = [graph.add("Neg", [hub], version=13).output for _ in range(20_000)]
    graph.set_outputs(users)
    timed(graph.replace_uses, hub, x)
    timed(verify, graph)
    assert not graph.use_count(hub)
