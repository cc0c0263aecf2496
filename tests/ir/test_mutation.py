"""Random sequences of graph changes keep every invariant, and undo each other where they promise to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.graphs import decorated_graphs, graphs
from tinycomp.ir import COMPOSITE, REGION, Graph, Node
from tinycomp.ir.equality import difference
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ir.text.printer import print_graph
from tinycomp.ir.verify import verify

RELAXED = settings(deadline=None, max_examples=80, suppress_health_check=list(HealthCheck))
Draw = Callable[[st.SearchStrategy[Any]], Any]


def convex_sets(draw: Draw, graph: Graph) -> list[Node]:
    """A non-empty interval of a topological order is convex."""
    nodes = graph.nodes
    first = draw(st.integers(0, len(nodes) - 1))
    return nodes[first : draw(st.integers(first + 1, len(nodes)))]


@RELAXED
@given(graphs(), st.data())
def test_outline_then_inline_gives_the_graph_back(graph: Graph, data: st.DataObject) -> None:
    if not len(graph):
        return
    before = graph.clone()
    chosen = convex_sets(data.draw, graph)
    node = graph.outline(
        chosen, "f", domain=data.draw(st.sampled_from([COMPOSITE, REGION])),
        bind_constants=data.draw(st.booleans()), target="npu",
    )  # fmt: skip
    verify(graph)
    assert len(node.body) == len(chosen)
    graph.inline(node)
    verify(graph)
    assert difference(before, graph, sources=True) is None
    assert [n.label for n in graph.nodes] == [n.label for n in before.nodes]


def test_a_clone_goes_on_with_the_same_names() -> None:
    graph = parse_graph("graph @g (%x: float32[2]) -> (%y) { %y: float32[2] = Relu@14(%x) }")
    extra = [graph.add("Relu", [graph.inputs[0]]).output.name for _ in range(3)]
    graph.erase(graph.nodes[2])
    twin = graph.clone()
    after = [each.add("Relu", [each.inputs[0]]).output.name for each in (graph, twin)]
    assert after[0] == after[1] not in extra


@pytest.mark.long
@RELAXED
@given(decorated_graphs())
def test_a_clone_is_equal_and_independent(graph: Graph) -> None:
    copy = graph.clone()
    text = print_graph(graph)
    verify(copy)
    assert difference(graph, copy, sources=True) is None
    assert print_graph(copy) == text
    for _, node in copy.walk():
        node.attrs["changed"] = 1
        node.target = "changed"
    assert print_graph(graph) == text


def _add(draw: Draw, graph: Graph) -> None:
    values = [v for v in graph.values.values() if str(v.type) == "float32[2, 4]"]
    graph.add("Add", [draw(st.sampled_from(values)), draw(st.sampled_from(values))])


def _erase_dead(draw: Draw, graph: Graph) -> None:
    dead = [n for n in graph.nodes if not any(graph.use_count(v) for v in n.outputs)]
    if dead:
        graph.erase(draw(st.sampled_from(dead)))


def _replace_uses(draw: Draw, graph: Graph) -> None:
    """Redirect the users of a value to one that stands before all of them: a value of the inputs."""
    values = [v for v in graph.values.values() if str(v.type) == "float32[2, 4]"]
    graph.replace_uses(draw(st.sampled_from(values)), draw(st.sampled_from(graph.inputs)))


def _set_input(draw: Draw, graph: Graph) -> None:
    nodes = [n for n in graph.nodes if n.op in ("Add", "Mul", "Sub", "Relu")]
    if nodes:
        node = draw(st.sampled_from(nodes))
        graph.set_input(node, draw(st.integers(0, len(node.inputs) - 1)), draw(st.sampled_from(graph.inputs)))


def _outline(draw: Draw, graph: Graph) -> None:
    if len(graph):
        graph.outline(convex_sets(draw, graph), "f", domain=COMPOSITE)


def _inline(draw: Draw, graph: Graph) -> None:
    calls = [n for n in graph.nodes if n.is_call]
    if calls:
        graph.inline(draw(st.sampled_from(calls)))


def _rename(draw: Draw, graph: Graph) -> None:
    graph.rename(draw(st.sampled_from(list(graph.values.values()))), graph.fresh("renamed"))


STEPS = (_add, _erase_dead, _replace_uses, _set_input, _outline, _inline, _rename)


@RELAXED
@given(graphs(), st.data())
def test_any_sequence_of_changes_keeps_the_invariants(graph: Graph, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 8))):
        step = data.draw(st.sampled_from(STEPS))
        step(data.draw, graph)
        verify(graph)
        assert len({v.name for v in graph.values.values()}) == len(graph.values)


def test_several_results_of_one_node_get_distinct_names() -> None:
    graph = Graph(opsets={"": 17})
    names = [v.name for v in graph.add("Op", [], domain="v", outputs=3).outputs]
    names += [v.name for v in graph.add("Op", [], domain="v", outputs=2).outputs]
    assert names == ["op", "op_1", "op_2", "op_3", "op_4"]
