"""Equalise the ranges of channels across layers (M. Nagel et al., "Data-Free Quantization", 2019).

Between two products with at most a Relu in between, channel c can be divided by any positive number in the first and
multiplied with it in the second: ``Relu(x / s) = Relu(x) / s``. The numbers are chosen such that each channel takes as
much of the range of the first weight as of the second, so that one scale for all channels suits them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tinycomp.index import named
from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.quantization.layers import Layer
from tinycomp.records import dataclass

_HOMOGENEOUS = frozenset({*named("pool"), "Pad"})
"""Operators on single channels that commute with a positive factor; a Pad only if it could be quantised."""
_ROUNDS = 40
_CLOSE = 1e-3


@dataclass(frozen=True)
class _Pair:
    first: Layer
    second: Layer


def equalize_layers(graph: Graph, layers: Sequence[Layer]) -> int:
    """Rescale the channels between neighbouring products of a float graph, in place; its results stay the same.

    Returns:
        How many pairs of layers were found.
    """
    pairs = _pairs(graph, layers)
    for _ in range(_ROUNDS):
        if max((_equalize(graph, pair) for pair in pairs), default=0.0) < _CLOSE:
            break
    return len(pairs)


def _pairs(graph: Graph, layers: Sequence[Layer]) -> list[_Pair]:
    cores = {layer.core: layer for layer in layers}
    pairs = []
    for layer in layers:
        if layer.weight is None or layer.core.op in ("ConvTranspose", "MatMul") or not _is_homogeneous(layer):
            continue
        second = _next_product(graph, layer.outputs[0], cores)
        if second is not None and _reads_channels_of(second, layer):
            pairs.append(_Pair(layer, second))
    return pairs


def _is_homogeneous(layer: Layer) -> bool:
    return layer.activation is None or layer.activation.op == "Relu"


def _next_product(graph: Graph, value: Value, cores: Mapping[Node, Layer]) -> Layer | None:
    """Return the product that alone reads a value, through operators on single channels."""
    while graph.use_count(value) == 1 and value.users:
        layer = cores.get(next(iter(value.users)))
        if layer is None or layer.core.inputs[0] is not value:
            return None
        if layer.weight is not None and layer.core.op != "MatMul":
            return layer
        if layer.core.op not in _HOMOGENEOUS or not _is_homogeneous(layer):
            return None
        value = layer.outputs[0]
    return None


def _reads_channels_of(second: Layer, first: Layer) -> bool:
    """Tell whether both agree about what a channel is; a Gemm may read flattened images, which have others."""
    return second.core.op == first.core.op and _inputs_of(second) == first.constant_weight.shape[first.channel_axis]


def _inputs_of(layer: Layer) -> int:
    return int(layer.constant_weight.shape[1 - layer.channel_axis] * layer.core.attrs.get("group", 1))


def _equalize(graph: Graph, pair: _Pair) -> float:
    """Rescale the channels between two layers once; return how far the largest factor is from 1."""
    given, taken = _by_output(pair.first), _by_input(pair.second)
    ranges = [np.abs(w).reshape(len(w), -1).max(axis=1).astype(np.float64) for w in (given, taken)]
    usable = (ranges[0] > 0) & (ranges[1] > 0)
    factor = np.where(usable, np.sqrt(ranges[0] / np.where(usable, ranges[1], 1.0)), 1.0)
    factor = np.where(usable, factor, 1.0)
    _scale_outputs(graph, pair.first, 1 / factor)
    _scale_inputs(graph, pair.second, factor)
    return float(np.abs(factor - 1).max(initial=0.0))


def _by_output(layer: Layer) -> np.ndarray:
    return np.moveaxis(layer.constant_weight, layer.channel_axis, 0)


def _by_input(layer: Layer) -> np.ndarray:
    """Return the weight with its input channels in front, those of all groups one after another."""
    weight, groups = _by_output(layer), layer.core.attrs.get("group", 1)
    grouped = weight.reshape(groups, len(weight) // groups, *weight.shape[1:])
    return np.moveaxis(grouped, 2, 1).reshape(groups * weight.shape[1], -1)


def _scale_outputs(graph: Graph, layer: Layer, factor: np.ndarray) -> None:
    weight = layer.constant_weight
    shape = [-1 if axis == layer.channel_axis else 1 for axis in range(weight.ndim)]
    _replace(graph, layer, 1, weight * factor.reshape(shape))
    if layer.bias is not None:
        _replace(graph, layer, 2, layer.bias * factor)


def _scale_inputs(graph: Graph, layer: Layer, factor: np.ndarray) -> None:
    weight, groups = _by_output(layer), layer.core.attrs.get("group", 1)
    spread = factor.reshape(groups, 1, weight.shape[1], *[1] * (weight.ndim - 2))
    scaled = weight.reshape(groups, -1, *weight.shape[1:]) * spread
    _replace(graph, layer, 1, np.moveaxis(scaled.reshape(weight.shape), 0, layer.channel_axis))


def _replace(graph: Graph, layer: Layer, index: int, array: np.ndarray) -> None:
    held = layer.core.inputs[index]
    assert held is not None
    graph.set_input(layer.core, index, graph.add_const(np.ascontiguousarray(array, np.float32), held.name))
