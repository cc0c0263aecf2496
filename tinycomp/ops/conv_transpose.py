"""Transposed convolution and Col2Im: both sum overlapping windows into a larger tensor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tinycomp.errors import ModelError
from tinycomp.ir.graph import Node
from tinycomp.ir.infer import infer_types
from tinycomp.ir.types import TensorType, Type, tensor
from tinycomp.ops.conv import Ints, add_bias, check_weight
from tinycomp.ops.numeric import Array, node_shape, prod, widened
from tinycomp.ops.registry import OpFamily
from tinycomp.ops.spatial import Window, check_auto_pad, make_window, spatial_tuple, split_pads

FAMILY = OpFamily("conv_transpose")


def _transposed_macs(node: Node) -> int:
    return prod(node_shape(node.inputs[0])) * prod(node_shape(node.inputs[1])[1:])


def _transposed_types(node: Node) -> list[Type]:
    """Take the sizes that are asked for: onnx's inference gives up half-way where one is smaller than the input's."""
    types: list[Type] = list(infer_types(node))
    sizes, x, w = node.attrs.get("output_shape"), *node.inputs[:2]
    shapes = [None if v is None else tensor(v.type).shape for v in (x, w)]
    if not sizes or shapes[0] is None or shapes[1] is None or len(sizes) != len(shapes[0]) - 2:
        return types
    columns = shapes[1][1]
    channels = columns * int(node.attrs.get("group", 1)) if isinstance(columns, int) else None
    return [TensorType(tensor(types[0]).dtype, (shapes[0][0], channels, *sizes))]


@FAMILY.op("ConvTranspose", macs=_transposed_macs, type_rule=_transposed_types)
@widened
def conv_transpose(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints = None,
    group: int = 1,
    kernel_shape: Ints = None,
    output_padding: Ints = None,
    output_shape: Ints = None,
    pads: Ints = None,
    strides: Ints = None,
) -> Array:
    """Transposed convolution; the weight is (C, M / group, kernel…).

    Raises:
        ModelError: If weight, group, pads or output shape do not fit the input.
    """
    op = "ConvTranspose"
    check_weight(op, x, w, kernel_shape)
    if group <= 0 or x.shape[1] % group or w.shape[0] != x.shape[1]:
        raise ModelError(
            f"{op}: group or weight do not fit the channels",
            expected=f"a weight with {x.shape[1]} input channels and a group that divides them",
            found=f"weight shape {list(w.shape)}, group {group}",
        )
    adjust = spatial_tuple(op, "output_padding", output_padding, x.ndim - 2, 0, 0)
    scatter = transposed_window(
        op,
        x.shape[2:],
        w.shape[2:],
        adjust,
        output_shape,
        strides=strides,
        dilations=dilations,
        pads=pads,
        auto_pad=auto_pad,
    )
    rows = w.reshape(group, len(w) // group, w[0].size).swapaxes(1, 2)
    columns = np.matmul(rows, x.reshape(len(x), group, len(w) // group, prod(x.shape[2:])))
    channels = w.shape[1] * group
    taps = columns.reshape(len(x), channels, *w.shape[2:], *x.shape[2:])
    return add_bias(fold(taps, scatter), b, op)


def transposed_window(
    op: str,
    sizes: Sequence[int],
    kernel: Sequence[int],
    adjust: Sequence[int],
    output_shape: Ints,
    *,
    strides: Ints,
    dilations: Ints,
    pads: Ints,
    auto_pad: str,
) -> Window:
    """Return the window whose inverse the transposed convolution is: ``output`` is x's size, ``sizes`` is y's."""
    rank = len(sizes)
    steps = spatial_tuple(op, "strides", strides, rank, 1, 1)
    dilation = spatial_tuple(op, "dilations", dilations, rank, 1, 1)
    check_auto_pad(op, auto_pad)
    full = [
        (n - 1) * s + (k - 1) * d + 1 + a for n, s, k, d, a in zip(sizes, steps, kernel, dilation, adjust, strict=True)
    ]
    wanted = _wanted_sizes(op, sizes, steps, output_shape, auto_pad)
    if wanted is None:
        before, after = split_pads(op, pads if auto_pad == "NOTSET" else None, rank)
        wanted = tuple(f - b - a for f, b, a in zip(full, before, after, strict=True))
    else:
        totals = [max(f - n, 0) for f, n in zip(full, wanted, strict=True)]
        less, more = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
        before, after = (less, more) if auto_pad == "SAME_UPPER" else (more, less)
    if min(wanted) <= 0:
        raise ModelError(
            f"{op}: the output would be empty", expected="every spatial output size > 0", found=str(list(wanted))
        )
    return Window(tuple(wanted), tuple(kernel), steps, dilation, before, after, tuple(sizes))


def _wanted_sizes(
    op: str, sizes: Sequence[int], steps: Sequence[int], output_shape: Ints, auto_pad: str
) -> tuple[int, ...] | None:
    if output_shape:
        # Some exporters write the batch and channel sizes too.
        spatial = output_shape[2:] if len(output_shape) == len(sizes) + 2 else output_shape
        return spatial_tuple(op, "output_shape", spatial, len(sizes), 1, 1)
    if auto_pad.startswith("SAME"):
        return tuple(n * s for n, s in zip(sizes, steps, strict=True))
    return None


def fold(taps: Array, window: Window) -> Array:
    """Return the sum of overlapping windows, the inverse of unfolding.

    Args:
        taps: Shape (batch, channels, *kernel, *windows).
        window: The geometry; the result has its ``sizes``.
    """
    reach = [(n - 1) * s + e for n, s, e in zip(window.output, window.strides, window.extents, strict=True)]
    room = [max(r, b + n) for r, b, n in zip(reach, window.before, window.sizes, strict=True)]
    total: Array = np.zeros((*taps.shape[:2], *room), dtype=taps.dtype)
    by_tap = np.moveaxis(taps, (0, 1), (window.rank, window.rank + 1))
    for tap in window.taps():
        total[window.tap_index(tap)] += by_tap[tap]
    return np.array(total[window.interior])


@FAMILY.op("Col2Im")
@widened
def col2im(
    x: Array,
    image_shape: Array,
    block_shape: Array,
    *,
    dilations: Ints = None,
    pads: Ints = None,
    strides: Ints = None,
) -> Array:
    """Sum blocks (N, C * block size, number of blocks) back into images (N, C, *image_shape)."""
    sizes, block = [int(v) for v in image_shape], [int(v) for v in block_shape]
    window = make_window("Col2Im", sizes, block, strides=strides, dilations=dilations, pads=pads)
    if x.ndim != 3 or x.shape[1] % prod(block) or x.shape[2] != prod(window.output):
        raise ModelError(
            "Col2Im: the columns do not fit image and block",
            expected=f"shape (N, C * {prod(block)}, {prod(window.output)})",
            found=f"shape {list(x.shape)}",
        )
    return fold(x.reshape(len(x), x.shape[1] // prod(block), *block, *window.output), window)
