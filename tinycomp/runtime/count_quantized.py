"""How much the kernels for quantised numbers have to do, see :mod:`tinycomp.runtime.work`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping

from tinycomp.runtime.count import DIMS, TYPE_BYTES, CallParams, Count
from tinycomp.runtime.program import ALGORITHMS

_WINOGRAD_2 = 3
"""Its number in :data:`ALGORITHMS`."""


def _factor_bytes(p: CallParams) -> int:
    """Bytes of what requantises one channel: a float, or a multiplier and a shift."""
    return 8 if p.rule else 4


def _quantized(p: CallParams, macs: int, y: int, x: int, weights: int, channels: int) -> Count:
    """A product of 8-bit numbers, from the elements of its operands."""
    sizes = (y * TYPE_BYTES[p.type], x, weights * TYPE_BYTES[p.weight_type])
    return Count(2 * macs, (*sizes, channels * 4, channels * _factor_bytes(p)))


def _qgemm(p: CallParams) -> Count:
    return _quantized(p, p.m * p.n * p.k, p.m * p.n, p.m * p.k, p.k * p.n, p.n)


def _qconv(p: CallParams) -> Count:
    pixels = p.batch * p.out_height * p.out_width
    weights = p.out_channels * (p.channels // max(p.groups, 1)) * p.kernel_height * p.kernel_width
    read = p.batch * p.height * p.width * p.channels
    count = _quantized(p, pixels * weights, pixels * p.out_channels, read, weights, p.out_channels)
    return dataclasses.replace(count, algorithm=ALGORITHMS.get(p.algorithm, ""))


def _qwinograd(p: CallParams) -> Count:
    """F(2x2, 3x3): 16 products of channels for every tile of 2x2 pixels; its transforms are not counted."""
    tiles = p.batch * math.ceil(p.out_height / 2) * math.ceil(p.out_width / 2)
    return dataclasses.replace(
        _qconv(p), done=32 * tiles * p.channels * p.out_channels, algorithm=ALGORITHMS[_WINOGRAD_2]
    )


def _qdepthwise(p: CallParams) -> Count:
    pixels, weights = p.batch * p.out_height * p.out_width, p.channels * p.kernel_height * p.kernel_width
    read = p.batch * p.height * p.width * p.channels
    return _quantized(p, pixels * weights, pixels * p.channels, read, weights, p.channels)


def _qmatmul(p: CallParams) -> Count:
    batches = {x: p.distinct({"batch0": f"{x}_batch0", "batch1": f"{x}_batch1"}) for x in "xw"}
    batch = p.batch0 * p.batch1
    sizes = (batch * p.m * p.n * TYPE_BYTES[p.type], batches["x"] * p.m * p.k, batches["w"] * p.k * p.n)
    small = (1, p.w_zeros, p.n * 4, p.factors * _factor_bytes(p))
    return Count(2 * batch * p.m * p.n * p.k, (*sizes, *small))


def _gemm_dequant(p: CallParams) -> Count:
    blocks = math.ceil(p.k / p.block) if p.block else min(p.k, 1)
    sizes = (p.m * p.n * 4, p.m * p.k * 4, p.n * p.k * p.bits // 8, p.n * blocks * 4, p.n * blocks, p.n * 4)
    return Count(2 * p.m * p.n * p.k, sizes)


def _qlookup(p: CallParams) -> Count:
    elements = p.rows * p.columns
    return Count(0, (elements * p.element_size, elements, 256 * p.element_size))


def _qbinary(p: CallParams) -> Count:
    """Two operands become numbers, one operation, and the way back: six operations per element."""
    read = tuple(p.distinct({f"size{i}": f"{x}_stride{i}" for i in DIMS}) for x in "ab")
    return Count(6 * p.volume, (p.volume, *read))


def _qmaxpool(p: CallParams) -> Count:
    out = p.batch * p.out_height * p.out_width * p.channels
    return Count(out * p.kernel_height * p.kernel_width, (out, p.batch * p.height * p.width * p.channels))


QUANTIZED: Mapping[str, Callable[[CallParams], Count]] = {
    "qconv2d": _qconv,
    "qconv2d_winograd": _qwinograd,
    "qgemm": _qgemm,
    "qdwconv2d": _qdepthwise,
    "qmatmul": _qmatmul,
    "gemm_dequant_f32": _gemm_dequant,
    "qlookup": _qlookup,
    "qbinary": _qbinary,
    "qmaxpool2d": _qmaxpool,
}
