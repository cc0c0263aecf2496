"""Types of the plainest nodes, without asking onnx.

onnx's inference takes as long as all the rest of an import, since node, attributes and types become protobuf messages
first. Most nodes of most models need none of that: known ranks, operands that clearly fit. These are answered here; a
rule returns None for whatever is less plain, errors included, and onnx decides. Nodes must have passed
:func:`tinycomp.ops.checks.check_node`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from tinycomp.ir.graph import Node, Value
from tinycomp.ir.infer import schema
from tinycomp.ir.types import UNKNOWN_DTYPE, TensorType
from tinycomp.ops.plain_movement import MOVEMENT
from tinycomp.ops.record import NUMBERS, Operand, PlainTypeRule, Shape, fit, is_known
from tinycomp.ops.spatial import make_window


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
    if rule.dtypes is not None and (operands[0][0] not in rule.dtypes or len({dtype for dtype, _ in operands}) > 1):
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


def _matmul(node: Node, operands: Sequence[Operand]) -> Operand | None:
    (dtype, a), (_, b) = operands
    if min(len(a), len(b)) < 2 or not fit(a[-1], b[-2]):
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
    space, kernel = list(filter(is_known, x[2:])), list(filter(is_known, weight[2:]))
    attrs = {name: node.attrs[name] for name in ("strides", "dilations", "pads", "auto_pad") if name in node.attrs}
    if len(kernel) < len(weight) - 2 or ("auto_pad" in attrs and "pads" in attrs):
        return None
    if len(space) == len(kernel):
        return dtype, (x[0], weight[0], *make_window("Conv", space, kernel, **attrs).output)
    return None if space else (dtype, (x[0], weight[0], *[None] * len(kernel)))


def _pool(node: Node, operands: Sequence[Operand]) -> Operand | None:
    ((dtype, x),) = operands
    space = list(filter(is_known, x[2:]))
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


def _dequantize(node: Node, operands: Sequence[Operand]) -> Operand | None:
    (dtype, x), (scale, _) = operands[:2]
    plain = dtype in ("int8", "uint8", "int32") and scale == "float32" and "output_dtype" not in node.attrs
    return (scale, x) if plain else None


def _softmax(node: Node, operands: Sequence[Operand]) -> Operand | None:
    rank = len(operands[0][1])
    return operands[0] if -rank <= node.attrs.get("axis", -1) < rank else None


def _global_pool(node: Node, operands: Sequence[Operand]) -> Operand | None:
    ((dtype, x),) = operands
    return dtype, (*x[:2], *(1,) * (len(x) - 2))


_RULES: Mapping[str, PlainTypeRule] = {
    **dict.fromkeys(("Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Neg", "Reciprocal", "Relu",
                     "Sigmoid", "Softplus", "Sqrt", "Tanh"), PlainTypeRule(_like_first)),
    **dict.fromkeys(("Add", "Div", "Mul", "Sub"), PlainTypeRule(_broadcast, 2, 2, since=7, dtypes=NUMBERS)),
    **dict.fromkeys(("AveragePool", "MaxPool"), PlainTypeRule(_pool, since=10)),
    **dict.fromkeys(("LogSoftmax", "Softmax"), PlainTypeRule(_softmax, since=13)),
    "BatchNormalization": PlainTypeRule(_like_first, 5, 5, since=9),
    "Clip": PlainTypeRule(_like_first, 1, 3, since=11),
    "Conv": PlainTypeRule(_conv, 2, 3),
    "DequantizeLinear": PlainTypeRule(_dequantize, 2, 3, since=10, dtypes=None),
    "Gemm": PlainTypeRule(_gemm, 2, 3, since=11),
    "GlobalAveragePool": PlainTypeRule(_global_pool),
    "LayerNormalization": PlainTypeRule(_like_first, 2, 3),
    "MatMul": PlainTypeRule(_matmul, 2, 2),
    **MOVEMENT,
}  # fmt: skip
