"""A composite of the target taken apart: the anchor, which becomes a primitive, and what becomes its post-ops.

Functions of one element stand here, too: which of oneDNN's each ONNX operator or spelled-out activation is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tinycomp.target_api import Graph, Node, Value, activations, composites
from tinycomp_dnnl.primitives import Eltwise

Chain = tuple[Eltwise, ...]
"""Functions applied one after the other."""


def _fixed(name: str, alpha: float = 0.0, beta: float = 0.0) -> Callable[[Node], Chain]:
    return lambda node: (Eltwise(name, alpha, beta),)


def _alpha(name: str, default: float) -> Callable[[Node], Chain]:
    return lambda node: (Eltwise(name, float(node.attrs.get("alpha", default))),)


def _clip(node: Node) -> Chain:
    bounds = activations.clip_bounds(node)
    assert bounds is not None, node
    return (Eltwise("clip", *bounds),)


def _hard_sigmoid(node: Node) -> Chain:
    line = Eltwise("linear", float(node.attrs.get("alpha", 0.2)), float(node.attrs.get("beta", 0.5)))
    return (line, Eltwise("clip", 0.0, 1.0))


# oneDNN 2.x ignores the coefficients of hardswish and soft_relu, 3.x needs them.
ACTIVATIONS: Mapping[str, Callable[[Node], Chain]] = {
    "relu": _fixed("relu"),
    "clip": _clip,
    "leaky_relu": _alpha("relu", 0.01),
    "hardswish": _fixed("hardswish", 1 / 6, 0.5),
    "silu": _fixed("swish", 1.0),
    "sigmoid": _fixed("logistic"),
    "tanh": _fixed("tanh"),
    "hardsigmoid": _hard_sigmoid,
    "gelu": _fixed("gelu_erf"),
    "gelu_tanh": _fixed("gelu_tanh"),
}
"""By the names of the activations' spellings."""

UNARY: Mapping[str, Callable[[Node], Chain]] = {
    "Abs": _fixed("abs"),
    "Elu": _alpha("elu", 1.0),
    "Exp": _fixed("exp"),
    "Log": _fixed("log"),
    "Mish": _fixed("mish"),
    "Softplus": _fixed("soft_relu", 1.0),
    "Sqrt": _fixed("sqrt"),
}
"""By operator: functions that no composite fuses."""


def activation(argument: Value, result: Value) -> Chain | None:
    """Return the functions that make ``result`` of ``argument`` inside a composite's body; None if none do."""
    if argument is result:
        return ()
    found = activations.spelling_of(argument, result)
    return None if found is None else ACTIVATIONS[found[0].name](found[1])


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
    body, outer = composites.opened(node)
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
