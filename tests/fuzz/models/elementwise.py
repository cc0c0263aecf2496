"""Element-wise operators: unary functions, arithmetic, comparisons, conversions, choices."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass

import numpy as np

from tests.fuzz.models.build import CODES, Builder, UnsuitableError, Value, numpy_dtype

INTEGERS = ("int32", "int64")


@dataclass(frozen=True)
class Unary:
    """A function of one float.

    Attributes:
        domain: What the operand is sent through first: any value is right with ``any``, only an exact one with
            ``exact``; ``positive`` adds a half to the magnitude, ``unit`` makes it less than one, ``mild`` less than 4.
        bound: Largest magnitude of the result; None for that of the operand.
        keeps: Whether an exact operand gives an exact result, a multiple of the same step.
        since: First opset with it.
        attrs: Attributes with what they may be.
    """

    domain: str = "any"
    bound: float | None = None
    keeps: bool = False
    since: int = 13
    attrs: tuple[tuple[str, tuple[object, ...]], ...] = ()


_ALPHA = (("alpha", (0.5, 0.01, 1.5)),)
UNARY = {
    "Relu": Unary(keeps=True), "Neg": Unary(keeps=True), "Abs": Unary(keeps=True), "Identity": Unary(keeps=True),
    "Floor": Unary("exact", keeps=True), "Ceil": Unary("exact", keeps=True), "Round": Unary("exact", keeps=True),
    "Sign": Unary("exact", 1.0, keeps=True), "Sigmoid": Unary(bound=1.0), "Tanh": Unary(bound=1.0),
    "Erf": Unary(bound=1.0), "Exp": Unary("mild", 55.0), "Log": Unary("positive", 6.0), "Sqrt": Unary("positive", 9.0),
    "Reciprocal": Unary("positive", 2.0), "Sin": Unary("mild", 1.0), "Cos": Unary("mild", 1.0),
    "Tan": Unary("unit", 1.6), "Asin": Unary("unit", 1.6), "Acos": Unary("unit", 3.2), "Atan": Unary(bound=1.6),
    "Sinh": Unary("mild", 28.0), "Cosh": Unary("mild", 28.0), "Asinh": Unary(), "Atanh": Unary("unit", 2.0),
    "Softplus": Unary(), "Softsign": Unary(bound=1.0), "HardSwish": Unary(since=14), "Elu": Unary(attrs=_ALPHA),
    "HardSigmoid": Unary(bound=1.0, attrs=(("alpha", (0.2, 0.25)), ("beta", (0.5, 0.4)))), "Selu": Unary(),
    "Celu": Unary(attrs=(("alpha", (1.0, 2.0)),)), "LeakyRelu": Unary(attrs=_ALPHA), "Mish": Unary(since=18),
    "ThresholdedRelu": Unary("exact", keeps=True, attrs=(("alpha", (0.5, 1.0)),)),
    "Shrink": Unary("exact", keeps=True, attrs=(("lambd", (0.5, 1.0)), ("bias", (0.0, 0.25)))),
    "Gelu": Unary(since=20, attrs=(("approximate", ("none", "tanh")),)), "Dropout": Unary(keeps=True),
    "Swish": Unary(since=24),
}  # fmt: skip
LIMITED = {"Celu": ("float32",), "Gelu": ("float32", "float64"), "Mish": ("float32",)}
"""Functions that fewer types have."""


def _scalar(b: Builder, like: Value, number: float) -> Value:
    step = 2.0**-6 if float(number * 64).is_integer() else 0.0
    return b.constant(np.array(number, numpy_dtype(like.dtype)), abs(number), step)


def positive(b: Builder, x: Value) -> Value:
    """Return the magnitude of ``x``, plus a half."""
    magnitude = b.add("Abs", [x], bound=x.bound, step=x.step)
    return b.add("Add", [magnitude, _scalar(b, x, 0.5)], bound=x.bound + 0.5, step=min(x.step, 0.5))


def unit(b: Builder, x: Value) -> Value:
    """Return something of ``x`` whose magnitude is less than one."""
    squeezed = b.add("Tanh", [x], bound=1.0)
    return b.add("Mul", [squeezed, _scalar(b, x, 0.75)], bound=0.75)


def mild(b: Builder, x: Value) -> Value:
    """Return ``x`` between -4 and 4."""
    if x.bound <= 4:
        return x
    return b.add("Clip", [x, _scalar(b, x, -4.0), _scalar(b, x, 4.0)], bound=4.0, step=x.step)


_DOMAINS = {"positive": positive, "unit": unit, "mild": mild}


def unary(b: Builder) -> Value:
    """A function of one float."""
    op = b.rng.choice([name for name, f in UNARY.items() if f.since <= b.opset])
    function = UNARY[op]
    x = b.pick_float(
        lambda v: v.exact or function.domain != "exact", LIMITED.get(op, ("float32", "float64", "float16"))
    )
    if function.domain in _DOMAINS:
        x = _DOMAINS[function.domain](b, x)
    attrs = {name: b.rng.choice(choices) for name, choices in function.attrs if b.rng.random() < 0.7}
    bound = 2 * x.bound if function.bound is None else function.bound
    return b.add(op, [x], bound=bound, step=min(x.step, 0.25) if function.keeps else 0.0, **attrs)


# Two operands ---------------------------------------------------------------------------------------------------------


def partner(b: Builder, x: Value) -> Value:
    """Return a second operand: one of the same shape, one that is broadcast, or one that broadcasts ``x``."""
    if b.rng.random() < 0.5:
        try:
            return b.pick(lambda v: v.dtype == x.dtype and _broadcasts(v.shape, x.shape))
        except UnsuitableError:
            pass
    shape = [1 if b.rng.random() < 0.35 else d for d in x.shape]
    shape = shape[b.rng.choice((0, 0, len(shape), b.rng.randint(0, len(shape)))) :]
    if b.rng.random() < 0.05 and x.size < 500:
        shape = [b.rng.randint(1, 3), *([1] * (x.rank - len(shape))), *shape]
    return b.weights(x.dtype, shape)


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(x == y or 1 in (x, y) for x, y in zip(reversed(a), reversed(b), strict=False))


def arithmetic(b: Builder) -> Value:
    """Add, Sub, Mul, Div, and what takes any number of operands."""
    op = b.rng.choice(("Add", "Add", "Sub", "Mul", "Mul", "Div", "Max", "Min", "Sum", "Mean", "Pow", "Mod"))
    dtypes = (
        ("float32", "float64", "float16") if op in ("Sum", "Mean") else ("float32", "float64", "float16", *INTEGERS)
    )
    x = b.pick(lambda v: v.dtype in dtypes and v.bound < 1 << 12)
    if op in ("Div", "Pow", "Mod"):
        return _careful(b, op, x)
    y = b.tamed(partner(b, x))
    if b.rng.random() < 0.3:
        x, y = y, x
    operands = [x, y]
    if op in ("Max", "Min", "Sum", "Mean") and b.rng.random() < 0.3:
        operands.append(b.tamed(partner(b, x)))
    if op == "Mul":
        return b.add(op, operands, bound=x.bound * y.bound, step=x.step * y.step)
    step = 0.0 if op == "Mean" else min(v.step for v in operands)
    return b.add(op, operands, bound=sum(v.bound for v in operands), step=step)


def _careful(b: Builder, op: str, x: Value) -> Value:
    """Operators whose second operand must not be near zero."""
    if x.is_float:
        if op == "Pow":
            exponent = b.rng.choice((2.0, 3.0, 0.5, 1.0, -1.0))
            bound = max(x.bound + 0.5, 2.0) ** max(exponent, 1.0)
            return b.add(op, [positive(b, x), _scalar(b, x, exponent)], bound=bound)
        if op == "Mod":
            raise UnsuitableError  # of floats it jumps
        return b.add(op, [x, positive(b, b.tamed(partner(b, x)))], bound=2 * x.bound)
    divisors = b.arrays.integers(1, 6, partner(b, x).shape).astype(x.dtype)
    if op == "Pow":
        return b.add(op, [x, b.constant(divisors % 3)], bound=x.bound**2)
    attrs = {"fmod": 1} if op == "Mod" and b.rng.random() < 0.3 else {}
    return b.add(op, [x, b.constant(divisors)], bound=x.bound, **attrs)


def clip(b: Builder) -> Value:
    """Clip, with either limit left out now and then."""
    x = b.pick(lambda v: v.dtype in ("float32", "float64", *INTEGERS))
    low, high = (None if b.rng.random() < 0.25 else _scalar(b, x, n) for n in (b.rng.choice((-2, -1, 0)), 2))
    step = min(x.step, 2.0**-6) if x.is_float else 1.0
    return b.add("Clip", [x, low, high], bound=max(x.bound, 2.0), step=step)


def prelu(b: Builder) -> Value:
    """PRelu with a slope per channel, per element, or one for all."""
    x = b.pick_float(lambda v: v.rank >= 1, ("float32",))
    shape = b.rng.choice(([1], list(x.shape), [x.shape[1], *([1] * (x.rank - 2))] if x.rank > 1 else [1]))
    slope = b.weights(x.dtype, shape)
    return b.add("PRelu", [x, slope], bound=3 * x.bound, step=x.step * slope.step)


# Comparisons and conversions ------------------------------------------------------------------------------------------


def compare(b: Builder) -> Value:
    """A comparison of exact values."""
    op = b.rng.choice(("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"))
    x = b.pick(lambda v: v.exact and v.dtype in ("float32", "float64", *INTEGERS))
    y = partner(b, x)
    if not (x.exact and y.exact):
        raise UnsuitableError
    return b.add(op, [x, y], bound=1.0)


def logic(b: Builder) -> Value:
    """And, Or, Xor, Not."""
    op = b.rng.choice(("And", "Or", "Xor", "Not"))
    x = b.pick(lambda v: v.dtype == "bool")
    return b.add(op, [x] if op == "Not" else [x, partner(b, x)], bound=1.0)


def where(b: Builder) -> Value:
    """Where, with all three operands broadcast."""
    condition = b.pick(lambda v: v.dtype == "bool")
    x = b.weights(b.rng.choice(("float32", "int64", "float32")), condition.shape)
    with contextlib.suppress(UnsuitableError):
        x = b.pick(lambda v: v.dtype != "bool" and _broadcasts(v.shape, condition.shape))
    if x.dtype not in ("float32", "int64", "int32", "uint8", "float64"):
        raise UnsuitableError
    y = b.tamed(partner(b, x))
    return b.add("Where", [condition, x, y], bound=max(x.bound, y.bound), step=min(x.step, y.step))


_TO = {
    "float32": ("int32", "int64", "bool", "float64", "float16", "uint8", "int8"), "int32": ("float32", "int64", "bool"),
    "int64": ("float32", "int32", "float64", "bool"), "bool": ("float32", "int64", "int32", "uint8"),
    "float16": ("float32",), "float64": ("float32", "int64"), "uint8": ("float32", "int32", "uint16"),
    "int8": ("float32", "int32", "int16"),
}  # fmt: skip


def cast(b: Builder) -> Value:
    """Cast, also of ties, which are cut and not rounded."""
    x = b.pick(lambda v: v.dtype in _TO)
    to = b.rng.choice(_TO[x.dtype])
    if x.is_float and to not in ("float64", "float16", "float32"):
        if not x.exact or (to == "int8" and x.bound >= 127):
            raise UnsuitableError
        if to == "uint8":
            x = b.add("Abs", [x], bound=x.bound, step=x.step)
    bound = 1.0 if to == "bool" else x.bound
    return b.add("Cast", [x], bound=bound, step=x.step if x.is_float else 1.0, to=CODES[to])


def is_something(b: Builder) -> Value:
    """IsNaN and IsInf, of what is neither."""
    return b.add(b.rng.choice(("IsNaN", "IsInf")), [b.pick_float(dtypes=("float32", "float64"))], bound=1.0)


def bitwise(b: Builder) -> Value:
    """Operations on the bits of integers."""
    if b.opset < 18:
        raise UnsuitableError
    x = b.pick(lambda v: v.dtype in INTEGERS)
    op = b.rng.choice(("BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"))
    bound = 2.0 ** (math.ceil(math.log2(x.bound + 2)) + 4)
    return b.add(op, [x] if op == "BitwiseNot" else [x, partner(b, x)], bound=bound)


FAMILIES = {
    unary: 8, arithmetic: 8, clip: 1, prelu: 1, compare: 2, logic: 1, where: 2, cast: 2, is_something: 0.3,
    bitwise: 0.4,
}  # fmt: skip
