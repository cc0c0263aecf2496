"""How far the layers of a quantised model are from the float model that it was made of."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tinycomp.records import dataclass
from tinycomp.runtime.tables import drawn, table

if TYPE_CHECKING:
    from rich.console import RenderableType

EDGES = (-16.0, -8.0, -4.0, -2.0, -1.0, -0.5, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Where the bins of histograms meet, in steps; the first and the last one have no end."""
SLACK = 12.0
"""How many decibels a layer may be worse than rounding alone unless somebody says otherwise (two bits)."""
_WIDTH = 110
_BARS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True)
class LayerAccuracy:
    """One layer of a quantised model beside the float model. Ratios are of signal to noise, in dB.

    Attributes:
        name: The value of the float model.
        op: The operator that computes it in the quantised model; ``"input"`` for an input that is rounded.
        sources: The names in the quantised model of the node that computes it and the one that rounds it.
        where: The region that computes it on the target, or ``"host"``; empty without a target.
        best: What rounding alone would leave, to as many steps over the range of the float model's numbers.
        alone: Of the layer itself: what it computes from the float model's numbers.
        here: With the noise of all layers before it.
        target: Of the target's result beside the float model; None without a target.
        agreement: Of the target's result beside the quantised model's; None without a target.
        apart: The largest difference between these two, in steps; None without a target.
        clipped: Share of the float model's numbers that the scale has no room for.
        histogram: Shares of the numbers by their error in steps, as they are with all layers before; the bins meet at
            :data:`EDGES`.
    """

    name: str
    op: str
    sources: tuple[str, ...]
    where: str
    best: float
    alone: float
    here: float
    target: float | None
    agreement: float | None
    apart: int | None
    clipped: float
    histogram: tuple[float, ...]


@dataclass(frozen=True)
class Accuracy:
    """The layers of a quantised model beside the float model, in order of execution.

    Attributes:
        layers: Those whose values both models have.
        unmatched: Values that the quantised model rounds and the float model does not have.
        slack: By how many dB a layer may be worse than rounding alone before it departs.
    """

    layers: tuple[LayerAccuracy, ...]
    unmatched: tuple[str, ...] = ()
    slack: float = SLACK

    def departs(self, row: LayerAccuracy) -> bool:
        """Tell whether a layer by itself loses more than rounding explains."""
        return row.alone < row.best - self.slack

    def target_departs(self, row: LayerAccuracy) -> bool:
        """Tell whether the target's result is farther from the quantised model's than rounding explains."""
        return row.agreement is not None and row.agreement < row.best - self.slack

    @property
    def first(self) -> LayerAccuracy | None:
        """The first layer of the quantised model that departs from the float one."""
        return next(filter(self.departs, self.layers), None)

    @property
    def first_on_target(self) -> LayerAccuracy | None:
        """The first layer whose result on the target departs from that of the quantised model."""
        return next(filter(self.target_departs, self.layers), None)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able form; infinite ratios are None."""
        first, on_target = self.first, self.first_on_target
        return {
            "layers": [self._row(row) for row in self.layers],
            "unmatched": list(self.unmatched),
            "slack": self.slack,
            "edges": list(EDGES),
            "first": None if first is None else first.name,
            "first_on_target": None if on_target is None else on_target.name,
        }

    def _row(self, row: LayerAccuracy) -> dict[str, Any]:
        fields = {name: _finite(value) for name, value in dataclasses.asdict(row).items()}
        return {**fields, "departs": self.departs(row), "target_departs": self.target_departs(row)}

    def verdict(self) -> str:
        """Say in a sentence or two which layers depart first."""
        said = []
        if (row := self.first) is not None:
            clipped = f"; {row.clipped:.1%} of its numbers lie outside of its range" if row.clipped else ""
            said.append(
                f'The first layer to depart from the float model is "{row.name}" ({row.op}): {_text(row.alone)} dB by '
                f"itself, where rounding leaves {_text(row.best)} dB{clipped}."
            )
        if (row := self.first_on_target) is not None:
            said.append(
                f'The first layer whose result on the target departs from the quantised model\'s is "{row.name}" '
                f"({row.op}, {row.where}): {_text(row.agreement)} dB, up to {row.apart} steps."
            )
        return " ".join(said) or f"No layer loses more than {self.slack:g} dB beside what rounding alone does."

    def __rich__(self) -> RenderableType:
        """Return what rich prints."""
        from rich.console import Group
        from rich.text import Text

        figures = ("best", "alone", "here", "target", "steps", "clipped")
        rows = [
            (
                row.name, row.op, row.where, bars(row.histogram), _text(row.best), _text(row.alone), _text(row.here),
                _text(row.target), "" if row.apart is None else str(row.apart),
                f"{row.clipped:.1%}" if row.clipped else "",
            )
            for row in self.layers
        ]  # fmt: skip
        words = ("layer", "operator", "where", "errors") if any(row.where for row in self.layers) else None
        cells = rows if words else [(*row[:2], *row[3:]) for row in rows]
        title = "Layers beside the float model: signal to noise in dB"
        parts: list[RenderableType] = [table(title, words or ("layer", "operator", "errors"), figures, cells)]
        if self.unmatched:
            parts.append(Text(f"Not in the float model: {', '.join(self.unmatched)}."))
        return Group(*parts, Text(self.verdict()))

    def __str__(self) -> str:
        return drawn(self, _WIDTH)


def bars(shares: Sequence[float]) -> str:
    """Return a histogram as a word of bars.

    >>> bars([0.0, 0.25, 0.5, 0.25, 0.001])
    ' ▄█▄▁'
    """
    most = max(shares, default=0.0) or 1.0
    return "".join(_BARS[math.ceil(share / most * (len(_BARS) - 1))] for share in shares)


def by_source(accuracy: Accuracy | None) -> Mapping[str, int]:
    """Return the number of the layer that each name of the quantised model belongs to."""
    rows = () if accuracy is None else accuracy.layers
    return {source: number for number, row in enumerate(rows) for source in row.sources}


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _text(decibels: float | None) -> str:
    return "" if decibels is None else "exact" if decibels == math.inf else f"{decibels:.1f}"
