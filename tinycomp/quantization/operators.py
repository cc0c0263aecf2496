"""Which operators can compute on 8-bit numbers, and what that asks of the scales around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

import numpy as np

from tinycomp.ir.graph import Node, Value
from tinycomp.ir.types import tensor


class Kind(Enum):
    """When an operator is worth computing on 8-bit numbers, and what its scales must fulfil.

    ``PRODUCT``: always; it is what quantising is for. ``SAME_SCALE``: where data come as 8-bit numbers anyway; the
    numbers are only moved or chosen, so operands and results have one scale. ``COMPUTED``: likewise, with a scale of
    its own for the result. ``INNER``: only between layers that are quantised, because it is sensitive.
    """

    PRODUCT = "product"
    SAME_SCALE = "same scale"
    COMPUTED = "computed"
    INNER = "inner"


@dataclass(frozen=True)
class Rule:
    """What there is to know about an operator.

    Attributes:
        kind: See :class:`Kind`.
        operands: How many leading operands are data; None for all.
        accepts: Whether a node of the operator can be quantised; its dtype is looked at apart.
    """

    kind: Kind
    operands: int | None = 1
    accepts: Callable[[Node], bool] = lambda node: True


def constant_of(node: Node, index: int) -> np.ndarray | None:
    """Return the array of a constant operand; None if it is absent or not known."""
    value = node.inputs[index] if index < len(node.inputs) else None
    return None if value is None else value.const


def operand(node: Node, index: int) -> Value | None:
    """Return an operand, or None if it is absent."""
    return node.inputs[index] if index < len(node.inputs) else None


def _is_conv(node: Node) -> bool:
    return constant_of(node, 1) is not None and (operand(node, 2) is None or constant_of(node, 2) is not None)


def _is_gemm(node: Node) -> bool:
    """A Gemm with a constant matrix and at most one bias per column."""
    bias, plain = constant_of(node, 2), not node.attrs.get("transA", 0)
    columns = tensor(node.output.type).shape
    if not plain or constant_of(node, 1) is None or columns is None:
        return False
    return operand(node, 2) is None or (bias is not None and bias.size in (1, columns[-1]) and bias.size == _last(bias))


def _last(array: np.ndarray) -> int:
    return array.shape[-1] if array.ndim else 1


def _is_matmul(node: Node) -> bool:
    return all(v is not None and tensor(v.type).rank is not None for v in node.inputs)


def _pads_with_zero(node: Node) -> bool:
    """Zero always has an exact 8-bit number; another constant need not have one."""
    value = constant_of(node, 2)
    absent = operand(node, 2) is None and not node.attrs.get("value", 0.0)
    return node.attrs.get("mode", "constant") != "constant" or absent or (value is not None and not value.any())


def _chooses(node: Node) -> bool:
    return str(node.attrs.get("mode", "nearest")) == "nearest"


def _gives_no_indices(node: Node) -> bool:
    return len(node.used_outputs()) == 1


def _reads_data(node: Node) -> bool:
    """A lookup in a constant table has no data to quantise."""
    return constant_of(node, 0) is None


_MOVES = ("DepthToSpace", "Expand", "Flatten", "GlobalMaxPool", "Identity", "Reshape", "Slice", "SpaceToDepth", "Split",
          "Squeeze", "Tile", "Transpose", "Unsqueeze")  # fmt: skip
_FUNCTIONS = ("AveragePool", "Celu", "Clip", "Elu", "Gelu", "GlobalAveragePool", "HardSigmoid", "HardSwish",
              "LeakyRelu", "Mish", "ReduceMean", "Relu", "Selu", "Sigmoid", "Softplus", "Swish", "Tanh")  # fmt: skip

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        "Conv": Rule(Kind.PRODUCT, 1, _is_conv),
        "Gemm": Rule(Kind.PRODUCT, 1, _is_gemm),
        "MatMul": Rule(Kind.PRODUCT, 2, _is_matmul),
        **dict.fromkeys(_MOVES, Rule(Kind.SAME_SCALE)),
        "MaxPool": Rule(Kind.SAME_SCALE, 1, _gives_no_indices),
        "Concat": Rule(Kind.SAME_SCALE, None),
        "Pad": Rule(Kind.SAME_SCALE, 1, _pads_with_zero),
        "Resize": Rule(Kind.SAME_SCALE, 1, _chooses),
        "Gather": Rule(Kind.SAME_SCALE, 1, _reads_data),
        **dict.fromkeys(_FUNCTIONS, Rule(Kind.COMPUTED)),
        **dict.fromkeys(("Add", "Sub", "Mul"), Rule(Kind.COMPUTED, 2)),
        "Softmax": Rule(Kind.INNER),
    }
)
"""Every operator of ONNX's own domain that can be quantised; all others stay in float."""


def rule_of(node: Node) -> Rule | None:
    """Return what holds for a node, or None if it has to stay in float: other operators, other dtypes, no data."""
    rule = RULES.get(node.op) if not node.domain else None
    if rule is None or node.bodies or any(tensor(v.type).dtype != "float32" for v in node.used_outputs()):
        return None
    data = node.inputs[: rule.operands]
    if all(v is None or v.is_const for v in data) or not rule.accepts(node):
        return None
    return rule
