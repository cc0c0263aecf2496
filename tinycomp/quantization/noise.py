"""Measure which layers lose the most by 8 bits, and which are worth keeping in float."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tinycomp.console import FoldingTable, SafeConsole
from tinycomp.driver.models import Model
from tinycomp.driver.tune import Bar
from tinycomp.frontend import Shapes
from tinycomp.ir.graph import Graph, Value
from tinycomp.quantization.calibration import Feeds, Watch, told_apart
from tinycomp.quantization.layers import Layer
from tinycomp.quantization.options import Options
from tinycomp.quantization.products import quantized_weight
from tinycomp.quantization.quantizer import Quantizer
from tinycomp.records import asdict, dataclass

_INPUTS = 4
_SUGGESTED = 0.5


@dataclass(frozen=True)
class LayerNoise:
    """What quantising does to a layer and what the layer does to the model, as signal-to-noise ratios in dB.

    Attributes:
        name: The layer.
        op: Its operator.
        weight: Of the rounded weight; None for a layer without one.
        here: At the layer's result in the quantised model, with the noise of all layers before it.
        alone: At the model's outputs if this layer alone is quantised; of a Softmax what it reads counts.
    """

    name: str
    op: str
    weight: float | None
    here: float
    alone: float


@dataclass(frozen=True)
class NoiseTable:
    """The noise of every quantised layer.

    Attributes:
        layers: In the order of the model.
        output: Signal-to-noise ratio at the model's outputs with all of them quantised, in dB.
    """

    layers: Sequence[LayerNoise]
    output: float

    def suggest(self, most: int | None = None) -> list[str]:
        """Return the products that are worth keeping in float, the noisiest first: for ``keep_float=``.

        These are the fewest that make half of the noise which the layers cause one by one; none if the noise is spread
        so evenly that this would take more than a quarter of them.

        Args:
            most: Return no more than this many.
        """
        products = [row for row in self.layers if row.weight is not None]
        ordered = sorted(products, key=lambda row: row.alone)
        power = [10 ** (-row.alone / 10) for row in ordered]
        allowed = max(1, len(products) // 4) if most is None else most
        for count in range(1, allowed + 1):
            if sum(power[:count]) >= _SUGGESTED * sum(power):
                return [row.name for row in ordered[:count]]
        return [] if most is None else [row.name for row in ordered[:most]]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able form; infinite ratios are None."""
        rows = [{k: _finite(v) for k, v in asdict(row).items()} for row in self.layers]
        return {"layers": rows, "output": _finite(self.output), "suggestion": self.suggest()}

    def table(self) -> FoldingTable:
        """Return the table for rich."""
        table = FoldingTable(title=f"Signal to noise in dB; {_text(self.output)} at the outputs", title_justify="left")
        for name in ("layer", "operator"):
            table.add_column(name, overflow="fold")
        for name in ("weight", "here", "alone"):
            table.add_column(name, justify="right")
        for row in self.layers:
            table.add_row(row.name, row.op, *map(_text, (row.weight, row.here, row.alone)))
        return table

    def __str__(self) -> str:
        console = SafeConsole(width=110, color_system=None)
        with console.capture() as captured:
            console.print(self.table())
        kept = self.suggest()
        hint = f"keep_float={kept!r}" if kept else "no few layers stand out"
        return f"{captured.get()}Worth keeping in float: {hint}\n"


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _text(decibels: float | None) -> str:
    return "" if decibels is None else f"{decibels:.1f}"


def noise(
    model: Model,
    calibration: Iterable[Any],
    *,
    inputs: int = _INPUTS,
    shapes: Shapes | None = None,
    threads: int | None = None,
    progress: bool | None = None,
    **options: Any,
) -> NoiseTable:
    """Measure the noise that quantising brings into a model, layer by layer.

    The model is compiled and run once for every layer, with only this layer quantised.

    Args:
        model: As for :func:`tinycomp.compile`.
        calibration: As for :func:`tinycomp.quantize`; it must be possible to go through it twice.
        inputs: How many of the calibration inputs the noise is measured on.
        shapes: Shapes for inputs.
        threads: Threads of the runs.
        progress: Whether to show a bar on stderr; by default if that is a terminal.
        options: How to quantise: the other options of :func:`tinycomp.quantize`.

    Returns:
        The table, with a suggestion which layers to keep in float.

    Raises:
        ModelError: If the model is not valid.
        QuantizationError: If an option or the calibration data do not fit, or nothing can be quantised.
    """
    bar = Bar(progress)
    quantizer = Quantizer.calibrated(model, calibration, Options(threads=threads, **options), shapes, bar, passes=2)
    return measure(quantizer, inputs, bar)


def measure(quantizer: Quantizer, inputs: int, bar: Bar) -> NoiseTable:
    """Return the table for what has been calibrated."""
    meter = _Meter(quantizer, [item for item, _ in zip(quantizer.data, range(inputs), strict=False)])
    whole = quantizer.quantized(quantizer.chosen)
    ends = {v.name: _as_rounded(whole, v.name) for layer in quantizer.chosen for v in layer.outputs}
    here = meter.ratios(whole, ends)
    alone = {}
    with bar.over("measuring layers", quantizer.chosen, len(quantizer.chosen)) as layers:
        for layer in layers:
            alone[layer] = meter.at_outputs(quantizer.quantized([layer]))
    rows = [
        LayerNoise(each.name, each.core.op, _weight_ratio(each, quantizer), here[each.outputs[0].name], alone[each])
        for each in quantizer.chosen
    ]
    return NoiseTable(rows, meter.at_outputs(whole))


def _as_rounded(quantized: Graph, name: str) -> Value:
    """Return what stands for a value of the float graph behind its rounding."""
    numbers = quantized.values[f"{name}_quantized"]
    return next(user.output for user in numbers.users if user.op == "DequantizeLinear")


def _weight_ratio(layer: Layer, quantizer: Quantizer) -> float | None:
    if layer.weight is None:
        return None
    meter = Ratio()
    meter.add(layer.constant_weight, quantized_weight(layer, quantizer.scales, quantizer.options).dequantize())
    return meter.decibels


class Ratio:
    """A signal-to-noise ratio over several arrays.

    >>> ratio = Ratio()
    >>> ratio.add(np.float32([10, 0]), np.float32([9, 0]))
    >>> ratio.decibels
    20.0
    """

    def __init__(self) -> None:
        self._signal = 0.0
        self._noise = 0.0

    def add(self, exact: np.ndarray, rounded: np.ndarray) -> None:
        """Count the elements of a pair of arrays of one shape."""
        wide = exact.astype(np.float64)
        self._signal += float((wide**2).sum())
        self._noise += float(((rounded.astype(np.float64) - wide) ** 2).sum())

    @property
    def decibels(self) -> float:
        """10 times the decimal logarithm of the powers' ratio; infinite without noise."""
        if not self._noise:
            return math.inf
        return 10 * math.log10(self._signal / self._noise) if self._signal else -math.inf


class _Meter:
    """Compares graphs with the float graph on the same inputs."""

    def __init__(self, quantizer: Quantizer, inputs: Sequence[tuple[str, Feeds]]) -> None:
        self._inputs, self._threads = inputs, quantizer.options.threads
        self._graph = graph = quantizer.graph
        inner = [v for layer in quantizer.chosen for v in layer.outputs]
        self._ends = [end.name for end in _ends(graph)]
        watch = Watch(graph, list(dict.fromkeys([*inner, *_ends(graph)])), self._threads)
        self._exact = [watch(feeds, where) for where, feeds in inputs]

    def ratios(self, graph: Graph, values: dict[str, Value]) -> dict[str, float]:
        """Return the ratios of values of a graph by the names of those that they stand for."""
        watch = Watch(graph, list(dict.fromkeys(values.values())), self._threads)
        meters = {name: Ratio() for name in values}
        for (where, feeds), exact in zip(self._inputs, self._exact, strict=True):
            rounded = watch(feeds, where)
            for name, value in values.items():
                part = told_apart(self._graph.values[name])
                meters[name].add(np.clip(exact[name], *part), np.clip(rounded[value.name], *part))
        return {name: meter.decibels for name, meter in meters.items()}

    def at_outputs(self, graph: Graph) -> float:
        """Return the ratio over all float outputs of a graph together."""
        ends = _ends(graph)
        watch = Watch(graph, list(dict.fromkeys(ends)), self._threads)
        meter = Ratio()
        for (where, feeds), exact in zip(self._inputs, self._exact, strict=True):
            rounded = watch(feeds, where)
            for name, value in zip(self._ends, ends, strict=True):
                if exact[name].dtype.kind == "f":
                    meter.add(exact[name], rounded[value.name])
        return meter.decibels


def _ends(graph: Graph) -> list[Value]:
    """Return the outputs that are computed; of a Softmax what it reads, because probabilities near 1 hide noise."""
    ends = [v for v in graph.outputs if v.producer is not None]
    makers = [(v, v.producer) for v in ends if v.producer is not None]
    return [node.operand(0) if node.op in ("LogSoftmax", "Softmax") else v for v, node in makers]
