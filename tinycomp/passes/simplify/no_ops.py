"""Rules on nodes that do nothing, or less than they seem to: no-ops, neutral operands, casts and clamps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.proto import NUMBER_BY_DTYPE
from tinycomp.ir.types import UNKNOWN_DTYPE, numpy_dtype
from tinycomp.ops.numeric import float_range
from tinycomp.passes.simplify.facts import (
    FLOATS,
    demands_nothing,
    ints,
    is_private,
    keeps_shape,
    same_shape,
    same_shape_of_equal_size,
)
from tinycomp.rewrite import GraphBuilder, Match, P, ValuePattern, replaces, rule
from tinycomp.rewrite.edits import bypass, replace_results, take_over, version_of
from tinycomp.rewrite.traits import attribute, has_trait, is_random

_FAR = (1 << 31) - 1
"""Slice ends from here on mean the end of the axis in every exporter."""
_SIGNIFICANT = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}
"""Bits of the integers that a float type holds exactly."""
_WIDER_FLOATS = {
    "float16": ("float32", "float64"),
    "bfloat16": ("float32", "float64"),
    "float32": ("float64",),
}
_INTEGER_BITS = {f"{sign}int{bits}": bits for sign in ("", "u") for bits in (8, 16, 32, 64)}

Limits = tuple[float, float]
_RELU = (0.0, math.inf)


def _filled_with(number: Any) -> ValuePattern:
    """Ask for a constant all of whose elements are exactly ``number``; for most constants, the first one decides."""
    return P.const(lambda array: (not array.size or array.flat[0] == number) and (array == number).all())


# Nodes that hand their operand on unchanged -------------------------------------------------------------------------


def _hand_on(graph: Graph, node: Node) -> bool:
    return bypass(graph, node, node.operand(0))


@replaces(lambda x: P.Identity(x))
def drop_identity(op: GraphBuilder, x: Value) -> Value:
    """Replace ``Identity(x)`` by x."""
    return x


@rule(("tinycomp", "Declared"))
def drop_declared(graph: Graph, node: Node) -> bool:
    """Drop a declaration of sizes that follow from the operands by now: these are true, whatever is declared."""
    own = node.operand(0).shape
    said = node.attrs["said"].shape
    if own is None or (len(own) == len(said) and any(map(lambda a, b: a is None and isinstance(b, int), own, said))):
        return False
    return replace_results(graph, node, [node.operand(0)], refines=False)


@replaces(lambda x: P.op(("Concat", "Sum", "Max", "Min", "Mean"), x))
def drop_single_operand(op: GraphBuilder, x: Value) -> Value:
    """Replace a Concat, Sum, Max, Min or Mean of a single operand by that operand."""
    return x


@rule("Dropout")
def drop_dropout(graph: Graph, node: Node) -> bool:
    """Replace a Dropout at inference by its operand; a mask that is read is all true."""
    if is_random(node):
        return False
    mask = node.outputs[1] if len(node.outputs) > 1 else None
    if mask is not None and graph.use_count(mask):
        dims = node.output.static_shape
        if node.version < 12 or dims is None:
            return False
        shape = graph.add_const(np.array(dims, np.int64), "shape")
        truth = graph.add("ConstantOfShape", [shape], {"value": np.ones(1, np.bool_)}, sources=node.sources, at=node)
        graph.replace_uses(mask, truth.output)
    return _hand_on(graph, node)


@rule("Cast", "CastLike")
def drop_cast(graph: Graph, node: Node) -> bool:
    """Replace a Cast to the dtype that the operand has by the operand."""
    dtype = node.output.dtype
    return dtype != UNKNOWN_DTYPE and node.operand(0).dtype == dtype and _hand_on(graph, node)


@rule("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def drop_reshape(graph: Graph, node: Node) -> bool:
    """Replace a change of shape to the shape that the operand has by the operand."""
    is_same = same_shape_of_equal_size(node.operand(0).shape, node.output.shape)
    return is_same and demands_nothing(node) and _hand_on(graph, node)


@rule("Transpose")
def drop_transpose(graph: Graph, node: Node) -> bool:
    """Replace a Transpose that keeps every axis in its place by its operand."""
    rank = node.operand(0).rank
    perm = node.attrs.get("perm", None if rank is None else range(rank)[::-1])
    return perm is not None and list(perm) == list(range(len(perm))) and _hand_on(graph, node)


@rule("Expand")
def drop_expand(graph: Graph, node: Node) -> bool:
    """Replace an Expand to a shape that the operand has, or to ones, by the operand."""
    x = node.operand(0)
    wanted, dims = ints(node, 1, ""), x.shape
    if wanted is None or dims is None or len(wanted) > len(dims):
        return same_shape(x, node.output) and demands_nothing(node) and _hand_on(graph, node)
    aligned = dims[len(dims) - len(wanted) :]
    return all(w in (1, d) for w, d in zip(wanted, aligned, strict=True)) and _hand_on(graph, node)


@replaces(lambda x: P.Tile(x, _filled_with(1)))
def drop_tile(op: GraphBuilder, x: Value, match: Match) -> Value | None:
    """Replace a Tile that repeats every axis once by its operand."""
    return x if match.root.version >= 6 else None


@rule("Pad")
def drop_pad(graph: Graph, node: Node) -> bool:
    """Replace a Pad that adds nothing by its operand."""
    pads = ints(node, 1, "pads" if node.version > 1 else "paddings")
    return pads is not None and not any(pads) and _hand_on(graph, node)


@rule("Slice")
def drop_slice(graph: Graph, node: Node) -> bool:
    """Replace a Slice of everything, forwards, by its operand."""
    steps = ints(node, 4, "")
    if node.optional_operand(4) is not None and (steps is None or any(step != 1 for step in steps)):
        return False
    if same_shape(node.operand(0), node.output):
        return _hand_on(graph, node)
    starts, ends = ints(node, 1, "starts"), ints(node, 2, "ends")
    if starts is None or ends is None or any(starts) or any(end < _FAR for end in ends):
        return False
    return _hand_on(graph, node)


@rule("Clip")
def drop_clip(graph: Graph, node: Node) -> bool:
    """Replace a Clip with no limits, or infinite ones, by its operand.

    A float Clip without limits stays: it limits infinity to the greatest finite number.
    """
    dtype = node.operand(0).dtype
    if node.version < 11 or dtype == UNKNOWN_DTYPE:
        return False
    if node.optional_operand(1) is None and node.optional_operand(2) is None:
        return dtype.startswith(("int", "uint")) and _hand_on(graph, node)
    low, high = node.const(1), node.const(2)
    if low is None or high is None:
        return False
    return bool(np.all(low == -np.inf) and np.all(high == np.inf)) and _hand_on(graph, node)


@replaces(
    lambda x: (
        P.Where(P.const(lambda mask: mask.size and mask.all()), x, P.any)
        | P.Where(P.const(lambda mask: mask.size and not mask.any()), P.any, x)
    )
)
def drop_where(op: GraphBuilder, x: Value, match: Match) -> Value | None:
    """Replace a Where with one condition for all elements by the chosen operand, if that has the result's shape."""
    return x if same_shape(x, match.root.output) else None


# Arithmetic ---------------------------------------------------------------------------------------------------------


_ZERO, _ONE = _filled_with(0), _filled_with(1)


def _without(x: Value, neutral: Value, match: Match) -> Value | None:
    """Return x, unless the neutral constant widens it, or the operator is of a version with explicit broadcasting."""
    assert neutral.const is not None
    known = match.root.version >= 7 and x.dtype != UNKNOWN_DTYPE
    return x if known and keeps_shape(neutral.const.shape, x) else None


@replaces(lambda x, zero=_ZERO: (x + zero) | (x - zero))
def drop_zero(op: GraphBuilder, x: Value, zero: Value, match: Match) -> Value | None:
    """Replace ``x + 0`` and ``x - 0`` by x, if the constant does not widen x; only the sign of a zero may change."""
    return _without(x, zero, match)


@replaces(lambda x, one=_ONE: (x * one) | (x / one) | P.Pow(x, one))
def drop_one(op: GraphBuilder, x: Value, one: Value, match: Match) -> Value | None:
    """Replace ``x * 1``, ``x / 1`` and ``x ** 1`` by x, where the constant does not widen x."""
    return _without(x, one, match)


@rule("Add", "Mul", "And", "Or", "Xor", "Equal", "BitwiseAnd", "BitwiseOr", "BitwiseXor")
def constant_on_the_right(graph: Graph, node: Node) -> bool:
    """Move a constant first operand of a commutative operator to the right, where patterns expect it."""
    if node.const(0) is None or node.version < 7 or len(node.inputs) != 2 or not has_trait(node, "commutative"):
        return False
    left, right = node.operand(0), node.operand(1)
    if right.is_const:
        return False
    graph.set_input(node, 0, right)
    graph.set_input(node, 1, left)
    return True


@rule("Sum")
def sum_to_add(graph: Graph, node: Node) -> bool:
    """Replace a Sum of two operands by an Add."""
    if len(node.inputs) != 2 or version_of(graph, "Add") < 7:
        return False
    names = [graph.fresh(node.output.name)]
    return take_over(graph, node, graph.add("Add", node.inputs, outputs=names, at=node, sources=node.sources))


# Casts --------------------------------------------------------------------------------------------------------------


@replaces(lambda x: P.Cast(P.Cast(x).named("inner")))
def merge_casts(op: GraphBuilder, x: Value, inner: Value, match: Match) -> Value | None:
    """Replace ``Cast(Cast(x))`` by one Cast where the inner one loses nothing."""
    outer = match.root
    if not is_lossless(x.dtype, inner.dtype) or outer.output.dtype == "string":
        return None
    cast: Value = op.emit("Cast", x, version=outer.version, **outer.attrs)
    return cast


@replaces(lambda x: P.CastLike(x, P.any))
def name_type(op: GraphBuilder, x: Value, match: Match) -> Value | None:
    """Replace ``CastLike(x, y)`` by a Cast to the dtype of ``y`` where that is known, to fold constants."""
    dtype = match.root.output.dtype
    return None if dtype == UNKNOWN_DTYPE else op.Cast(x, **match.root.attrs, to=NUMBER_BY_DTYPE[dtype])


def is_lossless(source: str, target: str) -> bool:
    """Tell whether every number of dtype ``source`` is one of ``target``; False for dtypes that few operators know.

    >>> is_lossless("int8", "float16"), is_lossless("int32", "float32"), is_lossless("uint8", "int8")
    (True, False, False)
    """
    if target in _WIDER_FLOATS.get(source, ()):
        return True
    if source == "bool":
        return target in _INTEGER_BITS or target in _SIGNIFICANT
    if source not in _INTEGER_BITS:
        return False
    signed, bits = source.startswith("int"), _INTEGER_BITS[source]
    if target in _SIGNIFICANT:
        return bits - signed <= _SIGNIFICANT[target]
    if target not in _INTEGER_BITS:
        return False
    if signed == target.startswith("int"):
        return bits <= _INTEGER_BITS[target]
    return not signed and bits < _INTEGER_BITS[target]


# Clamps: Relu limits to [0, inf], Clip to what it says --------------------------------------------------------------


@replaces(lambda x: P.op(("Clip", "Relu"), P.op(("Clip", "Relu"), x, ...), ...))
def merge_clamps(op: GraphBuilder, x: Value, match: Match) -> Value | None:
    """Merge two clamps into one; if the outer one changes nothing, it is dropped."""
    outer, inner = match.matched
    dtype = outer.output.dtype
    first, second = (limits(inner), limits(outer)) if dtype in FLOATS else (None, None)
    if first is None or second is None:
        return None
    low, high = (min(max(limit, second[0]), second[1]) for limit in first)
    both = low, high
    if both == first:
        return inner.output
    if not is_private(op.graph, inner.output):
        return None
    return op.Relu(x) if both == _RELU else _clip(op, x, both, outer.output)


def _clip(op: GraphBuilder, x: Value, limits: Limits, like: Value) -> Value | None:
    """Return x clamped to limits, which are operands or, in older versions, attributes; None if these cannot be."""
    if version_of(op.graph, "Clip") < 11:
        return op.Clip(x, min=limits[0], max=limits[1]) if all(map(math.isfinite, limits)) else None
    greatest = _greatest(like.dtype)
    bounds: list[Value | None] = []
    for name, bound, default in zip(("min", "max"), limits, (-greatest, greatest), strict=True):
        array = np.array(bound, numpy_dtype(like.dtype))
        bounds.append(None if bound == default else op.graph.add_const(array, f"{like.name}_{name}"))
    clipped: Value = op.Clip(x, *bounds)
    return clipped


def limits(node: Node) -> Limits | None:
    """Return the limits of a Relu or Clip of floats, or None where they are not known; a missing one is finite."""
    if node.op == "Relu":
        return _RELU
    greatest = _greatest(node.output.dtype)
    if node.version < 11:
        low, high = max(float(attribute(node, "min")), -greatest), min(float(attribute(node, "max")), greatest)
    else:
        low, high = _bound(node.optional_operand(1), -greatest), _bound(node.optional_operand(2), greatest)
    return None if math.isnan(low) or math.isnan(high) else (low, high)


def _bound(value: Value | None, default: float) -> float:
    if value is None:
        return default
    return math.nan if value.const is None or value.const.size != 1 else float(value.const.reshape(-1)[0])


def _greatest(name: str) -> float:
    return float_range(numpy_dtype(name))[1]


RULES = (
    drop_identity,
    drop_declared,
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
    drop_zero,
    drop_one,
    constant_on_the_right,
    sum_to_add,
    merge_casts,
    name_type,
    merge_clamps,
)
HIDING = (sum_to_add, name_type, merge_clamps)
"""The rules that do not remove a node but replace it by another."""
