"""Arithmetic, comparisons and logic on elements: Add to Mod, Sum/Mean/Max/Min, rounding, Exp and its like, Where."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tinycomp.errors import ExecutionError
from tinycomp.ir.types import Type
from tinycomp.ops.contents import computed
from tinycomp.ops.numeric import Array, compute_dtype, float_range, integer_range, is_float, quiet, widened
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Facts, Results, Rule, broadcasting, broadcasting_to, same_as_first, shape_text
from tinycomp.symbolic import Size, UndecidedError, if_zero, maximum, minimum

FAMILY = OpFamily("elementwise")
_FLOAT32_MAX = 3.4028234663852886e38
_FLOAT32_MIN = -_FLOAT32_MAX


def legacy_broadcast(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Give a binary kernel the ``axis`` and ``broadcast`` attributes that operators had before opset 7.

    There the second operand is aligned with the first at ``axis``, or at its end without ``axis``.
    """

    @functools.wraps(kernel)
    def run(
        a: Array, b: Array, *, axis: int | None = None, broadcast: int = 0, consumed_inputs: Any = None, **attrs: Any
    ) -> Array:
        if broadcast and axis is not None and b.ndim:
            start = axis % a.ndim
            b = b.reshape(b.shape + (1,) * (a.ndim - start - b.ndim))
        result: Array = kernel(a, b, **attrs)
        if result.shape != a.shape:
            raise ExecutionError(
                "the second operand is larger than the first", where=kernel.__name__,
                expected=f"a shape that broadcasts to {list(a.shape)}", found=str(list(b.shape)),
            )  # fmt: skip
        return result

    del run.__dict__["__wrapped__"]  # the record must see this signature
    return run


@FAMILY.op("Add", since=7, traits={"elementwise", "commutative", "cheap"})
@widened
def add(a: Array, b: Array) -> Array:
    """Return the sum of two tensors; integers wrap."""
    return np.asarray(a + b)


@FAMILY.op("Sub", since=7, traits={"elementwise", "cheap"})
@widened
def sub(a: Array, b: Array) -> Array:
    """Return the difference of two tensors; integers wrap."""
    return np.asarray(a - b)


@FAMILY.op("Mul", since=7, traits={"elementwise", "commutative", "cheap"})
@widened
def mul(a: Array, b: Array) -> Array:
    """Return the product of two tensors; integers wrap."""
    return np.asarray(a * b)


@FAMILY.op("Div", since=7, traits={"elementwise", "cheap"})
@widened
def div(a: Array, b: Array) -> Array:
    """Return the quotient; integers truncate toward zero, x / 0 is 0 and MIN / -1 wraps to MIN."""
    if is_float(a.dtype):
        return np.asarray(a / b)
    return np.asarray((a - np.fmod(a, b)) // b) if a.dtype.kind == "i" else np.asarray(a // b)


@FAMILY.op("Mod", since=10, traits={"elementwise", "cheap"})
@widened
def mod(a: Array, b: Array, *, fmod: int = 0) -> Array:
    """Return the remainder with the sign of the divisor, or of the dividend with ``fmod=1``; integer x mod 0 is 0."""
    return np.asarray(np.fmod(a, b) if fmod else np.mod(a, b))


@FAMILY.op("Pow", since=7, traits={"elementwise"})
@quiet
def pow_(x: Array, y: Array) -> Array:
    """Raise to a power in the type of the base; an integer base to a negative power truncates toward zero."""
    if is_float(x.dtype):
        return np.asarray(_float_power(x, y))
    if is_float(y.dtype):
        return saturate(np.power(x.astype(np.float64), y.astype(np.float64)), x.dtype)
    exponent = y.astype(np.int64)
    result = np.power(x, np.maximum(exponent, 0).astype(x.dtype))
    if exponent.size and int(exponent.min()) < 0:
        unit = np.where(np.abs(x) == 1, np.where(exponent % 2 == 0, x * x, x), 0)
        result = np.where(exponent < 0, unit, result)
    return np.asarray(result).astype(x.dtype, copy=False)


@widened
def _float_power(x: Array, y: Array) -> Array:
    exponent = y.astype(x.dtype, copy=False)
    result = np.power(x, exponent)
    roots = exponent == 0.5  # numpy takes square roots, which are another number for -inf, and -0 for -0
    return np.where(roots, np.where(np.isneginf(x), -x, result + 0), result) if roots.any() else np.asarray(result)


def saturate(x: Array, dtype: np.dtype[Any]) -> Array:
    """Convert floats to an integer type: truncate, NaN becomes 0, values out of range the nearest limit."""
    info = np.iinfo(dtype)
    # The upper limit as a float may round up to one that is already out of range, hence the strict comparison; the
    # lower one is exact, and what truncation would bring up to it is set to it.
    above = float(info.max) + 1.0
    if not x.size or (x.min() >= info.min and x.max() < above):  # False if there is a NaN
        return x.astype(dtype)
    out = np.where((x >= info.min) & (x < above), x, 0).astype(dtype)
    out[x >= above] = info.max
    out[x < info.min] = info.min
    return out


for _name, _kernel in {"Add": add, "Sub": sub, "Mul": mul, "Div": div, "Pow": pow_}.items():
    FAMILY.op(_name, since=1, traits={"elementwise"})(legacy_broadcast(_kernel))


def _fold(function: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    @widened
    def run(*data: Array) -> Array:
        return functools.reduce(function, data)

    return run


sum_ = FAMILY.op("Sum", traits={"elementwise", "commutative"})(_fold(np.add))
max_ = FAMILY.op("Max", traits={"elementwise", "commutative"})(_fold(np.maximum))
min_ = FAMILY.op("Min", traits={"elementwise", "commutative"})(_fold(np.minimum))


@FAMILY.op("Mean", traits={"elementwise", "commutative"})
@widened
def mean(*data: Array) -> Array:
    """Return the mean of broadcast tensors."""
    return np.asarray(functools.reduce(np.add, data) / data[0].dtype.type(len(data)))


@FAMILY.op("Neg", traits={"elementwise", "cheap"})
@widened
def neg(x: Array) -> Array:
    """Negate; the least integer stays itself."""
    return np.asarray(-x)


@FAMILY.op("Abs", traits={"elementwise", "cheap"})
@widened
def abs_(x: Array) -> Array:
    """Return the absolute value; the least integer stays itself."""
    return np.asarray(np.abs(x))


@FAMILY.op("Sign", traits={"elementwise", "cheap"})
@widened
def sign(x: Array) -> Array:
    """Return -1, 0 or 1, and NaN for NaN."""
    return np.asarray(np.sign(x))


@FAMILY.op("Reciprocal", traits={"elementwise", "cheap"})
@widened
def reciprocal(x: Array) -> Array:
    """Return 1 / x."""
    return np.asarray(x.dtype.type(1) / x)


def _unary(name: str, function: Callable[[Array], Array], *extra: str) -> None:
    @widened
    def run(x: Array) -> Array:
        return function(x)

    FAMILY.op(name, traits={"elementwise", *extra})(run)


for _name, _function in {"Floor": np.floor, "Ceil": np.ceil, "Round": np.rint, "Sqrt": np.sqrt}.items():
    _unary(_name, _function, "cheap")
for _name, _function in {
    "Exp": np.exp,
    "Log": np.log,
    "Sin": np.sin,
    "Cos": np.cos,
    "Tan": np.tan,
    "Asin": np.arcsin,
    "Acos": np.arccos,
    "Atan": np.arctan,
    "Sinh": np.sinh,
    "Cosh": np.cosh,
    "Tanh": np.tanh,
    "Asinh": np.arcsinh,
    "Acosh": np.arccosh,
    "Atanh": np.arctanh,
}.items():
    _unary(_name, _function)

_ERF_LIMIT = 3.92  # erf rounds to 1 in float32 from here on
# erf(x) / x as a rational function of x², lowest power first: fitted by iteratively reweighted least squares on
# [0, 3.92]. The relative error is 2e-8 in exact arithmetic and 4e-7 in float32.
_ERF_TOP = (1.12837915, 0.190407293, 0.0527488383, 0.00376565413, 0.000284883858, 2.05008471e-06)
_ERF_BOTTOM = (1.0, 0.502076811, 0.114109459, 0.0149692906, 0.00116254509, 3.80917478e-05)
_erf64 = np.frompyfunc(math.erf, 1, 1)


def erf(x: Array) -> Array:
    """Return the error function; all but float32 asks the C library, and integers round to float32 first."""
    if x.dtype != np.float32:
        return np.asarray(_erf64(x)).astype(np.float64 if x.dtype == np.float64 else np.float32)
    t = np.clip(x, np.float32(-_ERF_LIMIT), np.float32(_ERF_LIMIT))
    square = t * t
    inside = t * _polynomial(square, _ERF_TOP) / _polynomial(square, _ERF_BOTTOM)
    # Exactly ±1 outside: what follows may multiply 1 - erf(x) by a huge x, as Gelu does.
    return np.where(np.abs(x) < _ERF_LIMIT, np.clip(inside, np.float32(-1), np.float32(1)), np.sign(x))


def _polynomial(x: Array, coefficients: tuple[float, ...]) -> Array:
    total = np.full_like(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        total *= x
        total += x.dtype.type(c)
    return total


_unary("Erf", erf)


@FAMILY.op("Clip", since=11, traits={"elementwise", "cheap"})
def clip(x: Array, low: Array | None = None, high: Array | None = None) -> Array:
    """Limit to [low, high]; where low > high everything becomes high; NaN stays.

    A missing limit is the type's least or greatest finite value, so that even then infinity becomes finite.
    """
    if low is None and high is None and not is_float(x.dtype):
        return x
    least, most = float_range(x.dtype) if is_float(x.dtype) else integer_range(x.dtype)
    bottom = np.array(least, x.dtype) if low is None else low.reshape(())
    top = np.array(most, x.dtype) if high is None else high.reshape(())
    return np.asarray(_limit(x, bottom, top))


@widened
def _limit(x: Array, low: Array, high: Array) -> Array:
    return np.asarray(np.minimum(np.maximum(x, low), high))


@FAMILY.op("Clip", since=1, traits={"elementwise", "cheap"})
@widened
def clip_attributes(
    x: Array,
    *,
    min: float = _FLOAT32_MIN,  # noqa: A002
    max: float = _FLOAT32_MAX,  # noqa: A002
    consumed_inputs: Any = None,
) -> Array:
    """Compute Clip before opset 11, with the limits as attributes."""
    low, high = (np.clip(v, np.finfo(x.dtype).min, np.finfo(x.dtype).max) for v in (min, max))
    return np.asarray(np.minimum(np.maximum(x, x.dtype.type(low)), x.dtype.type(high)))


@FAMILY.op("BitShift", since=11, traits={"elementwise", "cheap"})
def bit_shift(x: Array, y: Array, *, direction: str) -> Array:
    """Shift; an amount that is negative or not below the width leaves only the sign's extension.

    Raises:
        ExecutionError: If the direction is neither LEFT nor RIGHT.
    """
    width = 8 * x.dtype.itemsize
    fits = (y >= 0) & (y < width)
    amount = np.where(fits, y, 0).astype(x.dtype)
    if direction == "LEFT":
        return np.where(fits, x << amount, 0).astype(x.dtype)
    return np.where(fits, x >> amount, np.where(x < 0, -1, 0).astype(x.dtype))


for _name, _ufunc in {"And": np.bitwise_and, "Or": np.bitwise_or, "Xor": np.bitwise_xor}.items():
    FAMILY.op(f"Bitwise{_name}", traits={"elementwise", "commutative", "cheap"})(_fold(_ufunc))
_unary("BitwiseNot", np.invert, "cheap")


def _binary(function: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    def run(a: Array, b: Array) -> Array:
        wide = compute_dtype(a.dtype)
        if wide is not a.dtype:
            a, b = a.astype(wide), b.astype(wide)
        return np.asarray(function(a, b)).astype(np.bool_, copy=False)

    return run


for _name, _predicate, _traits in (
    ("Equal", np.equal, {"commutative"}),
    ("Less", np.less, set()),
    ("Greater", np.greater, set()),
    ("LessOrEqual", np.less_equal, set()),
    ("GreaterOrEqual", np.greater_equal, set()),
    ("And", np.logical_and, {"commutative"}),
    ("Or", np.logical_or, {"commutative"}),
    ("Xor", np.logical_xor, {"commutative"}),
):
    _kernel = _binary(_predicate)
    FAMILY.op(_name, since=7, traits={"elementwise", "cheap"} | _traits)(_kernel)
    if not _name.endswith("OrEqual"):
        FAMILY.op(_name, since=1, traits={"elementwise", "cheap"})(legacy_broadcast(_kernel))


@FAMILY.op("Not", traits={"elementwise", "cheap"})
def not_(x: Array) -> Array:
    """Negate."""
    return np.asarray(np.logical_not(x))


@FAMILY.op("IsNaN", traits={"elementwise", "cheap"})
def is_nan(x: Array) -> Array:
    """Tell whether each element is NaN."""
    return np.asarray(np.isnan(x.astype(compute_dtype(x.dtype), copy=False)))


@FAMILY.op("IsInf", traits={"elementwise", "cheap"})
def is_inf(x: Array, *, detect_negative: int = 1, detect_positive: int = 1) -> Array:
    """Tell whether each element is an infinity of a sign that is asked for."""
    wide = x.astype(compute_dtype(x.dtype), copy=False)
    negative = np.isneginf(wide) if detect_negative else np.zeros(x.shape, np.bool_)
    positive = np.isposinf(wide) if detect_positive else np.zeros(x.shape, np.bool_)
    return np.asarray(negative | positive)


@FAMILY.op("Where", traits={"elementwise", "cheap"})
def where(condition: Array, x: Array, y: Array) -> Array:
    """Return elements of ``x`` where the condition holds, else of ``y``, all three broadcast."""
    return np.where(condition, x, y)


# Rules -------------------------------------------------------------------------------------------------------------


def _since(version: int, dtype: str = "") -> Rule:
    """Return the rule of operators that broadcast from a version on, and before only where an attribute says so.

    ``dtype`` is the element type of the result; by default that of the operands.
    """
    rule = broadcasting_to(dtype) if dtype else broadcasting

    def both(facts: Facts) -> Results:
        return rule(facts) if facts.version >= version else [_aligned(facts, version, dtype or facts.first_dtype())]

    return both


def _aligned(facts: Facts, version: int, dtype: str) -> Type:
    """Return the type of a result that has the shape of the first operand, to which the others are aligned."""
    shape = facts.shape(0)
    if shape is None:
        return facts.tensor(dtype, None)
    whole = list(shape)
    for index in range(1, facts.count):
        other = facts.shape(index)
        if other is None:
            continue
        if not facts.attr("broadcast", 0):
            if len(other) != len(whole) or any(_differ(a, b) for a, b in zip(whole, other, strict=True)):
                facts.fail(
                    "the operands differ in shape, which this version does not broadcast",
                    expected=f"shape {shape_text(shape)}", found=shape_text(other),
                    hint=f"Use opset {version} or later.",
                )  # fmt: skip
            whole = [
                facts.require_equal(a, b, "the operands differ in shape") for a, b in zip(whole, other, strict=True)
            ]
            continue
        axis = facts.attr("axis")
        behind = 0 if axis is None or not other else len(whole) - facts.require_axis(axis, len(whole)) - len(other)
        facts.require(behind >= 0, "the second operand is larger than the first",
                      expected=f"a shape that broadcasts to {shape_text(shape)}", found=shape_text(other))  # fmt: skip
        facts.require_broadcast(index, tuple(whole[: len(whole) - behind]), "the second operand")
    return facts.tensor(dtype, whole)


def _differ(a: Size | None, b: Size | None) -> bool:
    return isinstance(a, int) and isinstance(b, int) and a != b


def _quotient(a: Size, b: Size) -> Size:
    """Return a / b as ONNX divides integers: towards zero, which for sizes is the same as down."""
    if isinstance(a, int) and isinstance(b, int):
        quotient = abs(a) // abs(b)
        return quotient if (a < 0) == (b < 0) else -quotient
    if not (a >= 0 and b >= 0):
        raise UndecidedError("a quotient that may be negative")
    return a // b  # a divisor that is 0 in a run is the run's mistake


def _remainder(a: Size, b: Size) -> Size:
    """Return the remainder of a division where both of ONNX's are the same."""
    if not (a >= 0 and b >= 0):
        raise UndecidedError("a remainder that may be negative")
    return a % b


# Truth is a size as well: 1 or 0, and an expression where the sizes of the run decide it.


def _is_zero(a: Size) -> Size:
    return if_zero(a, 1, 0)


def _is_less(a: Size, b: Size) -> Size:
    return _is_zero(maximum(a - b + 1, 0))


def _total(*terms: Size) -> Size:
    return sum(terms[1:], start=terms[0])


_RULES: Mapping[str, tuple[Rule, Callable[..., Size] | None]] = {
    "Add": (_since(7), operator.add),
    "Sub": (_since(7), operator.sub),
    "Mul": (_since(7), operator.mul),
    "Div": (_since(7), _quotient),
    "Pow": (_since(7), None),
    "Mod": (broadcasting, _remainder),
    "Max": (_since(8), maximum),
    "Min": (_since(8), minimum),
    "Sum": (_since(8), _total),
    "Mean": (_since(8), None),
    "And": (_since(7, "bool"), operator.mul),
    "Or": (_since(7, "bool"), maximum),
    "Xor": (_since(7, "bool"), lambda a, b: 1 - _is_zero(a - b)),
    "Equal": (_since(7, "bool"), lambda a, b: _is_zero(a - b)),
    "Greater": (_since(7, "bool"), lambda a, b: _is_less(b, a)),
    "Less": (_since(7, "bool"), _is_less),
    "GreaterOrEqual": (broadcasting_to("bool"), lambda a, b: 1 - _is_less(a, b)),
    "LessOrEqual": (broadcasting_to("bool"), lambda a, b: 1 - _is_less(b, a)),
    "Neg": (same_as_first, operator.neg),
    "Abs": (same_as_first, lambda a: a if a >= 0 else -a),
}
for _name, (_rule, _of_sizes) in _RULES.items():
    FAMILY.infer(_name, contents=None if _of_sizes is None else computed(_of_sizes))(_rule)
FAMILY.infer("BitwiseAnd", "BitwiseOr", "BitwiseXor")(broadcasting)
FAMILY.infer(
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor",
    "Log", "Reciprocal", "Round", "Sign", "Sin", "Sinh", "Sqrt", "Tan", "Tanh",
)(same_as_first)  # fmt: skip
FAMILY.infer("Not", contents=computed(lambda a: 1 - a))(broadcasting_to("bool"))
FAMILY.infer("IsInf", "IsNaN")(broadcasting_to("bool"))


@FAMILY.infer("Where", contents=computed(lambda condition, a, b: if_zero(condition, b, a)))
def _where(facts: Facts) -> Results:
    return [facts.tensor(facts.first_dtype(1, 2), facts.broadcast(*map(facts.shape, range(3))))]


@FAMILY.infer("BitShift")
def _bit_shift(facts: Facts) -> Results:
    facts.require_one_of("direction", ("LEFT", "RIGHT"))
    return broadcasting(facts)


@FAMILY.infer("Clip")
def _clip(facts: Facts) -> Results:
    facts.require_scalar(1, "the lower limit")
    facts.require_scalar(2, "the upper limit")
    return [facts.tensor(facts.first_dtype(), facts.shape(0))]


FAMILY.trait("function", "Clip", "Tanh")
FAMILY.trait("clamp", "Clip")
