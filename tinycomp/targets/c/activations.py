"""Activations that kernels apply before they store: the runtime's code for each of the shared spellings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tinycomp.ir.graph import Node, Value
from tinycomp.ir.types import tensor
from tinycomp.rewrite import Match
from tinycomp.targets.common.activations import clip_bounds, spelling_of, spellings_at


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


@dataclass(frozen=True)
class Spelled:
    """An activation that several operators of a chain spell out.

    Attributes:
        argument: What it is a function of.
        activation: The function.
    """

    argument: Value
    activation: Activation


def spelled_out(nodes: Sequence[Node], outputs: Sequence[Value]) -> dict[Node, Spelled | None]:
    """Return the float32 activations that ``nodes`` spell out.

    Args:
        nodes: A chain, in order.
        outputs: The results that something else reads.

    Returns:
        The activation by the operator that gives it, and None for each of the others that spell it out.
    """
    found: dict[Node, Spelled | None] = {}
    members, wanted = set(nodes), set(outputs)
    for node in reversed(nodes):
        if node in found or tensor(node.output.type).dtype != "float32":
            continue
        for spelling, match in spellings_at(node, single=False):
            inner = [n for n in match.matched if n is not node]
            if inner and members.issuperset(inner) and not found.keys() & set(inner) and _hidden(match, inner, wanted):
                found |= dict.fromkeys(inner)
                found[node] = Spelled(match["x"], READ[spelling.name](node))
                break
    return found


def _hidden(match: Match, inner: Sequence[Node], wanted: set[Value]) -> bool:
    """Whether nothing but the match reads what its inner operators give."""
    matched = set(match.matched)
    return all(n.output not in wanted and matched.issuperset(n.output.users) for n in inner)
