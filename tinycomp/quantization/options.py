"""Hold and check what the user of :func:`tinycomp.quantize` can choose."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from tinycomp.errors import QuantizationError, did_you_mean
from tinycomp.quantization.encoding import REDUCED_LIMIT, WEIGHT_LIMIT, Encoding
from tinycomp.quantization.layers import Selector

Method = Literal["minmax", "percentile", "entropy", "mse"]
METHODS: tuple[Method, ...] = ("minmax", "percentile", "entropy", "mse")
Activations = Literal["uint8", "int8"]
_ACTIVATIONS: tuple[Activations, ...] = ("uint8", "int8")


@dataclass(frozen=True)
class Options:
    """How to quantise; the fields are the options of :func:`tinycomp.quantize`.

    Raises:
        QuantizationError: If an option has a value that it cannot have.
    """

    method: Method = "minmax"
    activations: Activations = "uint8"
    symmetric: bool = False
    per_channel: bool = True
    reduce_range: bool = False
    bias_correction: bool = True
    equalize: bool = False
    keep_float: Selector | Iterable[Selector] = ()
    percentile: float | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        one_of("method", self.method, METHODS)
        one_of("activations", self.activations, _ACTIVATIONS)
        if self.percentile is None:
            return
        if self.method != "percentile":
            raise QuantizationError(
                "only one method has a percentile", where="percentile", expected='None, or method="percentile"',
                found=f"{self.percentile!r} with method={self.method!r}", hint="Leave it out, or name that method.",
            )  # fmt: skip
        if not isinstance(self.percentile, (int, float)) or not 50 < self.percentile <= 100:
            raise QuantizationError(
                "not a share of the values", where="percentile", expected="a number above 50, up to 100",
                found=repr(self.percentile),
            )  # fmt: skip

    @property
    def encoding(self) -> Encoding:
        """How ranges of activations become scales."""
        return Encoding(self.activations, self.symmetric)

    @property
    def weight_limit(self) -> int:
        """The largest magnitude of a quantised weight."""
        return REDUCED_LIMIT if self.reduce_range else WEIGHT_LIMIT


def one_of(name: str, value: Any, known: tuple[str, ...]) -> None:
    """Refuse an option that is none of the known values.

    Raises:
        QuantizationError: If it is not.
    """
    if value not in known:
        raise QuantizationError(
            f"{name} cannot be this", where=name, expected=f"one of {', '.join(known)}", found=repr(value),
            hint=did_you_mean(str(value), known),
        )  # fmt: skip
