"""Rules on element-wise arithmetic: neutral elements, order of operands, sums of two."""

from __future__ import annotations

import numpy as np

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.types import UNKNOWN_DTYPE
from tinycomp.passes.edits import bypass, replace, version_of
from tinycomp.passes.simplify_rules.facts import dtype, keeps_shape, operand
from tinycomp.rewrite import rule
from tinycomp.rewrite.traits import has_trait

_NEUTRAL = {"Add": 0, "Sub": 0, "Mul": 1, "Div": 1, "Pow": 1}
_COMMUTATIVE = frozenset({"Add", "Mul"})


@rule(*_NEUTRAL)
def drop_neutral_operand(graph: Graph, node: Node) -> bool:
    """``x + 0``, ``x - 0``, ``x * 1``, ``x / 1`` and ``x ** 1`` are x, where the constant does not widen x.

    NaN and infinities stay what they are; of a zero only the sign may change (``-0.0 + 0.0`` is ``0.0``).
    """
    if node.version < 7:
        return False
    places = (1, 0) if node.op in _COMMUTATIVE else (1,)
    return any(_is_neutral(node, at) and _hand_on(graph, node, operand(node, 1 - at)) for at in places)


def _is_neutral(node: Node, at: int) -> bool:
    value, other = operand(node, at), operand(node, 1 - at)
    if value is None or value.const is None or other is None or dtype(other) == UNKNOWN_DTYPE:
        return False
    return bool(np.all(value.const == _NEUTRAL[node.op])) and keeps_shape(value.const.shape, other)


def _hand_on(graph: Graph, node: Node, value: Value | None) -> bool:
    return value is not None and bypass(graph, node, value)


@rule("Add", "Mul", "And", "Or", "Xor", "Equal", "BitwiseAnd", "BitwiseOr", "BitwiseXor")
def constant_on_the_right(graph: Graph, node: Node) -> bool:
    """A constant first operand of a commutative operator goes to the right, where patterns expect it."""
    if node.version < 7 or len(node.inputs) != 2 or not has_trait(node, "commutative"):
        return False
    left, right = node.inputs
    if left is None or right is None or not left.is_const or right.is_const:
        return False
    graph.set_input(node, 0, right)
    graph.set_input(node, 1, left)
    return True


@rule("Sum")
def sum_to_add(graph: Graph, node: Node) -> bool:
    """A Sum of two operands is an Add."""
    if len(node.inputs) != 2 or version_of(graph, "Add") < 7:
        return False
    return replace(graph, node, "Add", node.inputs)


RULES = (drop_neutral_operand, constant_on_the_right, sum_to_add)
