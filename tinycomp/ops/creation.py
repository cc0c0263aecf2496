"""Operators that make tensors: Constant, ConstantOfShape, Range, EyeLike, and the random ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinycomp.errors import ExecutionError
from tinycomp.ir.graph import Node
from tinycomp.ir.proto import DTYPE_BY_NUMBER, NUMBER_BY_DTYPE, sparse_from_proto
from tinycomp.ir.types import UNKNOWN_DTYPE, Type, dtype_name, numpy_dtype, tensor, type_of
from tinycomp.memory.budget import reserve
from tinycomp.ops.cast import DTYPE_NUMBERS, dtype_of_enum
from tinycomp.ops.numeric import Array, compute_dtype, ints, is_float
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Facts, Results, Sizes
from tinycomp.symbolic import FARTHEST, Size, has_elements, if_zero, maximum, minimum

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
    return sparse_from_proto(sparse)


@FAMILY.infer("Constant")
def _constant_rule(facts: Facts) -> Results:
    facts.require(bool(facts.node.attrs), "no value attribute", expected="exactly one", found="none")
    return [type_of(constant(**facts.node.attrs))]


@FAMILY.op("ConstantOfShape", traits={"cheap", "strided"})
def constant_of_shape(shape: Array, *, value: Array | None = None) -> Array:
    """Return a tensor of one value, by default float32 zero: a view, as what follows often reads a part of it."""
    element, dims = np.zeros((), np.float32) if value is None else value.reshape(()), ints(shape)
    reserve(dims, element.itemsize, "ConstantOfShape")
    return np.broadcast_to(element, dims)


def _known_filling(node: Node, types: Sequence[Type], _: object) -> list[Sizes | None]:
    value = node.attrs.get("value")
    number = 0 if value is None else int(np.asarray(value).reshape(-1)[0])
    return [(number,) * math.prod(tensor(types[0]).static_shape or ())]


@FAMILY.infer("ConstantOfShape", sizing=(0,), contents=_known_filling)
def _constant_of_shape_rule(facts: Facts) -> Results:
    facts.require_rank(0, 1, "the shape")
    facts.require_few(0)
    value, sizes = facts.attr("value"), facts.elements(0)
    if isinstance(value, np.ndarray):
        facts.require(value.size == 1, "value is not one element", expected="one element",
                      found=f"shape {list(value.shape)}")  # fmt: skip
    for size in sizes or ():
        facts.require_at_least(size, 0, "a size is negative")
    type_ = type_of(value) if isinstance(value, np.ndarray) else facts.tensor("float32", None)
    return [facts.tensor(tensor(type_).dtype, sizes)]


def _count(start: Any, limit: Any, delta: Any, *, dtype: np.dtype[Any]) -> int:
    """Return how many numbers there are in a range of a type that numpy computes in, whose step is not 0."""
    if dtype.kind == "f":
        ratio = (float(limit) - float(start)) / float(delta)
        return max(math.ceil(ratio), 0) if math.isfinite(ratio) else 0
    return max(-((int(start) - int(limit)) // int(delta)), 0)


def _numbers(dtype: np.dtype[Any], *operands: Array) -> list[Any]:
    return [x.reshape(-1)[0].astype(dtype) for x in operands]


@FAMILY.op("Range")
def range_(start: Array, limit: Array, delta: Array, *, stash_type: int = _FLOAT) -> Array:
    """Return ``start``, ``start + delta``, … up to, but without, ``limit``."""
    wide = compute_dtype(start.dtype)
    first, end, step = _numbers(wide, start, limit, delta)
    count = _count(first, end, step, dtype=wide)
    reserve((count,), max(wide.itemsize, 8), "Range")
    found = np.arange(count).astype(wide, copy=False)
    with np.errstate(all="ignore"):
        found *= step
        found += first
    return found.astype(start.dtype, copy=False)


def _known_progression(node: Node, types: Sequence[Type], _: object) -> list[Sizes | None]:
    numbers = [element for value in node.inputs if value is not None for element in value.contents or ()]
    known = [number for number in numbers if isinstance(number, int)]
    is_known = len(known) == len(numbers) == 3
    return [tuple(range(*known)) if is_known else None]


@FAMILY.infer("Range", sizing=(0, 1, 2), contents=_known_progression)
def _range_rule(facts: Facts) -> Results:
    for index, name in enumerate(("the start", "the limit", "the step")):
        facts.require_scalar(index, name)
    dtype, arrays = facts.first_dtype(), [facts.const(index) for index in range(3)]
    step = next(iter(facts.elements(2) or ()), None)
    if step is None and arrays[2] is not None and arrays[2].size:
        step = int(bool(arrays[2].reshape(-1)[0]))
    if step is not None:
        facts.require(step != 0, "the step is 0", expected="a step other than 0", found="0")
        facts.demand(if_zero(step, 1, 0), "the step is 0; expected a step other than 0")
    given = [array for array in arrays if array is not None and array.size]
    if len(given) == len(arrays):
        wide = compute_dtype(given[0].dtype)
        return [facts.tensor(dtype, (_count(*_numbers(wide, *given), dtype=wide),))]
    numbers = [next(iter(facts.elements(index) or ()), None) for index in range(3)]
    return [facts.tensor(dtype, (_count_of_sizes(facts, *numbers),))]


def _count_of_sizes(facts: Facts, start: Size | None, limit: Size | None, delta: Size | None) -> Size | None:
    """Return the number of integers in a range between elements of tensors, which are no larger than sizes."""
    if start is None or limit is None or delta is None:
        return None
    for name, number in (("start", start), ("limit", limit)):
        if isinstance(number, int) and abs(number) >= FARTHEST:
            return None
        if has_elements(number):
            inside = maximum(minimum(number, FARTHEST - 1), 1 - FARTHEST)
            facts.demand(number - inside, f"the {name} is {FARTHEST} or more away from 0, too far to count from")
    if isinstance(delta, int):
        delta = min(max(delta, -FARTHEST), FARTHEST)
    forwards, backwards = maximum(delta, 1), maximum(-delta, 1)
    up = maximum((limit - start + forwards - 1) // forwards, 0)
    down = maximum((start - limit + backwards - 1) // backwards, 0)
    return if_zero(maximum(-delta, 0), up, down)


@FAMILY.op("EyeLike", traits={"cheap"})
def eye_like(x: Array, *, dtype: int | None = None, k: int = 0) -> Array:
    """Return ones on a diagonal, zeros elsewhere, in the shape of ``x``."""
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
    if dtype is not None:
        return dtype
    return NUMBER_BY_DTYPE[dtype_name(x.dtype)] if is_float(x.dtype) else _FLOAT


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


@FAMILY.infer("MelWeightMatrix")
def _mel_rule(facts: Facts) -> Results:
    for index, name in enumerate(("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz")):
        facts.require_scalar(index, name)
    bands, length, rate = (next(iter(facts.elements(index) or ()), None) for index in range(3))
    for name, number, least in (("num_mel_bins", bands, 0), ("dft_length", length, 0), ("sample_rate", rate, 1)):
        facts.require_at_least(number, least, f"{name} is out of range")
    number = facts.attr("output_datatype", _FLOAT)
    facts.require(number in DTYPE_NUMBERS, "unknown output_datatype", expected="an element type", found=number)
    return [facts.tensor(DTYPE_BY_NUMBER[number], (None if length is None else length // 2 + 1, bands))]


@FAMILY.infer("BlackmanWindow", "HammingWindow", "HannWindow")
def _window_rule(facts: Facts) -> Results:
    facts.require_scalar(0, "size")
    length = next(iter(facts.elements(0) or ()), None)
    facts.require_at_least(length, 0, "size is out of range")
    number = facts.attr("output_datatype", _FLOAT)
    facts.require(number in DTYPE_NUMBERS, "unknown output_datatype", expected="an element type", found=number)
    return [facts.tensor(DTYPE_BY_NUMBER[number], (length,))]


def _asked_dtype(facts: Facts, default: str) -> str:
    number = facts.require_one_of("dtype", DTYPE_NUMBERS)
    return default if number is None else DTYPE_BY_NUMBER[number]


@FAMILY.infer("EyeLike")
def _eye_like_rule(facts: Facts) -> Results:
    return [facts.tensor(_asked_dtype(facts, facts.dtype(0)), facts.dims(0, 2))]


@FAMILY.infer("Bernoulli")
def _bernoulli_rule(facts: Facts) -> Results:
    return [facts.tensor(_asked_dtype(facts, facts.dtype(0)), facts.shape(0))]


@FAMILY.infer("RandomNormal", "RandomUniform")
def _random_rule(facts: Facts) -> Results:
    shape = tuple(int(size) for size in facts.attr("shape", ()))
    facts.require(not any(size < 0 for size in shape), "a size is negative", expected="sizes of 0 or more",
                  found=list(shape))  # fmt: skip
    return [facts.tensor(_asked_dtype(facts, "float32"), shape)]


@FAMILY.infer("RandomNormalLike", "RandomUniformLike")
def _random_like_rule(facts: Facts) -> Results:
    own = facts.dtype(0)
    default = own if own == UNKNOWN_DTYPE or is_float(numpy_dtype(own)) else "float32"
    return [facts.tensor(_asked_dtype(facts, default), facts.shape(0))]


@FAMILY.infer("Multinomial")
def _multinomial_rule(facts: Facts) -> Results:
    rows, classes = facts.dims(0, 2)
    facts.require_at_least(classes, 1, "there are no classes to draw from")
    count = int(facts.attr("sample_size", 1))
    facts.require(count > 0, "sample_size is out of range", expected="1 or more", found=count)
    return [facts.tensor(_asked_dtype(facts, "int32"), (rows, count))]
