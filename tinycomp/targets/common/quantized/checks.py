"""Checks of quantised layers that targets share; all ask a match of the patterns."""

from __future__ import annotations

import numpy as np

from tinycomp.rewrite import Match, reject
from tinycomp.targets.common.checks import Verdict
from tinycomp.targets.common.quantized.reading import (
    PRODUCTS,
    IntegerProduct,
    channel_axis,
    constant,
    dequantizer,
    first,
    scale_of,
    source,
    zero_point_of,
)


def bias_per_channel(match: Match) -> Verdict:
    """Whether the weight is a matrix or a filter, and the bias ``b``, if there is one, has one entry per channel."""
    node, shape = first(match.matched, *PRODUCTS), constant(match.w).shape
    if node.op != "Conv" and len(shape) != 2:
        return reject(f"a dense weight must be a matrix, got {len(shape)} dimensions")
    channels = shape[channel_axis(node)]
    fits = match.b is None or constant(match.b).shape in [(channels,), (1, channels)]
    if fits and match.b is not None and constant(match.b).dtype.kind == "f" and _counts(match):
        return reject("the sums are whole numbers, but the bias is none")
    return fits or reject(f"the bias must have one entry per channel, got shape {list(constant(match.b).shape)}")


def _counts(match: Match) -> bool:
    """Whether sums are in steps of 1, so that a bias that is no whole number would be changed by rounding it."""
    product = first(match.matched, *PRODUCTS)
    sources = [source(v) for v in product.inputs[:2]]
    if any(n is None or n.op != "DequantizeLinear" or (scale_of(n) != 1).any() for n in sources):
        return False
    bias = constant(match.b)
    return bool((bias != np.rint(bias)).any())


def scaled_per_channel(match: Match) -> Verdict:
    """Whether scales and zero points of the weight lie along its output channels, if there are several."""
    product = first(match.matched, *PRODUCTS)
    weights = dequantizer(product.inputs[1])
    axis = weights.attrs.get("axis", 1) % constant(match.w).ndim
    if max(scale_of(weights).size, zero_point_of(weights).size) > 1 and axis != channel_axis(product):
        return reject(f"weights have one scale per output channel, got one along axis {axis}")
    return True


def sums_fit(match: Match) -> Verdict:
    """Whether no sum can leave int32, whatever the data."""
    largest = IntegerProduct.read(first(match.matched, *PRODUCTS), match.matched).largest_sum
    return largest < 2**31 or reject(f"sums may reach {largest}, which overflows the int32 accumulator")
