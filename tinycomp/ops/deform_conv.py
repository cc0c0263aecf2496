"""Deformable convolution (Zhu et al., 2018, "Deformable ConvNets v2"): every tap of every window has its own offset."""

from __future__ import annotations

import numpy as np

from tinycomp.errors import ModelError
from tinycomp.ops.conv import Ints, add_bias, check_group, check_weight, conv_macs
from tinycomp.ops.numeric import Array, prod, widened
from tinycomp.ops.registry import OpFamily
from tinycomp.ops.sampling import sample
from tinycomp.ops.spatial import Window, make_window

FAMILY = OpFamily("deform_conv")


@FAMILY.op("DeformConv", macs=conv_macs)
@widened
def deform_conv(
    x: Array,
    w: Array,
    offset: Array,
    b: Array | None = None,
    mask: Array | None = None,
    *,
    dilations: Ints = None,
    group: int = 1,
    kernel_shape: Ints = None,
    offset_group: int = 1,
    pads: Ints = None,
    strides: Ints = None,
) -> Array:
    """Convolution whose taps are moved by ``offset`` and weighted by ``mask``, with linear interpolation.

    ``offset`` is (N, offset_group * taps * r, output…) for r spatial axes, ``mask`` (N, offset_group * taps, output…).

    Raises:
        ModelError: If weight, groups, offset, mask or window do not fit the input.
    """
    op = "DeformConv"
    check_weight(op, x, w, kernel_shape)
    check_group(op, x, w, group)
    window = make_window(op, x.shape[2:], w.shape[2:], strides=strides, dilations=dilations, pads=pads)
    taps = prod(window.kernel)
    if offset_group <= 0 or x.shape[1] % offset_group:
        raise ModelError(
            f"{op}: offset_group does not divide the channels",
            expected=f"a positive divisor of {x.shape[1]}",
            found=str(offset_group),
        )
    named = {"offset": (offset, taps * window.rank), "mask": (mask, taps)}
    for name, (operand, count) in named.items():
        wanted = (len(x), offset_group * count, *window.output)
        if operand is not None and operand.shape != wanted:
            raise ModelError(f"{op}: {name} has the wrong shape", expected=str(wanted), found=str(operand.shape))
    columns = _columns(x, offset, mask, window, offset_group)
    rows = w.reshape(group, len(w) // group, w.shape[1] * taps)
    product: Array = np.matmul(rows, columns.reshape(len(x), group, w.shape[1] * taps, prod(window.output)))
    return add_bias(product.reshape(len(x), len(w), *window.output), b, op)


def _columns(x: Array, offset: Array, mask: Array | None, window: Window, groups: int) -> Array:
    """Return the unfolded input (N, C, taps, windows)."""
    batch, channels = x.shape[:2]
    taps, windows = prod(window.kernel), prod(window.output)
    moves = offset.reshape(batch, groups, taps, window.rank, windows)
    weights = np.ones((batch, groups, taps, windows)) if mask is None else mask.reshape(batch, groups, taps, windows)
    columns: Array = np.empty((batch, channels, taps * windows), dtype=x.dtype)
    share = channels // groups
    for g in range(groups):
        places = [
            (start + moves[:, g, :, axis]).reshape(batch, taps * windows)
            for axis, start in enumerate(_regular_places(window))
        ]
        part = slice(g * share, (g + 1) * share)
        columns[:, part] = sample(x[:, part], places, "linear")
        columns[:, part] *= weights[:, g].reshape(batch, 1, taps * windows)
    return columns


def _regular_places(window: Window) -> list[Array]:
    """Return, per axis, the input coordinate of each tap of each window, (taps, windows), without offsets."""
    taps, windows = np.indices(window.kernel), np.indices(window.output)
    return [
        taps[i].reshape(-1, 1) * window.dilations[i] + windows[i].reshape(1, -1) * window.strides[i] - window.before[i]
        for i in range(window.rank)
    ]
