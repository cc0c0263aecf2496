"""A composite of the C target taken apart: the anchor (Conv, Gemm, MatMul, …) and its epilogue."""

from __future__ import annotations

from dataclasses import dataclass

from tinycomp.ir.graph import Node, Value
from tinycomp.targets.c.activations import IDENTITY, Activation, activation_of
from tinycomp.targets.common.composites import opened

ANCHORS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


@dataclass(frozen=True)
class Fused:
    """What a composite computes: ``activation(anchor(operands) + addends…)``.

    Attributes:
        anchor: The node inside that does the work.
        operands: The anchor's operands as values of the region.
        addends: What is added to its result: a bias vector or a residual, as values of the region.
        activation: What is applied last.
        output: The result in the region.
    """

    anchor: Node
    operands: tuple[Value | None, ...]
    addends: tuple[Value, ...]
    activation: Activation
    output: Value


def take_apart(node: Node) -> Fused:
    """Return the parts of a composite, or of a plain anchor node."""
    if not node.is_composite:
        return Fused(node, node.inputs, (), IDENTITY, node.output)
    body, outer = opened(node)

    def in_region(value: Value | None) -> Value | None:
        return outer.get(value, value)

    anchor = next(n for n in body.nodes if n.op in ANCHORS)
    addends: list[Value] = []
    current = anchor.output
    while (add := _following_add(current)) is not None:
        other = in_region(next((v for v in add.inputs if v is not current), current))
        assert other is not None
        addends.append(other)
        current = add.output
    activation = activation_of(current, body.outputs[0])
    return Fused(anchor, tuple(in_region(v) for v in anchor.inputs), tuple(addends), activation, node.output)


def _following_add(value: Value) -> Node | None:
    """The Add that is the only reader of ``value``."""
    if len(value.users) != 1:
        return None
    (user,) = value.users
    return user if user.op in ("Add", "Sum") and len(user.inputs) == 2 else None
