"""What operators on quantised numbers compute, in operators that ONNX has beside them; ONNX gives them no function.

The definitions serve where scales, zero points or weights are known only at run time. They give the same bits as the
rules in ``docs/quantization.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from onnx import TensorProto, defs

from tinycomp.errors import ModelError
from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.types import numpy_dtype, tensor
from tinycomp.ops.integers import integer_range
from tinycomp.ops.numeric import Array
from tinycomp.ops.spatial import make_window
from tinycomp.ops.typing import infer_node_types

_CODES = {
    "int8": TensorProto.INT8, "uint8": TensorProto.UINT8, "int16": TensorProto.INT16, "uint16": TensorProto.UINT16,
    "int32": TensorProto.INT32, "float16": TensorProto.FLOAT16, "float32": TensorProto.FLOAT,
}  # fmt: skip
_BYTES = frozenset({"int8", "uint8"})
_PARTS = frozenset({"int2", "int4", "uint2", "uint4"})
_NARROW = _BYTES | _PARTS | {"int16", "uint16"}
_TINY_FLOATS = frozenset({"float4_e2m1fn", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"})
EXACT_TERMS = 256
"""So many products of two differences of 8-bit numbers have a sum that float32 holds exactly."""


@dataclass
class _Body:
    """A graph that grows by one operator at a time."""

    graph: Graph

    def __call__(self, op: str, *operands: Value | None, **attrs: Any) -> Value:
        return self.graph.add(op, operands, attrs).output

    def const(self, array: Any) -> Value:
        return self.graph.add_const(np.asarray(array))

    def cast(self, x: Value, dtype: str) -> Value:
        return x if tensor(x.type).dtype == dtype else self("Cast", x, to=int(_CODES[dtype]))

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        return self("Reshape", x, self.const(np.array(shape, np.int64)))

    def stored(self, x: Value, zero: Value | None, dtype: str) -> Value:
        """Return real multiples of a scale as stored numbers: rounded, moved by a real zero point, saturated."""
        rounded = self("Round", x)
        if zero is not None:
            rounded = self("Add", rounded, zero)
        ends = [self.const(np.float32(v)) for v in integer_range(numpy_dtype(dtype))]
        clipped = self("Clip", rounded, *ends)
        if dtype in _CODES:
            return self.cast(clipped, dtype)
        return self("QuantizeLinear", clipped, self.const(np.float32(1)), self.const(np.zeros((), numpy_dtype(dtype))))

    def real(self, x: Value) -> Value:
        """Return stored numbers of any type as float32."""
        if _dtype(x) in _CODES:
            return self.cast(x, "float32")
        return self("DequantizeLinear", x, self.const(np.float32(1)))


def defines(node: Node) -> bool:
    """Whether there is a definition of the node's operator here; constant parameters are a target's own affair."""
    if node.domain or node.op not in _DEFINITIONS:
        return False
    return any(v is not None and not v.is_const for v in node.inputs[1:])


def quantized_definition(node: Node) -> Graph | None:
    """Return what the node computes; one input for every operand that is there, one output.

    Returns:
        None where types or shapes are none that the definition covers.
    """
    body = _Body(Graph(node.op, infer=infer_node_types, opsets={"": defs.onnx_opset_version()}))
    operands = [
        None if v is None else body.graph.add_input(body.graph.fresh(v.name or "x"), v.type) for v in node.inputs
    ]
    operands += [None] * (_MOST_OPERANDS - len(operands))
    try:
        result = _DEFINITIONS[node.op](body, node, operands)
    except ModelError:
        return None
    if result is None:
        return None
    body.graph.set_outputs([result])
    return body.graph


def _shape(value: Value | None) -> tuple[int, ...] | None:
    return None if value is None else tensor(value.type).static_shape


def _dtype(value: Value | None) -> str:
    return "" if value is None else tensor(value.type).dtype


def _spread(body: _Body, node: Node, parameter: Value | None, x: Value) -> Value | None:
    """Return scales or zero points in a shape that broadcasts with ``x``: one, one per slice, or one per block."""
    shape, rank = _shape(parameter), tensor(x.type).rank
    if parameter is None or shape is None or rank is None:
        return None
    if math.prod(shape) == 1 and not node.attrs.get("block_size", 0):
        return body.reshape(parameter, [])
    axis = int(node.attrs.get("axis", 1)) % max(rank, 1)
    if node.attrs.get("block_size", 0):
        return body.reshape(parameter, [*shape[: axis + 1], 1, *shape[axis + 1 :]])
    return body.reshape(parameter, [-1 if d == axis else 1 for d in range(rank)])


def _blocked(body: _Body, node: Node, x: Value) -> tuple[Value, tuple[int, ...] | None] | None:
    """Return ``x`` with an axis of its own for the elements of a block, and its shape to go back to."""
    size, shape = int(node.attrs.get("block_size", 0)), _shape(x)
    if not size:
        return x, None
    if shape is None:
        return None
    axis = int(node.attrs.get("axis", 1)) % len(shape)
    if shape[axis] % size:
        return None
    return body.reshape(x, [*shape[:axis], shape[axis] // size, size, *shape[axis + 1 :]]), shape


def _quantize(body: _Body, node: Node, operands: Sequence[Value | None]) -> Value | None:
    x, scale, point = operands[:3]
    dtype = _dtype(node.output)
    precise = node.attrs.get("precision", 0) in (0, TensorProto.FLOAT)
    if x is None or {_dtype(x), _dtype(scale)} != {"float32"} or dtype not in _NARROW or not precise:
        return None
    blocked = _blocked(body, node, x)
    steps = _spread(body, node, scale, x)
    if blocked is None or steps is None:
        return None
    zero = None if point is None else _spread(body, node, body.real(point), x)
    result = body.stored(body("Div", blocked[0], steps), zero, dtype)
    return result if blocked[1] is None else body.reshape(result, blocked[1])


def _dequantize(body: _Body, node: Node, operands: Sequence[Value | None]) -> Value | None:
    x, scale, point = operands[:3]
    if x is None or _dtype(x) not in _NARROW | _TINY_FLOATS | {"int32"}:
        return None
    if scale is None or _dtype(node.output) != _dtype(scale) or _dtype(scale) not in ("float16", "float32"):
        return None
    blocked = _blocked(body, node, x)
    steps = _spread(body, node, scale, x)
    if blocked is None or steps is None:
        return None
    whole = _dtype(x) == "int32"  # float32 does not hold it
    zero = None if point is None else _spread(body, node, point if whole else body.real(point), x)
    real = blocked[0] if whole else body.real(blocked[0])
    if zero is not None:
        real = body("Sub", real, zero)
    real = body.cast(real, "float32")
    real = body.cast(body("Mul", real, body.cast(steps, "float32")), _dtype(scale))
    return real if blocked[1] is None else body.reshape(real, blocked[1])


def _difference(body: _Body, x: Value, point: Value | None, shape: Sequence[int]) -> Value:
    """Return stored numbers less their zero points in float32, which is exact."""
    real = body.cast(x, "float32")
    return real if point is None else body("Sub", real, body.reshape(body.cast(point, "float32"), shape))


def _sums(body: _Body, a: Value, b: Value) -> Value:
    """Return the product of matrices of whole numbers in int32, in parts whose sums are exact in float32."""
    shapes = _shape(a), _shape(b)
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


def _matmul_integer(body: _Body, node: Node, operands: Sequence[Value | None]) -> Value | None:
    a, b, a_point, b_point = operands[:4]
    if a is None or b is None or not {_dtype(a), _dtype(b)} <= _BYTES:
        return None
    weight, weight_point = node.inputs[1], node.inputs[3] if len(node.inputs) > 3 else None
    known = weight is not None and weight.const is not None and weight.const.ndim == 2
    if known and a_point is not None and (weight_point is None or weight_point.const is not None):
        assert weight is not None
        assert weight.const is not None
        whole = weight.const.astype(np.int32)
        if weight_point is not None and weight_point.const is not None:
            whole -= weight_point.const.astype(np.int32)
        return _shifted(body, (a, a_point), (b, b_point), whole)
    return _product(body, (a, a_point), (b, b_point))


def _shifted(body: _Body, left: tuple[Value, Value], right: tuple[Value, Value | None], weight: Array) -> Value | None:
    """Return the product with a constant weight: without the zero point of the data, less what that contributes."""
    shape = _shape(left[1])
    if shape is None or math.prod(shape) != 1:
        return _product(body, left, right)
    sums = body("MatMulInteger", left[0], right[0], *([None, right[1]] if right[1] is not None else []))
    offset = body("Mul", body.cast(body.reshape(left[1], []), "int32"), body.const(weight.sum(axis=0, dtype=np.int32)))
    return body("Sub", sums, offset)


def _product(body: _Body, left: tuple[Value, Value | None], right: tuple[Value, Value | None]) -> Value | None:
    """Return the int32 product of 8-bit matrices; zero points may be per row of the left, per column of the right."""
    shapes = [_shape(left[0]), _shape(right[0])]
    if None in shapes:
        return None
    terms = []
    for (value, point), shape, per in zip((left, right), shapes, ([-1, 1], [-1]), strict=True):
        assert shape is not None
        point_shape = _shape(point)
        if point is not None and (point_shape is None or len(point_shape) > 1):
            return None
        one = point_shape is None or math.prod(point_shape) == 1
        terms.append(_difference(body, value, point, [] if one or len(shape) < 2 else per))
    return _sums(body, *terms)


def _conv_integer(body: _Body, node: Node, operands: Sequence[Value | None]) -> Value | None:
    x, w, x_point, w_point = operands[:4]
    if _knows_weight(node) and x is not None and w is not None and x_point is not None:
        return _shifted_conv(body, node, (x, x_point), (w, w_point))
    shape, filters = _shape(x), _shape(w)
    if x is None or w is None or shape is None or filters is None or not {_dtype(x), _dtype(w)} <= _BYTES:
        return None
    keys = ("strides", "dilations", "pads", "auto_pad")
    geometry = {k: node.attrs[k] for k in keys if k in node.attrs}
    window = make_window(node.op, shape[2:], filters[2:], **geometry)
    group = int(node.attrs.get("group", 1))
    around = [0, 0, *window.before, 0, 0, *window.after]
    data = body("Pad", _difference(body, x, x_point, []), body.const(np.array(around, np.int64)))
    one = math.prod(_shape(w_point) or ()) == 1
    weight = _difference(body, w, w_point, [] if one else [-1, *[1] * (len(filters) - 1)])
    pixels = math.prod(window.output)
    taps = [
        body.reshape(_tap(body, data, window, tap), [shape[0], group, filters[1], 1, pixels])
        for tap in np.ndindex(*window.kernel)
    ]
    columns = body.reshape(body("Concat", *taps, axis=3), [shape[0], group, filters[1] * len(taps), pixels])
    rows = body.reshape(weight, [1, group, filters[0] // group, filters[1] * len(taps)])
    return body.reshape(_sums(body, rows, columns), [shape[0], filters[0], *window.output])


def _knows_weight(node: Node) -> bool:
    """Whether the weight of a ConvInteger and its zero point are constants."""
    return all(v is None or v.is_const for v in (node.inputs[1], *node.inputs[3:4]))


def _shifted_conv(
    body: _Body, node: Node, data: tuple[Value, Value], weight: tuple[Value, Value | None]
) -> Value | None:
    """Return the convolution without the zero point of the data, less what that contributes where there is data."""
    sizes, point = tensor(data[0].type).shape, _shape(data[1])
    if sizes is None or not all(isinstance(d, int) for d in sizes[1:]) or math.prod(point or ()) != 1:
        return None
    points = [None, weight[1]] if weight[1] is not None else []
    ones = body.const(np.ones((1, *sizes[1:]), np.uint8))
    sums, share = (body("ConvInteger", x, weight[0], *points, **node.attrs) for x in (data[0], ones))
    return body("Sub", sums, body("Mul", body.cast(body.reshape(data[1], []), "int32"), share))


def _tap(body: _Body, data: Value, window: Any, tap: Sequence[int]) -> Value:
    """Return what one tap of a convolution reads of padded data, pixel by pixel."""
    starts = [t * d for t, d in zip(tap, window.dilations, strict=True)]
    steps = list(window.strides)
    ends = [s + (n - 1) * by + 1 for s, n, by in zip(starts, window.output, steps, strict=True)]
    axes = list(range(2, 2 + len(starts)))
    return body("Slice", data, *(body.const(np.array(v, np.int64)) for v in (starts, ends, axes, steps)))


def _qlinear(body: _Body, node: Node, operands: Sequence[Value | None], sums: Value | None) -> Value | None:
    """Return int32 sums as stored numbers; scales are those of a QLinearConv or QLinearMatMul."""
    scales = [operands[i] for i in (1, 4, 6)]
    shapes = [_shape(v) for v in scales]
    dtype, rank = _dtype(node.output), 0 if sums is None else tensor(sums.type).rank or 0
    if sums is None or None in shapes or dtype not in _BYTES:
        return None
    if math.prod(shapes[0] or ()) != 1 or math.prod(shapes[2] or ()) != 1 or len(shapes[1] or ()) > 1:
        return None
    x, w, y = (body.reshape(body.cast(v, "float32"), [-1] if v is scales[1] else []) for v in scales if v is not None)
    ratio = body("Div", body("Mul", x, w), y)
    behind = rank - 2 if node.op == "QLinearConv" else 0
    ratio = body.reshape(ratio, [-1, *[1] * behind])
    point = operands[7]
    zero = None if point is None else body.reshape(body.real(point), [])
    return body.stored(body("Mul", body.cast(sums, "float32"), ratio), zero, dtype)


def _qlinear_conv(body: _Body, node: Node, operands: Sequence[Value | None]) -> Value | None:
    sums = _conv_integer(body, node, [operands[i] for i in (0, 3, 2, 5)])
    bias = operands[8]
    if sums is not None and bias is not None:
        sums = body("Add", sums, body.reshape(bias, [-1, *[1] * ((tensor(sums.type).rank or 2) - 2)]))
    return _qlinear(body, node, operands, sums)


def _qlinear_matmul(body: _Body, node: Node, operands: Sequence[Value | None]) -> Value | None:
    if not {_dtype(operands[0]), _dtype(operands[3])} <= _BYTES:
        return None
    return _qlinear(body, node, operands, body("MatMulInteger", *(operands[i] for i in (0, 3, 2, 5))))


_MOST_OPERANDS = 9
_Define = Callable[[_Body, Node, Sequence[Value | None]], Value | None]
_DEFINITIONS: Mapping[str, _Define] = MappingProxyType({
    "ConvInteger": _conv_integer,
    "DequantizeLinear": _dequantize,
    "MatMulInteger": _matmul_integer,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "QuantizeLinear": _quantize,
})  # fmt: skip
