"""QLinearConv, QLinearMatMul, ConvInteger and MatMulInteger on the C target; convolutions with constant weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tinycomp.ir.graph import Node, Value
from tinycomp.ir.types import tensor
from tinycomp.ops.numeric import Array
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.rewrite import reject
from tinycomp.targets.c.codegen.emitter import Emitter
from tinycomp.targets.c.codegen.rules import LoweringRules, known_rank
from tinycomp.targets.c.ops.conv import window_of
from tinycomp.targets.c.ops.matmul import batches_fit
from tinycomp.targets.c.quantized.products import Layer, emit_conv, emit_dense, factors_fit
from tinycomp.targets.c.quantized.run_time_products import RunTimeProduct, emit_matmul
from tinycomp.targets.common.checks import Verdict, all_of, constant, first, operand, ranks
from tinycomp.targets.common.quantized.patterns import EIGHT_BITS
from tinycomp.targets.common.quantized.reading import Requantization, largest_sum, without_zero_point

FAMILY = LoweringRules()
_QLINEAR = {"x": 0, "x_scale": 1, "x_point": 2, "w": 3, "w_scale": 4, "w_point": 5, "y_scale": 6, "y_point": 7, "b": 8}
_INTEGER = {"x": 0, "w": 1, "x_point": 2, "w_point": 3}
_PLACES = {"QLinearConv": _QLINEAR, "QLinearMatMul": _QLINEAR, "ConvInteger": _INTEGER, "MatMulInteger": _INTEGER}
"""Where each operator has what."""


def _value(node: Node, name: str) -> Value | None:
    index = _PLACES[node.op].get(name)
    return None if index is None else operand(node, index)


def _array(node: Node, name: str) -> Array | None:
    value = _value(node, name)
    return None if value is None else value.const


def layer_of(node: Node) -> Layer:
    """Read one of the four operators, whose operands but for the data are constant."""
    weight, point = _array(node, "w"), _array(node, "w_point")
    assert weight is not None, node
    if node.op.endswith("MatMul") or node.op.startswith("MatMul"):
        weight = weight.T
    per_channel = (-1, *[1] * (weight.ndim - 1))
    weight = without_zero_point(weight, np.zeros(1, np.int16) if point is None else point.reshape(per_channel))
    bias, offset = _array(node, "b"), _array(node, "x_point")
    factors, to, ratios = None, None, None
    if "y_scale" in _PLACES[node.op]:
        to = _requantization(node)
        factors = np.array(np.broadcast_to(to.factors(_steps(node)), (len(weight),)))
        ratios = _steps(node) / np.float64(to.scale)
    return Layer(
        first(node),
        node.output,
        0 if offset is None else int(offset.reshape(())),
        weight,
        None if bias is None or not bias.any() else bias,
        factors,
        to,
        ratios,
    )


def _steps(node: Node) -> Array:
    """What a step of the sums is worth."""
    scales = [_array(node, name) for name in ("x_scale", "w_scale")]
    assert scales[0] is not None
    assert scales[1] is not None
    return scales[0].astype(np.float64).reshape(-1) * scales[1].astype(np.float64).reshape(-1)


def _requantization(node: Node) -> Requantization:
    scale, point = _array(node, "y_scale"), _array(node, "y_point")
    assert scale is not None
    assert point is not None
    info = np.iinfo(point.dtype)
    return Requantization(np.float32(scale.item()), int(point.item()), info.min, info.max, point.dtype.name)


def _one_each(node: Node) -> Verdict:
    """Whether data and result have one scale, and all scales are float32."""
    for name in ("x_scale", "y_scale", "x_point", "y_point", "w_scale"):
        array = _array(node, name)
        if array is None:
            continue
        if name != "w_scale" and array.size != 1:
            return reject(f"{array.size} numbers as {name}; data and result have one scale")
        if name.endswith("scale") and array.dtype != np.float32:
            return reject(f"scales of dtype {array.dtype}")
    return True


def _weights_fit(node: Node) -> Verdict:
    """Whether the weight is one that the kernels take, and no sum can leave int32."""
    weight, point = _array(node, "w"), _array(node, "w_point")
    assert weight is not None
    matrix = "Conv" not in node.op
    if matrix and weight.ndim != 2:
        return reject(f"a weight of {weight.ndim} dimensions")
    channels = weight.shape[1 if matrix else 0]
    for name in ("w_point", "w_scale"):
        array = _array(node, name)
        if array is not None and array.size not in (1, channels):
            return reject(f"{array.size} numbers as {name} for {channels} channels")
    assert point is None or point.dtype == weight.dtype
    layer = layer_of(node)
    largest = largest_sum(layer.weight, np.zeros(1, np.int32) if layer.bias is None else layer.bias)
    if largest >= 2**31:
        return reject(f"sums may reach {largest}, which overflows the int32 accumulator")
    return layer.factors is None or factors_fit(layer.factors)


def _bytes(node: Node) -> Verdict:
    """Whether data and weight are 8-bit numbers."""
    for name in ("x", "w"):
        value = _value(node, name)
        if value is not None and tensor(value.type).dtype not in EIGHT_BITS:
            return reject(f'"{value.name}" is {value.type}, not of 8 bits')
    return True


_qlinear = all_of(known_rank, _bytes, constant(*range(1, 9)), _one_each, _weights_fit)
_integer = all_of(known_rank, _bytes, constant(1, 2, 3), _one_each, _weights_fit)


def _convolves(node: Node) -> Verdict:
    return (_qlinear if node.op == "QLinearConv" else _integer)(node)


def _multiplies(node: Node) -> Verdict:
    if _has_constant_matrix(node):
        return (_qlinear if node.op == "QLinearMatMul" else _integer)(node)
    return _at_run_time(node)


def _has_constant_matrix(node: Node) -> bool:
    """Whether the weight of a product is packed at compile time; its zero points are constants, too."""
    weight, point = _array(node, "w"), _value(node, "w_point")
    return weight is not None and weight.ndim == 2 and (point is None or point.is_const)


def _points_fit(node: Node) -> Verdict:
    """Whether there is one zero point of the data, and one of the weight or one per column."""
    for name in ("x", "w"):
        point = _value(node, f"{name}_point")
        if point is None:
            continue
        shape, factor = tensor(point.type).shape, _value(node, name)
        assert factor is not None
        columns = (tensor(factor.type).shape or (None,))[-1]
        several = name == "w" and shape == (columns,) and isinstance(columns, int) and tensor(factor.type).rank != 1
        one = shape is not None and all(d == 1 for d in shape)
        if not (one or several):
            return reject(f'"{point.name}" is {point.type}, not one zero point')
    return True


def _factors_positive(node: Node) -> Verdict:
    """Whether the scales of a QLinearMatMul are those that the kernel takes: one, or one per column of the weight."""
    if "y_scale" not in _PLACES[node.op]:
        return True
    scale, weight = _array(node, "w_scale"), _value(node, "w")
    assert scale is not None
    assert weight is not None
    columns = (tensor(weight.type).shape or (None,))[-1]
    if scale.size != 1 and (scale.ndim != 1 or scale.size != columns):
        return reject(f"{scale.size} numbers as w_scale for {columns} columns")
    return factors_fit(_requantization(node).factors(_steps(node)))


def _batched(node: Node) -> Verdict:
    return batches_fit(_value(node, "x"), _value(node, "w"))


def _scales_known(node: Node) -> Verdict:
    return constant(1, 4, 6, 7)(node) if node.op == "QLinearMatMul" else True


_at_run_time = all_of(known_rank, _bytes, _scales_known, _one_each, _points_fit, _batched, _factors_positive)


@FAMILY.lower(
    "QLinearConv", "ConvInteger",
    check=all_of(ranks(3, 4), _convolves), layout=LayoutRule.CHANNELS_LAST, unsigned=True, either=True,
)  # fmt: skip
def convolution(emit: Emitter, node: Node) -> None:
    """Emit a convolution of 8-bit images."""
    layer = layer_of(node)
    window = window_of(node, first(node), layer.weight.shape[2:])
    emit_conv(emit, node, layer, window, int(node.attrs.get("group", 1)))


@FAMILY.lower(
    "QLinearMatMul", "MatMulInteger",
    check=_multiplies, layout=LayoutRule.ROW_MAJOR, unsigned=True, either=True,
)  # fmt: skip
def product(emit: Emitter, node: Node) -> None:
    """Emit a matrix product of 8-bit rows."""
    if _has_constant_matrix(node):
        emit_dense(emit, node, layer_of(node))
        return
    x, w = _value(node, "x"), _value(node, "w")
    assert x is not None
    assert w is not None
    points = _value(node, "x_point"), _value(node, "w_point")
    count = 1 if points[1] is None else tensor(points[1].type).size()
    found = RunTimeProduct(x, w, node.output, points, point_count=count)
    if node.op == "QLinearMatMul":
        to, steps = _requantization(node), _steps(node)
        found = replace(found, ratios=steps / np.float64(to.scale), factors=to.factors(steps), to=to)
    emit_matmul(emit, node, found)
