"""Outlining moves nodes, and what is derived from the links follows every edit."""

from __future__ import annotations

import gc
import weakref

from tinycomp.ir.equality import equal
from tinycomp.ir.graph import COMPOSITE, Graph
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ir.verify import verify

TEXT = """
graph @main opset {"" = 17} (%x: float32[2]) -> (%d, %a) {
  %w: float32[2] = const [1.0, 2.0]
  %a: float32[2] = Add@14(%x, %w)
  %b: float32[2] = Mul@14(%a, %w)
  %c: float32[2] = Sub@14(%b, %a)
  %d: float32[2] = Add@14(%c, %w)
}
"""


def _outlined(graph: Graph) -> tuple[list, object]:
    members = [node for node in graph.nodes if node.op in ("Add", "Mul")][:2]
    return members, graph.outline(members, "pair", domain=COMPOSITE)


def test_outlining_moves_the_nodes_and_keeps_the_values_that_others_read() -> None:
    graph = parse_graph(TEXT)
    before, a = graph.clone(), graph.values["a"]
    members, node = _outlined(graph)
    verify(graph)
    assert node.body.nodes == members
    assert all(member not in graph for member in members)
    assert graph.values["a"] is a
    assert a.producer is node
    assert node.body.values["a"] is not a
    graph.inline(node)
    verify(graph)
    assert equal(graph, before)


def test_the_links_for_networkx_follow_an_edit() -> None:
    graph = parse_graph(TEXT)
    assert graph.connectivity.number_of_edges() == 4
    _, node = _outlined(graph)
    assert graph.connectivity.number_of_nodes() == len(graph) == 3
    assert graph.connectivity.get_edge_data(node, graph.values["c"].producer) == {"slots": 2}


def test_the_digraph_for_users_tells_what_every_node_is() -> None:
    graph = parse_graph(
        """
graph @main opset {"" = 17} (%x: float32[4]) -> (%c) {
  %a, %b = Split@13(%x) from ["cut"]
  %c: float32[2] = Sum@13(%a, %b, %a) target "npu"
}
"""
    )
    links = graph.to_networkx()
    split, total = graph.nodes
    assert list(links) == [split, total]
    assert links.nodes[split] == {
        "label": "cut",
        "op": "Split",
        "domain": "",
        "target": None,
        "region": None,
        "sources": ("cut",),
        "types": ("float32[2]", "float32[2]"),
    }
    assert links.nodes[total]["target"] == "npu"
    assert dict(links.edges) == {(split, total): {"slots": 3, "values": ("a", "b")}}
    links.remove_node(split)
    assert len(graph.to_networkx()) == 2


def test_a_graph_that_was_taken_apart_leaves_nothing_to_the_collector() -> None:
    graph = parse_graph(TEXT)
    _outlined(graph)

    class Kept(dict[object, int]):
        """Something of a node that tells when it goes."""

    held = Kept()
    graph.nodes[0].body.nodes[0].attrs = held
    gone = weakref.ref(held)
    gc.disable()
    try:
        graph.dissolve()
        del graph, held
        assert gone() is None
    finally:
        gc.enable()
