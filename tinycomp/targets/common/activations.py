"""Activations as models write them: one table of spellings for every target.

It serves the composites (which spellings may follow a convolution or a product) and the code generators (which of them
a composite holds); what each is called on a machine is the target's own table, by the names of the spellings.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tinycomp.ir.graph import Node, Value
from tinycomp.ir.infer import Uncompared, frozen
from tinycomp.records import dataclass
from tinycomp.rewrite import Match, P, Pattern, ValuePattern

FLOAT_MAX = float(np.finfo(np.float32).max)
_SMALL = 8
"""Constants up to this many elements are part of what an expression is."""
Spell = Callable[[ValuePattern], ValuePattern]


@dataclass(frozen=True)
class Spelling:
    """One way to write an activation.

    Attributes:
        name: What it is; a target's table has an entry for it.
        spell: The pattern around its argument.
        single: Whether it is never more than one operator.
    """

    name: str
    spell: Spell
    single: bool = False

    def pattern(self) -> Pattern:
        """Return the pattern with its argument called ``x``."""
        argument = P.any.named("x")
        return Pattern(self.name, [self.spell(argument)], [argument])


def clip_bounds(node: Node) -> tuple[float, float] | None:
    """Return the bounds of a Clip with constant bounds, else None; an absent one is the largest finite number."""
    bounds = [float(node.attrs.get("min", -FLOAT_MAX)), float(node.attrs.get("max", FLOAT_MAX))]
    for index, value in enumerate(node.inputs[1:3]):
        if value is None:
            continue
        if value.const is None or value.const.size != 1:
            return None
        bounds[index] = float(value.const.reshape(-1)[0])
    return bounds[0], bounds[1]


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


def _gelu_tanh(x: ValuePattern) -> ValuePattern:
    cube = P.Pow(x, P.const(3.0)) | (x * x * x)
    argument = (x + cube * P.const(0.044715)) * P.const(math.sqrt(2.0 / math.pi))
    bell = P.Tanh(argument) + P.const(1.0)
    half = P.const(0.5)
    return (x * half * bell) | (x * bell * half) | (x * (bell * half)) | P.Gelu(x, approximate="tanh")


SPELLINGS: tuple[Spelling, ...] = (
    Spelling("relu", lambda x: P.Relu(x), single=True),
    Spelling("clip", _clip_spelling, single=True),
    Spelling("leaky_relu", lambda x: P.LeakyRelu(x), single=True),
    Spelling("hardswish", _hard_swish),
    Spelling("silu", lambda x: x * P.Sigmoid(x)),
    Spelling("sigmoid", lambda x: P.Sigmoid(x), single=True),
    Spelling("tanh", lambda x: P.Tanh(x), single=True),
    Spelling("hardsigmoid", lambda x: P.HardSigmoid(x), single=True),
    Spelling("gelu", _gelu),
    Spelling("gelu_tanh", _gelu_tanh),
)
_PATTERNS: tuple[tuple[Spelling, Pattern], ...] = tuple((s, s.pattern()) for s in SPELLINGS)


def any_activation(x: ValuePattern) -> ValuePattern:
    """Return a pattern for any activation of ``x``."""
    return P.any_of(*(s.spell(x) for s in SPELLINGS))


def spelling_of(argument: Value, result: Value) -> tuple[Spelling, Node] | None:
    """Return how ``result`` is written as an activation of ``argument`` and the node that gives it, or None."""
    assert result.producer is not None
    place = (argument, result.producer)
    expression = _expression(*place)
    activation = _search(*place) if expression is None else Uncompared(place).ask(_spelling, expression)
    return None if activation is None else (activation, result.producer)


def _search(argument: Value, node: Node) -> Spelling | None:
    return next((spelling for spelling, match in spellings_at(node) if match["x"] is argument), None)


@functools.lru_cache(maxsize=1024)
def _spelling(place: Uncompared[tuple[Value, Node]], expression: tuple[Any, ...]) -> Spelling | None:
    return _search(*place.held)


def _expression(argument: Value, result: Node) -> tuple[Any, ...] | None:
    """Return what ``result`` computes of ``argument``, hashable: one entry per operator, which names others by number.

    None where it reads anything but ``argument`` and small constants.
    """
    nodes, entries = {result: 0}, []
    waiting = [result]
    for node in waiting:
        operands: list[Any] = []
        for value in node.inputs:
            if value is None or value is argument:
                operands.append(value is argument)
            elif value.const is not None and value.const.size <= _SMALL:
                operands.append(frozen(value.const))
            elif value.producer is not None:
                if value.producer not in nodes:
                    nodes[value.producer] = len(waiting)
                    waiting.append(value.producer)
                operands.append((nodes[value.producer], value.producer.outputs.index(value)))
            else:
                return None
        attrs = tuple([(name, frozen(node.attrs[name])) for name in sorted(node.attrs)])
        entries.append((node.op, node.domain, node.version, attrs, tuple(operands)))
    return tuple(entries)


def spellings_at(node: Node, *, single: bool = True) -> Iterator[tuple[Spelling, Match]]:
    """Yield the ways in which the result of ``node`` is written as an activation of ``match["x"]``.

    With ``single``, activations that are never more than one operator are tried, too.
    """
    for spelling, pattern in _PATTERNS:
        if not pattern.can_start_at(node) or (spelling.single and not single):
            continue
        for match in pattern.matches(node):
            if isinstance(match, Match):
                yield spelling, match
