"""Which dependencies no region may hold, because only a run shows how many rows there are.

What such a region needs is memory and loops for sizes that nobody knows when it is built. A target's code generator may
provide for rows that are counted on the way (:meth:`tinycomp.target.Target.row_wise`); every other node that reads such
a result has to wait until its size is known, outside the region that makes it.
"""

from __future__ import annotations

from collections.abc import Mapping

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ops.rows import any_counts_rows, counts_rows
from tinycomp.target import Target

Dependency = tuple[Node, Node]
"""A node, and one that reads its results."""


def counted_dependencies(graph: Graph, targets: Mapping[str, Target]) -> set[Dependency]:
    """Return the dependencies between nodes of one target that must be borders between regions.

    Args:
        graph: A graph whose nodes are claimed.
        targets: The targets by name; of others nothing is known, so nothing may follow there.
    """
    sources: dict[Value, Value] = {}
    borders: set[Dependency] = set()
    for node in graph.nodes if any_counts_rows(graph) else ():
        if node.target is None or node.is_region:
            continue
        counted = {v: sources[v] for v in node.inputs if v in sources and _producer(v).target == node.target}
        if counts_rows(node):
            sources |= dict.fromkeys(node.used_outputs(), node.outputs[0])
        elif counted and _follows(node, counted, targets.get(node.target)):
            sources |= dict.fromkeys(node.used_outputs(), next(iter(counted.values())))
            continue
        borders |= {(_producer(v), node) for v in counted}
    return borders


def _producer(value: Value) -> Node:
    assert value.producer is not None, value
    return value.producer


def _follows(node: Node, counted: Mapping[Value, Value], target: Target | None) -> bool:
    return target is not None and len(set(counted.values())) == 1 and target.follows_rows(node, counted.keys())
