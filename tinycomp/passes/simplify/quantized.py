"""Rules on quantised layers: conversions that cancel or change places with moves, and products of whole numbers.

What only moves numbers may move the stored ones as well: a DequantizeLinear goes behind it, a QuantizeLinear before it.
So conversions come to stand beside the layers that they belong to, and less is moved.

Some quantisers write products of whole numbers in floats: data that a Cast has made of 8-bit integers, or that are
rounded and clipped to their range, times weights that are whole numbers of 8 bits. As quantised layers whose scales are
1, they are open to targets that compute in integers. Sums are exact there; in float32 they are up to 2**24.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinycomp.index import named
from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.types import numpy_dtype
from tinycomp.passes.simplify.facts import is_private, producer
from tinycomp.rewrite import GraphBuilder, Match, P, replaces, rule
from tinycomp.rewrite.edits import take_over

_BYTES = frozenset({"int8", "uint8"})
_STORED = _BYTES | {"int16", "uint16"}
_KEEPING = (*named("view"), "Transpose")
"""Moves whose result has as many elements as their operand."""
_MOVES = (*(op for op in named("selection") if op != "Identity"), "MaxPool", "Resize")
_NEIGHBOURS = frozenset({*_MOVES, *named("product"), "QuantizeLinear"})
"""Operators for which a DequantizeLinear directly before them is useful."""


@replaces(lambda x: P.QuantizeLinear(P.DequantizeLinear(x, P.const, ...), P.const, ...))
def merge_conversions(op: GraphBuilder, x: Value, match: Match) -> Value | None:
    """Drop a DequantizeLinear with an equal QuantizeLinear after it: their errors are below half a step."""
    node, inner = match.matched
    if x.dtype != node.output.dtype or x.dtype not in _STORED:
        return None
    scale, other = node.const(1), inner.const(1)
    if scale is None or other is None or not np.array_equal(scale, other) or not _is_ordinary(scale):
        return None
    if scale.size > 1 and node.attrs.get("axis", 1) != inner.attrs.get("axis", 1):
        return None
    points = [_zero_point(each, scale) for each in (node, inner)]
    return x if points[0] is not None and points[1] is not None and np.array_equal(points[0], points[1]) else None


def _is_ordinary(scale: np.ndarray) -> bool:
    """Tell whether no product of a scale and a stored number is infinite or loses bits for being small."""
    info = np.finfo(np.float32)
    return scale.dtype == np.float32 and bool(((scale >= info.tiny) & (scale <= info.max / 2**17)).all())


def _zero_point(node: Node, scale: np.ndarray) -> np.ndarray | None:
    if node.optional_operand(2) is None:
        return np.zeros(scale.shape, np.int64)
    given = node.const(2)
    return None if given is None else given.astype(np.int64)


@rule(*_MOVES)
def dequantize_behind_moves(graph: Graph, node: Node) -> bool:
    """Replace ``move(DequantizeLinear(x))`` by ``DequantizeLinear(move(x))``, for one scale, or more and a Transpose.

    A DequantizeLinear that others read as well is copied only where the copy has a layer, a QuantizeLinear or another
    move behind it.
    """
    inner = producer(node.inputs[0], "DequantizeLinear")
    if inner is None or inner.operand(0).dtype not in _BYTES or inner.attrs.get("block_size", 0):
        return False
    axis = _moved_axis(inner, node)
    if axis is None or any(v.name for v in node.outputs[1:] if node.op == "MaxPool"):
        return False
    if node.op == "MaxPool" and node.version < 12:
        return False
    if node.op == "Resize" and not _repeats(node):
        return False
    if not is_private(graph, inner.output) and not any(u.op in _NEIGHBOURS for v in node.outputs for u in v.users):
        return False
    _swap(graph, inner, node, axis)
    return True


def _repeats(resize: Node) -> bool:
    """Tell whether a Resize only repeats numbers or leaves some out."""
    cropping = resize.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    return resize.attrs.get("mode", "nearest") == "nearest" and not cropping and resize.version >= 11


def _moved_axis(inner: Node, move: Node) -> dict[str, Any] | None:
    """Return the attributes of a DequantizeLinear after ``move``, or None if it cannot be moved there."""
    scale = inner.const(1)
    if scale is None or not (scale > 0).all():
        return None
    if scale.size == 1:
        point = inner.optional_operand(2)
        return dict(inner.attrs) if point is None or point.is_const else None
    perm = move.attrs.get("perm")
    if move.op != "Transpose" or perm is None:
        return None
    return {**inner.attrs, "axis": list(perm).index(inner.attrs.get("axis", 1) % len(perm))}


def _swap(graph: Graph, inner: Node, move: Node, attrs: dict[str, Any]) -> None:
    outputs = [v.name and graph.fresh(v.name) for v in move.outputs]
    moved = graph.add(
        move.op, [inner.inputs[0], *move.inputs[1:]], move.attrs, version=move.version, outputs=outputs, at=move,
    )  # fmt: skip
    renamed = {}
    for before, after in zip(move.outputs, moved.outputs, strict=True):
        if before.name:
            name = [graph.fresh(before.name)]
            real = graph.add(
                "DequantizeLinear", [after, *inner.inputs[1:]], attrs, version=inner.version, outputs=name, at=move,
                sources=inner.sources,
            )  # fmt: skip
            graph.replace_uses(before, real.output)
            renamed[real.output] = before.name
    graph.erase(move)
    for value, text in renamed.items():
        graph.rename(value, text)


@rule("QuantizeLinear")
def quantize_before_moves(graph: Graph, node: Node) -> bool:
    """Replace ``QuantizeLinear(move(x))`` by ``move(QuantizeLinear(x))`` for one scale, if all elements are kept."""
    move = producer(node.inputs[0], *_KEEPING)
    if move is None or not is_private(graph, move.output) or not _has_one_scale(node):
        return False
    if producer(move.inputs[0], "DequantizeLinear") is not None:
        return False  # that one goes behind the move
    early = graph.add(
        "QuantizeLinear", [move.inputs[0], *node.inputs[1:]], node.attrs, version=node.version, at=move,
        sources=node.sources,
    )  # fmt: skip
    late = graph.add(
        move.op, [early.output, *move.inputs[1:]], move.attrs, version=move.version,
        outputs=[graph.fresh(node.output.name)], at=node, sources=move.sources,
    )  # fmt: skip
    return take_over(graph, node, late)


@rule("QuantizeLinear")
def quantize_before_concat(graph: Graph, node: Node) -> bool:
    """Replace a Concat of dequantised tensors that are then quantised by a Concat of requantised ones."""
    join = producer(node.inputs[0], "Concat")
    if join is None or not is_private(graph, join.output) or not _has_one_scale(node):
        return False
    if not all(producer(v, "DequantizeLinear") is not None or (v is not None and v.is_const) for v in join.inputs):
        return False
    parts = [_quantized_alike(graph, node, v) for v in join.inputs]
    name = [graph.fresh(node.output.name)]
    whole = graph.add("Concat", parts, join.attrs, version=join.version, outputs=name, at=node, sources=join.sources)
    return take_over(graph, node, whole)


def _quantized_alike(graph: Graph, node: Node, value: Value | None) -> Value:
    like = graph.add("QuantizeLinear", [value, *node.inputs[1:]], node.attrs, version=node.version, at=node)
    return like.output


def _has_one_scale(node: Node) -> bool:
    scale, point = node.const(1), node.optional_operand(2)
    return scale is not None and scale.size == 1 and (point is None or point.is_const)


"""The rules in order: a pair of conversions that cancel comes first."""


_BYTE_TYPES = (np.int8, np.uint8)
_CODES = {"uint8": 2, "int8": 3}


@rule(*named("product"))
def quantise_whole_numbers(graph: Graph, node: Node) -> bool:
    """Let a float32 product of 8-bit whole numbers read both through a DequantizeLinear of scale 1."""
    if producer(node.inputs[0], "Cast", "Clip") is None or graph.opsets.get("", 0) < 10:
        return False  # before the weights are read
    weight = _whole(node.const(1))
    if weight is None or node.output.dtype != "float32":
        return False
    if node.op != "MatMul" and node.optional_operand(2) is not None:
        bias = node.const(2)
        if bias is None or not (bias == np.rint(bias)).all():
            return False
    data = _stored(graph, node)
    if data is None:
        return False
    stored = graph.add_const(weight, f"{node.operand(1).name}_stored")
    for index, value in enumerate((data, stored)):
        graph.set_input(node, index, _dequantized(graph, node, value))
    return True


def _whole(weight: np.ndarray | None) -> np.ndarray | None:
    """Return a constant as 8-bit numbers, if it holds such numbers."""
    if weight is None or weight.size == 0 or weight.dtype != np.float32:
        return None
    first = weight[(0,) * (weight.ndim - 1)]  # one row tells of nearly all real weights, without reading the others
    if not np.array_equal(first, np.rint(first)):
        return None
    for kind in _BYTE_TYPES:
        info = np.iinfo(kind)
        if info.min <= weight.min() and weight.max() <= info.max:
            stored = weight.astype(kind)
            return stored if np.array_equal(stored, weight) else None
    return None


def _stored(graph: Graph, node: Node) -> Value | None:
    """Return the data of a product as 8-bit numbers; None if they are not."""
    cast = producer(node.inputs[0], "Cast")
    if cast is not None:
        return cast.inputs[0] if cast.operand(0).dtype in _CODES else None
    clip = producer(node.inputs[0], "Clip")
    kind = None if clip is None or producer(clip.inputs[0], "Ceil", "Floor", "Round") is None else _range_of(clip)
    if clip is None or kind is None:
        return None
    return graph.add("Cast", [clip.output], {"to": _CODES[kind]}, at=clip).output


def _range_of(clip: Node) -> str | None:
    """Return the 8-bit type that holds all whole numbers that a Clip leaves."""
    ends = [clip.const(index) for index in (1, 2)]
    if ends[0] is None or ends[1] is None or ends[0].size != 1 or ends[1].size != 1:
        return None
    low, high = ends[0].item(), ends[1].item()
    if low != np.rint(low) or high != np.rint(high):
        return None
    for kind in _BYTE_TYPES:
        info = np.iinfo(kind)
        if info.min <= low and high <= info.max:
            return np.dtype(kind).name
    return None


def _dequantized(graph: Graph, node: Node, value: Value) -> Value:
    one = graph.add_const(np.array(1, np.float32), "one")
    zero = graph.add_const(np.zeros((), numpy_dtype(value.dtype)), "zero")
    return graph.add("DequantizeLinear", [value, one, zero], at=node).output


RULES = (
    merge_conversions,
    dequantize_behind_moves,
    quantize_before_moves,
    quantize_before_concat,
    quantise_whole_numbers,
)
