"""How much the kernels for quantised numbers have to do, see :mod:`tinycomp.runtime.work`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tinycomp.runtime.count import DIMS, TYPE_BYTES, CallParams, Count


def _factor_bytes(p: CallParams) -> int:
    """Bytes of what requantises one channel: a float, or a multiplier and a shift."""
    return 8 if p.rule else 4


def _quantised(p: CallParams, macs: int, y: int, x: int, weights: int, channels: int) -> Count:
    """A product of 8-bit numbers, from the elements of its operands."""
    sizes = (y * TYPE_BYTES[p.type], x, weights * TYPE_BYTES[p.weight_type])
    return Count(2 * macs, (*sizes, channels * 4, channels * _factor_bytes(p)))


def _qgemm(p: CallParams) -> Count:
    return _quantised(p, p.m * p.n * p.k, p.m * p.n, p.m * p.k, p.k * p.n, p.n)


def _qconv(p: CallParams) -> Count:
    pixels = p.batch * p.out_height * p.out_width
    weights = p.out_channels * (p.channels // max(p.groups, 1)) * p.kernel_height * p.kernel_width
    read = p.batch * p.height * p.width * p.channels
    return _quantised(p, pixels * weights, pixels * p.out_channels, read, weights, p.out_channels)


def _qdepthwise(p: CallParams) -> Count:
    pixels, weights = p.batch * p.out_height * p.out_width, p.channels * p.kernel_height * p.kernel_width
    read = p.batch * p.height * p.width * p.channels
    return _quantised(p, pixels * weights, pixels * p.channels, read, weights, p.channels)


def _qlookup(p: CallParams) -> Count:
    elements = p.rows * p.columns
    return Count(0, (elements * p.element_size, elements, 256 * p.element_size))


def _qbinary(p: CallParams) -> Count:
    """Two operands become numbers, one operation, and the way back: six operations per element."""
    read = tuple(p.distinct({f"size{i}": f"{x}_stride{i}" for i in DIMS}) for x in "ab")
    return Count(6 * p.volume, (p.volume, *read))


def _qpool(p: CallParams) -> Count:
    out = p.batch * p.out_height * p.out_width * p.channels
    return Count(out * p.kernel_height * p.kernel_width, (out, p.batch * p.height * p.width * p.channels))


QUANTISED: Mapping[str, Callable[[CallParams], Count]] = {
    "qconv2d": _qconv,
    "qgemm": _qgemm,
    "qdwconv2d": _qdepthwise,
    "qlookup": _qlookup,
    "qbinary": _qbinary,
    "qpool2d": _qpool,
}
