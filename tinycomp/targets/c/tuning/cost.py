"""The cost of a call: an analytic model of the kernels, for candidates without measurements.

Counted in processor cycles: multiplications at the peak of two fused multiply-adds per cycle, with what partial tiles
and vectors waste; the transforms of Winograd's algorithm; and the weights, which other layers have pushed out of the
nearer caches since the last run, once per block of rows. The constants were fitted to tuning logs of four models on one
AVX2 core. The number of threads is left out, so that it does not change the bits of a result. Only ratios matter;
:data:`CLOCK` makes seconds of them, so that they can stand beside measured ones.
"""

from __future__ import annotations

import math
from types import MappingProxyType

from tinycomp.records import dataclass
from tinycomp.runtime.native.processor import IsaShape

CLOCK = 3e9
"""Cycles per second."""

FLOAT, SHORT, BYTE = 4, 2, 1
"""Bytes of a float32, and of packed weights of 16 and of 8 bits."""

_FMAS = 2.0
"""Fused multiply-adds of vectors per cycle."""
_FMA_LATENCY = 4.0
"""Cycles until a sum can be added to again."""
_LOADS = 2.0
"""Vectors loaded per cycle."""
_FAR_RATE = 8.0
"""Bytes per cycle of weights that come from the last-level cache or from memory."""
_NEAR_RATE = 32.0
"""Bytes per cycle from the second-level cache."""
_ROW_POINTER = 2.2
"""Cycles to find the input of one kernel position of one output pixel."""
_TILE = 80.0
"""Cycles to begin and end a tile of the micro-kernel: sums from the bias, sums into the result."""
_TURNING = 0.75
"""Cycles to move a number from its place in a pixel to that in a plane, or back."""
_ROUNDING = 0.12
"""Cycles to round a number to bfloat16 and to store it."""
_ROWS_PER_PASS = 192
"""Rows of the left operand that share one pass over the weights."""
_CALL = 2000.0
"""Cycles to begin a call."""

_BYTE_STEP = MappingProxyType({8: 0.65, 16: 0.28})
"""How long a multiplication of 8-bit numbers takes, by the lanes of a vector; floats take 1. With 8 lanes, AVX2, most
numbers are multiplied as 16-bit ones (bytes would do for some weights); with 16 lanes there is VNNI."""
_PAIR_STEP = MappingProxyType({8: 0.65, 16: 0.55})
"""The same for numbers of 16 bits."""

TRANSFORMS = MappingProxyType({2: (36.0, 47.0), 4: (270.0, 127.0)})
"""Cycles to transform one vector of channels of one tile, input and output, by the side of the tile."""


@dataclass(frozen=True, slots=True)
class Processor:
    """What the estimates depend on.

    Attributes:
        shape: The vectors and panels of the instruction set.
        l2: Bytes of the second-level cache.
    """

    shape: IsaShape
    l2: int


def _padded(columns: int, lanes: int) -> int:
    return -(-columns // lanes) * lanes


def packed_bytes(depth: int, columns: int, lanes: int, size: int = FLOAT) -> int:
    """Return the bytes of a packed right operand whose numbers have ``size``."""
    return depth * _padded(columns, lanes) * size


def tile_cycles(rows: int, columns: int, on: Processor) -> float:
    """Return the cycles of the micro-kernel per unit of depth, for rows x columns of the output."""
    whole, rest = divmod(columns, on.shape.panel)
    panels = [(whole, on.shape.panel)] + [(1, rest)] * (rest > 0)
    return sum(count * _panel_cycles(rows, -(-width // on.shape.lanes)) for count, width in panels)


def _panel_cycles(rows: int, vectors: int) -> float:
    most = 6 if vectors > 1 else 9
    whole, rest = divmod(rows, most)
    return whole * _step(most, vectors) + (_step(rest, vectors) if rest else 0.0)


def _step(rows: int, vectors: int) -> float:
    """Return the cycles of one step along the depth in a tile: multiplying, loading, or waiting for sums bounds it."""
    return max(rows * vectors / _FMAS, (rows + vectors) / _LOADS, _FMA_LATENCY)


def _weights_cycles(weights: int, passes: int, on: Processor) -> float:
    """Return the cycles to read the weights once from afar and again for every further block of rows."""
    again = _NEAR_RATE if weights <= on.l2 // 2 else 2 * _FAR_RATE
    return weights / _FAR_RATE + (passes - 1) * weights / again


def product(
    rows: int, depth: int, columns: int, on: Processor, *, taps: int = 1, size: int = FLOAT, step: float = 1.0
) -> float:
    """Return the seconds of a product of rows x (taps * depth) with packed weights of (taps * depth) x columns.

    Weights have ``size`` bytes, and a multiplication takes ``step`` times as long as one of floats.
    """
    panels = -(-columns // on.shape.panel)
    work = tile_cycles(rows, columns, on) * step * taps * depth + -(-rows // 6) * panels * _TILE
    weights = packed_bytes(taps * depth, columns, on.shape.lanes, size)
    return _seconds(work, _weights_cycles(weights, max(1, rows // _ROWS_PER_PASS), on))


def direct(pixels: int, taps: int, depth: int, columns: int, groups: int, on: Processor) -> float:
    """Return the seconds of a convolution of groups as a product of windows: ``depth`` and ``columns`` of one group."""
    finding = pixels * taps * _ROW_POINTER / CLOCK
    return groups * (product(pixels, depth, columns, on, taps=taps) + finding)


def columns(pixels: int, taps: int, depth: int, filters: int, on: Processor) -> float:
    """Return the seconds of a convolution of few filters with columns in its vectors."""
    steps = pixels / on.shape.lanes * taps * depth
    turning = pixels * (depth + filters) * _TURNING
    return _seconds(steps * max(filters / _FMAS, 1 / _LOADS) + turning, 0.0)


def rounded_product(rows: int, taps: int, depth: int, columns: int, on: Processor) -> float:
    """Return the seconds of a product, or of a convolution in one group, of factors rounded to bfloat16.

    Pairs are multiplied as fast as floats, after the left factor, with all that its windows share, has been rounded.
    """
    pairs = taps * -(-depth // 2)
    finding = rows * taps * _ROW_POINTER if taps > 1 else 0.0
    rounding = 2 * rows * pairs * _ROUNDING
    return product(rows, pairs, columns, on) + (finding + rounding) / CLOCK


def rounded_winograd(out: int, tiles: int, channels: int, columns: int, on: Processor) -> float:
    """Return the seconds of a 3x3 convolution by F(out x out, 3x3) with products of factors rounded to bfloat16."""
    rounding = tiles * (out + 2) ** 2 * channels * _ROUNDING
    return winograd(out, tiles, channels, columns, on, pairs=True) + rounding / CLOCK


def winograd(out: int, tiles: int, channels: int, columns: int, on: Processor, *, pairs: bool = False) -> float:
    """Return the seconds of a 3x3 convolution by F(out x out, 3x3), whose products may be of pairs of channels."""
    products = (out + 2) ** 2
    words = -(-channels // 2) if pairs else channels
    into, back = TRANSFORMS[out]
    transforms = tiles * (math.ceil(channels / on.shape.lanes) * into + math.ceil(columns / on.shape.lanes) * back)
    patch = products * _padded(max(channels, 1), on.shape.lanes) * FLOAT
    block = max(24, min(48, on.l2 * 7 // 8 // patch))  # as the kernel chooses
    blocks = max(1, math.ceil(tiles / block))
    rows = math.ceil(tiles / blocks)
    tiles_of_product = math.ceil(rows / 6) * math.ceil(columns / on.shape.panel)
    work = blocks * products * (words * tile_cycles(rows, columns, on) + tiles_of_product * _TILE)
    weights = products * packed_bytes(words, columns, on.shape.lanes)
    return _seconds(work + transforms, _weights_cycles(weights, blocks, on))


def quantized_direct(pixels: int, taps: int, depth: int, columns: int, groups: int, on: Processor) -> float:
    """Return the seconds of a convolution of 8-bit numbers as a product of windows, sizes as for :func:`direct`."""
    step = _BYTE_STEP.get(on.shape.lanes, 1.0)
    return groups * product(pixels, depth, columns, on, taps=taps, size=BYTE, step=step)


def quantized_winograd(tiles: int, channels: int, columns: int, on: Processor) -> float:
    """Return the seconds of a 3x3 convolution of 8-bit numbers by F(2x2, 3x3), whose products are of 16-bit numbers."""
    lanes, step = on.shape.lanes, _PAIR_STEP.get(on.shape.lanes, 1.0)
    into, back = TRANSFORMS[2]
    transforms = tiles * (math.ceil(channels / (2 * lanes)) * into + math.ceil(columns / lanes) * back)
    one = product(tiles, channels, columns, on, size=SHORT, step=step)
    return 16 * one + (transforms - 15 * _CALL) / CLOCK


def _seconds(work: float, reading: float) -> float:
    """Return the sum of both times: waiting for weights hardly overlaps with the work, which needs them at once."""
    return (work + reading + _CALL) / CLOCK
