"""Operators whose output size depends on values: OneHot (by its depth), Compress, NonZero, Unique."""

from __future__ import annotations

import numpy as np

from tinycomp.errors import ExecutionError
from tinycomp.memory.budget import reserve
from tinycomp.ops.numeric import Array, compute_dtype, fix_axis, scalar_int
from tinycomp.ops.registry import OpFamily

FAMILY = OpFamily("selection")


@FAMILY.op("OneHot")
def one_hot(indices: Array, depth: Array, values: Array, *, axis: int = -1) -> Array:
    """``values[1]`` where a new axis of ``depth`` elements meets the index, else ``values[0]``.

    Indices out of [-depth, depth-1] give a row of ``values[0]`` only, as ONNX says.

    Raises:
        ExecutionError: If the depth is negative.
    """
    size = scalar_int(depth)
    if size < 0:
        raise ExecutionError("negative depth", where="OneHot", expected="0 or more", found=str(size))
    fixed = fix_axis(axis, indices.ndim + 1, "OneHot")
    reserve((indices.size, size), max(values.itemsize, 8), "OneHot")
    whole = indices.astype(np.int64)
    wrapped = np.expand_dims(np.where(whole < 0, whole + size, whole), fixed)
    classes = np.arange(size).reshape((-1,) + (1,) * (indices.ndim - fixed))
    return np.where(wrapped == classes, values[1:2].reshape(()), values[0:1].reshape(()))


@FAMILY.op("Compress")
def compress(x: Array, condition: Array, *, axis: int | None = None) -> Array:
    """The slices along ``axis`` (or the elements in row-major order) whose condition holds.

    Raises:
        ExecutionError: If a condition that holds lies beyond the axis.
    """
    source = x.reshape(-1) if axis is None else x
    fixed = 0 if axis is None else fix_axis(axis, x.ndim, "Compress")
    chosen = np.flatnonzero(condition)
    if chosen.size and chosen[-1] >= source.shape[fixed]:
        raise ExecutionError(
            "index out of bounds", where="Compress", expected=f"no more than {source.shape[fixed]} conditions",
            found=str(condition.size),
        )  # fmt: skip
    return source.take(chosen, fixed)


@FAMILY.op("NonZero")
def non_zero(x: Array) -> Array:
    """The coordinates of the elements other than zero, one column per element."""
    if x.dtype == object:
        x = x.astype(np.str_) != ""
    wide = x.astype(compute_dtype(x.dtype), copy=False)
    return np.stack(np.nonzero(wide)).astype(np.int64) if x.ndim else np.zeros((0, int(bool(wide))), np.int64)


@FAMILY.op("Unique")
def unique(x: Array, *, axis: int | None = None, sorted: int = 1) -> tuple[Array, Array, Array, Array]:  # noqa: A002
    """Distinct elements (or slices along ``axis``), the first index of each, the inverse map, and the counts."""
    wide = x.astype(compute_dtype(x.dtype), copy=False)
    fixed = None if axis is None else fix_axis(axis, x.ndim, "Unique")
    text = x.astype(np.str_) if x.dtype == object else wide
    values, first, inverse, counts = np.unique(text, True, True, True, axis=fixed, equal_nan=False)
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(order.size)
        first, counts, inverse = first[order], counts[order], rank[inverse]
        values = values[order] if fixed is None else values.take(order, fixed)
    return values.astype(x.dtype), first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)
