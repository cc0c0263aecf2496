"""Quantisation: linear quantise and dequantise of every opset, and matrix products of quantised tensors.

A scale is one value, one per slice of an axis, or one per block of an axis (``block_size``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinycomp.ir.proto import DTYPE_BY_NUMBER, NUMBER_BY_DTYPE
from tinycomp.ir.types import UNKNOWN_DTYPE, numpy_dtype
from tinycomp.ops.matmul import matmul_macs, product_type
from tinycomp.ops.numeric import (
    Array,
    compute_dtype,
    exact_float,
    float_range,
    integer_range,
    is_float,
    minus_zero_point,
    quiet,
    to_int32,
)
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Facts, Results, Sizes, sizes_of

FAMILY = OpFamily("quantize")

_FLOAT32 = np.dtype(np.float32)


def require_scales(facts: Facts, *operands: int, signed: bool = False) -> None:
    """Demand that constant scales, the operands of these numbers, are finite and, unless ``signed``, above 0.

    Scales that a run computes are used as they are.
    """
    for index in () if facts.in_run else operands:
        scale = facts.scale(index)
        if scale is None:
            continue
        scales = scale.astype(np.float64)
        wrong = scales[~(np.isfinite(scales) & (signed | (scales > 0)))]
        if wrong.size:
            facts.fail(
                f"a quantisation scale is {'not finite' if signed else 'not positive'}",
                expected="finite scales" if signed else "finite scales above 0",
                found=wrong.reshape(-1)[0],
                hint="Quantise the model again; a scale of 0 comes from a tensor that was 0 in all of the samples.",
            )


def _dtype_of(enum: int) -> np.dtype[Any]:
    return numpy_dtype(DTYPE_BY_NUMBER[enum])


def _spread(parameter: Array, x: Array, axis: int, block_size: int) -> Array:
    """Return a scale or zero point in a shape that broadcasts with ``x``."""
    if parameter.size == 1 and block_size == 0:
        return parameter.reshape(())
    axis %= x.ndim
    if block_size:
        whole = np.repeat(parameter, block_size, axis=axis)
        return whole[(slice(None),) * axis + (slice(x.shape[axis]),)]
    return parameter.reshape(x.shape[axis], *[1] * (x.ndim - axis - 1))


def saturate(x: Array, dtype: np.dtype[Any]) -> Array:
    """Clip whole numbers in a float array to an integer type and convert them; NaN becomes the least value.

    The array is used as scratch space.
    """
    low, high = integer_range(dtype)
    # Unlike clip, fmax prefers the bound to NaN, as SIMD kernels do.
    np.fmax(x, low, out=x)
    np.fmin(x, high, out=x)
    return x.astype(dtype) if dtype.kind in "iu" else x.astype(np.int32).astype(dtype)


def saturate_float(x: Array, dtype: np.dtype[Any], clip: bool = True) -> Array:
    """Convert to an 8-bit or narrower float type, clipping what is too large (infinity included) if asked to."""
    if clip:
        limit = float_range(dtype)[1]
        x = np.clip(x, -limit, limit)
    return x.astype(dtype)


def requantize(total: Array, ratio: Array, zero_point: Array) -> Array:
    """Return int32 sums times a float32 ratio plus a zero point, saturated to the zero point's type."""
    with np.errstate(all="ignore"):
        scaled = total.astype(np.float32) * np.asarray(ratio, dtype=np.float32)
        np.rint(scaled, out=scaled)
        scaled += zero_point.astype(np.float32).reshape(())
        return saturate(scaled, zero_point.dtype)


def _quantize(
    x: Array,
    scale: Array,
    zero_point: Array | None,
    dtype: np.dtype[Any],
    axis: int,
    block_size: int,
    clip: bool,
    precision: np.dtype[Any],
) -> Array:
    spread = _spread(scale, x, axis, block_size)
    wide = compute_dtype(precision)
    ratio = np.asarray(x.astype(wide, copy=False) / spread.astype(wide))
    if precision != wide:
        ratio = ratio.astype(precision).astype(wide)
    if not is_float(dtype):
        np.rint(ratio, out=ratio)
    if zero_point is not None:
        ratio += _spread(zero_point, x, axis, block_size).astype(wide)
    return saturate_float(ratio, dtype, clip) if is_float(dtype) else saturate(ratio, dtype)


@FAMILY.op("QuantizeLinear", passed=frozenset({"axis", "block_size", "output_dtype", "saturate"}))
def quantize_linear(x: Array, y_scale: Array, y_zero_point: Array | None = None, **given: Any) -> Any:
    """Quantise: ``saturate(round(x / y_scale) + y_zero_point)``, computed in float32, rounding half to even."""
    return quantize_linear_23(x, y_scale, y_zero_point, precision=NUMBER_BY_DTYPE["float32"], **given)


@FAMILY.op("QuantizeLinear", since=23)
@quiet
def quantize_linear_23(
    x: Array,
    y_scale: Array,
    y_zero_point: Array | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
) -> Array:
    """Quantise as before; the quotient is rounded to ``precision``, by default the type of the scale."""
    dtype = _quantized_dtype(y_zero_point, output_dtype)
    rounded = _dtype_of(precision) if precision else y_scale.dtype
    if rounded.name == "float8_e8m0fnu" or not is_float(rounded):
        rounded = _FLOAT32
    return _quantize(x, y_scale, y_zero_point, dtype, axis, block_size, bool(saturate), rounded)


def _quantized_dtype(zero_point: Array | None, output_dtype: int) -> np.dtype[Any]:
    if zero_point is not None:
        return zero_point.dtype
    return _dtype_of(output_dtype) if output_dtype else np.dtype(np.uint8)


@FAMILY.infer("QuantizeLinear")
def _quantized(facts: Facts) -> Results:
    require_scales(facts, 1)
    _require_steps(facts)
    dtype = _named_dtype(facts, "output_dtype")
    _named_dtype(facts, "precision")
    if facts.has(2):
        given, dtype = dtype, facts.dtype(2)
        if given and dtype not in (given, UNKNOWN_DTYPE):
            facts.fail("output_dtype contradicts the zero point", expected=dtype, found=given)
    return [facts.tensor(dtype or "uint8", facts.shape(0))]


def _named_dtype(facts: Facts, attribute: str) -> str:
    """Return the type that an attribute names by its number, an empty text if there is none."""
    number = int(facts.attr(attribute) or 0)
    if number and number not in DTYPE_BY_NUMBER:
        facts.fail(f"unknown {attribute}", expected=f"one of 1..{max(DTYPE_BY_NUMBER)}", found=number)
    return DTYPE_BY_NUMBER[number] if number else ""


def _require_steps(facts: Facts) -> None:
    """Demand of scale and zero point that they are one number each, one per slice of an axis, or one per block."""
    x, scale, axis, block = facts.shape(0), facts.shape(1), int(facts.attr("axis", 1)), int(facts.attr("block_size", 0))
    facts.require(block >= 0, "block_size is negative", expected="0 or more", found=block)
    if scale is not None and x is not None:
        if block:
            at = facts.require_axis(axis, len(x))
            facts.require_rank(1, len(x), "the scale of blocks")
            for i, (own, dim) in enumerate(zip(scale, x, strict=True)):
                blocks = dim if i != at or dim is None else (dim + (block - 1)) // block
                facts.require_equal(own, blocks, f"axis {i} of the scale does not fit blocks of {block}")
        elif len(scale) == 1 and (isinstance(scale[0], int) or -len(x) <= axis < len(x)):
            wanted = None if scale[0] == 1 else x[facts.require_axis(axis, len(x))]
            facts.require_one_or(scale[0], wanted, "the scale has the wrong size")
        else:
            facts.require_scalar(1, "the scale")
    zero = facts.shape(2)
    if zero is not None and scale is not None:
        if len(zero) == len(scale):
            for own, wanted in zip(zero, scale, strict=True):
                facts.require_equal(own, wanted, "scale and zero point differ in shape")
        else:
            facts.require_scalar(1, "the scale, since the zero point has another rank")
            facts.require_scalar(2, "the zero point, since the scale has another rank")


@FAMILY.op("DequantizeLinear", traits={"cheap"})
@quiet
def dequantize_linear(
    x: Array,
    x_scale: Array,
    x_zero_point: Array | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Array:
    """Dequantise: ``(x - x_zero_point) * x_scale``, in the type of the scale or ``output_dtype``."""
    scale = _spread(x_scale, x, axis, block_size)
    wide = x.astype(np.float32) if is_float(x.dtype) else x.astype(np.int64 if x.dtype.itemsize > 2 else np.int32)
    if x_zero_point is not None:
        wide = wide - _spread(x_zero_point, x, axis, block_size).astype(wide.dtype)
    result = np.asarray(wide.astype(np.float32) * scale.astype(np.float32))
    if output_dtype:
        return result.astype(_dtype_of(output_dtype), copy=False)
    is_exponent = x_scale.dtype.name == "float8_e8m0fnu"
    return result.astype(_FLOAT32 if is_exponent else x_scale.dtype, copy=False)


@FAMILY.infer("DequantizeLinear")
def _dequantized(facts: Facts) -> Results:
    require_scales(facts, 1, signed=True)
    _require_steps(facts)
    dtype = "float32" if facts.version < _ANY_FLOAT or facts.dtype(1) == "float8_e8m0fnu" else facts.dtype(1)
    return [facts.tensor(_named_dtype(facts, "output_dtype") or dtype, facts.shape(0))]


_ANY_FLOAT = 19
"""From this version on scales have any floating-point type."""


@FAMILY.op("DynamicQuantizeLinear")
@quiet
def dynamic_quantize_linear(x: Array) -> tuple[Array, Array, Array]:
    """Quantise to uint8 with a scale and zero point that cover the range of ``x`` and zero."""
    low = np.minimum(np.float32(0), x.min(initial=0))
    high = np.maximum(np.float32(0), x.max(initial=0))
    scale = np.float32(1) if high == low else (high - low) / np.float32(255)
    point = np.clip(np.rint(-low / scale), 0, 255)
    y = saturate(np.asarray(np.rint(x / scale) + point), np.dtype(np.uint8))
    return y, np.asarray(scale, dtype=np.float32), np.asarray(point).astype(np.uint8)


@FAMILY.infer("DynamicQuantizeLinear")
def _dynamically_quantized(facts: Facts) -> Results:
    return [facts.tensor("uint8", facts.shape(0)), facts.tensor("float32", ()), facts.tensor("uint8", ())]


def _integer_product(a: Array, a_zero_point: Array | None, b: Array, b_zero_point: Array | None) -> Array:
    dtype = exact_float(a.shape[-1])
    left = minus_zero_point(a, a_zero_point, dtype, axis=a.ndim - 2 if a.ndim > 1 else None)
    right = minus_zero_point(b, b_zero_point, dtype, axis=b.ndim - 1)
    return to_int32(np.asarray(np.matmul(left, right)))


@FAMILY.op("MatMulInteger", macs=matmul_macs)
def matmul_integer(a: Array, b: Array, a_zero_point: Array | None = None, b_zero_point: Array | None = None) -> Array:
    """Multiply 8-bit integers with int32 result; zero points may be per row of A and per column of B."""
    return _integer_product(a, a_zero_point, b, b_zero_point)


@FAMILY.infer("MatMulInteger")
def _matmul_integer(facts: Facts) -> Results:
    result = product_type(facts, 0, 1, "int32")
    _require_rows(facts, 2, facts.shape(0), "the zero point of A")
    _require_columns(facts, 3, facts.shape(1), "the zero point of B")
    return [result]


def _require_rows(facts: Facts, index: int, of: Sizes | None, what: str) -> None:
    """Demand of an operand that it is one number, one per row of matrices, or broadcasts to a column of each."""
    shape = facts.shape(index)
    if of is None or shape is None or all(dim == 1 for dim in shape):
        return
    if len(of) < 2:
        facts.require_scalar(index, what)
    elif len(shape) == 1:
        facts.require_one_or(shape[0], of[-2], f"{what} has the wrong size")
    else:
        facts.require_broadcast(index, (*of[:-1], 1), what)


def _require_columns(facts: Facts, index: int, of: Sizes | None, what: str) -> None:
    """Demand of an operand that it is one number, one per column of matrices, or broadcasts to a row of each."""
    shape = facts.shape(index)
    if of is None or shape is None or all(dim == 1 for dim in shape):
        return
    facts.require_broadcast(index, (*of[:-2], 1, of[-1]) if len(of) > 1 else (1,), what)


@FAMILY.op("QLinearMatMul", macs=matmul_macs)
@quiet
def qlinear_matmul(
    a: Array,
    a_scale: Array,
    a_zero_point: Array,
    b: Array,
    b_scale: Array,
    b_zero_point: Array,
    y_scale: Array,
    y_zero_point: Array,
) -> Array:
    """Multiply quantised matrices; parameters of A and Y may be per row, those of B per column."""
    rows = [_per_row(p.astype(np.float32), a) for p in (a_scale, y_scale)]
    ratio = rows[0] * _per_column(b_scale.astype(np.float32), b) / rows[1]
    if is_float(a.dtype):
        product = np.matmul(
            a.astype(np.float32) - _per_row(a_zero_point.astype(np.float32), a),
            b.astype(np.float32) - _per_column(b_zero_point.astype(np.float32), b),
        )
    else:
        product = _integer_product(a, a_zero_point, b, b_zero_point).astype(np.float32)
    offset = _per_row(y_zero_point.astype(np.float32), a)
    if is_float(y_zero_point.dtype):
        return saturate_float(product * ratio + offset, y_zero_point.dtype)
    return saturate(np.asarray(np.rint(product * ratio) + offset), y_zero_point.dtype)


@FAMILY.infer("QLinearMatMul")
def _qlinear_matmul(facts: Facts) -> Results:
    require_scales(facts, 1, 4, 6)
    result = product_type(facts, 0, 3, facts.dtype(7))
    a, b, y = facts.shape(0), facts.shape(3), None if result.shape is None else sizes_of(result.shape)
    if 1 in (facts.rank(0), facts.rank(3)):
        a, y = (), ()  # a vector has no rows
    for kind, first in (("scale", 1), ("zero point", 2)):
        _require_rows(facts, first, a, f"the {kind} of A")
        _require_columns(facts, first + 3, b, f"the {kind} of B")
        _require_rows(facts, first + 5, y, f"the {kind} of the result")
    return [result]


def _per_row(parameter: Array, a: Array) -> Array:
    if parameter.size == 1:
        return parameter.reshape(())
    return parameter.reshape(-1, 1) if parameter.ndim == 1 and a.ndim > 1 else parameter


def _per_column(parameter: Array, b: Array) -> Array:
    return parameter.reshape(()) if parameter.size == 1 else parameter


FAMILY.trait("quantization", "DequantizeLinear", "DynamicQuantizeLinear", "QuantizeLinear")
FAMILY.trait("integer_product", "MatMulInteger", "QLinearMatMul")
FAMILY.zero_points("MatMulInteger", {0: 2, 1: 3})
FAMILY.zero_points("QLinearMatMul", {0: 2, 3: 5})
