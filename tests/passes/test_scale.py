"""Work grows with the graph, not with its square, and no pass recurses over its depth."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from tests.calls import calls_of
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


def calls(graph: Graph) -> dict[str, int]:
    return {step.name: calls_of(functools.partial(step.run, graph)) for step in PASSES}


@pytest.mark.long
def test_eight_times_the_graph_takes_little_more_than_eight_times_the_calls():
    calls(redundant(50))
    small, large = redundant(100), redundant(800)
    before, after = calls(small), calls(large)
    verify(large)
    assert len(large) == 3 * 800
    for name, count in after.items():
        assert count < 10 * before[name] + 1000, f"{name}: {before[name]} calls, then {count}"


def test_explaining_borders_costs_little_beside_finding_the_regions():
    """A border is explained by what lies between two regions, however large the graph around them is."""
    graph = Graph(opsets={"": 17})
    value = graph.add_input("x", TensorType("float32", (2, 4)))
    for _ in range(500):
        relu = graph.add("Relu", [value], target="npu").output
        value = graph.add("Add", [relu, graph.add("Neg", [relu]).output], target="npu").output
    graph.set_outputs([value])
    regions = find_regions(graph)
    assert len(regions) == 501
    finding = calls_of(lambda: find_regions(graph))
    assert calls_of(lambda: explain_borders(graph, regions, graph.remarks)) < 0.3 * finding
