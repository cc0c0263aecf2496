"""Results whose number of rows, or of what another dimension counts, depends on data.

An operator's record bounds that number (``row_bound``) and names the dimension (``row_axis``). Where a graph becomes a
program, it is a size like any other, with a name of its own; only that a step of the program finds it out.
"""

from __future__ import annotations

import functools

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.types import TensorType, tensor
from tinycomp.ops import OPS
from tinycomp.ops.typing import record_of
from tinycomp.symbolic import Size, dimension, substitute, symbol


@functools.cache
def _may_count(op: str, domain: str) -> bool:
    """Tell whether any version of an operator has a bound: so few do that whole graphs are passed over at once."""
    operator = OPS.of(op, domain)
    return operator is not None and any(record.row_bound is not None for record in operator.records)


def counts_rows(node: Node) -> bool:
    """Tell whether only a run shows how many rows the node's results have, and there is a bound for them."""
    if not _may_count(node.op, node.domain):
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


def name_rows(graph: Graph) -> dict[str, Size]:
    """Give numbers of rows that depend on data a name, and all values the types that follow from that.

    Args:
        graph: A graph whose inputs have sizes; its types are changed.

    Returns:
        By name the most rows that there may be, as a size that follows from those of the inputs.

    Raises:
        TypeInferenceError: If operands no longer fit their operators.
    """
    most: dict[str, Size] = {}
    changed: set[Value] = set()
    for node in graph.nodes if any_counts_rows(graph) else ():
        bound = row_bound(node) if counts_rows(node) else None
        if bound is None and changed.isdisjoint(node.inputs):
            continue
        record = record_of(node)
        axis = 0 if record is None else record.row_axis
        name = f"{node.outputs[0].name}.{axis}"
        for index, (value, inferred) in enumerate(zip(node.outputs, graph.infer(node), strict=True)):
            shape = tensor(inferred).shape or ()
            of_rows = bound is not None and (index == 0 or (bool(shape) and shape[axis] is None))
            value.type = _counted(tensor(inferred), axis, name) if of_rows else inferred
            changed.add(value)
        if bound is not None:
            most[name] = substitute(bound, most)
    return most


def _counted(type_: TensorType, axis: int, name: str) -> TensorType:
    dims = list(type_.shape or ())
    dims[axis] = dimension(symbol(name))
    return TensorType(type_.dtype, tuple(dims))


def following_rows(graph: Graph) -> set[Value]:
    """Return the values whose sizes may follow from numbers of rows that depend on data."""
    following: set[Value] = set()
    for node in graph.nodes if any_counts_rows(graph) else ():
        if counts_rows(node) or not following.isdisjoint(node.inputs):
            following |= set(node.used_outputs())
    return following
