"""Rules that remove nodes which hand their operand on unchanged."""

from __future__ import annotations

import numpy as np

from tinycomp.ir.graph import Graph, Node
from tinycomp.ir.types import UNKNOWN_DTYPE, tensor
from tinycomp.passes.edits import bypass, replace_by_constant
from tinycomp.passes.fold_constants import is_random
from tinycomp.passes.simplify_rules.facts import (
    constant,
    dtype,
    ints,
    operand,
    same_shape_of_equal_size,
    same_static_shape,
    shape,
)
from tinycomp.rewrite import rule

_FAR = (1 << 31) - 1
"""Slice ends from here on mean the end of the axis in every exporter."""


def _hand_on(graph: Graph, node: Node) -> bool:
    value = node.inputs[0]
    return value is not None and bypass(graph, node, value)


@rule("Identity")
def drop_identity(graph: Graph, node: Node) -> bool:
    """``Identity(x)`` is x."""
    return _hand_on(graph, node)


@rule("Dropout")
def drop_dropout(graph: Graph, node: Node) -> bool:
    """Dropout at inference is its operand; a mask that is read is all true."""
    if is_random(node):
        return False
    mask = node.outputs[1] if len(node.outputs) > 1 else None
    if mask is not None and graph.use_count(mask):
        dims = tensor(node.output.type).static_shape
        if node.version < 12 or dims is None:
            return False
        replace_by_constant(graph, mask, np.ones(dims, np.bool_))
    return _hand_on(graph, node)


@rule("Cast", "CastLike")
def drop_cast(graph: Graph, node: Node) -> bool:
    """A Cast to the dtype that the operand has."""
    known = dtype(node.output)
    return known != UNKNOWN_DTYPE and dtype(node.inputs[0]) == known and _hand_on(graph, node)


@rule("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def drop_reshape(graph: Graph, node: Node) -> bool:
    """A change of shape to the shape that the operand has."""
    return same_shape_of_equal_size(shape(node.inputs[0]), shape(node.output)) and _hand_on(graph, node)


@rule("Transpose")
def drop_transpose(graph: Graph, node: Node) -> bool:
    """A Transpose that keeps every axis in its place."""
    dims = shape(node.inputs[0])
    perm = node.attrs.get("perm", None if dims is None else range(len(dims))[::-1])
    return perm is not None and list(perm) == list(range(len(perm))) and _hand_on(graph, node)


@rule("Expand")
def drop_expand(graph: Graph, node: Node) -> bool:
    """An Expand to a shape that the operand has, or to ones."""
    wanted = ints(node, 1, "")
    dims = shape(node.inputs[0])
    if wanted is None or dims is None or len(wanted) > len(dims):
        return same_static_shape(node.inputs[0], node.output) and _hand_on(graph, node)
    aligned = dims[len(dims) - len(wanted) :]
    return all(w in (1, d) for w, d in zip(wanted, aligned, strict=True)) and _hand_on(graph, node)


@rule("Tile")
def drop_tile(graph: Graph, node: Node) -> bool:
    """A Tile that repeats every axis once."""
    repeats = constant(node, 1)
    return node.version >= 6 and repeats is not None and bool(np.all(repeats == 1)) and _hand_on(graph, node)


@rule("Pad")
def drop_pad(graph: Graph, node: Node) -> bool:
    """A Pad that adds nothing."""
    pads = ints(node, 1, "pads" if node.version > 1 else "paddings")
    return pads is not None and not any(pads) and _hand_on(graph, node)


@rule("Slice")
def drop_slice(graph: Graph, node: Node) -> bool:
    """A Slice of everything, forwards."""
    steps = ints(node, 4, "")
    if operand(node, 4) is not None and (steps is None or any(step != 1 for step in steps)):
        return False
    if same_static_shape(node.inputs[0], node.output):
        return _hand_on(graph, node)
    starts, ends = ints(node, 1, "starts"), ints(node, 2, "ends")
    if starts is None or ends is None or any(starts) or any(end < _FAR for end in ends):
        return False
    return _hand_on(graph, node)


@rule("Concat", "Sum", "Max", "Min", "Mean")
def drop_single_operand(graph: Graph, node: Node) -> bool:
    """Joining, adding or comparing one operand alone."""
    return len(node.inputs) == 1 and _hand_on(graph, node)


@rule("Clip")
def drop_clip(graph: Graph, node: Node) -> bool:
    """A Clip with no limits, or infinite ones.

    A float Clip without limits stays: it limits infinity to the greatest finite number.
    """
    if node.version < 11 or dtype(node.inputs[0]) == UNKNOWN_DTYPE:
        return False
    low, high = constant(node, 1), constant(node, 2)
    if operand(node, 1) is None and operand(node, 2) is None:
        return dtype(node.inputs[0]).startswith(("int", "uint")) and _hand_on(graph, node)
    if low is None or high is None:
        return False
    return bool(np.all(low == -np.inf) and np.all(high == np.inf)) and _hand_on(graph, node)


@rule("Where")
def drop_where(graph: Graph, node: Node) -> bool:
    """A Where whose condition is the same constant everywhere, and whose chosen operand has the shape of the result."""
    condition = constant(node, 0)
    if condition is None or not condition.size or condition.any() != condition.all():
        return False
    chosen = operand(node, 1 if condition.any() else 2)
    return chosen is not None and same_static_shape(chosen, node.output) and bypass(graph, node, chosen)


RULES = (
    drop_identity,
    drop_dropout,
    drop_cast,
    drop_reshape,
    drop_transpose,
    drop_expand,
    drop_tile,
    drop_pad,
    drop_slice,
    drop_single_operand,
    drop_clip,
    drop_where,
)
