"""Hold and check what the user of :func:`tinycomp.quantize` can choose."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Literal

from tinycomp.errors import QuantizationError, did_you_mean, shown
from tinycomp.ir.graph import Graph
from tinycomp.lazy import cached_property
from tinycomp.quantization.check import rules_of
from tinycomp.quantization.encoding import REDUCED_LIMIT, WEIGHT_LIMIT, Encoding
from tinycomp.quantization.layers import RULES, Layer, Selector, find_layers
from tinycomp.records import dataclass
from tinycomp.target import Target, find
from tinycomp.target.quantization import Rules

Method = Literal["minmax", "percentile", "entropy", "mse"]
METHODS: tuple[Method, ...] = ("minmax", "percentile", "entropy", "mse")
Activations = Literal["uint8", "int8", "int16", "uint16"]
_ACTIVATIONS: tuple[Activations, ...] = ("uint8", "int8")
_PER_CHANNEL_SINCE, _WIDE_SINCE = 13, 21
_WIDE: tuple[Activations, ...] = ("int16", "uint16")


@dataclass(frozen=True)
class Options:
    """How to quantise; the fields are the options of :func:`tinycomp.quantize`.

    Raises:
        QuantizationError: If an option has a value that it cannot have.
    """

    method: Method = "minmax"
    activations: Activations | None = None
    symmetric: bool = False
    per_channel: bool = True
    reduce_range: bool = False
    bias_correction: bool = True
    equalize: bool = False
    keep_float: Selector | Iterable[Selector] = ()
    percentile: float | None = None
    threads: int | None = None
    target: Target | str | None = None

    def __post_init__(self) -> None:
        one_of("method", self.method, METHODS)
        rules = self.rules
        if rules is None:
            if self.activations is not None:
                one_of("activations", self.activations, _ACTIVATIONS)
        else:
            self._check_against(rules)
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
                found=shown(self.percentile),
            )  # fmt: skip

    def _check_against(self, rules: Rules) -> None:
        """Refuse options that the target does not allow, and a target that asks for what cannot be written.

        Raises:
            QuantizationError: If there are such.
        """
        where = f"target {self._target.name}" if self._target is not None else "target"
        own = {op: rule for op, rule in rules.items() if op in RULES}
        if self.activations is not None:
            allowed = tuple(dict.fromkeys(dtype for rule in own.values() for dtype in rule.activations))
            one_of("activations", self.activations, allowed)
        for op, rule in own.items():
            if op not in ("Conv", "ConvTranspose", "Gemm", "MatMul"):
                continue
            if "int8" not in rule.weights:
                raise QuantizationError(
                    "the target wants weights that are not written here", where=f"{where}, {op}", expected="int8",
                    found=", ".join(rule.weights),
                )  # fmt: skip
            if rule.per_channel and not self.per_channel:
                raise QuantizationError(
                    "the target wants a scale for each output channel", where=f"{where}, {op}",
                    expected="per_channel=True", found="per_channel=False",
                )  # fmt: skip

    @property
    def _target(self) -> Target | None:
        return None if self.target is None else find(self.target)

    @cached_property
    def rules(self) -> Rules | None:
        """What the target says of operators; None without a target."""
        return None if self._target is None else rules_of(self._target)

    @property
    def opset(self) -> int:
        """The first opset that has the conversions which may be needed: scales per channel, or numbers of 16 bits."""
        wanted = {d for op, rule in (self.rules or {}).items() if op in RULES for d in rule.activations[:1]}
        return _PER_CHANNEL_SINCE if wanted.isdisjoint(_WIDE) and self.activations not in _WIDE else _WIDE_SINCE

    def layers(self, graph: Graph) -> list[Layer]:
        """Return the layers of a float graph that could be quantised."""
        default = "uint8" if self.rules is None else None
        return find_layers(graph, self.rules, self.activations or default)

    def encoding(self, dtype: str, around: Collection[Layer]) -> Encoding:
        """Return how ranges of activations become scales that suit the layers around them."""
        wanted = [layer.wanted for layer in around]
        return Encoding(
            dtype,
            self.symmetric or any(rule.is_symmetric("activations", dtype) for rule in wanted),
            any("activations" in rule.power_of_two for rule in wanted),
            max((rule.least_scale for rule in wanted), default=0.0),
        )

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
            f"{name} cannot have this value", where=name, expected=f"one of {', '.join(known)}", found=shown(value),
            hint=did_you_mean(str(value), known),
        )  # fmt: skip
