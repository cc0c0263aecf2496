"""Operators that go row by row through operands whose number of rows, their first dimension, is counted at run time.

Their calls are emitted for the most rows that there may be, in memory for as many, and do no more than a run needs.
That works where row i of every result follows from row i of those operands and from all of the others. A check gets
the node, whose types have no size for these rows yet, and the operands with counted rows.
"""

from __future__ import annotations

import math
from collections.abc import Set

from tinycomp.ir.graph import Node, Value
from tinycomp.ir.types import Dim, tensor
from tinycomp.targets.common.checks import first, operand


def _rank(value: Value) -> int:
    """The number of dimensions, which the operators' own checks have found to be known; 0 where it is not."""
    return tensor(value.type).rank or 0


def element_wise(node: Node, counted: Set[Value]) -> bool:
    """Where all counted operands have the result's rank, and the others are repeated for every row."""
    rank = _rank(node.output)
    for value in node.inputs:
        if value is None:
            continue
        shape = tensor(value.type).shape
        if shape is None or (value in counted and len(shape) != rank):
            return False
        if value not in counted and len(shape) == rank and shape[:1] != (1,):
            return False
    return rank > 0


def reshaping(node: Node, counted: Set[Value]) -> bool:
    """Where the elements of a row stay together."""
    before, after = tensor(first(node).type).shape, tensor(node.output.type).shape
    if not before or not after or isinstance(after[0], int):
        return False
    size = _row_size(before)
    return size is not None and size == _row_size(after)


def _row_size(shape: tuple[Dim, ...]) -> int | None:
    sizes = [n for n in shape[1:] if isinstance(n, int)]
    return math.prod(sizes) if len(sizes) == len(shape) - 1 else None


def gathering(node: Node, counted: Set[Value]) -> bool:
    """Gather: whole slices by counted indices, or the same places of every counted row."""
    data, indices = first(node), operand(node, 1)
    axis = int(node.attrs.get("axis", 0)) % max(_rank(data), 1)
    return (indices in counted and data not in counted and axis == 0) or (indices not in counted and axis > 0)


def gathering_tuples(node: Node, counted: Set[Value]) -> bool:
    """GatherND: slices of one tensor by counted tuples."""
    indices = operand(node, 1)
    one_tensor = first(node) not in counted and not node.attrs.get("batch_dims", 0)
    return one_tensor and indices is not None and _rank(indices) > 1


def inside_rows(node: Node, counted: Set[Value]) -> bool:
    """Concat and Split along another dimension than that of the rows."""
    parts = node.inputs if node.op == "Concat" else node.inputs[:1]
    axis = int(node.attrs.get("axis", 0)) % max(_rank(first(node)), 1)
    return axis > 0 and all(value in counted for value in parts)


def transposing(node: Node, counted: Set[Value]) -> bool:
    """Transpose inside rows."""
    return list(node.attrs.get("perm", ()))[:1] == [0]
