"""Cast, CastLike and BitCast, between all ONNX element types, strings included."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinycomp.errors import ExecutionError
from tinycomp.ir.graph import Node
from tinycomp.ir.proto import DTYPE_BY_NUMBER, NUMBER_BY_DTYPE
from tinycomp.ir.types import UNKNOWN_DTYPE, Type, bits, numpy_dtype, tensor
from tinycomp.ops.contents import INTEGERS, computed
from tinycomp.ops.elementwise import saturate as saturate_to
from tinycomp.ops.numeric import Array, compute_dtype, float_range, is_float
from tinycomp.ops.record import OpFamily, OpRecord
from tinycomp.ops.rule import Facts, Results, Sizes
from tinycomp.symbolic import if_zero

FAMILY = OpFamily("cast")
DTYPE_NUMBERS = tuple(NUMBER_BY_DTYPE.values())
"""What attributes that are dtypes may be."""
_SCALE = "float8_e8m0fnu"
_FLOAT8 = frozenset({"float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"})
# Formats without infinity and NaN, which can do nothing but saturate.
_FINITE = frozenset({"float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"})
_SUB_BYTE = {"int4": (4, True), "uint4": (4, False), "int2": (2, True), "uint2": (2, False)}
_STRING = np.dtype(object)
_INT32 = np.dtype(np.int32)
_INT64 = np.dtype(np.int64)
# Not `kind == "f"`, which float8_e5m2 claims as well.
_NATIVE = frozenset({np.dtype(np.float16), np.dtype(np.float32), np.dtype(np.float64)})


@functools.cache
def dtype_of_enum(code: int) -> np.dtype[Any]:
    """Return the numpy dtype of a ``TensorProto.DataType`` code; strings are objects."""
    return numpy_dtype(DTYPE_BY_NUMBER[code])


def cast_array(x: Array, dtype: np.dtype[Any], saturate: bool = True, round_mode: str = "up") -> Array:
    """Convert an array as ONNX's Cast does.

    Where ONNX leaves a case open: a float becomes an integer as :func:`_to_integer` says; a number becomes the shortest
    text that reads back as the same number, with "NaN", "INF" and "-INF".

    Args:
        x: Any array.
        dtype: The target type; object means string.
        saturate: Whether a float too large for an 8-bit float becomes its maximum rather than infinity or NaN.
        round_mode: How float8_e8m0fnu rounds: "up", "down" or "nearest".

    Raises:
        ExecutionError: If a text is not a number.
    """
    if x.dtype == dtype:
        return x
    if dtype == _STRING:
        return _to_text(x)
    if x.dtype == _STRING:
        return cast_array(_from_text(x, dtype), dtype, saturate, round_mode)
    with np.errstate(all="ignore"):
        if is_float(dtype):
            return _to_float(x, dtype, saturate, round_mode)
        if is_float(x.dtype):
            x = x.astype(compute_dtype(x.dtype), copy=False)
        if dtype.kind == "b":
            return x.astype(np.bool_) if x.dtype.kind in "biuf" else x.astype(np.int32).astype(np.bool_)
        if dtype.name in _SUB_BYTE:
            return _to_sub_byte(x, dtype)
        if x.dtype in _NATIVE:
            return _to_integer(x, dtype)
        return x.astype(compute_dtype(x.dtype), copy=False).astype(dtype)


def _to_float(x: Array, dtype: np.dtype[Any], saturate: bool, round_mode: str) -> Array:
    if dtype in _NATIVE:
        return x.astype(dtype)
    wide = x if x.dtype in _NATIVE else x.astype(np.float64 if x.dtype.itemsize >= 4 else np.float32)
    if dtype.name == _SCALE:
        return _to_scale(wide.astype(np.float32), saturate, round_mode)
    if dtype.name in _FINITE or (saturate and dtype.name in _FLOAT8):
        wide = np.clip(wide, *float_range(dtype))
    return wide.astype(dtype)


def _to_integer(x: Array, dtype: np.dtype[Any]) -> Array:
    """Truncate toward zero; NaN becomes 0.

    Narrow and unsigned types keep the low bits of a wider signed integer, as x86, numpy and onnxruntime do: -5.0 is
    251 as uint8. That wider integer, and a signed type of 32 or 64 bits, saturates.
    """
    if dtype.itemsize <= 2:
        return saturate_to(x, _INT32).astype(dtype)
    if dtype.kind == "i":
        return saturate_to(x, dtype)
    wrapped = saturate_to(x, _INT64).astype(dtype)
    return np.where(x >= 2.0**63, saturate_to(x, dtype), wrapped) if dtype.itemsize == 8 else wrapped


def _to_scale(x: Array, saturate: bool, round_mode: str) -> Array:
    """Round to a power of two, 2^-127 to 2^127, stored as its biased exponent; 255 is NaN."""
    mantissa, exponent = np.frexp(x.astype(np.float64))  # x = mantissa 2^exponent with 1/2 <= mantissa < 1
    exact = mantissa == 0.5
    if round_mode == "down":
        up = np.zeros(x.shape, np.bool_)
    elif round_mode == "nearest":
        up = mantissa >= 0.75
    else:
        up = ~exact
    biased = exponent.astype(np.int64) - 1 + up + 127
    valid = np.isfinite(x) & (x > 0)
    biased = np.where(valid, biased, np.where(x == np.inf, 255, np.where(x == 0, -1, 255)))
    if saturate:
        biased = np.where(np.isnan(x) | (x < 0), 255, np.clip(biased, 0, 254))
    else:
        biased = np.where((biased < 0) | (biased > 254), 255, biased)
    return np.asarray(biased).astype(np.uint8).view(numpy_dtype(_SCALE))


def _to_sub_byte(x: Array, dtype: np.dtype[Any]) -> Array:
    """Convert to int2 or int4 by the low bits of the integer; ONNX's tests ask the same of floats out of range."""
    width, signed = _SUB_BYTE[dtype.name]
    high = (1 << (width - signed)) - 1
    if x.dtype in _NATIVE:
        x = saturate_to(x, _INT32)
    bits = x.astype(compute_dtype(x.dtype), copy=False).astype(np.int64) & ((1 << width) - 1)
    return np.where(bits > high, bits - (1 << width), bits).astype(dtype)


def _to_text(x: Array) -> Array:
    flat = x.reshape(-1)
    if not is_float(x.dtype):
        texts = [str(v) for v in flat.astype(compute_dtype(x.dtype), copy=False).tolist()]
    else:
        wide = flat if flat.dtype in _NATIVE else flat.astype(np.float32)
        texts = [_SPECIAL.get(t, t) for t in wide.astype(np.str_).tolist()]
    out = np.empty(len(texts), _STRING)
    out[:] = texts
    return out.reshape(x.shape)


_SPECIAL = {"nan": "NaN", "inf": "INF", "-inf": "-INF"}


def _from_text(x: Array, dtype: np.dtype[Any]) -> Array:
    """Read numbers; 64-bit integers are read as such, since float64 would round them."""
    exact = not is_float(dtype) and dtype.kind in "iu"
    values: list[Any] = []
    for text in x.reshape(-1).tolist():
        try:
            values.append(_integer(text) if exact else float(text))
        except (ValueError, OverflowError) as error:
            raise ExecutionError(
                f"cannot cast text to {dtype}", where="Cast", expected="a number", found=repr(str(text)[:40])
            ) from error
    if not exact:
        return np.array(values, np.float64).reshape(x.shape)
    wide = np.uint64 if dtype == np.uint64 else np.int64
    info = np.iinfo(wide)
    return np.array([min(max(v, int(info.min)), int(info.max)) for v in values], wide).reshape(x.shape)


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return int(float(text))


@FAMILY.op("Cast", traits={"elementwise", "cheap"})
def cast(x: Array, *, to: int, saturate: int = 1, round_mode: str = "up") -> Array:
    """Convert to the type of the code ``to``."""
    return cast_array(x, dtype_of_enum(to), bool(saturate), round_mode)


def _known_numbers(node: Node, types: Sequence[Type], record: OpRecord | None) -> Sequence[Sizes | None]:
    """Return the elements of integers that become integers; a bool says which are not 0."""
    if node.operand(0).dtype not in INTEGERS:
        return [None]
    tells = tensor(types[0]).dtype == "bool" != node.operand(0).dtype
    return computed((lambda a: 1 - if_zero(a, 1, 0)) if tells else lambda a: a)(node, types, record)


@FAMILY.infer("Cast", contents=_known_numbers)
def _cast_rule(facts: Facts) -> Results:
    to = facts.attr("to")
    if isinstance(to, str):  # before opset 6; nobody runs these
        return [facts.tensor(UNKNOWN_DTYPE, facts.shape(0))]
    return [facts.tensor(DTYPE_BY_NUMBER.get(facts.require_one_of("to", DTYPE_NUMBERS), UNKNOWN_DTYPE), facts.shape(0))]


@FAMILY.op("CastLike", traits={"elementwise", "cheap"})
def cast_like(x: Array, like: Array, *, saturate: int = 1, round_mode: str = "up") -> Array:
    """Convert to the type of ``like``, whose values do not matter."""
    return cast_array(x, like.dtype, bool(saturate), round_mode)


@FAMILY.infer("CastLike")
def _cast_like_rule(facts: Facts) -> Results:
    return [facts.tensor(facts.dtype(1), facts.shape(0))]


@FAMILY.op("BitCast", traits={"elementwise", "cheap"})
def bit_cast(x: Array, *, to: int) -> Array:
    """Return the same bits read as another type of the same width."""
    dtype = dtype_of_enum(to)
    if _bits(dtype) == 8 * dtype.itemsize:
        return x.copy().view(dtype) if x.ndim else x.reshape(1).view(dtype).reshape(())
    return _to_sub_byte(x.astype(np.int32), dtype) if dtype.name in _SUB_BYTE else x.view(np.uint8).view(dtype)


@FAMILY.infer("BitCast")
def _bit_cast_rule(facts: Facts) -> Results:
    own, wanted = facts.dtype(0), DTYPE_BY_NUMBER.get(facts.require_one_of("to", DTYPE_NUMBERS), UNKNOWN_DTYPE)
    if UNKNOWN_DTYPE not in (own, wanted):
        facts.require("string" not in (own, wanted) and bits(own) == bits(wanted), "the widths differ",
                      expected="a type of as many bits, no strings", found=f"{own} and {wanted}")  # fmt: skip
    return [facts.tensor(wanted, facts.shape(0))]


def _bits(dtype: np.dtype[Any]) -> int:
    if dtype.name in _SUB_BYTE:
        return _SUB_BYTE[dtype.name][0]
    if dtype.name in _FINITE:
        return 4 if "float4" in str(dtype) else 6
    return 8 * dtype.itemsize
