"""What kernels share: dtypes that numpy cannot compute in, integer products, axes, and errors of run-time values."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tinycomp.errors import ExecutionError
from tinycomp.lazy import LazyModule
from tinycomp.symbolic import Size, size

if TYPE_CHECKING:
    import ml_dtypes
else:
    ml_dtypes = LazyModule("ml_dtypes")

Array = npt.NDArray[Any]

_OF_NUMPY = ("float16", "float32", "float64")
_FLOAT32 = np.dtype(np.float32)
_INT32 = np.dtype(np.int32)
_SMALL = frozenset({"int2", "uint2", "int4", "uint4"})
_WIDE = dict.fromkeys(_SMALL, _INT32) | dict.fromkeys([
    "float16", "bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
    "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn",
], _FLOAT32)  # fmt: skip
"""What dtypes are computed in, by name, where that is not the dtype itself. Half precision is here because a formula
of several steps must round once, at its end, as a fused kernel does."""


@functools.lru_cache(maxsize=256)
def compute_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype that numpy computes ``dtype`` in: float32 for narrow floats, int32 for int2 and int4."""
    return _WIDE.get(dtype.name, dtype)


def rounder(dtype: np.dtype[Any]) -> Callable[[Array], Array]:
    """Return a function that rounds an array of :func:`compute_dtype` to the values that ``dtype`` has.

    For operators that ONNX defines as functions, whose every step gives a value of the operand's type.
    """
    wide = compute_dtype(dtype)
    return (lambda x: x) if wide == dtype else (lambda x: x.astype(dtype).astype(wide))


def is_float(dtype: np.dtype[Any]) -> bool:
    """Return whether ``dtype`` is a floating-point type, ml_dtypes' included."""
    return compute_dtype(dtype).kind == "f"


def widened(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Make a kernel of same-typed inputs work on every dtype.

    Inputs arrive in :func:`compute_dtype`, the first output is cast back to the dtype of the first input, and
    floating-point exceptions stay silent, since NaN and infinity are results in ONNX.
    """

    @functools.wraps(kernel)
    def run(*inputs: Array | None, **attrs: Any) -> Array:
        assert inputs[0] is not None
        dtype = inputs[0].dtype
        wide = compute_dtype(dtype)
        if wide is not dtype:
            inputs = tuple(x.astype(wide) if x is not None and x.dtype == dtype else x for x in inputs)
        with np.errstate(all="ignore"):
            return np.asarray(kernel(*inputs, **attrs)).astype(dtype, copy=False)

    return run


def quiet(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Run a kernel without numpy's floating-point warnings."""

    @functools.wraps(kernel)
    def run(*inputs: Any, **attrs: Any) -> Any:
        with np.errstate(all="ignore"):
            return kernel(*inputs, **attrs)

    return run


def scalar_int(x: Array) -> int:
    """Return the value of an integer tensor that holds one element, whatever its rank."""
    return int(x.reshape(-1)[0])


def ints(x: Array) -> list[int]:
    """Return the elements of a 1-d integer tensor as Python integers."""
    return [int(v) for v in x.reshape(-1)]


def fix_axis(axis: int, rank: int, where: str) -> int:
    """Return ``axis`` counted from the front.

    Raises:
        ExecutionError: If it does not lie in [-rank, rank-1].
    """
    if not -rank <= axis < rank:
        raise ExecutionError(
            "axis out of range", where=where, expected=f"an axis in [{-rank}, {rank - 1}]", found=str(axis)
        )
    return axis % rank


def fix_axes(axes: Iterable[int], rank: int, where: str) -> tuple[int, ...]:
    """Return ``axes`` counted from the front, in the order given.

    Raises:
        ExecutionError: If one is out of range or named twice.
    """
    fixed = tuple(fix_axis(int(axis), rank, where) for axis in axes)
    if len(set(fixed)) != len(fixed):
        raise ExecutionError("an axis is named twice", where=where, expected="distinct axes", found=str(list(fixed)))
    return fixed


def fix_indices(indices: Array, size: int, where: str) -> Array:
    """Return ``indices`` as int64 counted from the front of an axis of ``size`` elements.

    Raises:
        ExecutionError: If one does not lie in [-size, size-1].
    """
    wide = indices.astype(np.int64, copy=False)
    if wide.size:
        low, high = int(wide.min()), int(wide.max())
        if low < -size or high >= size:
            raise ExecutionError(
                "index out of bounds",
                where=where,
                expected=f"indices in [{-size}, {size - 1}]" if size else "no index, since the axis is empty",
                found=str(low if low < -size else high),
            )
        if low < 0:
            return np.where(wide < 0, wide + size, wide)
    return wide


def prod(dims: Sequence[Any]) -> int:
    """Return the number of elements of a shape, counting symbolic and unknown dimensions as 1."""
    total = 1
    for dim in dims:
        total *= dim if isinstance(dim, int) else 1
    return total


def node_shape(value: Any) -> tuple[Size, ...]:
    """Return the shape of an ir value with unknown dimensions as 1, and () for an unknown rank."""
    shape = getattr(getattr(value, "type", None), "shape", None)
    return tuple([1 if dim is None else size(dim) for dim in shape or ()])


# float32 holds every integer up to 2**24; a product of two 8-bit values less their zero points stays below 2**16.
_EXACT_FLOAT32_TERMS = 1 << 8


def integer_range(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return the least and the greatest value of an integer type, 2-bit and 4-bit types included."""
    info: Any = ml_dtypes.iinfo(dtype) if dtype.name in _SMALL else np.iinfo(dtype)  # type: ignore[no-untyped-call]
    return int(info.min), int(info.max)


def float_range(dtype: np.dtype[Any]) -> tuple[float, float]:
    """Return the least and the greatest finite value of a floating-point type, ml_dtypes' included."""
    info: Any = np.finfo(dtype) if dtype.name in _OF_NUMPY else ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]
    return float(info.min), float(info.max)


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
