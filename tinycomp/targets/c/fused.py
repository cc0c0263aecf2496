"""A composite of the C target taken apart: the anchor (Conv, Gemm, MatMul, …) and its epilogue."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.targets.c.activations import IDENTITY, Activation, activation_of
from tinycomp.targets.common.composites import opened, operands_of

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
    body, outer = node.body, operands_of(node)
    anchor, adds = _anchor_and_adds(body)
    if _constants_elsewhere(body, outer, {anchor, *adds}):
        body, outer = opened(node)
        anchor, adds = _anchor_and_adds(body)
    current, addends = anchor.output, []
    for add in adds:
        other = next((v for v in add.inputs if v is not current), current)
        assert other is not None
        addends.append(outer.get(other, other))
        current = add.output
    operands = tuple([None if v is None else outer.get(v, v) for v in anchor.inputs])
    return Fused(anchor, operands, tuple(addends), activation_of(current, body.outputs[0]), node.output)


def _anchor_and_adds(body: Graph) -> tuple[Node, list[Node]]:
    """Return the anchor of a composite's body, and the Adds that follow it one after the other."""
    anchor = next(n for n in body.nodes if n.op in ANCHORS)
    adds: list[Node] = []
    while (add := _following_add(adds[-1].output if adds else anchor.output)) is not None:
        adds.append(add)
    return anchor, adds


def _constants_elsewhere(body: Graph, outer: Mapping[Value | None, Value], readers: Set[Node]) -> bool:
    """Whether a node that is none of ``readers`` reads an input of the body that stands for a constant."""
    return any(outer[v].is_const and not v.users.keys() <= readers for v in body.inputs)


def _following_add(value: Value) -> Node | None:
    """The Add that is the only reader of ``value``."""
    if len(value.users) != 1:
        return None
    (user,) = value.users
    return user if user.op in ("Add", "Sum") and len(user.inputs) == 2 else None
