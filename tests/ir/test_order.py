"""The order of a graph's nodes is what networkx gives, which is not imported for it."""

from __future__ import annotations

import random

import networkx as nx
import pytest

from tinycomp.ir.graph import Graph, stable_order
from tinycomp.ir.types import TensorType


def shuffled(seed: int) -> Graph:
    """Return a graph of additions whose places in the model say nothing about what depends on what."""
    rng = random.Random(seed)
    graph = Graph(opsets={"": 17})
    values = [graph.add_input(name, TensorType("float32", (2,))) for name in "ab"]
    for _ in range(60):
        values.append(graph.add("Add", rng.choices(values, k=2)).output)
    for node in graph.nodes:
        node.position = rng.randrange(20)
    graph.set_outputs([values[-1]], ["out"])
    return graph


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_first_in_lexicographical_order(seed: int) -> None:
    graph = shuffled(seed)
    places = {node: (node.position, node.serial) for node in graph.connectivity}
    wanted = list(nx.lexicographical_topological_sort(graph.connectivity, key=places.__getitem__))
    assert wanted != sorted(places, key=places.__getitem__)
    assert stable_order(set(places)) == wanted


def test_edges_are_those_of_the_digraph() -> None:
    graph = shuffled(0)
    assert list(graph.edges) == list(graph.connectivity.edges)
