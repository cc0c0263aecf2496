"""Regions that compute row by row: row i of each result depends on row i of the operands alone.

The rows are those of a batch: the first dimension, of one size that has a name. Such a region may be run on more rows
than there are, or on a part of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ops import is_opaque
from tinycomp.rewrite.traits import attribute, has_trait, is_random, is_structural

Rows = Set[Value]
"""The values whose first dimension is the batch."""


def batch_of(body: Graph) -> str | None:
    """Return the name of the batch of a region that computes row by row; None if it does not, or has no batch."""
    names = {v.shape[0] for v in body.inputs if v.shape and isinstance(v.shape[0], str)}
    if len(names) != 1:
        return None
    batch = str(names.pop())
    rows = _with_rows(body, {v for v in body.inputs if _has_rows(v, batch)}, batch)
    if rows is None or not all(_has_rows(v, batch) or v.static_shape is not None for v in body.inputs):
        return None
    return batch if all(v in rows for v in body.outputs) else None


def _has_rows(value: Value, batch: str) -> bool:
    dims = value.shape
    return bool(dims) and dims is not None and dims[0] == batch and all(isinstance(dim, int) for dim in dims[1:])


def _with_rows(body: Graph, rows: set[Value], batch: str) -> Rows | None:
    """Return the values of a region that have the batch, those of its operands given; None if one mixes rows."""
    waiting = [(body, rows)]
    for graph, known in waiting:
        for node in graph.nodes:
            if is_random(node) or is_opaque(node):
                return None
            if not any(v in known for v in node.inputs if v is not None):
                if any(v.static_shape is None for v in node.used_outputs()):
                    return None
                continue
            if not all(_has_rows(v, batch) for v in node.used_outputs()):
                return None
            if node.is_composite:
                pairs = zip(node.body.inputs, node.inputs, strict=True)
                waiting.append((node.body, {formal for formal, actual in pairs if actual in known}))
            elif not _keeps_rows(node, known):
                return None
            known.update(node.used_outputs())
    return rows


def _keeps_rows(node: Node, rows: Rows) -> bool:
    if node.domain or node.bodies:
        return is_structural(node)
    if has_trait(node, "elementwise") or is_structural(node):
        return _is_aligned(node, rows)
    keeps = _keeper(node)
    return keeps is not None and keeps(node, rows)


def _is_aligned(node: Node, rows: Rows) -> bool:
    """Tell whether the first dimension of every operand with rows is that of the results, and no other is as long."""
    rank = node.output.rank or 0
    for value in node.inputs:
        if value is None:
            continue
        aligned = value.rank == rank
        if value in rows and not aligned:
            return False
        if value not in rows and aligned and value.shape is not None and value.shape[0] != 1:
            return False
    return True


def _only_first(node: Node, rows: Rows) -> bool:
    return node.inputs[0] in rows and not any(v in rows for v in node.inputs[1:] if v is not None)


def _beside_rows(axes: Sequence[int] | None, rank: int | None) -> bool:
    return bool(axes) and axes is not None and rank is not None and all(axis % rank for axis in axes)


def _per_image(node: Node, rows: Rows) -> bool:
    """Tell whether each image has results of its own; positions of maxima count from the first image."""
    return _only_first(node, rows) and len(node.used_outputs()) == 1 and not attribute(node, "training_mode")


def _transposes(node: Node, rows: Rows) -> bool:
    perm = attribute(node, "perm")
    return _only_first(node, rows) and perm is not None and perm[0] == 0


def _along_axis(node: Node, rows: Rows) -> bool:
    return _only_first(node, rows) and _beside_rows([int(attribute(node, "axis"))], node.operand(0).rank)


def _reduces(node: Node, rows: Rows) -> bool:
    given = node.const(1) if len(node.inputs) > 1 else attribute(node, "axes")
    axes = None if given is None else [int(axis) for axis in given]
    return _only_first(node, rows) and _beside_rows(axes, node.operand(0).rank)


def _multiplies(node: Node, rows: Rows) -> bool:
    a, b = node.operand(0), node.operand(1)
    if a not in rows or a.rank is None or b.rank is None or a.rank < 2:
        return False
    if b in rows:
        return a.rank == b.rank > 2
    return b.rank < a.rank or b.rank == 2 or (b.rank == a.rank and b.shape is not None and b.shape[0] == 1)


def _joins(node: Node, rows: Rows) -> bool:
    axis = attribute(node, "axis")
    return all(v in rows for v in node.inputs) and _beside_rows([int(axis)], node.output.rank)


def _quantises(node: Node, rows: Rows) -> bool:
    scale = node.operand(1)
    one = scale.static_shape in ((), (1,))
    return _only_first(node, rows) and (one or _along_axis(node, rows))


_BY_TRAIT: Mapping[str, Callable[[Node, Rows], bool]] = {
    "per_image": _per_image,
    "view": _only_first,  # what has the batch in front before and after keeps rows
    "reduction": _reduces,
    "along_axis": _along_axis,
}


def _keeper(node: Node) -> Callable[[Node, Rows], bool] | None:
    """Return what tells whether a node of ONNX's own domain keeps rows apart."""
    for trait, keeps in _BY_TRAIT.items():
        if has_trait(node, trait):
            return keeps
    match node.op:
        case "QuantizeLinear" | "DequantizeLinear":
            return _quantises
        case "Concat":
            return _joins
        case "MatMul":
            return _multiplies
        case "Gemm":
            return lambda node, rows: _only_first(node, rows) and not attribute(node, "transA")
        case "Transpose":
            return _transposes
    return None
