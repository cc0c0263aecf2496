"""Borders: which nodes stand between the regions of one target."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Sequence, Set

import networkx as nx

from tinycomp.ir.blocked import conversion_of
from tinycomp.ir.graph import Graph, Node, reachable
from tinycomp.records import dataclass
from tinycomp.rewrite.rules import open_graphs
from tinycomp.rewrite.traits import is_structural
from tinycomp.target.policy import macs


@dataclass(frozen=True)
class Borders:
    """Hold what keeps the regions of a target apart.

    Attributes:
        sets: Sets of operators that the target would have to take together, the smaller ones of a border first.
        obstacles: The operators to ask about: those of the sets, and others that have work.
    """

    sets: tuple[tuple[Node, ...], ...]
    obstacles: tuple[Node, ...]


def find_borders(graph: Graph, target: str, later: Collection[str] = ()) -> Borders:
    """Return what stands between the regions of ``target`` in a partitioned graph and its open bodies.

    Between two regions these are the shortest chain of nodes that joins them, whichever way data flows, then all nodes
    on paths from the one to the other, then all that hangs together with these. Operators of other targets' regions
    count as those of the host do. A region of a target in ``later`` is in the way beside a single region, too.
    """
    sets: dict[tuple[Node, ...], None] = {}
    obstacles: dict[Node, None] = {}
    for scope in open_graphs(graph):
        for nodes in _sets(scope, target, later):
            members = tuple(_operators(nodes))
            if members:
                sets[members] = None
                obstacles |= dict.fromkeys(members)
        outside = [node for node in scope.nodes if not _is_of(node, target)]
        obstacles |= dict.fromkeys(node for node in _operators(outside) if macs([node]))
    return Borders(tuple(sets), tuple(obstacles))


def _is_of(node: Node, target: str) -> bool:
    return node.is_region and node.target == target


def _operators(nodes: Iterable[Node]) -> Iterator[Node]:
    for node in nodes:
        for inner in node.operators():
            if conversion_of(inner) is None and not is_structural(inner):
                yield inner


def _sets(scope: Graph, target: str, later: Collection[str]) -> Iterator[Sequence[Node]]:
    place = {node: index for index, node in enumerate(scope.nodes)}
    links = scope.connectivity
    joined = nx.Graph(links.to_undirected(as_view=True))
    outside = joined.subgraph(node for node in place if not _is_of(node, target))
    for component in sorted(nx.connected_components(outside), key=lambda nodes: min(map(place.__getitem__, nodes))):
        near = {n for node in component for n in joined[node] if n not in component}
        regions = sorted(near, key=place.__getitem__)
        for first, second in itertools.pairwise(regions):
            chain = nx.shortest_path(joined.subgraph({*component, first, second}), first, second)
            yield _ordered(set(chain) & component, place)
            yield _ordered(_between(links, first, second, component), place)
        if len(regions) > 1 or (regions and any(node.is_region and node.target in later for node in component)):
            yield _ordered(component, place)


def _between(links: nx.DiGraph[Node], first: Node, second: Node, component: Set[Node]) -> set[Node]:
    """Return the nodes of a component on paths from one node to another."""
    inside = links.subgraph(component)
    ahead = reachable(inside, [n for n in links.successors(first) if n in component])
    back = reachable(inside.reverse(copy=False), [n for n in links.predecessors(second) if n in component])
    return ahead & back


def _ordered(nodes: Iterable[Node], place: dict[Node, int]) -> list[Node]:
    return sorted(nodes, key=place.__getitem__)
