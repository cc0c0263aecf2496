"""Rules on nodes that do nothing, or less than they say: no-ops, neutral operands, casts and clamps."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.proto import NUMBER_BY_DTYPE
from tinycomp.ir.types import UNKNOWN_DTYPE, numpy_dtype, tensor
from tinycomp.passes.edits import bypass, replace, replace_by_constant, version_of
from tinycomp.passes.fold_constants import is_random
from tinycomp.passes.simplify.facts import (
    FLOATS,
    constant,
    dtype,
    ints,
    is_private,
    keeps_shape,
    operand,
    producer,
    same_shape_of_equal_size,
    same_static_shape,
    shape,
)
from tinycomp.rewrite import rule
from tinycomp.rewrite.traits import attribute, has_trait

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


_NEUTRAL = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1, "Pow": 1}
_COMMUTATIVE = frozenset({"Add", "Mul"})


@rule(*_NEUTRAL)
def drop_neutral_operand(graph: Graph, node: Node) -> bool:
    """``x + 0``, ``x - 0``, ``x * 1``, ``x / 1`` and ``x ** 1`` are x, where the constant does not widen x.

    NaN and infinities stay what they are; of a zero only the sign may change (``-0.0 + 0.0`` is ``0.0``).
    """
    if node.version < 7:
        return False
    places = (1, 0) if node.op in _COMMUTATIVE else (1,)
    return any(_is_neutral(node, at) and _hand_on_value(graph, node, operand(node, 1 - at)) for at in places)


def _is_neutral(node: Node, at: int) -> bool:
    value, other = operand(node, at), operand(node, 1 - at)
    if value is None or value.const is None or other is None or dtype(other) == UNKNOWN_DTYPE:
        return False
    return bool(np.all(value.const == _NEUTRAL[node.op])) and keeps_shape(value.const.shape, other)


def _hand_on_value(graph: Graph, node: Node, value: Value | None) -> bool:
    return value is not None and bypass(graph, node, value)


@rule("Add", "Mul", "And", "Or", "Xor", "Equal", "BitwiseAnd", "BitwiseOr", "BitwiseXor")
def constant_on_the_right(graph: Graph, node: Node) -> bool:
    """A constant first operand of a commutative operator goes to the right, where patterns expect it."""
    if node.version < 7 or len(node.inputs) != 2 or not has_trait(node, "commutative"):
        return False
    left, right = node.inputs
    if left is None or right is None or not left.is_const or right.is_const:
        return False
    graph.set_input(node, 0, right)
    graph.set_input(node, 1, left)
    return True


@rule("Sum")
def sum_to_add(graph: Graph, node: Node) -> bool:
    """A Sum of two operands is an Add."""
    if len(node.inputs) != 2 or version_of(graph, "Add") < 7:
        return False
    return replace(graph, node, "Add", node.inputs)


_SIGNIFICANT = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}
"""Bits of the integers that a float type holds exactly."""
_WIDER_FLOATS = {
    "float16": ("float32", "float64"),
    "bfloat16": ("float32", "float64"),
    "float32": ("float64",),
}
_INTEGER_BITS = {f"{sign}int{bits}": bits for sign in ("", "u") for bits in (8, 16, 32, 64)}


@rule("Cast")
def merge_casts(graph: Graph, node: Node) -> bool:
    """``Cast(Cast(x))`` is one Cast where the inner one loses nothing."""
    inner = producer(node.inputs[0], "Cast")
    if inner is None or not is_lossless(dtype(inner.inputs[0]), dtype(inner.output)):
        return False
    if dtype(node.output) == "string":
        return False
    return replace(graph, node, "Cast", inner.inputs, node.attrs, merged=[inner], version=node.version)


@rule("CastLike")
def name_type(graph: Graph, node: Node) -> bool:
    """``CastLike(x, y)`` is a Cast to the dtype of ``y`` where that is known, so that a constant can be folded."""
    known = dtype(node.output)
    if known == UNKNOWN_DTYPE:
        return False
    return replace(graph, node, "Cast", node.inputs[:1], {**node.attrs, "to": NUMBER_BY_DTYPE[known]})


def is_lossless(source: str, target: str) -> bool:
    """Whether every number of dtype ``source`` is one of dtype ``target``; False for dtypes that few operators know.

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


Limits = tuple[float, float]
_RELU = (0.0, math.inf)


@rule("Relu", "Clip")
def merge_clamps(graph: Graph, node: Node) -> bool:
    """A limit of a limit is one limit; where the outer one changes nothing it goes away."""
    inner = producer(node.inputs[0], "Relu", "Clip")
    if inner is None or dtype(node.output) not in FLOATS:
        return False
    first, second = limits(inner), limits(node)
    if first is None or second is None:
        return False
    both = (_limit(first[0], second), _limit(first[1], second))
    if both == first:
        return bypass(graph, node, inner.output)
    return is_private(graph, inner.output) and _replace(graph, node, inner, both)


def limits(node: Node) -> Limits | None:
    """Return the limits of a Relu or Clip of floats, or None where they are not known; a missing one is finite."""
    if node.op == "Relu":
        return _RELU
    greatest = _greatest(dtype(node.output))
    if node.version < 11:
        low, high = float(attribute(node, "min")), float(attribute(node, "max"))
        return _checked(max(low, -greatest), min(high, greatest))
    return _checked(_bound(operand(node, 1), -greatest), _bound(operand(node, 2), greatest))


def _bound(value: Value | None, default: float) -> float:
    if value is None:
        return default
    return math.nan if value.const is None or value.const.size != 1 else float(value.const.reshape(-1)[0])


def _checked(low: float, high: float) -> Limits | None:
    return None if math.isnan(low) or math.isnan(high) else (low, high)


def _limit(x: float, limits: Limits) -> float:
    return min(max(x, limits[0]), limits[1])


def _greatest(name: str) -> float:
    return float(ml_dtypes.finfo(numpy_dtype(name)).max)  # type: ignore[no-untyped-call]


def _replace(graph: Graph, node: Node, inner: Node, both: Limits) -> bool:
    x = inner.inputs[0]
    if both == _RELU:
        return replace(graph, node, "Relu", [x], merged=[inner])
    if version_of(graph, "Clip") < 11:
        finite = all(map(math.isfinite, both))
        return finite and replace(
            graph, node, "Clip", [x], dict(zip(("min", "max"), both, strict=True)), merged=[inner]
        )
    greatest = _greatest(dtype(node.output))
    bounds = [_const(graph, node, *pair) for pair in zip(("min", "max"), both, (-greatest, greatest), strict=True)]
    return replace(graph, node, "Clip", [x, *bounds], merged=[inner])


def _const(graph: Graph, node: Node, name: str, bound: float, default: float) -> Value | None:
    if bound == default:
        return None
    return graph.add_const(np.array(bound, numpy_dtype(dtype(node.output))), f"{node.output.name}_{name}")


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
    drop_neutral_operand,
    constant_on_the_right,
    sum_to_add,
    merge_casts,
    name_type,
    merge_clamps,
)
