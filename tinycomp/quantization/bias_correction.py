"""Correct biases by the mean error of every channel (M. Nagel et al., "Data-Free Quantization", 2019).

Rounding a weight moves the mean of what its channel gives, because the data that it is multiplied with do not have mean
zero. While the calibration data run through the float graph, every product is computed once more with the error of its
weight in the weight's place; the mean of that, per channel, goes into the bias.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tinycomp.ir.graph import Graph, Value
from tinycomp.quantization.layers import Layer
from tinycomp.quantization.options import Options
from tinycomp.quantization.products import channels_of, weight_error

_FIRST_WITH_AXES_OPERAND = 18


class MeanErrors:
    """Means of what products lose by the rounding of their weights.

    Args:
        probe: A copy of the float graph; nodes are added that compute the means for one input.
        layers: The layers that will be quantised, of the float graph itself.
        options: How weights are quantised.

    Attributes:
        values: What the nodes compute, float32 ``[channels]`` each.
    """

    def __init__(self, probe: Graph, layers: Sequence[Layer], options: Options) -> None:
        self._layers = [layer for layer in layers if _can_be_corrected(layer)]
        self.values = [_mean_error(probe, layer, options) for layer in self._layers]
        self._sums = [np.zeros(channels_of(layer)) for layer in self._layers]
        self._weights = [0] * len(self._layers)

    def add(self, arrays: Mapping[str, np.ndarray], weight: int) -> None:
        """Count the means for one input, which has ``weight`` elements."""
        for number, (value, total) in enumerate(zip(self.values, self._sums, strict=True)):
            mean = arrays[value.name].astype(np.float64)
            if np.isnan(mean).any():  # a product of no rows has no mean
                continue
            total += weight * mean
            self._weights[number] += weight

    def correct(self, graph: Graph) -> None:
        """Add the means to the biases of the float graph; a Conv or Gemm without a bias gets one."""
        for layer, total, weight in zip(self._layers, self._sums, self._weights, strict=True):
            _shift_bias(graph, layer, total / max(weight, 1))


def _can_be_corrected(layer: Layer) -> bool:
    return layer.weight is not None and (layer.core.op != "MatMul" or layer.bias_add is not None)


def _mean_error(probe: Graph, layer: Layer, options: Options) -> Value:
    """Add a product with the error of the weight, and its mean over everything but channels."""
    core = layer.core
    error = probe.add_const(weight_error(layer, options), f"{core.output.name}_weight_error")
    lost = probe.add(core.op, [probe.values[core.operand(0).name], error], core.attrs, version=core.version).output
    rank = lost.rank or 2
    channels = 1 if core.op in ("Conv", "ConvTranspose") else rank - 1
    axes = np.array([axis for axis in range(rank) if axis != channels], np.int64)
    if probe.opsets.get("", _FIRST_WITH_AXES_OPERAND) >= _FIRST_WITH_AXES_OPERAND:
        return probe.add("ReduceMean", [lost, probe.add_const(axes, "axes")], {"keepdims": 0}).output
    return probe.add("ReduceMean", [lost], {"axes": axes.tolist(), "keepdims": 0}).output


def _shift_bias(graph: Graph, layer: Layer, error: np.ndarray) -> None:
    before = np.zeros(1, np.float32) if layer.bias is None else layer.bias
    value = graph.add_const((before + error).astype(np.float32), f"{layer.core.output.name}_corrected_bias")
    if layer.bias_add is not None:
        graph.set_input(layer.bias_add, layer.bias_index, value)
        return
    if len(layer.core.inputs) < 3:
        layer.core.inputs = (*layer.core.inputs, None)
    graph.set_input(layer.core, layer.bias_index, value)
