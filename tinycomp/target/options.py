"""What the user of a compilation asks of code generators, beside the region itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from tinycomp.errors import OptionError

_Value = TypeVar("_Value")

Winograd = bool | Literal["auto"]
"""Whether convolutions may be computed by Winograd's algorithm: never, wherever possible, or where it pays."""

Requantize = Literal["float", "fixed_point"]
"""How integer sums become 8-bit numbers: by a float32 factor, or by TFLite's 31-bit multiplier and shift."""

Measured = Mapping[str, Mapping[str, float]]
"""Seconds by candidate, by problem: what a tuning log says for the machine, instruction set and threads at hand."""

EXTRA_WEIGHT_BYTES = 256 << 20
"""Bytes that the packed weights of one plan may take beyond those of the most compact algorithms."""


def checked_winograd(winograd: Any) -> Winograd:
    """Return the option as it is.

    Raises:
        OptionError: If it is not one of its three values.
    """
    return _one_of((True, False, "auto"), winograd, "winograd", "not a way to use Winograd's algorithm")


def checked_requantize(requantize: Any) -> Requantize:
    """Return the option as it is.

    Raises:
        OptionError: If it is not one of its two values.
    """
    return _one_of(("float", "fixed_point"), requantize, "requantize", "not a rule of requantisation")


def _one_of(allowed: tuple[_Value, ...], given: Any, name: str, problem: str) -> _Value:
    for value in allowed:
        if type(given) is type(value) and given == value:
            return value
    texts = [f'"{value}"' if isinstance(value, str) else str(value) for value in allowed]
    expected = f"{', '.join(texts[:-1])} or {texts[-1]}"
    raise OptionError(problem, where=name, expected=expected, found=repr(given))


@dataclass
class Allowance:
    """Memory that may still be spent on faster forms of the weights; regions of one plan spend it together.

    Attributes:
        bytes: What is left.
    """

    bytes: int = EXTRA_WEIGHT_BYTES

    def take(self, wanted: int) -> bool:
        """Spend ``wanted`` bytes if they are left; say whether they were."""
        if wanted > self.bytes:
            return False
        self.bytes -= wanted
        return True


@dataclass(frozen=True)
class Settings:
    """How regions are to be computed.

    Attributes:
        winograd: See :data:`Winograd`.
        measured: See :data:`Measured`; what it does not hold is estimated.
        allowance: What ``winograd="auto"`` may spend on transformed weights.
        requantize: See :data:`Requantize`; it concerns convolutions and products that are quantised again.
    """

    winograd: Winograd = "auto"
    measured: Measured = field(default_factory=dict)
    allowance: Allowance = field(default_factory=Allowance)
    requantize: Requantize = "float"

    def renewed(self) -> Settings:
        """Return the same settings with a whole allowance, for a plan of its own."""
        return dataclasses.replace(self, allowance=Allowance())
