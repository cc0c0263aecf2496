"""ConvInteger and MatMulInteger, whose results are int32 sums, on the C target.

QLinearConv and QLinearMatMul come in as the quantised layers that they stand for, or as such sums and what follows.
"""

from __future__ import annotations

import numpy as np

from tinycomp.ir.graph import Node, Value
from tinycomp.ir.types import EIGHT_BITS, tensor
from tinycomp.ops import factors, zero_points
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.quantized.reading import IntegerProduct, without_zero_point
from tinycomp.rewrite import reject
from tinycomp.targets.c.codegen.emitter import Emitter
from tinycomp.targets.c.codegen.rules import LoweringRules, known_rank
from tinycomp.targets.c.ops.conv import window_of
from tinycomp.targets.c.quantized.products import emit_conv, emit_dense
from tinycomp.targets.c.quantized.run_time_products import emit_matmul
from tinycomp.targets.common.checks import Verdict, all_of, constant, ranks

FAMILY = LoweringRules()


def _integers_of(node: Node) -> IntegerProduct:
    """Read a node with constant weights; a zero point of the data that comes in at run time counts as 0."""
    weight, offset, point = node.const(1), node.const(2), node.const(3)
    assert weight is not None, node
    if node.op == "MatMulInteger":
        weight = weight.T
    per_channel = (-1, *[1] * (weight.ndim - 1))
    weight = without_zero_point(weight, np.zeros(1, np.int16) if point is None else point.reshape(per_channel))
    zero_point = 0 if offset is None else int(offset.reshape(()))
    return IntegerProduct(weight, np.zeros(len(weight), np.int64), np.ones(1), zero_point)


def _weights_fit(node: Node) -> Verdict:
    """Tell whether the weight is one that the kernels take, and no sum can leave int32."""
    weight, offset, point = node.const(1), node.optional_operand(2), node.const(3)
    assert weight is not None
    if offset is not None and (offset.shape is None or any(size != 1 for size in offset.shape)):
        return reject(f'"{offset.name}" is {offset.type}, not one zero point')
    matrix = node.op == "MatMulInteger"
    if matrix and weight.ndim != 2:
        return reject(f"a weight of {weight.ndim} dimensions")
    channels = weight.shape[1 if matrix else 0]
    if point is not None and point.size not in (1, channels):
        return reject(f"{point.size} zero points of the weight for {channels} channels")
    largest = _integers_of(node).largest_sum
    return largest < 2**31 or reject(f"sums may reach {largest}, which overflows the int32 accumulator")


def _eight_bits(node: Node) -> Verdict:
    for value in map(node.operand, factors(node)):
        if value.dtype not in EIGHT_BITS:
            return reject(f'"{value.name}" is {value.type}, not of 8 bits')
    return True


_packed = all_of(known_rank, _eight_bits, constant(1, 3), _weights_fit)


def _given_point(node: Node) -> Value | None:
    """Return the zero point of the data that comes in at run time, if it does."""
    point = node.optional_operand(2)
    return None if point is None or point.is_const else point


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


@FAMILY.lower(
    "ConvInteger", check=all_of(ranks(3, 4), _packed), layout=LayoutRule.CHANNELS_LAST, unsigned=True, either=True
)
def convolution(emit: Emitter, node: Node) -> None:
    """Emit a convolution of 8-bit images."""
    integers = _integers_of(node)
    window = window_of(node, node.operand(0), integers.weight.shape[2:])
    groups = int(node.attrs.get("group", 1))
    emit_conv(emit, node, node.operand(0), integers, window, groups, zero_point=_given_point(node))


@FAMILY.lower("MatMulInteger", check=_multiplies, layout=LayoutRule.ROW_MAJOR, unsigned=True, either=True)
def product(emit: Emitter, node: Node) -> None:
    """Emit a matrix product of 8-bit rows."""
    if _has_constant_matrix(node):
        emit_dense(emit, node, node.operand(0), _integers_of(node), zero_point=_given_point(node))
    else:
        of_w = node.optional_operand(3)
        points, count = (node.optional_operand(2), of_w), 1 if of_w is None else tensor(of_w.type).size()
        emit_matmul(emit, node, (node.operand(0), node.operand(1)), points, point_count=count)
