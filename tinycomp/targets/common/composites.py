"""The inside of a composite, as a code generator reads it."""

from __future__ import annotations

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ops.numeric import Array


def operands_of(node: Node) -> dict[Value | None, Value]:
    """Return the values of the region that the inputs of a composite's body stand for."""
    return dict(zip(node.body.inputs, [v for v in node.inputs if v is not None], strict=True))


def own_parameters(region: Graph) -> None:
    """Let the scales and zero points of the conversions in a region's composites be constants of their bodies.

    A constant that is an operand of a composite, such as a number to add, may be a zero point as well: equal constants
    are one value.
    """
    for node in region.nodes:
        if node.is_composite:
            for inner, outer in zip(node.body.inputs, [v for v in node.inputs if v is not None], strict=True):
                if outer.const is not None:
                    _own_parameter(node.body, inner, outer.const)


def _own_parameter(body: Graph, inner: Value, array: Array) -> None:
    uses = [
        (user, index)
        for user in inner.users
        if user.op in ("QuantizeLinear", "DequantizeLinear")
        for index, value in enumerate(user.inputs)
        if index and value is inner
    ]
    for user, index in uses:
        body.set_input(user, index, body.add_const(array, body.fresh(inner.name)))


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
