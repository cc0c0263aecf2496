"""Rules on Transpose and on what only changes the shape: Reshape, Flatten, Squeeze, Unsqueeze, some GatherND."""

from __future__ import annotations

import math

import numpy as np

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.types import tensor
from tinycomp.passes.edits import replace, version_of
from tinycomp.passes.simplify_rules.facts import constant, producer, reshape_target, shape
from tinycomp.rewrite import rule

VIEWS = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")


@rule("Transpose")
def merge_transposes(graph: Graph, node: Node) -> bool:
    """``Transpose(Transpose(x))`` is one Transpose, or none; the inner one stays for its other readers."""
    inner = producer(node.inputs[0], "Transpose")
    if inner is None:
        return False
    first, second = _perm(inner), _perm(node)
    if first is None or second is None:
        return False
    return replace(graph, node, "Transpose", inner.inputs, {"perm": [first[i] for i in second]}, merged=[inner])


def _perm(node: Node) -> list[int] | None:
    dims = shape(node.inputs[0])
    perm = node.attrs.get("perm", None if dims is None else range(len(dims))[::-1])
    return None if perm is None else list(perm)


@rule("Transpose")
def transpose_to_reshape(graph: Graph, node: Node) -> bool:
    """A Transpose that moves only axes of size one copies nothing: it is a Reshape."""
    dims, perm = shape(node.inputs[0]), _perm(node)
    if dims is None or perm is None:
        return False
    moving = [axis for axis in perm if dims[axis] != 1]
    return moving == sorted(moving) and _reshape(graph, node, node.inputs[0], [])


@rule(*VIEWS)
def merge_views(graph: Graph, node: Node) -> bool:
    """Changes of shape one after the other are one Reshape to the last shape; a single one gets an explicit shape.

    It takes a last shape with at most one unknown dimension, which the Reshape then finds by itself.
    """
    source, merged = node.inputs[0], []
    while (inner := producer(source, *VIEWS)) is not None:
        source = inner.inputs[0]
        merged.append(inner)
    return _reshape(graph, node, source, merged[::-1])


def _reshape(graph: Graph, node: Node, source: Value | None, merged: list[Node]) -> bool:
    """Replace ``node`` by a Reshape of ``source``, unless that is what it is."""
    target = reshape_target(shape(node.output))
    if target is None or source is None or version_of(graph, "Reshape") < 5:
        return False
    wanted = np.array(target, np.int64)
    if node.op == "Reshape" and source is node.inputs[0]:
        current = constant(node, 1)
        if current is not None and np.array_equal(current, wanted):
            return False
    name = f"{node.output.name}_shape"
    return replace(graph, node, "Reshape", [source, graph.add_const(wanted, name)], merged=merged)


@rule("GatherND")
def gather_all_to_reshape(graph: Graph, node: Node) -> bool:
    """A GatherND whose constant indices name every element, or every row, once and in order is a Reshape.

    PyTorch's dynamo exporter ends so where a mask is indexed by ranges of its own sizes.
    """
    indices, dims = constant(node, 1), tensor(node.inputs[0].type).static_shape if node.inputs[0] is not None else None
    if indices is None or dims is None or node.attrs.get("batch_dims", 0):
        return False
    rows = dims[: indices.shape[-1]]
    if not 1 <= len(rows) == indices.shape[-1] or not 0 < indices.size == math.prod(rows) * len(rows):
        return False
    in_order = np.indices(rows).reshape(len(rows), -1).T
    if not np.array_equal(indices.reshape(-1, len(rows)), in_order):
        return False
    return _reshape(graph, node, node.inputs[0], [])


RULES = (merge_transposes, transpose_to_reshape, merge_views, gather_all_to_reshape)
