"""What the matcher needs to know about operators, read from the operator table."""

from __future__ import annotations

import functools

from tinycomp.ir.graph import TINYCOMP, Node, Value
from tinycomp.ir.types import tensor
from tinycomp.ops import OPS

_BARRIERS = frozenset({(TINYCOMP, "StopFusion")})
_VARIADIC = frozenset({"Max", "Mean", "Min", "Sum"})


@functools.cache
def _traits(op: str, domain: str, version: int) -> frozenset[str]:
    record = OPS.find(op, domain, version)
    return frozenset() if record is None else record.traits


def has_trait(node: Node, trait: str) -> bool:
    """Whether the record of the node's operator carries ``trait``."""
    return trait in _traits(node.op, node.domain, node.version)


def is_barrier(node: Node) -> bool:
    """Whether the node is a ``StopFusion``."""
    return (node.domain, node.op) in _BARRIERS


def is_structural(node: Node) -> bool:
    """Whether the node hands its first operand on unchanged (Identity, StopFusion, Dropout at inference)."""
    if is_barrier(node):
        return True
    return has_trait(node, "structural") and not _drops(node)


def looks_through(value: Value, through: frozenset[str] | None) -> bool:
    """Whether ``value`` is only its producer's first operand handed on, by an operator of ``through`` (None: any)."""
    node = value.producer
    if node is None or value is not node.output or node.inputs[0] is None:
        return False
    return (through is None or node.op in through) and is_structural(node)


def _drops(node: Node) -> bool:
    """Whether a Dropout may run in training mode: operand 2 is there and not known to be false."""
    if node.op != "Dropout" or len(node.inputs) < 3 or node.inputs[2] is None:
        return False
    mode = node.inputs[2].const
    return mode is None or bool(mode.any())


def permutable(node: Node) -> int:
    """Return how many leading operands may stand in any order; 0 where order matters."""
    if not node.domain and node.op in _VARIADIC:
        return len(node.inputs)
    return 2 if has_trait(node, "commutative") else 0


def is_duplicable(node: Node) -> bool:
    """Whether each consumer may own a copy of the node.

    The operator must be pure and cheap, and a copy must not read more than the shared result would have cost to read:
    at most one variable operand is as large as the result. That admits DequantizeLinear, Cast, Relu or an addition of a
    bias, and leaves out the sum of two full tensors, whose copy would double the memory traffic.
    """
    if not has_trait(node, "cheap") or node.bodies:
        return False
    size = _size(node, -1)
    return sum(_size(node, i) >= size for i, v in enumerate(node.inputs) if v is not None and not v.is_const) <= 1


def _size(node: Node, index: int) -> int:
    value = node.output if index < 0 else node.inputs[index]
    assert value is not None
    return tensor(value.type).size()
