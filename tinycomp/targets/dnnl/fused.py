"""A composite of the target taken apart: the anchor, which becomes a primitive, and what becomes its post-ops."""

from __future__ import annotations

from dataclasses import dataclass

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.targets.common.composites import opened
from tinycomp.targets.dnnl.eltwise import Chain, activation

PRODUCTS = frozenset({"Conv", "Gemm", "MatMul"})


@dataclass(frozen=True)
class Fused:
    """What a node computes: ``eltwise(anchor(operands) + addends…)``.

    Attributes:
        anchor: The node that does the work.
        operands: Its operands as values of the region, None for an absent one.
        addends: What is added to its result, as values of the region.
        eltwise: What is applied last.
        output: The result in the region.
    """

    anchor: Node
    operands: tuple[Value | None, ...]
    addends: tuple[Value, ...]
    eltwise: Chain
    output: Value

    def operand(self, index: int) -> Value:
        """Return an operand that must be there."""
        value = self.operands[index]
        assert value is not None, self.anchor
        return value


def take_apart(node: Node, anchors: frozenset[str]) -> Fused:
    """Return the parts of a composite whose first node with an operator of ``anchors`` does the work."""
    if not node.is_composite:
        return Fused(node, node.inputs, (), (), node.output)
    body, outer = opened(node)
    anchor = next(n for n in body.nodes if n.op in anchors)
    current, addends = anchor.output, []
    while anchor.op in PRODUCTS and (add := _following_add(current, body)) is not None:
        other = next((v for v in add.inputs if v is not current), current)
        assert other is not None
        addends.append(outer.get(other, other))
        current = add.output
    operands = tuple(outer.get(v, v) for v in anchor.inputs)
    chain = activation(current, body.outputs[0])
    assert chain is not None, node
    return Fused(anchor, operands, tuple(addends), chain, node.output)


def _following_add(value: Value, body: Graph) -> Node | None:
    """The Add that is the only reader of ``value``."""
    if len(value.users) != 1 or body.is_output(value):
        return None
    (user,) = value.users
    return user if user.op == "Add" else None
