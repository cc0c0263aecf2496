"""ConvInteger and MatMulInteger, whose results are int32 sums, and QLinearMatMul of two matrices on the C target.

QLinearConv, and QLinearMatMul with a constant matrix, come in as the quantised layers that they stand for. A layer has
constant zero points and one scale per run-time matrix; QLinearMatMul may have zero points that come in at run time, and
one scale per column.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tinycomp.ir.graph import Node
from tinycomp.ir.types import EIGHT_BITS, tensor
from tinycomp.ops import factors, zero_points
from tinycomp.ops.numeric import Array
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.quantized.layers import factors_fit
from tinycomp.quantized.reading import Requantization, largest_sum, without_zero_point
from tinycomp.rewrite import reject
from tinycomp.targets.c.codegen.emitter import Emitter
from tinycomp.targets.c.codegen.rules import LoweringRules, known_rank
from tinycomp.targets.c.ops.conv import window_of
from tinycomp.targets.c.quantized.products import PackedProduct, emit_conv, emit_dense
from tinycomp.targets.c.quantized.run_time_products import RunTimeProduct, emit_matmul
from tinycomp.targets.common.checks import Verdict, all_of, constant, ranks

FAMILY = LoweringRules()


def _layer_of(node: Node) -> PackedProduct:
    """Read a node whose operands but for the data are constant."""
    weight, offset, point = node.const(1), node.const(2), node.const(3)
    assert weight is not None, node
    if node.op == "MatMulInteger":
        weight = weight.T
    per_channel = (-1, *[1] * (weight.ndim - 1))
    weight = without_zero_point(weight, np.zeros(1, np.int16) if point is None else point.reshape(per_channel))
    zero_point = 0 if offset is None else int(offset.reshape(()))
    return PackedProduct(node.operand(0), node.output, zero_point, weight, bias=None, factors=None, to=None)


def _weights_fit(node: Node) -> Verdict:
    """Tell whether the weight is one that the kernels take, and no sum can leave int32."""
    weight, offset, point = node.const(1), node.const(2), node.const(3)
    assert weight is not None
    if offset is not None and offset.size != 1:
        return reject(f"{offset.size} zero points of the data, which have one")
    matrix = node.op == "MatMulInteger"
    if matrix and weight.ndim != 2:
        return reject(f"a weight of {weight.ndim} dimensions")
    channels = weight.shape[1 if matrix else 0]
    if point is not None and point.size not in (1, channels):
        return reject(f"{point.size} zero points of the weight for {channels} channels")
    largest = largest_sum(_layer_of(node).weight, np.zeros(1, np.int32))
    return largest < 2**31 or reject(f"sums may reach {largest}, which overflows the int32 accumulator")


def _eight_bits(node: Node) -> Verdict:
    for value in map(node.operand, factors(node)):
        if value.dtype not in EIGHT_BITS:
            return reject(f'"{value.name}" is {value.type}, not of 8 bits')
    return True


_packed = all_of(known_rank, _eight_bits, constant(1, 2, 3), _weights_fit)


def _multiplies(node: Node) -> Verdict:
    return (_packed if _has_constant_matrix(node) else _at_run_time)(node)


def _has_constant_matrix(node: Node) -> bool:
    """Tell whether the weight of a product is packed at compile time; its zero points are constants, too."""
    weight, point = node.const(1), node.optional_operand(3)
    return weight is not None and weight.ndim == 2 and (point is None or point.is_const)


def _points_fit(node: Node) -> Verdict:
    """Tell whether there is one zero point of the data, and one of the weight or one per column."""
    for index, place in zero_points(node).items():
        point, factor = node.optional_operand(place), node.operand(index)
        if point is None:
            continue
        columns = (factor.shape or (None,))[-1]
        several = index > 0 and point.shape == (columns,) and isinstance(columns, int) and factor.rank != 1
        one = point.shape is not None and all(d == 1 for d in point.shape)
        if not (one or several):
            return reject(f'"{point.name}" is {point.type}, not one zero point')
    return True


_at_run_time = all_of(known_rank, _eight_bits, _points_fit)


def _is_no_layer(node: Node) -> Verdict:
    weight = node.operand(3)
    layer = weight.is_const and weight.rank == 2 and node.operand(5).is_const
    return not layer or reject("with a constant matrix it is a quantised layer, which composites take")


def _requantizes(node: Node) -> Verdict:
    """Tell whether scales are those that the kernel takes: float32, one, or one per column of the right factor."""
    for index in (1, 4, 6, 7):
        array = node.const(index)
        assert array is not None
        if index != 4 and array.size != 1:
            return reject(f"operand {index} has {array.size} elements; data and result have one scale")
        if index != 7 and array.dtype != np.float32:
            return reject(f"scales of dtype {array.dtype}")
    scale, columns = node.operand(4), (node.operand(3).shape or (None,))[-1]
    if scale.static_shape not in ((), (1,), (columns,)):
        return reject(f"{scale.static_shape} scales for {columns} columns")
    return factors_fit(_requantization(node).factors(_steps(node)))


def _steps(node: Node) -> Array:
    """Return what a step of the sums is worth, in float64."""
    x, w = node.const(1), node.const(4)
    assert x is not None
    assert w is not None
    return x.astype(np.float64).reshape(-1) * w.astype(np.float64).reshape(-1)


def _requantization(node: Node) -> Requantization:
    scale, point = node.const(6), node.const(7)
    assert scale is not None
    assert point is not None
    info = np.iinfo(point.dtype)
    return Requantization(np.float32(scale.item()), int(point.item()), info.min, info.max, point.dtype.name)


@FAMILY.lower(
    "ConvInteger", check=all_of(ranks(3, 4), _packed), layout=LayoutRule.CHANNELS_LAST, unsigned=True, either=True
)
def convolution(emit: Emitter, node: Node) -> None:
    """Emit a convolution of 8-bit images."""
    layer = _layer_of(node)
    window = window_of(node, layer.x, layer.weight.shape[2:])
    emit_conv(emit, node, layer, window, int(node.attrs.get("group", 1)))


@FAMILY.lower("MatMulInteger", check=_multiplies, layout=LayoutRule.ROW_MAJOR, unsigned=True, either=True)
def product(emit: Emitter, node: Node) -> None:
    """Emit a matrix product of 8-bit rows."""
    if _has_constant_matrix(node):
        emit_dense(emit, node, _layer_of(node))
    else:
        emit_matmul(emit, node, _run_time_product(node))


@FAMILY.lower(
    "QLinearMatMul",
    check=all_of(_is_no_layer, _at_run_time, constant(1, 4, 6, 7), _requantizes),
    layout=LayoutRule.ROW_MAJOR, unsigned=True, either=True,
)  # fmt: skip
def requantized_product(emit: Emitter, node: Node) -> None:
    """Emit a matrix product of 8-bit rows whose sums are requantised."""
    to, steps = _requantization(node), _steps(node)
    sums = _run_time_product(node)
    emit_matmul(emit, node, replace(sums, ratios=steps / np.float64(to.scale), factors=to.factors(steps), to=to))


def _run_time_product(node: Node) -> RunTimeProduct:
    places = zero_points(node)
    x, w = map(node.operand, places)
    of_x, of_w = map(node.optional_operand, places.values())
    count = 1 if of_w is None else tensor(of_w.type).size()
    return RunTimeProduct(x, w, node.output, (of_x, of_w), point_count=count)
