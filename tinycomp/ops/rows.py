"""Results whose number of rows, the size of their first dimension, depends on data.

An operator's record bounds that number (``row_bound``). Where a graph is to run in memory that is planned beforehand,
its types are those for the most rows, and every value that follows row by row has as many rows as the result that it
follows: that result is its *source*.
"""

from __future__ import annotations

import functools

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.types import TensorType, tensor
from tinycomp.ops import OPS
from tinycomp.ops.typing import record_of
from tinycomp.symbolic import Size, dimension


@functools.cache
def _counting() -> frozenset[tuple[str, str]]:
    """Return the operators with a bound: so few that whole graphs are passed over at once."""
    return frozenset((record.domain, record.name) for record in OPS.all() if record.row_bound is not None)


def counts_rows(node: Node) -> bool:
    """Tell whether only a run shows how many rows the node's results have, and there is a bound for them."""
    if (node.domain, node.op) not in _counting():
        return False
    record = record_of(node)
    return record is not None and record.row_bound is not None


def any_counts_rows(graph: Graph) -> bool:
    """Tell whether there is such a node in ``graph``."""
    return any(map(counts_rows, graph.nodes))


def row_bound(node: Node) -> Size | None:
    """Return the most rows that the results of such a node may have, or None if sizes of operands are unknown."""
    record = record_of(node)
    return None if record is None or record.row_bound is None else record.row_bound(node)


def row_sources(graph: Graph) -> dict[Value, Value]:
    """Return the source of every value in ``graph`` that has one, where all nodes that read such values follow them."""
    sources: dict[Value, Value] = {}
    for node in graph.nodes if any_counts_rows(graph) else ():
        followed = [sources[v] for v in node.inputs if v in sources]
        for value in node.used_outputs():
            if counts_rows(node):
                sources[value] = node.used_outputs()[0]
            elif followed:
                sources[value] = followed[0]
    return sources


def retype_for_most_rows(graph: Graph) -> None:
    """Give values whose number of rows depends on data the types that they have with the most rows.

    Raises:
        TypeInferenceError: If operands no longer fit their operators.
    """
    changed: set[Value] = set()
    for node in graph.nodes if any_counts_rows(graph) else ():
        bound = row_bound(node)
        most = None if bound is None else dimension(bound)
        if most is None and changed.isdisjoint(node.inputs):
            continue
        for value, inferred in zip(node.outputs, graph.infer(node), strict=True):
            type_ = tensor(inferred)
            value.type = inferred if most is None else TensorType(type_.dtype, (most, *(type_.shape or ())[1:]))
            changed.add(value)
