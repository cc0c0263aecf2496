"""Checks of operands that targets share. A check answers True or ``reject("reason")``; types may still be symbolic."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from tinycomp.ir.graph import Node, Value
from tinycomp.ir.types import Dim, TensorType
from tinycomp.remark import Remark, reject
from tinycomp.remark import Verdict as Verdict
from tinycomp.symbolic import Size

Check = Callable[[Node], Verdict]
Shape = tuple[Dim, ...] | None


def all_of(*checks: Check) -> Check:
    """Return a check that passes where all ``checks`` pass; the first refusal is the answer."""

    def check(node: Node) -> Verdict:
        for each in checks:
            verdict = each(node)
            if isinstance(verdict, Remark):
                return verdict
        return True

    return check


def dtypes(*allowed: str, operands: Iterable[int] | None = None) -> Check:
    """Return a check of the dtypes of the operands (all, or those at the given places) and of the first result."""
    chosen = None if operands is None else frozenset(operands)

    def check(node: Node) -> Verdict:
        for index, value in enumerate(node.inputs):
            if value is None or (chosen is not None and index not in chosen):
                continue
            if value.dtype not in allowed:
                return reject(f'operand {index} ("{value.name}") is {value.type}, not {_either(allowed)}')
        return True

    return check


def ranks(*allowed: int) -> Check:
    """Return a check of the rank of the first operand."""

    def check(node: Node) -> Verdict:
        rank = first(node).rank
        if rank in allowed:
            return True
        return reject(f"operand 0 has rank {'unknown' if rank is None else rank}, not {_either(map(str, allowed))}")

    return check


def constant(*operands: int) -> Check:
    """Return a check that the operands at these places are constants, if they are there at all."""

    def check(node: Node) -> Verdict:
        for index in operands:
            value = node.inputs[index] if index < len(node.inputs) else None
            if value is not None and not is_known(value):
                return reject(f'operand {index} ("{value.name}") is not a constant')
        return True

    return check


def settled(*operands: int) -> Check:
    """Return a check that the operands at these places are constants or follow from sizes, if they are there at all."""

    def check(node: Node) -> Verdict:
        for index in operands:
            value = node.inputs[index] if index < len(node.inputs) else None
            if value is not None and not is_known(value) and (value.contents is None or None in value.contents):
                return reject(f'operand {index} ("{value.name}") is not a constant and is not computed from sizes')
        return True

    return check


float32 = dtypes("float32")


def is_known(value: Value) -> bool:
    """Tell whether a value is a constant, or is dequantised from constants and so will be one before lowering."""
    producer = value.producer
    if value.is_const:
        return True
    return (
        producer is not None
        and producer.op == "DequantizeLinear"
        and all(v is None or v.is_const for v in producer.inputs)
    )


def surely_equal(a: Shape, b: Shape) -> bool:
    """Tell whether two shapes are the same at run time, too: two unknown sizes may well differ.

    >>> surely_equal(("N", 4), ("N", 4)), surely_equal((None, 4), (None, 4))
    (True, False)
    """
    return a is not None and a == b and None not in a


def first(node: Node) -> Value:
    """Return the first operand."""
    value = node.inputs[0]
    assert value is not None, node
    return value


def operand(node: Node, index: int) -> Value | None:
    """Return the operand at ``index``, or None if it is absent."""
    return node.inputs[index] if index < len(node.inputs) else None


class UnsizedError(Exception):
    """Raised where a lowering needs sizes that are not known.

    Attributes:
        value: What they are not known of.
    """

    def __init__(self, value: Value) -> None:
        self.value = value
        super().__init__(f'the sizes of "{value.name}" are not known: {value.type}')


def sized_type(value: Value) -> tuple[TensorType, tuple[Size, ...]]:
    """Return the type of a value and its shape; during lowering every dimension is a number or an expression.

    Raises:
        UnsizedError: If a dimension is none, because its expression would be too long.
    """
    type_ = value.type
    assert isinstance(type_, TensorType), value
    shape = type_.sizes
    if shape is None:
        raise UnsizedError(value)
    return type_, shape


def channel_vector(array: np.ndarray, result: TensorType, axis: int) -> np.ndarray | None:
    """Return a constant that broadcasts to ``result`` along the channel axis only, as a vector; else None.

    >>> channel_vector(np.ones((8, 1, 1)), TensorType("float32", (1, 8, 5, 5)), 1).shape
    (8,)
    """
    rank = result.rank
    if not rank or array.ndim > rank:
        return None
    padded = array.reshape((1,) * (rank - array.ndim) + array.shape)
    channels = (result.shape or ())[axis]
    if not isinstance(channels, int) or padded.size != padded.shape[axis] or padded.size not in (1, channels):
        return None
    vector = padded.reshape(-1)
    return vector if vector.size == channels else np.broadcast_to(vector, (channels,))


def _either(names: Iterable[str]) -> str:
    return " or ".join(names)
