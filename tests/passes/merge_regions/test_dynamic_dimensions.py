"""Regions where only a run shows how many rows a result has."""

from __future__ import annotations

import random

import pytest

from tests.graphs_partition import is_acyclic, random_problem
from tests.partition_tools import regions, remarks, target_of
from tinycomp.ir import Graph, TensorType
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ops.typing import infer_node_types
from tinycomp.passes.annotate_target import AnnotateTarget
from tinycomp.passes.merge_regions import MergeRegions, find_regions
from tinycomp.passes.partition_graph import PartitionGraph
from tinycomp.passes.search.regions import HOST, topological_order

OPS = ("NonMaxSuppression", "Neg", "Abs", "Add")


def partitioned(body, output):
    """A suppression, whose result is %kept, and what follows, claimed by one target and grouped."""
    target = target_of("npu", *OPS)
    head = 'graph @main opset {"" = 17} (%b: float32[1, 5, 4], %s: float32[1, 2, 5])'
    text = f"{head} -> (%{output}) {{\n%kept = NonMaxSuppression(%b, %s)\n{body}\n}}"
    graph = parse_graph(text, infer=infer_node_types)
    for node in graph.nodes:
        node.sources = (node.output.name,)
    AnnotateTarget([target]).run(graph)
    MergeRegions(targets=[target]).run(graph)
    return graph


def test_what_reads_a_dynamic_dimension_is_in_the_region():
    graph = partitioned("%n = Neg(%kept)\n%m = Neg(%n)\n%a = Abs(%m)\n%o = Add(%a, %n)", "o")
    assert regions(graph) == [{"kept", "n", "m", "a", "o"}]
    assert remarks(graph, "merge-regions") == []
    PartitionGraph().run(graph)
    assert sum(n.is_region for n in graph.nodes) == 1


def test_two_results_of_unknown_size():
    graph = partitioned("%more = NonMaxSuppression(%b, %s)\n%sum = Add(%kept, %more)", "sum")
    assert regions(graph) == [{"kept", "more", "sum"}]


@pytest.mark.parametrize("seed", range(40))
def test_borders_stay_between_regions(seed):
    rng = random.Random(seed)
    problem = random_problem(rng, rng.randint(3, 12), 2, 0.4, 0.2)
    graph = graph_like(problem)
    edges = [(node, user) for node, user in graph.connectivity.edges if node.target == user.target is not None]
    borders = {edge for edge in edges if rng.random() < 0.3}
    groups = find_regions(graph, borders=borders)
    assert is_acyclic(problem, [[node.position for node in group] for group in groups])
    label = {node: i for i, group in enumerate(groups) for node in group}
    assert label.keys() == {node for node in graph.nodes if node.target is not None}
    assert not any(label[node] == label[user] for node, user in borders)


def graph_like(problem):
    """Return a graph with a node per vertex, at the vertex's position, claimed by a target per colour."""
    graph = Graph(opsets={"": 17})
    x = graph.add_input("x", TensorType("float32", (2,)))
    order = topological_order(problem.successors)
    before = problem.predecessors()
    nodes = {}
    for vertex in order:
        color = problem.colors[vertex]
        operands = [nodes[v].output for v in sorted(before[vertex])] or [x]
        nodes[vertex] = graph.add("Sum", operands, target=None if color == HOST else f"t{color}")
        nodes[vertex].position = vertex
    graph.set_outputs([node.output for node in nodes.values()])
    return graph
