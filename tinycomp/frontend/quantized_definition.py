"""What operators on quantised numbers compute, in operators that ONNX has beside them; ONNX gives them no function.

The definitions serve where scales, zero points or weights are known only at run time, and where numbers are such that
few targets have a kernel of their own: integers of part of a byte, small floats, halves, one scale per block. They give
the same bits as the rules in ``docs/quantised-layers.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from tinycomp.frontend.definition_body import BYTES, FLOAT8, Body, Definition, dtype_of, shape_of
from tinycomp.frontend.linear_definition import dequantize, is_rare, quantize
from tinycomp.ir.graph import Node, Value

EXACT_TERMS = 256
"""So many products of two differences of 8-bit numbers have a sum that float32 holds exactly."""
_LONGEST = 1 << 20
"""Sums of more products than these would be defined in too many parts."""


def _is_special(node: Node) -> bool:
    """Tell whether parameters are not constant, which is a target's own affair, or numbers are such as few know."""
    return any(v is not None and not v.is_const for v in node.inputs[1:]) or is_rare(node)


def _difference(body: Body, x: Value, point: Value | None, shape: Sequence[int]) -> Value:
    """Return stored numbers less their zero points in float32, which is exact."""
    real = body.cast(x, "float32")
    return real if point is None else body("Sub", real, body.reshape(body.cast(point, "float32"), shape))


def _sums(body: Body, a: Value, b: Value) -> Value:
    """Return the product of matrices of whole numbers in int32, in parts whose sums are exact in float32."""
    shapes = shape_of(a), shape_of(b)
    assert shapes[0] is not None
    assert shapes[1] is not None
    terms, axes = shapes[0][-1], (len(shapes[0]) - 1, max(len(shapes[1]) - 2, 0))
    total: Value | None = None
    for start in range(0, terms, EXACT_TERMS):
        parts = [a, b]
        if terms > EXACT_TERMS:
            ends = [body.const(np.array([n], np.int64)) for n in (start, min(start + EXACT_TERMS, terms))]
            parts = [
                body("Slice", v, *ends, body.const(np.array([axis], np.int64)))
                for v, axis in zip((a, b), axes, strict=True)
            ]
        part = body.cast(body("MatMul", *parts), "int32")
        total = part if total is None else body("Add", total, part)
    return body.cast(body("MatMul", a, b), "int32") if total is None else total


def _matmul_integer(body: Body, node: Node, operands: Sequence[Value | None]) -> Value | None:
    a, b, a_point, b_point = operands[:4]
    if a is None or b is None or not {dtype_of(a), dtype_of(b)} <= BYTES:
        return None
    return _product(body, (a, a_point), (b, b_point))


def _product(body: Body, left: tuple[Value, Value | None], right: tuple[Value, Value | None]) -> Value | None:
    """Return the int32 product of 8-bit matrices; zero points may be per row of the left, per column of the right."""
    shapes = [shape_of(left[0]), shape_of(right[0])]
    if None in shapes:
        return None
    terms = []
    for (value, point), shape, per in zip((left, right), shapes, ([-1, 1], [-1]), strict=True):
        assert shape is not None
        point_shape = shape_of(point)
        if shape[-1] > _LONGEST and shape is shapes[0]:
            return None
        if point is not None and (point_shape is None or len(point_shape) > 1):
            return None
        one = point_shape is None or math.prod(point_shape) == 1
        terms.append(_difference(body, value, point, [] if one or len(shape) < 2 else per))
    return _sums(body, *terms)


def _conv_integer(body: Body, node: Node, operands: Sequence[Value | None]) -> Value | None:
    return _convolution(body, node, operands, (0, 1, 2, 3))


def _convolution(body: Body, node: Node, operands: Sequence[Value | None], places: Sequence[int]) -> Value | None:
    """Return the int32 sums of a convolution, whose data, weight and their zero points are these operands.

    With constant weights, what a zero point of the weights that comes in at run time contributes is subtracted.
    """
    x, w, *points = (operands[place] for place in places)
    filters, (_, weight, _, w_known) = shape_of(w), map(node.const, places)
    if x is None or w is None or not filters or not {dtype_of(x), dtype_of(w)} <= BYTES:
        return None
    x_point, w_point = (v and body.reshape(v, shape) for v, shape in zip(points, ([], [-1]), strict=True))
    per_filter = [-1, *[1] * (len(filters) - 2)]
    if weight is None:
        w = _difference(body, w, w_point, [*per_filter, 1])
        return _in_parts(body, node, _difference(body, x, x_point, []), w, filters)
    if w_point is None or w_known is not None:
        # ConvInteger itself has no simpler definition.
        return None if node.op == "ConvInteger" else body("ConvInteger", x, w, x_point, w_point, **node.attrs)
    zero, ones = body.reshape(body.cast(w_point, "int32"), per_filter), body.const(np.ones(filters, np.uint8))
    own, shared = (body("ConvInteger", x, factor, x_point, **node.attrs) for factor in (w, ones))
    return body("Sub", own, body("Mul", zero, shared))


def _in_parts(body: Body, node: Node, x: Value, w: Value, filters: Sequence[int]) -> Value | None:
    """Return a convolution of whole numbers in int32, in parts of the channels whose sums are exact in float32."""
    at_once, group = EXACT_TERMS // max(math.prod(filters[2:]), 1), int(node.attrs.get("group", 1))
    if not at_once or math.prod(filters[1:]) > _LONGEST:
        return None
    total: Value | None = None
    for channels in np.split(np.arange(filters[1]), range(at_once, filters[1], at_once)):
        of_all = (np.arange(group)[:, None] * filters[1] + channels).reshape(-1)
        factors = (body("Gather", v, body.const(own), axis=1) for v, own in ((x, of_all), (w, channels)))
        part = body.cast(body("Conv", *((x, w) if len(channels) == filters[1] else factors), **node.attrs), "int32")
        total = part if total is None else body("Add", total, part)
    return total


def _qlinear(body: Body, node: Node, operands: Sequence[Value | None], sums: Value | None) -> Value | None:
    """Return int32 sums as stored numbers; scales are those of a QLinearConv or QLinearMatMul."""
    scales = [operands[i] for i in (1, 4, 6)]
    shapes = [shape_of(v) for v in scales]
    dtype, rank = dtype_of(node.output), 0 if sums is None else sums.rank or 0
    if sums is None or None in shapes or dtype not in BYTES | FLOAT8:
        return None
    if math.prod(shapes[0] or ()) != 1 or math.prod(shapes[2] or ()) != 1 or len(shapes[1] or ()) > 1:
        return None
    x, w, y = (body.reshape(body.cast(v, "float32"), [-1] if v is scales[1] else []) for v in scales if v is not None)
    ratio = body("Div", body("Mul", x, w), y)
    behind = rank - 2 if node.op == "QLinearConv" else 0
    ratio = body.reshape(ratio, [-1, *[1] * behind])
    point = operands[7]
    zero = None if point is None else body.reshape(body.cast(point, "float32"), [])
    scaled = body("Mul", body.cast(sums, "float32"), ratio)
    return body.stored_float(scaled, zero, dtype, 1) if dtype in FLOAT8 else body.stored(scaled, zero, dtype)


def _qlinear_conv(body: Body, node: Node, operands: Sequence[Value | None]) -> Value | None:
    sums = _convolution(body, node, operands, (0, 3, 2, 5))
    bias = operands[8]
    if sums is not None and bias is not None:
        sums = body("Add", sums, body.reshape(bias, [-1, *[1] * ((sums.rank or 2) - 2)]))
    return _qlinear(body, node, operands, sums)


def _qlinear_matmul(body: Body, node: Node, operands: Sequence[Value | None]) -> Value | None:
    kinds = {dtype_of(operands[0]), dtype_of(operands[3])}
    if kinds <= FLOAT8:
        return _qlinear(body, node, operands, _real_product(body, operands))
    if not kinds <= BYTES:
        return None
    return _qlinear(body, node, operands, body("MatMulInteger", *(operands[i] for i in (0, 3, 2, 5))))


def _real_product(body: Body, operands: Sequence[Value | None]) -> Value | None:
    """Return the product of two matrices of small floats, each of which has one zero point."""
    factors = []
    for x, point in ((operands[0], operands[2]), (operands[3], operands[5])):
        if x is None or math.prod(shape_of(point) or ()) != 1:
            return None
        factors.append(_difference(body, x, point, []))
    return body("MatMul", *factors)


def _dynamic_quantize(body: Body, node: Node, operands: Sequence[Value | None]) -> Sequence[Value] | None:
    """Define it by the range of the data and zero; data that are all 0 have a scale of 1."""
    x = operands[0]
    if x is None:
        return None
    zero, one = body.float32(0), body.float32(1)
    low = body("Min", body("ReduceMin", x, keepdims=0), zero)
    span = body("Sub", body("Max", body("ReduceMax", x, keepdims=0), zero), low)
    scale = body("Where", body("Equal", span, zero), one, body("Div", span, body.float32(255)))
    point = body("Clip", body("Round", body("Div", body("Neg", low), scale)), zero, body.float32(255))
    stored = body.cast(point, "uint8")
    results = (body("QuantizeLinear", x, scale, stored), scale, stored)
    return [value for value, result in zip(results, node.outputs, strict=False) if result.name]


_BY_OPERATOR: Mapping[str, Callable[[Body, Node, Sequence[Value | None]], Value | None]] = MappingProxyType({
    "ConvInteger": _conv_integer,
    "DequantizeLinear": dequantize,
    "MatMulInteger": _matmul_integer,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "QuantizeLinear": quantize,
})  # fmt: skip
DEFINITIONS = MappingProxyType(
    {op: Definition(define, _is_special) for op, define in _BY_OPERATOR.items()}
    | {"DynamicQuantizeLinear": Definition(_dynamic_quantize)}
)
