"""The inside of a composite, as a code generator reads it."""

from __future__ import annotations

from tinycomp.ir.graph import Graph, Node, Value


def operands_of(node: Node) -> dict[Value | None, Value]:
    """Return the values of the region that the inputs of a composite's body stand for."""
    return dict(zip(node.body.inputs, (v for v in node.inputs if v is not None), strict=True))


def opened(node: Node) -> tuple[Graph, dict[Value | None, Value]]:
    """Return a composite's body, a copy, and the values of the region that its inputs stand for.

    A constant that is an operand becomes a constant of the body as well, because it may be more than an operand: the
    bound of a Clip, for example.
    """
    body = node.body.clone()
    outer: dict[Value | None, Value] = dict(zip(body.inputs, (v for v in node.inputs if v is not None), strict=True))
    for inner in body.inputs:
        array = outer[inner].const
        if array is not None:
            copy = body.add_const(array, inner.name)
            body.replace_uses(inner, copy)
            outer[copy] = outer[inner]
    return body, outer
