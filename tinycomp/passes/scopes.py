"""The graphs in which partitioning works: a graph and the bodies of nodes that nobody has claimed as a whole."""

from __future__ import annotations

from collections.abc import Iterator

from tinycomp.ir.graph import Graph


def scopes(graph: Graph) -> Iterator[Graph]:
    """Yield ``graph`` and every body below it that is open, outer graphs first.

    Bodies of composites, of regions and of claimed nodes are closed. A graph is looked into only after the caller has
    dealt with it, so that a node claimed on the way closes its bodies.
    """
    found = [graph]
    for current in found:
        yield current
        for node in current.nodes:
            if node.target is None and not node.is_composite and not node.is_region:
                found.extend(node.bodies.values())
