"""Types of the plainest nodes, without asking onnx.

onnx's inference takes as long as all the rest of an import, since node, attributes and types become protobuf messages
first. Most nodes of most models need none of that: known ranks, operands that clearly fit. These are answered here; a
rule returns None for whatever is less plain, errors included, and onnx decides. Nodes must have passed
:func:`tinycomp.ops.checks.check_node`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeGuard

from tinycomp.ir.graph import Node, Value
from tinycomp.ir.infer import schema
from tinycomp.ir.types import UNKNOWN_DTYPE, Dim, TensorType
from tinycomp.ops.spatial import make_window

Shape = tuple[Dim, ...]
Operand = tuple[str, Shape]
"""The dtype and dimensions of a dense tensor that lies row by row."""
_FLOATS = frozenset({"float16", "float32", "float64"})
_ANY = 1 << 30
"""More operands than any node has."""


def plain_types(node: Node) -> Sequence[TensorType] | None:
    """Return the type of the only result of a node, or None for a node that onnx's inference has to judge.

    Args:
        node: A node that has passed the checks of its operator.
    """
    rule = _RULES.get(node.op)
    if rule is None or node.domain or node.version < rule.since or len(node.outputs) != 1:
        return None
    if node.attrs and not node.attrs.keys() <= _attributes(node.op, node.version):
        return None
    if not rule.least <= len(node.inputs) <= rule.most or None in node.inputs[: rule.least]:
        return None
    operands = []
    for value in node.inputs:
        if value is not None:
            operand = _plain(value)
            if operand is None:
                return None
            operands.append(operand)
    if not rule.moves and (operands[0][0] not in _FLOATS or len({dtype for dtype, _ in operands}) > 1):
        return None
    found = rule.type_of_result(node, operands)
    return None if found is None else [TensorType(*found)]


@functools.cache
def _attributes(op: str, version: int) -> frozenset[str]:
    """Return the names of the attributes that onnx knows."""
    found = schema(op, "", version)
    return frozenset() if found is None else frozenset(found.attributes)


def _plain(value: Value) -> Operand | None:
    type_ = value.type
    if not isinstance(type_, TensorType) or type_.layout or type_.dtype == UNKNOWN_DTYPE:
        return None
    return None if type_.shape is None else (type_.dtype, type_.shape)


def _like_first(node: Node, operands: Sequence[Operand]) -> Operand | None:
    return operands[0]


def _broadcast(node: Node, operands: Sequence[Operand]) -> Operand | None:
    (dtype, a), (_, b) = operands
    shape = _joined(a, b)
    return None if shape is None else (dtype, shape)


def _joined(a: Shape, b: Shape) -> Shape | None:
    """Return the shape of what broadcasts from ``a`` and ``b``, or None if they do not surely fit."""
    if a == b:
        return a
    rank = max(len(a), len(b))
    pairs = list(zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True))
    return tuple([y if x == 1 else x for x, y in pairs]) if all(x == y or 1 in (x, y) for x, y in pairs) else None


def _is_known(dim: Dim) -> TypeGuard[int]:
    return isinstance(dim, int)


def _matmul(node: Node, operands: Sequence[Operand]) -> Operand | None:
    (dtype, a), (_, b) = operands
    if min(len(a), len(b)) < 2 or a[-1] != b[-2]:
        return None
    batch = _joined(a[:-2], b[:-2])
    return None if batch is None else (dtype, (*batch, a[-2], b[-1]))


def _gemm(node: Node, operands: Sequence[Operand]) -> Operand | None:
    (dtype, a), (_, b) = operands[:2]
    if len(a) != 2 or len(b) != 2:
        return None
    rows, depth = reversed(a) if node.attrs.get("transA") else a
    other_depth, columns = reversed(b) if node.attrs.get("transB") else b
    if depth != other_depth or any(_joined(shape, (rows, columns)) != (rows, columns) for _, shape in operands[2:]):
        return None
    return dtype, (rows, columns)


def _conv(node: Node, operands: Sequence[Operand]) -> Operand | None:
    (dtype, x), (_, weight) = operands[:2]
    space, kernel = list(filter(_is_known, x[2:])), list(filter(_is_known, weight[2:]))
    attrs = {name: node.attrs[name] for name in ("strides", "dilations", "pads", "auto_pad") if name in node.attrs}
    if len(kernel) < len(weight) - 2 or ("auto_pad" in attrs and "pads" in attrs):
        return None
    if len(space) == len(kernel):
        return dtype, (x[0], weight[0], *make_window("Conv", space, kernel, **attrs).output)
    return None if space else (dtype, (x[0], weight[0], *[None] * len(kernel)))


def _pool(node: Node, operands: Sequence[Operand]) -> Operand | None:
    ((dtype, x),) = operands
    space = list(filter(_is_known, x[2:]))
    attrs = {name: node.attrs[name] for name in ("strides", "dilations", "pads", "auto_pad") if name in node.attrs}
    kernel = node.attrs.get("kernel_shape")
    if (
        kernel is None
        or len(space) < len(x) - 2
        or node.attrs.get("ceil_mode")
        or ("auto_pad" in attrs and "pads" in attrs)
    ):
        return None
    return dtype, (*x[:2], *make_window(node.op, space, kernel, **attrs).output)


def _softmax(node: Node, operands: Sequence[Operand]) -> Operand | None:
    rank = len(operands[0][1])
    return operands[0] if -rank <= node.attrs.get("axis", -1) < rank else None


def _flatten(node: Node, operands: Sequence[Operand]) -> Operand | None:
    ((dtype, x),) = operands
    known, axis = list(filter(_is_known, x)), node.attrs.get("axis", 1)
    if len(known) < len(x) or not -len(x) <= axis <= len(x):
        return None
    axis += len(x) if axis < 0 else 0
    return dtype, (math.prod(known[:axis]), math.prod(known[axis:]))


def _global_pool(node: Node, operands: Sequence[Operand]) -> Operand | None:
    ((dtype, x),) = operands
    return dtype, (*x[:2], *(1,) * (len(x) - 2))


def _transpose(node: Node, operands: Sequence[Operand]) -> Operand | None:
    ((dtype, x),) = operands
    perm = node.attrs.get("perm", range(len(x))[::-1])
    return (dtype, tuple([x[axis] for axis in perm])) if x else None


def _concat(node: Node, operands: Sequence[Operand]) -> Operand | None:
    dtype, first = operands[0]
    axis = node.attrs.get("axis")
    if axis is None or not -len(first) <= axis < len(first):
        return None
    axis %= len(first)
    for kind, shape in operands:
        if kind != dtype or len(shape) != len(first) or _without(shape, axis) != _without(first, axis):
            return None
    lengths = list(filter(_is_known, [shape[axis] for _, shape in operands]))
    total = sum(lengths) if len(lengths) == len(operands) else None
    return dtype, (*first[:axis], total, *first[axis + 1 :])


def _without(shape: Shape, axis: int) -> Shape:
    return shape[:axis] + shape[axis + 1 :]


def _reshape(node: Node, operands: Sequence[Operand]) -> Operand | None:
    dtype, x = operands[0]
    known = list(filter(_is_known, x))
    shape = node.inputs[1] if len(operands) == 2 else None
    wanted = None if shape is None else shape.const
    if wanted is None or wanted.ndim != 1 or not (x and wanted.size) or node.attrs.get("allowzero"):
        return None
    sizes = wanted.tolist()
    if len(known) < len(x) or min(sizes) < -1 or any(s == 0 and axis >= len(x) for axis, s in enumerate(sizes)):
        return None
    sizes = [known[axis] if size == 0 else size for axis, size in enumerate(sizes)]
    rest = math.prod(size for size in sizes if size != -1)
    if sizes.count(-1) == 1 and rest:
        sizes[sizes.index(-1)] = math.prod(known) // rest
    return (dtype, tuple(sizes)) if min(sizes) >= 0 and math.prod(sizes) == math.prod(known) else None


class _Rule(NamedTuple):
    """How the type of a result follows from the operands; the least number of them is there, others may be absent."""

    type_of_result: Callable[[Node, Sequence[Operand]], Operand | None]
    least: int = 1
    most: int = 1
    since: int = 1
    moves: bool = False
    """Whether the operator moves elements of any dtype; others compute with floats of one."""


_RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(("Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Neg", "Reciprocal", "Relu",
                     "Sigmoid", "Softplus", "Sqrt", "Tanh"), _Rule(_like_first)),
    **dict.fromkeys(("Add", "Div", "Mul", "Sub"), _Rule(_broadcast, 2, 2, since=7)),
    **dict.fromkeys(("AveragePool", "MaxPool"), _Rule(_pool, since=10)),
    **dict.fromkeys(("LogSoftmax", "Softmax"), _Rule(_softmax, since=13)),
    "BatchNormalization": _Rule(_like_first, 5, 5, since=9),
    "Clip": _Rule(_like_first, 1, 3, since=11),
    "Concat": _Rule(_concat, 1, _ANY, since=11, moves=True),
    "Conv": _Rule(_conv, 2, 3),
    "Gemm": _Rule(_gemm, 2, 3, since=11),
    "GlobalAveragePool": _Rule(_global_pool),
    "Flatten": _Rule(_flatten, since=11, moves=True),
    "LayerNormalization": _Rule(_like_first, 2, 3),
    "MatMul": _Rule(_matmul, 2, 2),
    "Reshape": _Rule(_reshape, 1, 2, moves=True),
    "Transpose": _Rule(_transpose, moves=True),
}  # fmt: skip
