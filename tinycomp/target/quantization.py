"""Quantisation rules of targets as data, and the layers of a graph that break them.

A rule serves three times: :func:`tinycomp.quantize` writes models that obey it, a composite whose match does not is
refused with the violation as the reason, and reports name the layers of a model that break it, and what would mend it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Literal, get_args

import numpy as np

from tinycomp.errors import TargetError, shown
from tinycomp.index import named
from tinycomp.ir.graph import Node
from tinycomp.ops.numeric import prod
from tinycomp.quantized.layer import STORED, QuantizationParameters, QuantizedLayer
from tinycomp.records import dataclass
from tinycomp.remark import Remark

Role = Literal["activations", "weights"]
REAL = ("float16", "bfloat16", "float32", "float64")
"""The dtypes of numbers that are not quantised."""
_CLAMPS = named("clamp")


@dataclass(frozen=True)
class QuantizationCheck:
    """Ask of a layer whose result is quantised what the data of a rule cannot say.

    Attributes:
        holds: Answers True, or ``reject("reason")``.
        remedy: What would mend a layer that is refused, as one clause.
    """

    holds: Callable[[QuantizedLayer], bool | Remark]
    remedy: str = "give its result another scale"


@dataclass(frozen=True)
class QuantizationRule:
    """Say how layers of an operator are quantised; an operator without a rule stays in float.

    Attributes:
        activations: Dtypes of data and results; of several, :func:`tinycomp.quantize` writes the first that the layers
            around allow. ``"float32"`` among them lets data or results stay real in models that come quantised.
        weights: Dtypes of the constant factor of a product.
        bias: Dtypes of what is added to the sums of a product.
        symmetric: What has its zero point in the middle, 0 of int8 and 128 of uint8: ``"activations"``, ``"weights"``,
            or a dtype.
        per_channel: Whether weights have a scale for each output channel (True), or one (False); None for either.
        power_of_two: Whose scales are powers of two: ``"activations"``, ``"weights"``.
        least_scale: The least scale.
        equal_scales: Whether data and results share one scale and zero point; ``"preferred"`` where the target takes
            other scales, too, and takes longer.
        fused: Operators that may stand between a layer and the rounding of its result.
        checks: What else is asked.

    Raises:
        TargetError: If a field holds something that it cannot.
    """

    activations: tuple[str, ...] = ("int8", "uint8")
    weights: tuple[str, ...] = ("int8",)
    bias: tuple[str, ...] = ("int32",)
    symmetric: tuple[str, ...] = ("weights",)
    per_channel: bool | None = None
    power_of_two: tuple[Role, ...] = ()
    least_scale: float = 0.0
    equal_scales: bool | Literal["preferred"] = False
    fused: tuple[str, ...] = _CLAMPS
    checks: tuple[QuantizationCheck, ...] = ()

    def __post_init__(self) -> None:
        roles, dtypes = get_args(Role), (*STORED, "float32")
        allowed = {
            "activations": dtypes, "weights": dtypes, "bias": dtypes, "symmetric": (*roles, *STORED),
            "power_of_two": roles, "fused": _CLAMPS,
        }  # fmt: skip
        for name, known in allowed.items():
            given = getattr(self, name)
            if not isinstance(given, tuple) or not set(given) <= set(known):
                raise TargetError(
                    "a quantisation rule cannot say this", where=name, expected=f"a tuple of {', '.join(known)}",
                    found=shown(given),
                )  # fmt: skip

    def is_symmetric(self, role: Role, dtype: str) -> bool:
        """Tell whether numbers of a role and dtype have their zero point in the middle."""
        return role in self.symmetric or dtype in self.symmetric


Rules = Mapping[str, QuantizationRule]
"""Rules by operator, such as ``"Conv"`` or ``"com.vendor::Op"``."""


@dataclass(frozen=True)
class Violation:
    """What of a quantised layer a rule does not allow.

    Attributes:
        reason: What was expected and what was found, as one clause.
        remedy: What would mend it, likewise.
    """

    reason: str
    remedy: str


def violations(layer: QuantizedLayer, rule: QuantizationRule) -> list[Violation]:
    """Return the violation of a rule by a layer, if any; the checks are asked only if the rule's data allow it."""
    broken = [*_broken(layer, rule)]
    if broken or not layer.results or any(p.is_real for p in layer.results):
        return broken
    return [
        Violation(verdict.reason if isinstance(verdict, Remark) else "a check gives no reason", check.remedy)
        for check in rule.checks
        if not (verdict := check.holds(layer))
    ]


def _broken(layer: QuantizedLayer, rule: QuantizationRule) -> Iterator[Violation]:
    around = [*((f"operand {i}", p) for i, p in layer.data.items()), *(("the result", p) for p in layer.results)]
    for name, found in around:
        yield from _wrong(name, "activations", rule.activations, found, rule)
        if found.scale.size > 1:
            yield Violation(
                f'{name} "{found.name}" has {found.scale.size} scales, not one', "give it one scale and zero point"
            )
    if layer.weight is not None:
        yield from _wrong("the weight", "weights", rule.weights, layer.weight, rule)
        yield from _wrong_granularity(layer, layer.weight, rule)
    if layer.bias is not None and layer.bias.dtype not in rule.bias:
        yield Violation(
            f"the bias is {layer.bias.dtype}, not {' or '.join(rule.bias)}",
            f"store the bias as {rule.bias[0]}" if rule.bias else "take the bias out of the layer",
        )
    if layer.added is not None and layer.core.op != "ConvTranspose":
        shape, channels = layer.added.static_shape, (layer.core.operand(1).static_shape or ())[layer.channel_axis]
        if shape is None or prod(shape) not in (1, channels):
            yield Violation(
                f"the bias must have one entry per channel, got shape {list(shape or ())}", "add it behind the layer"
            )
    if layer.activation is not None and layer.activation.op not in rule.fused:
        yield Violation(
            f"{layer.activation.op} stands before the rounding, which may be "
            f"{' or '.join(rule.fused) or 'no activation'} only", f"round in front of the {layer.activation.op}, too",
        )  # fmt: skip
    stored = [found for _, found in around if not found.is_real]
    other = next((found for found in stored if not found.equals(stored[0])), None)
    if rule.equal_scales is True and other is not None:
        yield Violation(
            f"scales and zero points must be equal, but {_described(stored[0])} and {_described(other)} differ",
            "give its operands and its result one scale and zero point",
        )


def _wrong(
    name: str, role: Role, dtypes: Sequence[str], found: QuantizationParameters, rule: QuantizationRule
) -> Iterator[Violation]:
    """Return the violation in how data, a result or a weight is stored."""
    about = f'{name} "{found.name}"'
    if found.dtype not in dtypes:
        mend = f"quantise it to {dtypes[0]}" if dtypes else "leave the layer in float"
        yield Violation(f"{about} is {found.dtype}, not {' or '.join(dtypes) or 'quantised'}", mend)
    if found.is_real:
        return
    middle = middle_of(found.dtype)
    if rule.is_symmetric(role, found.dtype) and (found.zero_point != middle).any():
        points = sorted(set(found.zero_point.tolist()))
        yield Violation(
            f"{about} has the zero point {points[0] if len(points) == 1 else points}, not {middle}",
            "quantise it symmetrically",
        )
    if role in rule.power_of_two and (np.frexp(found.scale)[0] != 0.5).any():
        yield Violation(f"{about} has the scale {found.scale[0]:.6g}, no power of two", "round its scale up to one")
    if (found.scale < rule.least_scale).any():
        yield Violation(
            f"{about} has the scale {found.scale.min():.6g}, below {rule.least_scale:.6g}", "raise its scale to that"
        )


def _wrong_granularity(
    layer: QuantizedLayer, weight: QuantizationParameters, rule: QuantizationRule
) -> Iterator[Violation]:
    several, rank = max(weight.scale.size, weight.zero_point.size) > 1, layer.core.operand(1).rank or 2
    if several and rule.per_channel is False:
        yield Violation(f"the weight has {weight.scale.size} scales, not one", "quantise it per tensor")
    elif several and weight.axis % rank != layer.channel_axis:
        yield Violation(
            f"weights have one scale per output channel, got one along axis {weight.axis}", "quantise it per channel"
        )
    elif not several and rule.per_channel and not weight.is_real:
        yield Violation("the weight has one scale, not one per output channel", "quantise it per channel")


def _described(found: QuantizationParameters) -> str:
    return f'"{found.name}" ({found.scale[0]:.6g} and {found.zero_point[0]}, {found.dtype})'


def middle_of(dtype: str) -> int:
    """Return the number in the middle of a range.

    >>> middle_of("int8"), middle_of("uint8"), middle_of("int16")
    (0, 128, 0)
    """
    bits = int(dtype.lstrip("uint"))
    return 1 << (bits - 1) if dtype.startswith("u") else 0


def violations_among(
    nodes: Collection[Node], rule_of: Callable[[Node], QuantizationRule | None], within: Collection[Node] | None = None
) -> Iterator[tuple[Node, Violation]]:
    """Yield the violations of rules by the layers among some nodes, with the operators of these layers.

    Args:
        nodes: In topological order, so that biases and activations come after the layers that they are parts of.
        rule_of: Finds the rule of an operator.
        within: The nodes that may belong to layers; by default any.
    """
    taken: set[Node] = set()
    for node in nodes:
        rule = None if node in taken else rule_of(node)
        layer = None if rule is None else QuantizedLayer.read(node, within)
        if rule is not None and layer is not None:
            taken.update(layer.nodes)
            yield from ((node, found) for found in violations(layer, rule))
