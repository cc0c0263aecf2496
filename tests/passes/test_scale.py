"""Time grows with the graph, not with its square, and no pass recurses over its depth."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tests.passes.test_optimisation import PASSES
from tinycomp.ir import Graph, TensorType
from tinycomp.ir.verify import verify
from tinycomp.passes.merge_regions import explain_borders, find_regions


def redundant(layers: int) -> Graph:
    """Return a deep graph in which every pass finds something in every layer."""
    graph = Graph(opsets={"": 17})
    value = graph.add_input("x", TensorType("float32", (2, 4)))
    for _ in range(layers):
        k = graph.add_const(np.array([0.5], np.float32), "k")
        twice = [graph.add("Tanh", [graph.add("Identity", [value]).output]).output for _ in range(2)]
        graph.add("Exp", [value])
        value = graph.add("Mul", [graph.add("Sum", twice).output, graph.add("Neg", [k]).output]).output
    graph.set_outputs([value])
    return graph


def seconds(graph: Graph) -> dict[str, float]:
    found = {}
    for step in PASSES:
        started = time.perf_counter()
        step.run(graph)
        found[step.name] = time.perf_counter() - started
    return found


@pytest.mark.parametrize("layers", [1500])
def test_eight_times_the_graph_takes_little_more_than_eight_times_the_time(layers):
    seconds(redundant(50))
    small, large = redundant(layers // 8), redundant(layers)
    before, after = seconds(small), seconds(large)
    verify(large)
    assert len(large) == 3 * layers
    for name, taken in after.items():
        assert taken < 40 * before[name] + 0.2, f"{name}: {before[name]:.3f} s, then {taken:.3f} s"


def test_explaining_borders_costs_little_beside_finding_the_regions():
    """A border is explained by what lies between two regions, however large the graph around them is."""
    graph = Graph(opsets={"": 17})
    value = graph.add_input("x", TensorType("float32", (2, 4)))
    for _ in range(2500):
        relu = graph.add("Relu", [value], target="npu").output
        value = graph.add("Add", [relu, graph.add("Neg", [relu]).output], target="npu").output
    graph.set_outputs([value])
    started = time.process_time()
    regions = find_regions(graph)
    found = time.process_time()
    explain_borders(graph, regions, graph.remarks)
    assert len(regions) == 2501
    assert time.process_time() - found < 0.3 * (found - started)
