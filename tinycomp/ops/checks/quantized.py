"""Quantisation: scales above 0, and as many of them as the axis has elements."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tinycomp.ops.facts import Facts

_SCALES = {
    "DequantizeLinear": (1,),
    "QuantizeLinear": (1,),
    "QLinearConv": (1, 4, 6),
    "QLinearMatMul": (1, 4, 6),
}
"""Which operands are scales."""


def _positive_scales(facts: Facts) -> None:
    for index in _SCALES[facts.node.op]:
        scale = facts.const(index)
        if scale is None:
            continue
        numbers = scale.astype(np.float64)
        wrong = numbers[~(np.isfinite(numbers) & (numbers > 0))]
        if wrong.size:
            facts.fail(
                "a quantisation scale is not positive",
                expected="finite scales above 0",
                found=wrong.reshape(-1)[0],
                hint="Quantise the model again; a scale of 0 comes from a tensor that was 0 in all of the samples.",
            )


def _per_axis(facts: Facts) -> None:
    _positive_scales(facts)
    if facts.rank(1) == 1 and facts.dim(1, 0) != 1 and facts.node.version >= 13:
        axis = int(facts.attr("axis", 1))
        facts.require_axis(axis, facts.rank(0))
        if not facts.attr("block_size", 0):
            facts.require_size(1, 0, facts.dim(0, axis), "the scale")
    zero_point, scale = facts.sizes(2), facts.sizes(1)
    if zero_point is None or scale is None or math.prod(zero_point) == math.prod(scale) == 1:
        return
    if zero_point != scale:
        facts.fail("scale and zero point differ in shape", expected=f"{list(scale)}", found=list(zero_point))


CHECKS: dict[str, Callable[[Facts], None]] = {
    "DequantizeLinear": _per_axis,
    "QLinearConv": _positive_scales,
    "QLinearMatMul": _positive_scales,
    "QuantizeLinear": _per_axis,
}
