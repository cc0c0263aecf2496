"""Graphs from short texts, and targets that accept what a test says."""

from __future__ import annotations

import re

from tinycomp.ir.graph import Graph
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ir.types import TensorType
from tinycomp.ir.verify import verify
from tinycomp.ops.typing import infer_node_types
from tinycomp.target import Target

TENSOR = "float32[2, 4]"


def graph_of(body: str, outputs: str, inputs: str = "x") -> Graph:
    """Return the graph with the statements ``body``; every node's source is the name of its first result."""
    params = ", ".join(f"%{name}: {TENSOR}" for name in inputs.split())
    results = ", ".join(f'"out{i}" = %{name}' for i, name in enumerate(outputs.split()))
    text = f'graph @main opset {{"" = 17}} ({params}) -> ({results}) {{\n{body}\n}}'
    graph = parse_graph(text, infer=infer_node_types)
    verify(graph)
    for _, node in graph.walk():
        node.sources = node.sources or (node.outputs[0].name,)
    return graph


def conditional() -> Graph:
    """Return a graph with an If whose branches hold a Relu each."""
    kind = TensorType("float32", (2, 4))
    graph = Graph(opsets={"": 17}, infer=infer_node_types)
    condition, x = graph.add_input("q", TensorType("bool", ())), graph.add_input("x", kind)
    bodies = {}
    for key in ("then_branch", "else_branch"):
        body = Graph(key, opsets=graph.opsets, infer=graph.infer)
        body.set_outputs([body.add("Relu", [body.add_input("t", kind)], sources=["u"]).output])
        bodies[key] = body
    node = graph.add("If", [condition, x], bodies=bodies, captures=1, sources=["y"])
    graph.set_outputs([node.output])
    return graph


def target_of(name: str, *ops: str, **options: object) -> Target:
    """Return a target that accepts every node of ``ops``."""
    target = Target(name, **options)
    target.accept(*ops)
    return target


def claims(graph: Graph) -> dict[str, str | None]:
    """Return the target of every node by source name."""
    return {n.label: n.target for n in graph.nodes}


def regions(graph: Graph) -> list[set[str]]:
    """Return the source names of the nodes of every numbered region, by number."""
    numbers = sorted({n.region for n in graph.nodes if n.region is not None})
    return [{n.label for n in graph.nodes if n.region == number} for number in numbers]


def remarks(graph: Graph, stage: str) -> list[tuple[tuple[str, ...], str, str, str]]:
    """Return sources, target, rule and reason of the remarks of one pass."""
    return [(r.sources, r.target, r.rule, r.reason) for r in graph.remarks if r.stage == stage]


def without_marks(text: str) -> str:
    """Return a graph's text without targets and region numbers."""
    return re.sub(r' (target "[^"]*"|region \d+)', "", text)
