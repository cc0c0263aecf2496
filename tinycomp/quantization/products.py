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
    groups = layer.core.attrs.get("group", 1) if layer.core.op == "ConvTranspose" else 1
    return int(layer.constant_weight.shape[layer.channel_axis] * groups)


def scale_axis(layer: Layer, options: Options) -> int | None:
    """Return the axis of the weight with a scale for every output channel.

    A stack of matrices, and the weight of a ConvTranspose of several groups, which has no such axis, have one scale.
    """
    per_channel = options.per_channel and layer.wanted.per_channel is not False
    is_stack = layer.core.op in ("Gemm", "MatMul") and layer.constant_weight.ndim > 2
    has_axis = not is_stack and channels_of(layer) == layer.constant_weight.shape[layer.channel_axis]
    return layer.channel_axis if per_channel and has_axis else None


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
