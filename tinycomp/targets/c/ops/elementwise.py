"""Element-wise operators on the C target: steps of a fusion group, in whatever memory order the operands share."""

from __future__ import annotations

import math

from tinycomp.ir.graph import Node
from tinycomp.ir.types import numpy_dtype
from tinycomp.ops.numeric import float_range
from tinycomp.rewrite import reject
from tinycomp.runtime.native.library import codes, lib
from tinycomp.targets.c.codegen.element_program import FLOATS, INTEGERS, MAX_INPUTS, SMALL_FLOATS, TYPES, Ref, Steps
from tinycomp.targets.c.codegen.epilogue import READ
from tinycomp.targets.c.codegen.rules import LoweringRules, known_rank
from tinycomp.targets.c.codegen.texts import DTYPE, takes_texts
from tinycomp.targets.c.ops.movement import movable
from tinycomp.targets.c.ops.texts import text_equal
from tinycomp.targets.common.checks import Verdict, all_of, dtypes

FAMILY = LoweringRules()

_floats, _numbers = dtypes(*FLOATS), dtypes(*FLOATS, *INTEGERS)
_all_floats = dtypes(*FLOATS, *SMALL_FLOATS)

_UNARY_CODES = codes("tc_unary", "TC_UNARY_")
UNARY = {
    op: _UNARY_CODES[op.upper()]
    for op in (
        "Abs", "Neg", "Exp", "Log", "Sqrt", "Reciprocal", "Floor", "Ceil", "Round", "Sign", "Erf", "Softplus",
        "Softsign", "Elu", "Selu", "Celu", "Mish", "Shrink", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh",
        "Cosh", "Asinh", "Acosh", "Atanh",
    )
} | {"ThresholdedRelu": lib.TC_UNARY_THRESHOLDED_RELU, "BitwiseNot": lib.TC_UNARY_NOT}  # fmt: skip
"""Codes of functions of one number by operator."""
_OF_INTEGERS = ("Abs", "Neg", "Sign")
_COEFFICIENTS = {
    "Elu": (("alpha", 1.0), None),
    "Selu": (("alpha", 1.67326319217681884765625), ("gamma", 1.05070102214813232421875)),
    "Celu": (("alpha", 1.0), None),
    "ThresholdedRelu": (("alpha", 1.0), None),
    "Shrink": (("lambd", 0.5), ("bias", 0.0)),
}


def _read(steps: Steps, node: Node, index: int = 0) -> Ref:
    """Return an operand in the type that it is computed in."""
    value = node.operand(index)
    return steps.wide(steps.read(value))


def unary(steps: Steps, node: Node) -> Ref:
    """Add one function of one operand."""
    a, b = (float(node.attrs.get(*entry)) if entry else 0.0 for entry in _COEFFICIENTS.get(node.op, (None, None)))
    return steps.unary(UNARY[node.op], _read(steps, node), a, b)


FAMILY.element(*(UNARY.keys() - {*_OF_INTEGERS, "BitwiseNot"}), check=_floats)(unary)
FAMILY.element(*_OF_INTEGERS, check=_numbers)(unary)
FAMILY.element("BitwiseNot", check=dtypes(*INTEGERS))(unary)

_ACTIVATIONS = {
    "LeakyRelu": "leaky_relu", "Sigmoid": "sigmoid", "Tanh": "tanh", "HardSwish": "hardswish",
    "HardSigmoid": "hardsigmoid",
}  # fmt: skip


@FAMILY.element(*_ACTIVATIONS, "Gelu", check=_floats)
def activation(steps: Steps, node: Node) -> Ref:
    """Add an activation that stands alone."""
    name = _ACTIVATIONS.get(node.op, "gelu_tanh" if node.attrs.get("approximate") == "tanh" else "gelu")
    found = READ[name](node)
    return steps.unary(found.code, _read(steps, node), found.a, found.b)


@FAMILY.element("Swish", check=_floats)
def swish(steps: Steps, node: Node) -> Ref:
    """Add x * sigmoid(alpha * x)."""
    x, alpha = _read(steps, node), float(node.attrs.get("alpha", 1.0))
    if alpha == 1.0:
        return steps.unary(lib.TC_ACT_SILU, x)
    scaled = steps.binary(BINARY["Mul"], x, steps.constant(alpha, x.dtype))
    return steps.binary(BINARY["Mul"], x, steps.unary(lib.TC_ACT_SIGMOID, scaled))


@FAMILY.element("Relu", check=_numbers)
def relu(steps: Steps, node: Node) -> Ref:
    """Add max(x, 0)."""
    x = _read(steps, node)
    if x.dtype in FLOATS:
        return steps.unary(lib.TC_ACT_RELU, x)
    return steps.binary(BINARY["Max"], x, steps.constant(0, x.dtype))


def _clip_check(node: Node) -> Verdict:
    for value in node.inputs[1:]:
        if value is not None and value.shape not in ((), (1,)):
            return reject(f'the bound "{value.name}" is {value.type}, not one number')
    return True


@FAMILY.element("Clip", check=all_of(_numbers, _clip_check))
def clip(steps: Steps, node: Node) -> Ref:
    """Add min(max(x, low), high); without a bound, a float is limited to what is finite."""
    x = _read(steps, node)
    low, high = (_bound(steps, node, index, name) for index, name in ((1, "min"), (2, "max")))
    if x.dtype == "float32" and low is not None and high is not None:
        numbers = [steps.number(bound) for bound in (low, high)]
        if not any(n is None or n != n for n in numbers):
            return steps.unary(lib.TC_ACT_CLIP, x, *(n for n in numbers if n is not None))
    for op, bound in (("Max", low), ("Min", high)):
        x = x if bound is None else steps.binary(BINARY[op], bound, x)
    return x


def _bound(steps: Steps, node: Node, index: int, attribute: str) -> Ref | None:
    """Return a bound of a Clip: an operand, an attribute, or the end of a float's range; None for integers."""
    if node.optional_operand(index) is not None:
        return _read(steps, node, index)
    dtype = node.operand(0).dtype
    if dtype not in FLOATS:
        return None
    ends = float_range(numpy_dtype(dtype))
    number = min(max(float(node.attrs.get(attribute, ends[index - 1])), ends[0]), ends[1])
    return steps.wide(steps.constant(number, dtype))


_BINARY_CODES = codes("tc_binary", "TC_BINARY_")
BINARY = {
    op: _BINARY_CODES[op.removeprefix("Bitwise").upper()]
    for op in (
        "Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Mod", "PRelu", "BitwiseAnd", "BitwiseOr", "BitwiseXor",
    )
}  # fmt: skip
"""Codes of arithmetic by operator."""
_SHIFTS = {"LEFT": lib.TC_BINARY_SHIFT_LEFT, "RIGHT": lib.TC_BINARY_SHIFT_RIGHT}
_FOLDED = {**{op: op for op in ("Min", "Max", "BitwiseAnd", "BitwiseOr", "BitwiseXor")}, "Sum": "Add", "Mean": "Add"}
_NUMPY_PRELU = 7


def _broadcast_check(node: Node) -> Verdict:
    if "axis" in node.attrs or node.attrs.get("broadcast"):
        return reject("broadcasting along an explicit axis (before opset 7)")
    if len(node.inputs) > MAX_INPUTS:
        return reject(f"{len(node.inputs)} operands; a kernel takes {MAX_INPUTS}")
    if node.op == "PRelu" and node.version < _NUMPY_PRELU:
        return reject("PRelu before opset 7 spreads its slope over the channels")
    return True


def _one_dtype(node: Node) -> Verdict:
    found = sorted({v.dtype for v in node.inputs if v is not None})
    return len(found) == 1 or reject(f"operands of different dtypes: {', '.join(found)}")


_broadcasts = all_of(known_rank, _broadcast_check)


@FAMILY.element("Add", "Sub", "Mul", "Div", "PRelu", "Mod", check=all_of(_numbers, _broadcasts, _one_dtype))
def binary(steps: Steps, node: Node) -> Ref:
    """Add arithmetic on two operands."""
    op = lib.TC_BINARY_FMOD if node.op == "Mod" and node.attrs.get("fmod") else BINARY[node.op]
    return steps.binary(op, _read(steps, node), _read(steps, node, 1))


@FAMILY.element("BitShift", check=all_of(dtypes(*INTEGERS), _broadcasts, _one_dtype))
def shift(steps: Steps, node: Node) -> Ref:
    """Add a shift of bits."""
    return steps.binary(_SHIFTS[node.attrs["direction"]], _read(steps, node), _read(steps, node, 1))


def folded(steps: Steps, node: Node) -> Ref:
    """Add arithmetic on any number of operands, which rounds once."""
    total = _read(steps, node)
    for index in range(1, len(node.inputs)):
        total = steps.binary(BINARY[_FOLDED[node.op]], total, _read(steps, node, index))
    if node.op == "Mean":
        total = steps.binary(BINARY["Div"], total, steps.constant(len(node.inputs), total.dtype))
    return total


FAMILY.element("Min", "Max", "Sum", "Mean", check=all_of(_numbers, _broadcasts, _one_dtype))(folded)
FAMILY.element("BitwiseAnd", "BitwiseOr", "BitwiseXor", check=all_of(dtypes(*INTEGERS), _broadcasts, _one_dtype))(
    folded
)


def _power_check(node: Node) -> Verdict:
    base, exponent = (v.dtype for v in node.inputs[:2] if v is not None)
    if base in INTEGERS and base not in ("int32", "int64"):
        return reject(f"powers of {base}")
    return exponent != "uint64" or base in FLOATS or reject("exponents of uint64")


@FAMILY.element("Pow", check=all_of(_numbers, _broadcasts, _power_check))
def power(steps: Steps, node: Node) -> Ref:
    """Add a power in the type of the base; of two integers in int64, of an integer to a float in float64.

    A square is a product, which takes a twentieth of the time: normalisations that a model spells out are full of them.
    """
    x, exponent = _read(steps, node), node.operand(1)
    by = exponent.dtype
    mixed = x.dtype in INTEGERS and by != x.dtype
    computed = x.dtype if not mixed else "int64" if by in INTEGERS else "float64"
    base = steps.cast(x, computed)
    if exponent.const is not None and bool((exponent.const == 2).all()):
        return steps.binary(BINARY["Mul"], base, base)
    return steps.binary(BINARY["Pow"], base, steps.cast(_read(steps, node, 1), computed))


COMPARE = {
    "Equal": lib.TC_COMPARE_EQUAL, "Less": lib.TC_COMPARE_LESS, "LessOrEqual": lib.TC_COMPARE_LESS_EQUAL,
    "Greater": lib.TC_COMPARE_GREATER, "GreaterOrEqual": lib.TC_COMPARE_GREATER_EQUAL,
}  # fmt: skip
LOGICAL = {
    "And": lib.TC_LOGICAL_AND, "Or": lib.TC_LOGICAL_OR, "Xor": lib.TC_LOGICAL_XOR, "Equal": lib.TC_LOGICAL_EQUAL,
}  # fmt: skip


_ordered = all_of(dtypes(*FLOATS, *INTEGERS, "bool"), _broadcasts, _one_dtype)
_same_texts = all_of(dtypes(DTYPE), known_rank)


@FAMILY.element("Equal", check=lambda node: (_same_texts if takes_texts(node) else _ordered)(node), texts=text_equal)
@FAMILY.element(*[op for op in COMPARE if op != "Equal"], check=_ordered)
def compare(steps: Steps, node: Node) -> Ref:
    """Add a comparison."""
    x, y = _read(steps, node), _read(steps, node, 1)
    if x.dtype == "bool":
        return steps.logical(LOGICAL["Equal"], x, y)
    return steps.compare(COMPARE[node.op], x, y)


@FAMILY.element("And", "Or", "Xor", check=all_of(dtypes("bool"), _broadcasts))
def logical(steps: Steps, node: Node) -> Ref:
    """Add logic on two booleans."""
    return steps.logical(LOGICAL[node.op], _read(steps, node), _read(steps, node, 1))


@FAMILY.element("Not", check=dtypes("bool"))
def negation(steps: Steps, node: Node) -> Ref:
    """Add the negation of a boolean."""
    return steps.logical(LOGICAL["Equal"], _read(steps, node), steps.constant(False, "bool"))


@FAMILY.element("IsNaN", check=_all_floats)
def is_nan(steps: Steps, node: Node) -> Ref:
    """Add a test for NaN, which alone differs from itself."""
    x = _read(steps, node)
    return steps.compare(lib.TC_COMPARE_NOT_EQUAL, x, x)


@FAMILY.element("IsInf", check=_all_floats)
def is_inf(steps: Steps, node: Node) -> Ref:
    """Add a test for the infinities that are asked for."""
    x = _read(steps, node)
    signs = [s for s, n in ((-1, "detect_negative"), (1, "detect_positive")) if node.attrs.get(n, 1)]
    if not signs:
        return steps.constant(False, "bool")
    size = x if len(signs) == 1 else steps.unary(UNARY["Abs"], x)
    return steps.compare(COMPARE["Equal"], size, steps.constant(signs[-1] * math.inf, x.dtype))


@FAMILY.element("Where", check=all_of(movable, known_rank))
def where(steps: Steps, node: Node) -> Ref:
    """Add an element-wise choice."""
    condition, x, y = (steps.read(v) for v in node.inputs if v is not None)
    return steps.where(condition, x, y)


def _cast_check(node: Node) -> Verdict:
    source, result = node.operand(0).dtype, node.output.dtype
    if source not in TYPES or result not in TYPES:
        return reject(f"no conversion from {source} to {result}")
    return True


@FAMILY.element("Cast", "CastLike", check=all_of(known_rank, _cast_check))
def cast(steps: Steps, node: Node) -> Ref:
    """Add a conversion."""
    saturate, round_mode = bool(node.attrs.get("saturate", 1)), str(node.attrs.get("round_mode", "up"))
    return steps.cast(steps.read(node.operand(0)), node.output.dtype, saturate, round_mode)
