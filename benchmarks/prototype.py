"""A library to race the Winograd kernel against: a shared object with two functions, loaded from a folder.

``libk.so``, compiled for AVX-512, must offer, for float32 NHWC images and tiles of 4x4::

    void wino4_pack(w[3][3][c][n], long c, long n, int vectors, packed)
    void wino4(x, long height, long width, long c, packed, long n, int vectors, bias, residual, int activation,
               y, zeros, scratch, long tiles_of_a_block, times, long begin, long end)
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tinycomp.runtime.native.processor import cpu_features

NAME = "prototype"
LIBRARY, FEATURE = "libk.so", "avx512f"
_TILE_PRODUCTS = 36
_ALIGNMENT = 64


class Prototype:
    """The library in a folder.

    Raises:
        FileNotFoundError: If there is none.
        RuntimeError: If this processor does not run it.
    """

    def __init__(self, folder: Path) -> None:
        file = folder.resolve() / LIBRARY
        if not file.exists():
            raise FileNotFoundError(f"{folder} holds no {LIBRARY}: compile the prototype there")
        if FEATURE not in cpu_features():
            raise RuntimeError(f"{file} is compiled for {FEATURE}, which this processor lacks")
        self._library = ctypes.CDLL(str(file))

    def winograd(self, size: int, channels: int) -> Callable[[], None]:
        """A 3x3 convolution with bias that keeps a square image and its channels."""
        tiles = ((size + 3) // 4) ** 2
        block = min(48, tiles)
        vectors = 4 if channels >= 64 else 2
        filters = _aligned(9 * channels * channels, 1.0 / (9 * channels))
        packed = _aligned(_TILE_PRODUCTS * channels * channels)
        x, y = _aligned(size * size * channels, 1.0), _aligned(size * size * channels)
        bias, zeros = _aligned(channels), _aligned(4096)
        scratch = _aligned(2 * _TILE_PRODUCTS * (block * channels + 80))
        long, pointer = ctypes.c_long, ctypes.c_void_p
        arrays = (x, filters, packed, bias, y, zeros, scratch)
        at_x, at_filters, at_packed, at_bias, at_y, at_zeros, at_scratch = (pointer(a.ctypes.data) for a in arrays)
        self._library.wino4_pack(at_filters, long(channels), long(channels), vectors, at_packed)
        side, depth = long(size), long(channels)
        arguments = (
            at_x, side, side, depth, at_packed, depth, vectors, at_bias, None, 0,
            at_y, at_zeros, at_scratch, long(block), None, long(0), long(-1),
        )  # fmt: skip

        def run() -> None:
            assert arrays
            self._library.wino4(*arguments)

        return run


def _aligned(count: int, value: float = 0.0) -> NDArray[np.float32]:
    raw = np.empty(4 * count + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    array = raw[start : start + 4 * count].view(np.float32)
    array[...] = value
    return array
