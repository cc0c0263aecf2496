"""Activations that kernels apply before they store: how to recognise each, and its code in the runtime.

One table serves the composites (which spellings may follow a convolution or a product), the lowering of a composite
(which of them it is), and the lowering of single operators.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from tinycomp.ir.graph import Node, Value
from tinycomp.rewrite import Match, P, Pattern, ValuePattern

FLOAT_MAX = float(np.finfo(np.float32).max)


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
Spell = Callable[[ValuePattern], ValuePattern]
Read = Callable[[Node], Activation]


@dataclass(frozen=True)
class Spelling:
    """One way to write an activation.

    Attributes:
        name: For reports.
        spell: The pattern around its argument.
        read: The activation, from the node that gives the result.
    """

    name: str
    spell: Spell
    read: Read

    def pattern(self) -> Pattern:
        """Return the pattern with its argument called ``x``."""
        argument = P.any.named("x")
        return Pattern(self.name, [self.spell(argument)], [argument])


def _attr(node: Node, name: str, default: float) -> float:
    return float(node.attrs.get(name, default))


def _fixed(code: int) -> Read:
    return lambda node: Activation(code)


def clip_bounds(node: Node) -> tuple[float, float] | None:
    """Return the bounds of a Clip with constant bounds, else None; an absent one is the largest finite number."""
    bounds = [_attr(node, "min", -FLOAT_MAX), _attr(node, "max", FLOAT_MAX)]
    for index, value in enumerate(node.inputs[1:3]):
        if value is None:
            continue
        if value.const is None or value.const.size != 1:
            return None
        bounds[index] = float(value.const.reshape(-1)[0])
    return bounds[0], bounds[1]


def _clip(node: Node) -> Activation:
    bounds = clip_bounds(node)
    assert bounds is not None, node
    return Activation(2, *bounds)


def _scalar_or_absent() -> ValuePattern:
    return P.const.where(value=lambda c: c.size == 1) | P.absent


def _clip_spelling(x: ValuePattern) -> ValuePattern:
    return P.Clip(x, _scalar_or_absent(), _scalar_or_absent())


def _hard_swish(x: ValuePattern) -> ValuePattern:
    clipped = P.Clip(x + P.const(3.0), P.const(0.0), P.const(6.0))
    spelled = (x * clipped / P.const(6.0)) | (x * (clipped / P.const(6.0))) | (x * clipped * P.const(1 / 6))
    return P.HardSwish(x) | (x * P.HardSigmoid(x, alpha=1 / 6, beta=0.5)) | spelled


def _gelu(x: ValuePattern) -> ValuePattern:
    scaled = (x / P.const(math.sqrt(2.0))) | (x * P.const(math.sqrt(0.5)))
    bell = P.Erf(scaled) + P.const(1.0)
    half = P.const(0.5)
    return (x * bell * half) | (x * half * bell) | (x * (bell * half)) | P.Gelu(x, approximate="none")


SPELLINGS: tuple[Spelling, ...] = (
    Spelling("relu", lambda x: P.Relu(x), _fixed(1)),
    Spelling("clip", _clip_spelling, _clip),
    Spelling("leaky_relu", lambda x: P.LeakyRelu(x), lambda n: Activation(3, _attr(n, "alpha", 0.01))),
    Spelling("hardswish", _hard_swish, _fixed(7)),
    Spelling("silu", lambda x: x * P.Sigmoid(x), _fixed(6)),
    Spelling("sigmoid", lambda x: P.Sigmoid(x), _fixed(4)),
    Spelling("tanh", lambda x: P.Tanh(x), _fixed(5)),
    Spelling(
        "hardsigmoid",
        lambda x: P.HardSigmoid(x),
        lambda n: Activation(8, _attr(n, "alpha", 0.2), _attr(n, "beta", 0.5)),
    ),
    Spelling("gelu", _gelu, _fixed(9)),
    Spelling("gelu_tanh", lambda x: P.Gelu(x, approximate="tanh"), _fixed(10)),
)
_PATTERNS: Mapping[str, tuple[Spelling, Pattern]] = {s.name: (s, s.pattern()) for s in SPELLINGS}


def any_activation(x: ValuePattern) -> ValuePattern:
    """Return a pattern for any activation of ``x``."""
    return P.any_of(*(s.spell(x) for s in SPELLINGS))


def activation_of(argument: Value, result: Value) -> Activation:
    """Return the activation that makes ``result`` of ``argument`` inside a composite's body."""
    if argument is result:
        return IDENTITY
    found = spelling_of(argument, result)
    assert found is not None, f"{result.name} is no activation of {argument.name}"
    spelling, node = found
    return spelling.read(node)


def spelling_of(argument: Value, result: Value) -> tuple[Spelling, Node] | None:
    """Return how ``result`` is written as an activation of ``argument`` and the node that gives it, or None."""
    assert result.producer is not None
    for spelling, pattern in _PATTERNS.values():
        if not pattern.can_start_at(result.producer):
            continue
        for match in pattern.matches(result.producer):
            if isinstance(match, Match) and match["x"] is argument:
                return spelling, result.producer
    return None
