"""Compute the constants of a product in 8 and 32 bits."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tinycomp.quantization.encoding import Affine, Weights, quantize_weight
from tinycomp.quantization.layers import Layer, Slot
from tinycomp.quantization.options import Options


def data_scale(layer: Layer, scales: Mapping[Slot, Affine]) -> np.float32:
    """Return the scale of what a product with a constant weight reads."""
    ((_, value),) = layer.operands
    return scales[value, layer.dtype].scale


def channels_of(layer: Layer) -> int:
    """Return how many output channels a product with a constant weight has."""
    return int(layer.constant_weight.shape[layer.channel_axis])


def scale_axis(layer: Layer, options: Options) -> int | None:
    """Return the axis of the weight with a scale for every index; a stack of matrices has one scale in any case."""
    per_channel = options.per_channel and layer.wanted.per_channel is not False
    per_channel = per_channel and (layer.core.op == "Conv" or layer.constant_weight.ndim == 2)
    return layer.channel_axis if per_channel else None


def quantized_weight(layer: Layer, scales: Mapping[Slot, Affine], options: Options) -> Weights:
    """Return the weight of a product in int8, with scales that let its bias fit into int32."""
    axis = scale_axis(layer, options)
    bias = layer.bias if axis is None or layer.bias is None else np.broadcast_to(layer.bias, channels_of(layer))
    return _quantized(layer, axis, options, bias, data_scale(layer, scales))


def weight_error(layer: Layer, options: Options) -> np.ndarray:
    """Return what the weight of a product is too small by after rounding, float32."""
    return layer.constant_weight - _quantized(layer, scale_axis(layer, options), options).dequantize()


def _quantized(
    layer: Layer, axis: int | None, options: Options, bias: np.ndarray | None = None, step: np.float32 | None = None
) -> Weights:
    wanted = layer.wanted
    return quantize_weight(
        layer.constant_weight, axis, options.weight_limit, bias, step, "weights" in wanted.power_of_two,
        wanted.least_scale,
    )  # fmt: skip
