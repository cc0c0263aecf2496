"""Convolutions: im2col and BLAS, or a sum over kernel taps where the convolution is depthwise.

Layout is ONNX's: x (N, C, spatial…), w (M, C / group, kernel…), y (N, M, spatial…).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tinycomp.errors import ModelError
from tinycomp.ops.integers import exact_float, minus_zero_point, to_int32
from tinycomp.ops.numeric import Array, node_shape, prod, widened
from tinycomp.ops.quantize import check_scale, requantize
from tinycomp.ops.registry import OpFamily
from tinycomp.ops.spatial import Window, make_window, pad_for, sliding_view

if TYPE_CHECKING:
    from tinycomp.ir.graph import Node

FAMILY = OpFamily("conv")

# Images are unfolded in blocks of about this many bytes, so that a large batch does not multiply the memory needed.
_UNFOLD_BYTES = 1 << 26

Ints = Sequence[int] | None


def conv_macs(node: Node) -> int:
    """Return output elements times taps times channels per group; the weight is input 1 (3 in QLinearConv)."""
    weight = node_shape(node.inputs[3 if node.op == "QLinearConv" else 1])
    return prod(node_shape(node.outputs[0])) * prod(weight[1:])


def check_weight(op: str, x: Array, w: Array, kernel_shape: Ints) -> None:
    """Raise a ModelError unless ranks and the kernel attribute fit the weight."""
    if x.ndim < 3:
        raise ModelError(f"{op}: the input has no spatial axis", expected="rank >= 3", found=f"shape {list(x.shape)}")
    if w.ndim != x.ndim:
        raise ModelError(
            f"{op}: the weight has the wrong rank", expected=f"rank {x.ndim}", found=f"shape {list(w.shape)}"
        )
    if kernel_shape and tuple(kernel_shape) != w.shape[2:]:
        raise ModelError(
            f"{op}: kernel_shape differs from the weight",
            expected=str(list(w.shape[2:])),
            found=str(list(kernel_shape)),
        )


def check_group(op: str, x: Array, w: Array, group: int) -> None:
    """Raise a ModelError unless ``group`` divides input and output channels and fits the weight."""
    if group <= 0 or x.shape[1] % group or w.shape[0] % group:
        raise ModelError(
            f"{op}: group does not divide the channels",
            expected=f"a positive divisor of {x.shape[1]} input and {w.shape[0]} output channels",
            found=str(group),
        )
    if w.shape[1] * group != x.shape[1]:
        raise ModelError(
            f"{op}: weight and input disagree in channels",
            expected=f"{x.shape[1]} / group {group} = {x.shape[1] // group} weight channels",
            found=str(w.shape[1]),
        )


def convolve(x: Array, w: Array, window: Window, group: int, pad_value: Any = 0) -> Array:
    """Return the convolution of ``x`` and ``w``, both of one float dtype, without bias."""
    if window.is_pointwise:
        return _grouped_matmul(w, x.reshape(len(x), group, w.shape[1], prod(window.output)), group, window)
    padded = pad_for(x, window, pad_value)
    if w.shape[1] == 1:
        return _depthwise(padded, w, window)
    columns_size = prod(window.kernel) * x.shape[1] * prod(window.output) * x.itemsize
    block = max(1, _UNFOLD_BYTES // max(columns_size, 1))
    parts = [_unfolded(padded[i : i + block], w, window, group) for i in range(0, max(len(x), 1), block)]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _unfolded(padded: Array, w: Array, window: Window, group: int) -> Array:
    view = sliding_view(padded, window)
    return _grouped_matmul(w, view.reshape(len(padded), group, w[0].size, prod(window.output)), group, window)


def _grouped_matmul(w: Array, columns: Array, group: int, window: Window) -> Array:
    rows = w.reshape(group, len(w) // group, w[0].size)
    product: Array = np.matmul(rows, columns)
    return product.reshape(len(columns), len(w), *window.output)


def _depthwise(padded: Array, w: Array, window: Window) -> Array:
    # A GEMM with one row per channel would spend its time unfolding; a sum over taps reads the input in place.
    copies = len(w) // padded.shape[1]
    total = np.zeros((len(padded), len(w), *window.output), dtype=padded.dtype)
    by_tap = np.moveaxis(w[:, 0], 0, -1)
    for tap in window.taps():
        cells = padded[window.tap_index(tap)]
        factor = by_tap[tap].reshape(-1, *[1] * window.rank)
        total += (np.repeat(cells, copies, axis=1) if copies > 1 else cells) * factor
    return total


def add_bias(y: Array, bias: Array | None, op: str) -> Array:
    """Add a bias per channel to ``y`` in place and return it; None adds nothing."""
    if bias is None:
        return y
    if bias.shape != (y.shape[1],):
        raise ModelError(f"{op}: the bias has the wrong shape", expected=str([y.shape[1]]), found=str(list(bias.shape)))
    y += bias.reshape(-1, *[1] * (y.ndim - 2))
    return y


@FAMILY.op("Conv", macs=conv_macs)
@widened
def conv(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints = None,
    group: int = 1,
    kernel_shape: Ints = None,
    pads: Ints = None,
    strides: Ints = None,
) -> Array:
    """Convolution of any spatial rank.

    Raises:
        ModelError: If weight, group or window do not fit the input.
    """
    check_weight("Conv", x, w, kernel_shape)
    check_group("Conv", x, w, group)
    window = make_window(
        "Conv", x.shape[2:], w.shape[2:], strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad
    )
    return add_bias(convolve(x, w, window, group), b, "Conv")


@FAMILY.op("ConvInteger", macs=conv_macs)
def conv_integer(
    x: Array,
    w: Array,
    x_zero_point: Array | None = None,
    w_zero_point: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints = None,
    group: int = 1,
    kernel_shape: Ints = None,
    pads: Ints = None,
    strides: Ints = None,
) -> Array:
    """Convolution of 8-bit integers with int32 result; padding stands for the zero point."""
    check_weight("ConvInteger", x, w, kernel_shape)
    check_group("ConvInteger", x, w, group)
    window = make_window(
        "ConvInteger", x.shape[2:], w.shape[2:], strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad
    )
    return _integer_convolve(x, w, x_zero_point, w_zero_point, window, group)


def _integer_convolve(
    x: Array, w: Array, x_zero_point: Array | None, w_zero_point: Array | None, window: Window, group: int
) -> Array:
    dtype = exact_float(w[0].size)
    offset_x = minus_zero_point(x, x_zero_point, dtype)
    offset_w = minus_zero_point(w, w_zero_point, dtype, axis=0)
    return to_int32(convolve(offset_x, offset_w, window, group))


@FAMILY.op("QLinearConv", macs=conv_macs)
def qlinear_conv(
    x: Array,
    x_scale: Array,
    x_zero_point: Array,
    w: Array,
    w_scale: Array,
    w_zero_point: Array,
    y_scale: Array,
    y_zero_point: Array,
    b: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints = None,
    group: int = 1,
    kernel_shape: Ints = None,
    pads: Ints = None,
    strides: Ints = None,
) -> Array:
    """Quantised convolution: an exact int32 sum, then one requantisation; ``w_scale`` may be per output channel."""
    check_weight("QLinearConv", x, w, kernel_shape)
    check_group("QLinearConv", x, w, group)
    for name, scale in (("x_scale", x_scale), ("w_scale", w_scale), ("y_scale", y_scale)):
        check_scale("QLinearConv", name, scale)
    window = make_window(
        "QLinearConv", x.shape[2:], w.shape[2:], strides=strides, dilations=dilations, pads=pads, auto_pad=auto_pad
    )
    total = add_bias(_integer_convolve(x, w, x_zero_point, w_zero_point, window, group), b, "QLinearConv")
    per_channel = w_scale.reshape(-1, *[1] * window.rank) if w_scale.size > 1 else w_scale.reshape(())
    return requantize(total, x_scale.reshape(()) * per_channel / y_scale.reshape(()), y_zero_point)
