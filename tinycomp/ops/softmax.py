"""Softmax and its relatives: over one axis since opset 13, over all axes from ``axis`` on before.

ONNX defines Softmax and LogSoftmax as functions of simpler operators, so half precision is rounded to after every step.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tinycomp.ops.numeric import Array, compute_dtype, fix_axis, prod, quiet, rounder
from tinycomp.ops.registry import OpFamily

FAMILY = OpFamily("softmax")


def softmax_along(x: Array, axis: int) -> Array:
    """Return exp(x) over its sum along ``axis``, for an array of any shape and float type."""
    step, x, dtype = rounder(x.dtype), x.astype(compute_dtype(x.dtype), copy=False), x.dtype
    y = step(np.exp(step(x - x.max(axis=axis, keepdims=True, initial=-np.inf))))
    y /= step(y.sum(axis=axis, keepdims=True))
    return y.astype(dtype, copy=False)


def log_softmax_along(x: Array, axis: int) -> Array:
    """Return the logarithm of the softmax along ``axis`` without overflow."""
    step, x, dtype = rounder(x.dtype), x.astype(compute_dtype(x.dtype), copy=False), x.dtype
    y = step(x - x.max(axis=axis, keepdims=True, initial=-np.inf))
    y -= step(np.log(step(step(np.exp(y)).sum(axis=axis, keepdims=True))))
    return y.astype(dtype, copy=False)


def hardmax_along(x: Array, axis: int) -> Array:
    """Return 1 at the first maximum along ``axis`` and 0 elsewhere."""
    y = np.zeros_like(x)
    if x.size:
        np.put_along_axis(y, np.expand_dims(x.argmax(axis=axis), axis), 1, axis=axis)
    return y


def _flattened(function: Callable[[Array, int], Array], x: Array, axis: int, op: str) -> Array:
    # The old operators accept axis == rank, which makes every element a row of its own.
    split = axis if axis == x.ndim else fix_axis(axis, x.ndim, op)
    matrix = x.reshape(prod(x.shape[:split]), prod(x.shape[split:]))
    return function(matrix, 1).reshape(x.shape)


@FAMILY.op("Softmax")
@quiet
def softmax_1(x: Array, *, axis: int = 1) -> Array:
    """Softmax of the matrix whose rows are the axes before ``axis``."""
    return _flattened(softmax_along, x, axis, "Softmax")


@FAMILY.op("Softmax", since=13)
@quiet
def softmax(x: Array, *, axis: int = -1) -> Array:
    """Softmax along one axis."""
    return softmax_along(x, fix_axis(axis, x.ndim, "Softmax"))


@FAMILY.op("LogSoftmax")
@quiet
def log_softmax_1(x: Array, *, axis: int = 1) -> Array:
    """Logarithm of the softmax of the matrix whose rows are the axes before ``axis``."""
    return _flattened(log_softmax_along, x, axis, "LogSoftmax")


@FAMILY.op("LogSoftmax", since=13)
@quiet
def log_softmax(x: Array, *, axis: int = -1) -> Array:
    """Logarithm of the softmax along one axis."""
    return log_softmax_along(x, fix_axis(axis, x.ndim, "LogSoftmax"))


@FAMILY.op("Hardmax")
@quiet
def hardmax_1(x: Array, *, axis: int = 1) -> Array:
    """One-hot maximum of the matrix whose rows are the axes before ``axis``."""
    return _flattened(hardmax_along, x, axis, "Hardmax")


@FAMILY.op("Hardmax", since=13)
@quiet
def hardmax(x: Array, *, axis: int = -1) -> Array:
    """One-hot maximum along one axis."""
    return hardmax_along(x, fix_axis(axis, x.ndim, "Hardmax"))
