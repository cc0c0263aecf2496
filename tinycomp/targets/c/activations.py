"""Activations that kernels apply before they store: the runtime's code for each of the shared spellings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tinycomp.ir.graph import Node, Value
from tinycomp.targets.common.activations import clip_bounds, spelling_of


@dataclass(frozen=True)
class Activation:
    """A function of one element.

    Attributes:
        code: Its number in ``enum tc_activation``.
        a: First coefficient.
        b: Second coefficient.
    """

    code: int
    a: float = 0.0
    b: float = 0.0

    def params(self) -> dict[str, int | float]:
        """Return the epilogue parameters of a kernel."""
        return {"activation": self.code, "activation_a": self.a, "activation_b": self.b}


IDENTITY = Activation(0)
Read = Callable[[Node], Activation]


def _attr(node: Node, name: str, default: float) -> float:
    return float(node.attrs.get(name, default))


def _fixed(code: int) -> Read:
    return lambda node: Activation(code)


def _clip(node: Node) -> Activation:
    bounds = clip_bounds(node)
    assert bounds is not None, node
    return Activation(2, *bounds)


READ: Mapping[str, Read] = {
    "relu": _fixed(1),
    "clip": _clip,
    "leaky_relu": lambda n: Activation(3, _attr(n, "alpha", 0.01)),
    "sigmoid": _fixed(4),
    "tanh": _fixed(5),
    "silu": _fixed(6),
    "hardswish": _fixed(7),
    "hardsigmoid": lambda n: Activation(8, _attr(n, "alpha", 0.2), _attr(n, "beta", 0.5)),
    "gelu": _fixed(9),
    "gelu_tanh": _fixed(10),
}
"""The activation, from the node that gives the result, by the name of its spelling."""


def activation_of(argument: Value, result: Value) -> Activation:
    """Return the activation that makes ``result`` of ``argument`` inside a composite's body."""
    if argument is result:
        return IDENTITY
    found = spelling_of(argument, result)
    assert found is not None, f"{result.name} is no activation of {argument.name}"
    spelling, node = found
    return READ[spelling.name](node)
