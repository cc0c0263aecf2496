"""Element-wise operators on the C target: one kernel call each, in whatever memory order the operands share."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tinycomp.ir.graph import Node, Value
from tinycomp.ir.layout import memory_order, strides
from tinycomp.ir.types import tensor
from tinycomp.rewrite import reject
from tinycomp.targets.c.activations import IDENTITY, READ
from tinycomp.targets.c.emit import Emitter, nd_params
from tinycomp.targets.c.movement import element_size, movable
from tinycomp.targets.c.rules import Rules, known_rank
from tinycomp.targets.common.activations import clip_bounds
from tinycomp.targets.common.checks import Verdict, all_of, dtypes, first, float32, operand, static_type

FAMILY = Rules()

UNARY = {
    "Abs": 32, "Neg": 33, "Exp": 34, "Log": 35, "Sqrt": 36, "Reciprocal": 37, "Floor": 38, "Ceil": 39, "Round": 40,
    "Sign": 41, "Erf": 42, "Softplus": 43, "Softsign": 44, "Elu": 45, "Selu": 46, "Celu": 47, "Mish": 48,
    "ThresholdedRelu": 49, "Shrink": 50, "Sin": 51, "Cos": 52, "Tan": 53, "Asin": 54, "Acos": 55, "Atan": 56,
    "Sinh": 57, "Cosh": 58, "Asinh": 59, "Acosh": 60, "Atanh": 61,
}  # fmt: skip
"""Codes of ``enum tc_unary``."""
_COEFFICIENTS = {
    "Elu": (("alpha", 1.0), None),
    "Selu": (("alpha", 1.67326319217681884765625), ("gamma", 1.05070102214813232421875)),
    "Celu": (("alpha", 1.0), None),
    "ThresholdedRelu": (("alpha", 1.0), None),
    "Shrink": (("lambd", 0.5), ("bias", 0.0)),
}


@FAMILY.lower(*UNARY, check=float32)
def unary(emit: Emitter, node: Node) -> None:
    """Emit one function of one operand."""
    a, b = (float(node.attrs.get(*entry)) if entry else 0.0 for entry in _COEFFICIENTS.get(node.op, (None, None)))
    _emit_unary(emit, node, UNARY[node.op], a, b)


def _emit_unary(emit: Emitter, node: Node, code: int, a: float, b: float) -> None:
    count = math.prod(static_type(node.output)[1])
    emit.call("unary_f32", [node.output, first(node)], {"op": code, "count": count, "a": a, "b": b}, node)


_SIMPLE_ACTIVATIONS = {
    "Relu": "relu", "Clip": "clip", "LeakyRelu": "leaky_relu", "Sigmoid": "sigmoid", "Tanh": "tanh",
    "HardSwish": "hardswish", "HardSigmoid": "hardsigmoid",
}  # fmt: skip


def _activation_check(node: Node) -> Verdict:
    if node.op == "Clip" and clip_bounds(node) is None:
        return reject("the bounds are not constant scalars")
    return True


@FAMILY.lower(*_SIMPLE_ACTIVATIONS, "Gelu", check=all_of(dtypes("float32", operands=(0,)), _activation_check))
def activation(emit: Emitter, node: Node) -> None:
    """Emit an activation that stands alone."""
    name = _SIMPLE_ACTIVATIONS.get(node.op, "gelu_tanh" if node.attrs.get("approximate") == "tanh" else "gelu")
    found = READ[name](node)
    _emit_unary(emit, node, found.code, found.a, found.b)


BINARY = {"Add": 0, "Sub": 1, "Mul": 2, "Div": 3, "Pow": 4, "Min": 5, "Max": 6, "Sum": 0, "PRelu": 9}
"""Codes of ``enum tc_binary``; Min, Max and Sum take any number of operands."""
_NUMPY_PRELU = 7
_VARIADIC = frozenset({"Min", "Max", "Sum"})


def _broadcast_check(node: Node) -> Verdict:
    if "axis" in node.attrs or node.attrs.get("broadcast"):
        return reject("broadcasting along an explicit axis (before opset 7)")
    return len(node.inputs) > 1 or reject("one operand only")


def _operands_check(node: Node) -> Verdict:
    found = sorted({tensor(v.type).dtype for v in node.inputs if v is not None})
    if len(found) > 1:
        return reject(f"operands of different dtypes: {', '.join(found)}")
    if node.op == "PRelu" and node.version < _NUMPY_PRELU:
        return reject("PRelu before opset 7 spreads its slope over the channels")
    if node.op == "PRelu" and found != ["float32"]:
        return reject(f"PRelu of {found[0]}")
    return True


@FAMILY.lower(*BINARY, check=all_of(dtypes("float32", "int32", "int64"), known_rank, _broadcast_check, _operands_check))
def binary(emit: Emitter, node: Node) -> None:
    """Emit arithmetic on two operands, or a chain of it for more."""
    dtype = tensor(node.output.type).dtype
    kernel = {"float32": "binary_f32", "int32": "binary_i32", "int64": "binary_i64"}[dtype]
    extra = IDENTITY.params() if dtype == "float32" else {}
    left: Value = first(node)
    for right in node.inputs[1:]:
        assert right is not None
        _emit_broadcast(emit, node, kernel, {"op": BINARY[node.op], **extra}, {"a_stride": left, "b_stride": right})
        left = node.output


def _emit_broadcast(
    emit: Emitter, node: Node, kernel: str, params: dict[str, int | float], operands: dict[str, Value]
) -> None:
    result, shape = static_type(node.output)
    order = memory_order(result.layout, len(shape))
    steps = {name: [broadcast_strides(v, shape)[d] for d in order] for name, v in operands.items()}
    sizes = [shape[d] for d in order]
    emit.call(kernel, [node.output, *operands.values()], {**params, **nd_params(sizes, **steps)}, node)


def broadcast_strides(value: Value, shape: Sequence[int]) -> list[int]:
    """Element strides of an operand over the logical dimensions of the result; 0 where it repeats."""
    type_, own = static_type(value)
    padded = [1] * (len(shape) - len(own)) + list(own)
    steps = [0] * (len(shape) - len(own)) + list(strides(type_))
    return [0 if n == 1 else s for n, s in zip(padded, steps, strict=True)]


COMPARE = {"Equal": 0, "Less": 2, "LessOrEqual": 3, "Greater": 4, "GreaterOrEqual": 5}
_COMPARE_KERNELS = {"float32": "compare_f32", "int32": "compare_i32", "int64": "compare_i64"}


@FAMILY.lower(*COMPARE, check=all_of(dtypes(*_COMPARE_KERNELS), known_rank, _broadcast_check))
def compare(emit: Emitter, node: Node) -> None:
    """Emit a comparison; results are bytes of 0 or 1."""
    kernel = _COMPARE_KERNELS[tensor(first(node).type).dtype]
    _emit_pair(emit, node, kernel, COMPARE[node.op])


LOGICAL = {"And": 0, "Or": 1, "Xor": 2}


@FAMILY.lower(*LOGICAL, check=all_of(dtypes("bool"), known_rank, _broadcast_check))
def logical(emit: Emitter, node: Node) -> None:
    """Emit logic on two boolean tensors."""
    _emit_pair(emit, node, "logical", LOGICAL[node.op])


def _emit_pair(emit: Emitter, node: Node, kernel: str, code: int) -> None:
    a, b = first(node), operand(node, 1)
    assert b is not None
    _emit_broadcast(emit, node, kernel, {"op": code}, {"a_stride": a, "b_stride": b})


@FAMILY.lower("Where", check=all_of(movable, known_rank))
def where(emit: Emitter, node: Node) -> None:
    """Emit an element-wise choice."""
    condition, a, b = node.inputs
    assert condition is not None
    assert a is not None
    assert b is not None
    operands = {"condition_stride": condition, "a_stride": a, "b_stride": b}
    _emit_broadcast(emit, node, "where", {"element_size": element_size(node.output)}, operands)
