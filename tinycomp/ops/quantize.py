"""Quantisation: linear quantise and dequantise of every opset, and matrix products of quantised tensors.

A scale is one value, one per slice of an axis, or one per block of an axis (``block_size``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from tinycomp.errors import ModelError
from tinycomp.ir.graph import Node
from tinycomp.ops.facts import Check, Facts, Operand
from tinycomp.ops.matmul import matmul_macs, matmul_sizes
from tinycomp.ops.numeric import (
    Array,
    compute_dtype,
    exact_float,
    fix_axis,
    integer_range,
    is_float,
    minus_zero_point,
    quiet,
    to_int32,
)
from tinycomp.ops.record import OpFamily

FAMILY = OpFamily("quantize")

_FLOAT32 = np.dtype(np.float32)


def positive_scales(*operands: int) -> Check:
    """Return the check that the operands of these numbers, which are scales, are finite and above 0."""
    return _scales(operands, signed=False)


def _scales(operands: Sequence[int], signed: bool) -> Check:
    """Return the check of positive scales, or of finite ones of any sign, by which stored numbers may be multiplied."""
    problem, expected = ("not finite", "finite scales") if signed else ("not positive", "finite scales above 0")

    def check(facts: Facts) -> None:
        for index in operands:
            scale = facts.const(index)
            if scale is None:
                continue
            scales = scale.astype(np.float64)
            wrong = scales[~(np.isfinite(scales) & (signed | (scales > 0)))]
            if wrong.size:
                facts.fail(
                    f"a quantisation scale is {problem}",
                    expected=expected,
                    found=wrong.reshape(-1)[0],
                    hint="Quantise the model again; a scale of 0 comes from a tensor that was 0 in all of the samples.",
                )

    return check


def _dtype_of(enum: int) -> np.dtype[Any]:
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(enum))


def _spread(op: str, name: str, parameter: Array, x: Array, axis: int, block_size: int) -> Array:
    """Return a scale or zero point in a shape that broadcasts with ``x``."""
    if parameter.size == 1 and block_size == 0:
        return parameter.reshape(())
    axis = fix_axis(axis, x.ndim, op)
    size = x.shape[axis]
    if block_size:
        return _spread_blocks(op, name, parameter, x, axis, block_size)
    if parameter.shape != (size,):
        raise ModelError(
            f"{op}: {name} does not fit axis {axis}", expected=f"shape [] or {[size]}", found=str(list(parameter.shape))
        )
    return parameter.reshape(size, *[1] * (x.ndim - axis - 1))


def _spread_blocks(op: str, name: str, parameter: Array, x: Array, axis: int, block_size: int) -> Array:
    expected = list(x.shape)
    expected[axis] = -(-x.shape[axis] // block_size) if block_size > 0 else 0
    if block_size < 0 or list(parameter.shape) != expected:
        raise ModelError(
            f"{op}: {name} does not fit block_size {block_size} on axis {axis}",
            expected=f"a positive block_size and shape {expected}",
            found=f"shape {list(parameter.shape)}",
        )
    whole = np.repeat(parameter, block_size, axis=axis)
    return whole[(slice(None),) * axis + (slice(x.shape[axis]),)]


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
        limit = float(ml_dtypes.finfo(dtype).max)  # type: ignore[no-untyped-call]
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
    op: str,
    x: Array,
    scale: Array,
    zero_point: Array | None,
    dtype: np.dtype[Any],
    axis: int,
    block_size: int,
    clip: bool,
    precision: np.dtype[Any],
) -> Array:
    spread = _spread(op, "y_scale", scale, x, axis, block_size)
    wide = compute_dtype(precision)
    ratio = np.asarray(x.astype(wide, copy=False) / spread.astype(wide))
    if precision != wide:
        ratio = ratio.astype(precision).astype(wide)
    if not is_float(dtype):
        np.rint(ratio, out=ratio)
    if zero_point is not None:
        if zero_point.size != scale.size:
            raise ModelError(
                f"{op}: y_zero_point and y_scale differ in shape",
                expected=str(list(scale.shape)),
                found=str(list(zero_point.shape)),
            )
        ratio += _spread(op, "y_zero_point", zero_point, x, axis, block_size).astype(wide)
    return saturate_float(ratio, dtype, clip) if is_float(dtype) else saturate(ratio, dtype)


@FAMILY.op("QuantizeLinear")
@quiet
def quantize_linear(
    x: Array,
    y_scale: Array,
    y_zero_point: Array | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    saturate: int = 1,
) -> Array:
    """Quantise: ``saturate(round(x / y_scale) + y_zero_point)``, computed in float32, rounding half to even.

    Raises:
        ModelError: If scale or zero point do not fit the input, or the types contradict each other.
    """
    dtype = _quantized_dtype(y_zero_point, output_dtype)
    return _quantize("QuantizeLinear", x, y_scale, y_zero_point, dtype, axis, block_size, bool(saturate), _FLOAT32)


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
    if rounded == np.dtype(ml_dtypes.float8_e8m0fnu) or not is_float(rounded):
        rounded = _FLOAT32
    return _quantize("QuantizeLinear", x, y_scale, y_zero_point, dtype, axis, block_size, bool(saturate), rounded)


def _quantized_dtype(zero_point: Array | None, output_dtype: int) -> np.dtype[Any]:
    if zero_point is None:
        return _dtype_of(output_dtype) if output_dtype else np.dtype(np.uint8)
    if output_dtype and _dtype_of(output_dtype) != zero_point.dtype:
        raise ModelError(
            "QuantizeLinear: output_dtype contradicts y_zero_point",
            expected=str(zero_point.dtype),
            found=str(_dtype_of(output_dtype)),
        )
    return zero_point.dtype


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
    """Dequantise: ``(x - x_zero_point) * x_scale``, in the type of the scale or ``output_dtype``.

    Raises:
        ModelError: If scale or zero point do not fit the input.
    """
    op = "DequantizeLinear"
    scale = _spread(op, "x_scale", x_scale, x, axis, block_size)
    wide = x.astype(np.float32) if is_float(x.dtype) else x.astype(np.int64 if x.dtype.itemsize > 2 else np.int32)
    if x_zero_point is not None:
        wide = wide - _spread(op, "x_zero_point", x_zero_point, x, axis, block_size).astype(wide.dtype)
    result = np.asarray(wide.astype(np.float32) * scale.astype(np.float32))
    if output_dtype:
        return result.astype(_dtype_of(output_dtype), copy=False)
    is_exponent = x_scale.dtype == np.dtype(ml_dtypes.float8_e8m0fnu)
    return result.astype(_FLOAT32 if is_exponent else x_scale.dtype, copy=False)


FAMILY.check("QuantizeLinear")(positive_scales(1))
FAMILY.check("DequantizeLinear")(_scales([1], signed=True))


@FAMILY.check("DequantizeLinear", "QuantizeLinear")
def _check_scale_shapes(facts: Facts) -> None:
    if facts.rank(1) == 1 and facts.dim(1, 0) != 1 and facts.node.version >= 13:
        axis = int(facts.attr("axis", 1))
        facts.require_axis(axis, facts.rank(0))
        if not facts.attr("block_size", 0):
            facts.require_size(1, 0, facts.dim(0, axis), "the scale")
    zero_point, scale = facts.sizes(2), facts.sizes(1)
    if zero_point is None or scale is None or math.prod(zero_point) == math.prod(scale) == 1:
        return
    if zero_point != scale:
        facts.fail("scale and zero point differ in shape", expected=f"{list(scale)}", found=list(zero_point))


@FAMILY.plain_type("DequantizeLinear", least=2, most=3, since=10, dtypes=None)
def _dequantized_type(node: Node, operands: Sequence[Operand]) -> Operand | None:
    (dtype, x), (scale, _) = operands[:2]
    plain = dtype in ("int8", "uint8", "int32") and scale == "float32" and "output_dtype" not in node.attrs
    return (scale, x) if plain else None


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


def _integer_product(op: str, a: Array, a_zero_point: Array | None, b: Array, b_zero_point: Array | None) -> Array:
    if a.ndim == 0 or b.ndim == 0 or a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
        raise ModelError(
            f"{op}: the operands do not fit",
            expected="A's last size equal to B's last but one",
            found=f"shapes {list(a.shape)} and {list(b.shape)}",
        )
    dtype = exact_float(a.shape[-1])
    left = minus_zero_point(a, a_zero_point, dtype, axis=a.ndim - 2 if a.ndim > 1 else None)
    right = minus_zero_point(b, b_zero_point, dtype, axis=b.ndim - 1)
    return to_int32(np.asarray(np.matmul(left, right)))


@FAMILY.op("MatMulInteger", macs=matmul_macs)
def matmul_integer(a: Array, b: Array, a_zero_point: Array | None = None, b_zero_point: Array | None = None) -> Array:
    """Multiply 8-bit integers with int32 result; zero points may be per row of A and per column of B."""
    return _integer_product("MatMulInteger", a, a_zero_point, b, b_zero_point)


@FAMILY.check("MatMulInteger")
def _check_zero_points(facts: Facts) -> None:
    """Refuse zero points other than one number, one per row of A or column of B, or what broadcasts to either."""
    for index, axis in ((0, -2), (1, -1)):
        shape, point = facts.shape(index), facts.sizes(index + 2)
        if shape is None or point is None:
            continue
        if len(point) == 1 and len(shape) > 1:
            if point != (1,):
                facts.require_size(index + 2, 0, facts.dim(index, axis), "the zero point")
        else:
            facts.require_broadcast(index + 2, (*shape[:-1], 1) if index == 0 else shape, "the zero point")


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
    op = "QLinearMatMul"
    rows = [_per_row(p.astype(np.float32), a) for p in (a_scale, y_scale)]
    ratio = rows[0] * _per_column(b_scale.astype(np.float32), b) / rows[1]
    if is_float(a.dtype):
        product = np.matmul(
            a.astype(np.float32) - _per_row(a_zero_point.astype(np.float32), a),
            b.astype(np.float32) - _per_column(b_zero_point.astype(np.float32), b),
        )
    else:
        product = _integer_product(op, a, a_zero_point, b, b_zero_point).astype(np.float32)
    offset = _per_row(y_zero_point.astype(np.float32), a)
    if is_float(y_zero_point.dtype):
        return saturate_float(product * ratio + offset, y_zero_point.dtype)
    return saturate(np.asarray(np.rint(product * ratio) + offset), y_zero_point.dtype)


FAMILY.check("QLinearMatMul")(positive_scales(1, 4, 6))
FAMILY.sizes("MatMulInteger", "QLinearMatMul")(matmul_sizes)


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
