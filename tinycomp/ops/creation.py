"""Operators that make tensors: Constant, ConstantOfShape, Range, EyeLike, and the random ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinycomp.errors import ExecutionError
from tinycomp.ir.graph import Node
from tinycomp.memory.budget import reserve
from tinycomp.ops.cast import DTYPE_NUMBERS, dtype_of_enum
from tinycomp.ops.contents import elements_of
from tinycomp.ops.facts import Facts, one_of
from tinycomp.ops.numeric import Array, compute_dtype, ints, is_float
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Sizes
from tinycomp.symbolic import if_zero, maximum

FAMILY = OpFamily("creation")
_FLOAT = 1  # TensorProto.FLOAT
_INT32 = 6  # TensorProto.INT32


@FAMILY.op("Constant", traits={"cheap"})
def constant(
    *,
    value: Array | None = None,
    sparse_value: Any = None,
    value_float: float | None = None,
    value_floats: Sequence[float] | None = None,
    value_int: int | None = None,
    value_ints: Sequence[int] | None = None,
    value_string: str | None = None,
    value_strings: Sequence[str] | None = None,
) -> Array:
    """Return the tensor that the one attribute holds.

    Raises:
        ExecutionError: If no attribute is set.
    """
    if value is not None:
        return value
    if sparse_value is not None:
        return _dense(sparse_value)
    for scalar, dtype in ((value_float, np.float32), (value_int, np.int64)):
        if scalar is not None:
            return np.array(scalar, dtype)
    for items, dtype in ((value_floats, np.float32), (value_ints, np.int64)):
        if items is not None:
            return np.array(items, dtype)
    text = value_string if value_string is not None else value_strings
    if text is None:
        raise ExecutionError("no value attribute", where="Constant", expected="exactly one")
    return np.array(text, dtype=object)


def _dense(sparse: Any) -> Array:
    """Return the array of a sparse tensor: an array already, or an ``onnx.SparseTensorProto``."""
    if isinstance(sparse, np.ndarray):
        return sparse
    from onnx import numpy_helper

    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    dense = np.zeros(tuple(sparse.dims), values.dtype)
    if indices.ndim == 1:
        dense.reshape(-1)[indices] = values
    else:
        dense[tuple(indices.T)] = values
    return dense


@FAMILY.op("ConstantOfShape", traits={"cheap"})
def constant_of_shape(shape: Array, *, value: Array | None = None) -> Array:
    """Return a tensor of one value, by default float32 zero.

    Raises:
        ExecutionError: If a dimension is negative.
    """
    dims = ints(shape)
    if any(d < 0 for d in dims):
        raise ExecutionError("negative size", where="ConstantOfShape", expected="sizes of 0 or more", found=str(dims))
    reserve(dims, 4 if value is None else value.itemsize, "ConstantOfShape")
    if value is None:
        return np.zeros(dims, np.float32)
    return np.full(dims, value.reshape(-1)[0], value.dtype)


@FAMILY.check("ConstantOfShape")
def _check_constant(facts: Facts) -> None:
    facts.require_shape(0)
    sizes, value = facts.const(0), facts.attr("value")
    if sizes is not None and sizes.size and int(sizes.min()) < 0:
        facts.fail("a size is negative", expected="sizes of 0 or more", found=sizes.tolist())
    if isinstance(value, np.ndarray) and value.size != 1:
        facts.fail("value is not one element", expected="one element", found=f"shape {list(value.shape)}")


def _range(start: Array, limit: Array, delta: Array, dtype: np.dtype[Any]) -> Array:
    first, end, step = (x.reshape(-1)[0].astype(dtype) for x in (start, limit, delta))
    if not step:
        raise ExecutionError("the step is 0", where="Range", expected="a step other than 0", found=f"delta {step}")
    if dtype.kind == "f":
        ratio = (float(end) - float(first)) / float(step)
        count = max(math.ceil(ratio), 0) if math.isfinite(ratio) else 0
    else:
        count = max(-((int(first) - int(end)) // int(step)), 0)
    reserve((count,), max(dtype.itemsize, 8), "Range")
    with np.errstate(all="ignore"):
        return np.asarray(first + np.arange(count).astype(dtype) * step).astype(dtype, copy=False)


@FAMILY.op("Range")
def range_(start: Array, limit: Array, delta: Array, *, stash_type: int = _FLOAT) -> Array:
    """Return ``start``, ``start + delta``, … up to, but without, ``limit``.

    Raises:
        ExecutionError: If ``delta`` is 0.
    """
    wide = compute_dtype(start.dtype)
    return _range(start, limit, delta, wide).astype(start.dtype, copy=False)


@FAMILY.check("Range")
def _check_step(facts: Facts) -> None:
    delta = facts.const(2)
    if delta is not None and delta.size and not delta.reshape(-1)[0]:
        facts.fail("the step is 0", expected="a delta other than 0", found=delta.reshape(-1)[0])


@FAMILY.op("EyeLike", traits={"cheap"})
def eye_like(x: Array, *, dtype: int | None = None, k: int = 0) -> Array:
    """Return ones on a diagonal, zeros elsewhere, in the shape of ``x``.

    Raises:
        ExecutionError: If ``x`` is not a matrix.
    """
    if x.ndim != 2:
        raise ExecutionError("wrong rank", where="EyeLike", expected="a matrix", found=str(x.shape))
    rows, columns = x.shape
    shift = min(max(k, -rows), columns)
    return np.eye(rows, columns, shift).astype(x.dtype if dtype is None else dtype_of_enum(dtype))


def key_of_seed(seed: float) -> Array:
    """Return the key of Philox for a seed; ONNX's are floats of any sign, of which the bits decide."""
    return np.array([np.float64(seed).view(np.uint64), 0], np.uint64)


def _uniform(shape: Sequence[int], seed: float | None) -> Array:
    """Return numbers in [0, 1): number i depends on the seed and on i alone."""
    bits = np.random.Philox() if seed is None else np.random.Philox(key=key_of_seed(seed))
    return np.random.Generator(bits).random(tuple(shape))


def _draw_normal(shape: Sequence[int], dtype: int, mean: float, scale: float, seed: float | None) -> Array:
    """Return normal numbers, each made of two uniform ones (Box and Muller, 1958)."""
    pairs = _uniform((*shape, 2), seed)
    normal = np.sqrt(-2 * np.log1p(-pairs[..., 0])) * np.cos(2 * np.pi * pairs[..., 1])
    return np.asarray(np.float64(np.float32(mean)) + np.float64(np.float32(scale)) * normal).astype(
        dtype_of_enum(dtype)
    )


def _draw_uniform(shape: Sequence[int], dtype: int, low: float, high: float, seed: float | None) -> Array:
    first, last = np.float64(np.float32(low)), np.float64(np.float32(high))
    return np.asarray(first + (last - first) * _uniform(shape, seed)).astype(dtype_of_enum(dtype))


def _enum_like(x: Array, dtype: int | None) -> int:
    from onnx.helper import np_dtype_to_tensor_dtype

    if dtype is not None:
        return dtype
    return int(np_dtype_to_tensor_dtype(x.dtype)) if is_float(x.dtype) else _FLOAT


@FAMILY.op("RandomNormal", traits={"random"})
def random_normal(
    *, shape: Sequence[int], dtype: int = _FLOAT, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> Array:
    """Return normally distributed values; the same for the same seed."""
    return _draw_normal(shape, dtype, mean, scale, seed)


@FAMILY.op("RandomNormalLike", traits={"random"})
def random_normal_like(
    x: Array, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> Array:
    """Return normally distributed values in the shape of ``x``."""
    return _draw_normal(x.shape, _enum_like(x, dtype), mean, scale, seed)


@FAMILY.op("RandomUniform", traits={"random"})
def random_uniform(
    *, shape: Sequence[int], dtype: int = _FLOAT, low: float = 0.0, high: float = 1.0, seed: float | None = None
) -> Array:
    """Return uniformly distributed values in [low, high)."""
    return _draw_uniform(shape, dtype, low, high, seed)


@FAMILY.op("RandomUniformLike", traits={"random"})
def random_uniform_like(
    x: Array, *, dtype: int | None = None, low: float = 0.0, high: float = 1.0, seed: float | None = None
) -> Array:
    """Return uniformly distributed values in the shape of ``x``."""
    return _draw_uniform(x.shape, _enum_like(x, dtype), low, high, seed)


@FAMILY.op("Bernoulli", traits={"random"})
def bernoulli(x: Array, *, dtype: int | None = None, seed: float | None = None) -> Array:
    """Return 1 with the probability that each element says, else 0."""
    hit = _uniform(x.shape, seed) < x.astype(np.float64)
    return hit.astype(x.dtype if dtype is None else dtype_of_enum(dtype))


@FAMILY.op("Multinomial", traits={"random"})
def multinomial(x: Array, *, dtype: int = _INT32, sample_size: int = 1, seed: float | None = None) -> Array:
    """Return class numbers drawn from rows of unnormalised log-probabilities."""
    logits = x.astype(np.float64)
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    edges = np.cumsum(weights, -1) / weights.sum(-1, keepdims=True)
    points = _uniform((x.shape[0], sample_size), seed)
    classes = (points[:, :, None] >= edges[:, None, :]).sum(-1)
    return np.asarray(np.minimum(classes, x.shape[-1] - 1)).astype(dtype_of_enum(dtype))


FAMILY.check(
    "Bernoulli", "EyeLike", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"
)(one_of(dtype=DTYPE_NUMBERS))  # fmt: skip


@FAMILY.sizes("ConstantOfShape")
def _filled_sizes(node: Node, shapes: Sequence[Sizes | None]) -> list[Sizes | None]:
    return [elements_of(node.operand(0))]


@FAMILY.sizes("Range")
def _counted_sizes(node: Node, shapes: Sequence[Sizes | None]) -> list[Sizes | None]:
    numbers = [None if value is None else value.contents for value in node.inputs]
    start, limit, delta = (None if contents is None else contents[0] for contents in numbers)
    if start is None or limit is None or delta is None or delta == 0:
        return [None]
    forwards, backwards = maximum(delta, 1), maximum(-delta, 1)
    up = maximum((limit - start + forwards - 1) // forwards, 0)
    down = maximum((start - limit + backwards - 1) // backwards, 0)
    return [(if_zero(maximum(-delta, 0), up, down),)]
