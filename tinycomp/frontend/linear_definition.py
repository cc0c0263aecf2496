"""What QuantizeLinear and DequantizeLinear compute, in operators that ONNX has beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tinycomp.frontend.definition_body import INTEGERS, REALS, SMALL_FLOATS, Body, dtype_of, numbers_below, shape_of
from tinycomp.ir.graph import Node, Value
from tinycomp.ir.proto import DTYPE_BY_NUMBER

_OF_SCALE = 23
"""From this opset on a quotient is rounded to the type of the scale, unless told otherwise."""
_COMMON = frozenset({"int8", "uint8", "int16", "uint16", "int32"})


def is_rare(node: Node) -> bool:
    """Tell whether a conversion is of other numbers than float32 and whole integers, or has one scale per block.

    The numbers are also those that the quotient is rounded to.
    """
    if node.op not in ("QuantizeLinear", "DequantizeLinear"):
        return False
    ends = [dtype_of(node.inputs[0]), dtype_of(node.output)]
    stored, real = ends if node.op == "DequantizeLinear" else reversed(ends)
    reals = {real, dtype_of(node.inputs[1]), _precision(node)}
    return bool(node.attrs.get("block_size", 0)) or reals != {"float32"} or stored not in _COMMON


def _spread(body: Body, node: Node, parameter: Value | None, x: Value) -> Value | None:
    """Return scales or zero points in a shape that broadcasts with ``x``: one, one per slice, or one per block."""
    shape, rank = shape_of(parameter), x.rank
    if parameter is None or shape is None or rank is None:
        return None
    if math.prod(shape) == 1 and not node.attrs.get("block_size", 0):
        return body.reshape(parameter, [])
    axis, size = int(node.attrs.get("axis", 1)) % max(rank, 1), int(node.attrs.get("block_size", 0))
    if size:
        sizes = shape_of(x)
        assert sizes is not None, node
        if sizes[axis] % size:
            return body("Gather", parameter, body.const(numbers_below(sizes[axis]) // size), axis=axis)
        return body.reshape(parameter, [*shape[: axis + 1], 1, *shape[axis + 1 :]])
    return body.reshape(parameter, [-1 if d == axis else 1 for d in range(rank)])


def _point(body: Body, node: Node, point: Value, dtype: str, scale: Value, x: Value) -> Value | None:
    """Return zero points in a shape that broadcasts with ``x``; beside one scale there is one."""
    number, scales = body.cast(point, dtype), shape_of(scale)
    if scales is not None and math.prod(scales) == 1 and not node.attrs.get("block_size", 0):
        return body.reshape(number, [])
    return _spread(body, node, number, x)


def _blocked(body: Body, node: Node, x: Value) -> tuple[Value, tuple[int, ...] | None] | None:
    """Return ``x`` with an axis of its own for the elements of a block, and its shape to go back to.

    Where the last block is shorter than the others, that is ``x`` itself.
    """
    size, shape = int(node.attrs.get("block_size", 0)), shape_of(x)
    if not size:
        return x, None
    if not shape:
        return None
    axis = int(node.attrs.get("axis", 1)) % len(shape)
    if shape[axis] % size:
        return x, None
    return body.reshape(x, [*shape[:axis], shape[axis] // size, size, *shape[axis + 1 :]]), shape


def quantize(body: Body, node: Node, operands: Sequence[Value | None]) -> Value | None:
    """Add a QuantizeLinear; None for types and shapes that are not covered."""
    x, scale, point = operands[:3]
    dtype, precision = dtype_of(node.output), _precision(node)
    if x is None or dtype_of(x) not in REALS | {"int32"} or dtype not in INTEGERS | SMALL_FLOATS:
        return None
    if scale is None or precision not in REALS:
        return None
    blocked = _blocked(body, node, x)
    if blocked is None:
        return None
    steps = _spread(body, node, body.cast(scale, "float32"), x)
    zero = None if point is None else _point(body, node, point, "float32", scale, x)
    if steps is None or (zero is None and point is not None):
        return None
    ratio = body("Div", body.cast(blocked[0], "float32"), steps)
    ratio = body.cast(body.cast(ratio, precision), "float32")
    if dtype in SMALL_FLOATS:
        result = body.stored_float(ratio, zero, dtype, int(node.attrs.get("saturate", 1)))
    else:  # NaN becomes the least number
        least = body("Where", body("IsNaN", ratio), body.const(np.float32(-np.inf)), ratio)
        result = body.stored(least, zero, dtype)
    return result if blocked[1] is None else body.reshape(result, blocked[1])


def _precision(node: Node) -> str:
    """Return the type that quotients are rounded to."""
    if given := int(node.attrs.get("precision", 0)):
        return DTYPE_BY_NUMBER[given]
    own = dtype_of(node.inputs[1])
    return own if node.version >= _OF_SCALE and own in REALS else "float32"


def dequantize(body: Body, node: Node, operands: Sequence[Value | None]) -> Value | None:
    """Add a DequantizeLinear; None for types and shapes that are not covered."""
    x, scale, point = operands[:3]
    if x is None or dtype_of(x) not in INTEGERS | SMALL_FLOATS | {"int32"}:
        return None
    if scale is None or dtype_of(node.output) not in REALS:
        return None
    blocked = _blocked(body, node, x)
    if blocked is None:
        return None
    steps = _spread(body, node, body.cast(scale, "float32"), x)
    computed = "int32" if dtype_of(x) == "int32" else "float32"  # which does not hold all of the former
    zero = None if point is None else _point(body, node, point, computed, scale, x)
    if steps is None or (zero is None and point is not None):
        return None
    real = body.cast(blocked[0], computed)
    if zero is not None:
        real = body("Sub", real, zero)
    real = body.cast(body("Mul", body.cast(real, "float32"), steps), dtype_of(node.output))
    return real if blocked[1] is None else body.reshape(real, blocked[1])
