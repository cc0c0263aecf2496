"""Integer ranges, and products of 8-bit integers by way of BLAS."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tinycomp.ops.numeric import Array

_SMALL = frozenset(np.dtype(t) for t in (ml_dtypes.int2, ml_dtypes.uint2, ml_dtypes.int4, ml_dtypes.uint4))

# float32 holds every integer up to 2**24; a product of two 8-bit values less their zero points stays below 2**16.
_EXACT_FLOAT32_TERMS = 1 << 8


def integer_range(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return the least and the greatest value of an integer type, 2-bit and 4-bit types included."""
    info: Any = ml_dtypes.iinfo(dtype) if dtype in _SMALL else np.iinfo(dtype)  # type: ignore[no-untyped-call]
    return int(info.min), int(info.max)


def exact_float(terms: int) -> np.dtype[Any]:
    """Return the fastest float type in which a sum of ``terms`` products of offset 8-bit integers is exact.

    float32 for short sums, else float64, which is exact up to 2**37 terms. BLAS has no integer product, and numpy's
    own integer ``matmul`` is an order of magnitude slower.
    """
    return np.dtype(np.float32 if terms <= _EXACT_FLOAT32_TERMS else np.float64)


def to_int32(x: Array) -> Array:
    """Convert integers held in a float array to int32, wrapping as an int32 accumulator does."""
    return x.astype(np.int64).astype(np.int32)


def minus_zero_point(x: Array, zero_point: Array | None, dtype: np.dtype[Any], axis: int | None = None) -> Array:
    """Return ``x - zero_point`` in ``dtype``; a 1-d zero point with several entries runs along ``axis``."""
    wide = x.astype(dtype)
    if zero_point is None:
        return wide
    point = zero_point.astype(dtype)
    if point.size == 1:
        return np.asarray(wide - point.reshape(()))
    if point.ndim == 1 and axis is not None:
        shape = [1] * x.ndim
        shape[axis] = point.size
        point = point.reshape(shape)
    return np.asarray(wide - point)
