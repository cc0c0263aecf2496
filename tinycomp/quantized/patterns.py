"""Patterns of quantised layers, and checks of their matches; a target makes composites of those it runs.

A layer reads 8-bit values behind a DequantizeLinear, and gives 8-bit values behind a QuantizeLinear or floats. The
functions named ``q…`` are whole layers; their parameters are the free values of the match. A target may add checks of
its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tinycomp.ir.graph import Node
from tinycomp.ir.types import EIGHT_BITS
from tinycomp.ops.numeric import Array
from tinycomp.quantized.layer import QuantizedLayer, padding
from tinycomp.quantized.reading import (
    PRODUCTS,
    channel_axis,
    constant,
    first,
    scale_of,
    source,
)
from tinycomp.remark import Remark, Verdict, reject
from tinycomp.rewrite import Match, P, ValuePattern

WEIGHTS = EIGHT_BITS | {"int4", "uint4"}


def positive(scale: Array) -> bool | Remark:
    """Tell whether scales are positive and finite."""
    return bool(((scale > 0) & (scale < float("inf"))).all()) or reject(
        f"scales are positive numbers, got {scale.min()}"
    )


def finite(scale: Array) -> bool | Remark:
    """Tell whether scales are finite, whatever their signs, as those of weights may be."""
    return bool(np.isfinite(scale).all()) or reject("a scale is not finite")


def one(scale: Array) -> bool | Remark:
    """Tell whether there is one scale, as activations have it."""
    return positive(scale) if scale.size == 1 else reject(f"activations have one scale, got {scale.size}")


def _whole_number(zero_point: Array) -> bool | Remark:
    if zero_point.size == 1 and float(zero_point.item()).is_integer():
        return True
    return reject(f"a zero point is one whole number, got {zero_point}")


def dequantized(x: ValuePattern) -> ValuePattern:
    """Match ``x``, 8-bit values with one scale, as floats."""
    return P.DequantizeLinear(x.where(dtype=EIGHT_BITS), P.const(one), P.const | P.absent).where(dtype="float32")


def dequantized_const(w: ValuePattern) -> ValuePattern:
    """Match ``w``, a constant with one scale or one per slice of an axis, as floats."""
    scaled = P.DequantizeLinear(w, P.const(positive), P.const | P.absent, block_size={0, None})
    return scaled.where(dtype="float32")


def quantized(y: ValuePattern) -> ValuePattern:
    """Match floats as 8-bit values with one scale."""
    return P.QuantizeLinear(y, P.const(one), P.const | P.absent).where(dtype=EIGHT_BITS)


def clamped(y: ValuePattern) -> ValuePattern:
    """Match ``y``, maybe behind an activation that is a clamp: rounding is monotone, so the clamp may follow it."""
    return P.Relu(y) | P.Clip(y, P.const | P.absent, P.const | P.absent) | y


def padded(x: ValuePattern) -> ValuePattern:
    """Match ``x``, maybe with zeros around it."""
    widths = P.const(lambda pads: bool((pads >= 0).all()) or reject(f"negative pads {pads}"))
    return P.Pad(x, widths, P.const(0) | P.absent, mode="constant") | x


def product(x: ValuePattern, w: ValuePattern, b: ValuePattern) -> ValuePattern:
    """Match a matrix product with an optional bias."""
    return P.Gemm(x, w, b | P.absent, alpha=1.0, beta=1.0, transA=0) | P.optional(P.Add, P.MatMul(x, w), b)


def conv_sums(x: ValuePattern, w: ValuePattern, b: ValuePattern) -> ValuePattern:
    """Match a convolution of 8-bit values by constants, with float results."""
    weight, bias = dequantized_const(w.where(dtype=WEIGHTS)), dequantized_const(b) | b | P.absent
    return P.Conv(padded(dequantized(x.where(const=False))), weight, bias)


def dense_sums(x: ValuePattern, w: ValuePattern, b: ValuePattern) -> ValuePattern:
    """Match a matrix product of 8-bit values and constants, with float results."""
    data, weight = dequantized(x.where(const=False)), dequantized_const(w.where(dtype=WEIGHTS))
    return product(data, weight, dequantized_const(b) | b)


def qconv(x: ValuePattern, w: ValuePattern = P.const, b: ValuePattern = P.const) -> ValuePattern:
    """Match an 8-bit convolution with padding, bias and activation."""
    return quantized(clamped(conv_sums(x, w, b)))


def qdense(x: ValuePattern, w: ValuePattern = P.const, b: ValuePattern = P.const) -> ValuePattern:
    """Match an 8-bit matrix product with bias and activation."""
    return quantized(clamped(dense_sums(x, w, b)))


def qconv_real(x: ValuePattern, w: ValuePattern = P.const, b: ValuePattern = P.const) -> ValuePattern:
    """Match a convolution of 8-bit values whose result stays float."""
    return conv_sums(x, w, b)


def qdense_real(x: ValuePattern, w: ValuePattern = P.const, b: ValuePattern = P.const) -> ValuePattern:
    """Match a matrix product of 8-bit values whose result stays float."""
    return dense_sums(x, w, b)


def run_time_sums(a: ValuePattern, b: ValuePattern) -> ValuePattern:
    """Match a matrix product of 8-bit values, both with one scale, with float results."""
    return P.MatMul(dequantized(a), dequantized(b))


def qmatmul(a: ValuePattern, b: ValuePattern) -> ValuePattern:
    """Match an 8-bit matrix product of two activations."""
    return quantized(clamped(run_time_sums(a, b)))


def qmatmul_real(a: ValuePattern, b: ValuePattern) -> ValuePattern:
    """Match a matrix product of two 8-bit activations whose result stays float."""
    return run_time_sums(a, b)


def scaled(y: ValuePattern) -> ValuePattern:
    """Match sums as 8-bit values, spelled out: multiplied, rounded, moved by a zero point, clipped, converted."""
    rounded = P.Round(P.Mul(y, P.const))
    moved = P.Add(rounded, P.const(_whole_number)) | rounded
    clipped = P.Clip(moved, P.const, P.const)
    return P.Cast(clipped).where(dtype=EIGHT_BITS)


def qconv_scaled(x: ValuePattern, w: ValuePattern = P.const, b: ValuePattern = P.const) -> ValuePattern:
    """Match a convolution of 8-bit whole numbers, requantised by explicit arithmetic."""
    return scaled(conv_sums(x, w, b))


def qdense_scaled(x: ValuePattern, w: ValuePattern = P.const, b: ValuePattern = P.const) -> ValuePattern:
    """Match a matrix product of 8-bit whole numbers, requantised by explicit arithmetic."""
    return scaled(dense_sums(x, w, b))


def qadd(a: ValuePattern, b: ValuePattern) -> ValuePattern:
    """Match the sum of two 8-bit tensors with an activation."""
    return quantized(clamped(P.Add(dequantized(a), dequantized(b))))


def qbinary(a: ValuePattern, b: ValuePattern) -> ValuePattern:
    """Match the sum, difference or product of two 8-bit tensors with an activation."""
    return quantized(clamped(P.op({"Add", "Sub", "Mul"}, dequantized(a), dequantized(b))))


def qavgpool(x: ValuePattern) -> ValuePattern:
    """Match a mean of 8-bit values."""
    return quantized(P.AveragePool(dequantized(x), ceil_mode={0, None}) | P.GlobalAveragePool(dequantized(x)))


def qargmax(x: ValuePattern) -> ValuePattern:
    """Match the place of the greatest of 8-bit values, the first of equal ones: scales are positive and change none."""
    return P.ArgMax(dequantized(x.where(const=False)), select_last_index={0, None})


def qsoftmax(x: ValuePattern) -> ValuePattern:
    """Match the shares of 8-bit values along an axis."""
    return quantized(P.Softmax(dequantized(x.where(const=False))))


def qresize(x: ValuePattern) -> ValuePattern:
    """Match the linear interpolation of 8-bit images."""
    data = dequantized(x.where(const=False))
    return quantized(P.Resize(data, P.const | P.absent, P.const | P.absent, P.const | P.absent, mode="linear"))


def qtable(x: ValuePattern) -> ValuePattern:
    """Match a function of the elements of one 8-bit tensor: element-wise operators in a chain, or side by side."""
    real = dequantized(x.where(const=False))
    branches = P.dominates(real, P.elementwise, P.elementwise(P.any))
    return quantized(P.repeat(P.elementwise, real) | branches | real)


def equal_counts(match: Match) -> Verdict:
    """Tell whether every sum of a mean is divided by the same count, which padding would change."""
    pool = first(match.matched, "AveragePool", "GlobalAveragePool")
    padded = any(pool.attrs.get("pads", ())) or pool.attrs.get("auto_pad", "NOTSET").startswith("SAME")
    return not padded or reject("every sum is divided by the same count, but padding makes the counts differ")


def bias_per_channel(match: Match) -> Verdict:
    """Tell whether the weight is a matrix or a filter, and the bias ``b``, if any, has one entry per channel."""
    node, shape = first(match.matched, *PRODUCTS), constant(match.w).shape
    if node.op != "Conv" and len(shape) != 2:
        return reject(f"a dense weight must be a matrix, got {len(shape)} dimensions")
    channels = shape[channel_axis(node)]
    fits = match.b is None or constant(match.b).shape in [(channels,), (1, channels)]
    if fits and match.b is not None and constant(match.b).dtype.kind == "f" and _counts(match):
        return reject("the sums are integers, but the bias is not")
    return fits or reject(f"the bias must have one entry per channel, got shape {list(constant(match.b).shape)}")


def _counts(match: Match) -> bool:
    """Tell whether sums are in steps of 1, so that a bias that is no whole number would be changed by rounding it."""
    product = first(match.matched, *PRODUCTS)
    sources = [source(v) for v in product.inputs[:2]]
    if any(n is None or n.op != "DequantizeLinear" or (scale_of(n) != 1).any() for n in sources):
        return False
    bias = constant(match.b)
    return bool((bias != np.rint(bias)).any())


def scaled_per_channel(match: Match) -> Verdict:
    """Tell whether scales and zero points of the weight lie along its output channels, if there are several."""
    layer = QuantizedLayer.of(match)
    assert layer.weight is not None
    axis = layer.weight.axis % constant(match.w).ndim
    if max(layer.weight.scale.size, layer.weight.zero_point.size) > 1 and axis != layer.channel_axis:
        return reject(f"weights have one scale per output channel, got one along axis {axis}")
    return True


def sums_fit(match: Match) -> Verdict:
    """Tell whether no sum can leave int32, whatever the data."""
    largest = QuantizedLayer.of(match).product.largest_sum
    return largest < 2**31 or reject(f"sums may reach {largest}, which overflows the int32 accumulator")


def spatial_pads(nodes: Sequence[Node], rank: int) -> list[int] | Remark:
    """Return what a Pad among ``nodes`` puts around the spatial axes, in the order of a convolution's ``pads``."""
    pad = next((n for n in nodes if n.op == "Pad"), None)
    if pad is None:
        return [0] * (2 * (rank - 2))
    widths = padding(pad)
    if len(widths) != 2 * rank or widths[:2].any() or widths[rank : rank + 2].any():
        return reject("a Pad of other than spatial axes")
    return [int(w) for w in (*widths[2:rank], *widths[rank + 2 :])]
