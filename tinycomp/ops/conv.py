"""Convolutions: im2col and BLAS, or a sum over kernel taps where the convolution is depthwise.

Layout is ONNX's: x (N, C, spatial…), w (M, C / group, kernel…), y (N, M, spatial…). Transposed convolution and Col2Im
sum overlapping windows into a larger tensor. In deformable convolution (Zhu et al., 2018, "Deformable ConvNets v2")
every tap of every window has its own offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinycomp.errors import ModelError
from tinycomp.ir.graph import Node
from tinycomp.ir.infer import infer_types
from tinycomp.ir.types import TensorType, Type, tensor
from tinycomp.ops.facts import Check, Facts, Operand, is_known, known_sizes, one_of
from tinycomp.ops.numeric import Array, exact_float, minus_zero_point, node_shape, prod, to_int32, widened
from tinycomp.ops.quantize import positive_scales, requantize
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Sizes
from tinycomp.ops.sampling import sample
from tinycomp.ops.spatial import (
    AUTO_PADS,
    Window,
    attempt,
    check_auto_pad,
    make_window,
    pad_for,
    require_space,
    sliding_view,
    spatial_tuple,
    split_pads,
    window_attributes,
)
from tinycomp.symbolic import Size, maximum, product

FAMILY = OpFamily("conv")

# Images are unfolded in blocks of about this many bytes, so that a large batch does not multiply the memory needed.
_UNFOLD_BYTES = 1 << 26

Ints = Sequence[int] | None


def conv_macs(node: Node) -> Size:
    """Return output elements times taps times channels per group; the weight is input 1 (3 in QLinearConv)."""
    weight = node_shape(node.inputs[3 if node.op == "QLinearConv" else 1])
    return product(node_shape(node.outputs[0])) * product(weight[1:])


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


def convolve(x: Array, w: Array, window: Window[int], group: int, pad_value: Any = 0) -> Array:
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


def _unfolded(padded: Array, w: Array, window: Window[int], group: int) -> Array:
    view = sliding_view(padded, window)
    return _grouped_matmul(w, view.reshape(len(padded), group, w[0].size, prod(window.output)), group, window)


def _grouped_matmul(w: Array, columns: Array, group: int, window: Window[int]) -> Array:
    rows = w.reshape(group, len(w) // group, w[0].size)
    product: Array = np.matmul(rows, columns)
    return product.reshape(len(columns), len(w), *window.output)


def _depthwise(padded: Array, w: Array, window: Window[int]) -> Array:
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


def _fits(weight: int, bias: int | None = None, *, transposed: bool = False) -> Check:
    """Return the check of a convolution whose weight and bias are the operands of these numbers."""

    def check(facts: Facts) -> None:
        require_space(facts, 3)
        shape, weight_shape = facts.shape(0), facts.shape(weight)
        if shape is not None and weight_shape is not None and len(weight_shape) != len(shape):
            facts.fail("input and weight differ in rank", expected=f"{len(shape)} dimensions", found=len(weight_shape))
        _check_channels(facts, weight, bias, transposed)
        kernel = None if weight_shape is None else known_sizes(weight_shape[2:])
        stated = facts.attr("kernel_shape")
        if kernel is not None and stated and tuple(stated) != kernel:
            facts.fail("kernel_shape does not fit the weight", expected=str(list(kernel)), found=list(stated))
        sizes = None if shape is None else known_sizes(shape[2:])
        if sizes is None or kernel is None:
            return
        attrs = window_attributes(facts.node)
        if transposed:
            attempt(facts, spatial_tuple, "output_padding", facts.attr("output_padding"), len(sizes), 0, 0)
            adjust = facts.attr("output_padding") or (0,) * len(sizes)
            attempt(facts, transposed_window, sizes, kernel, adjust, facts.attr("output_shape"), **attrs)
        else:
            attempt(facts, make_window, sizes, kernel, **attrs)

    return check


def _check_channels(facts: Facts, weight: int, bias: int | None, transposed: bool) -> None:
    group, channels = int(facts.attr("group", 1)), facts.dim(0, 1)
    if group < 1:
        facts.fail("group is out of range", expected="1 or more", found=group)
    if channels is not None and channels % group:
        facts.fail("group does not divide the input channels", expected=f"a divisor of {channels}", found=group)
    outer, inner = facts.dim(weight, 0), facts.dim(weight, 1)
    if transposed:
        facts.require_size(weight, 0, channels, "axis 0 of the weight")
    else:
        facts.require_size(weight, 1, None if channels is None else channels // group, "axis 1 of the weight")
        if outer is not None and outer % group:
            facts.fail("group does not divide the output channels", expected=f"a divisor of {outer}", found=group)
    if bias is not None:
        results = (None if inner is None else inner * group) if transposed else outer
        facts.require_vector(bias, results, "the bias")


FAMILY.check("Conv", "ConvInteger", "ConvTranspose", "QLinearConv")(one_of(auto_pad=AUTO_PADS))


def _checked_window(op: str, x: Array, w: Array, group: int, kernel_shape: Ints, **attrs: Any) -> Window[int]:
    check_weight(op, x, w, kernel_shape)
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
    return make_window(op, x.shape[2:], w.shape[2:], **attrs)


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
    """Return the convolution of any spatial rank.

    Raises:
        ModelError: If weight, group or window do not fit the input.
    """
    attrs = {"strides": strides, "dilations": dilations, "pads": pads, "auto_pad": auto_pad}
    window = _checked_window("Conv", x, w, group, kernel_shape, **attrs)
    return add_bias(convolve(x, w, window, group), b, "Conv")


FAMILY.check("Conv")(_fits(weight=1, bias=2))


@FAMILY.plain_type("Conv", least=2, most=3)
def _conv_type(node: Node, operands: Sequence[Operand]) -> Operand | None:
    (dtype, x), (_, weight) = operands[:2]
    kernel, attrs = known_sizes(weight[2:]), window_attributes(node)
    if kernel is None or ("auto_pad" in attrs and "pads" in attrs):
        return None
    space = list(filter(is_known, x[2:]))
    if len(space) == len(kernel):
        return dtype, (x[0], weight[0], *make_window("Conv", space, kernel, **attrs).output)
    return None if space else (dtype, (x[0], weight[0], *[None] * len(kernel)))


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
    """Convolve 8-bit integers with int32 result; padding stands for the zero point."""
    attrs = {"strides": strides, "dilations": dilations, "pads": pads, "auto_pad": auto_pad}
    window = _checked_window("ConvInteger", x, w, group, kernel_shape, **attrs)
    return _integer_convolve(x, w, x_zero_point, w_zero_point, window, group)


FAMILY.check("ConvInteger")(_fits(weight=1))


def _integer_convolve(
    x: Array, w: Array, x_zero_point: Array | None, w_zero_point: Array | None, window: Window[int], group: int
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
    """Convolve with an exact int32 sum, then one requantisation; ``w_scale`` may be per output channel."""
    attrs = {"strides": strides, "dilations": dilations, "pads": pads, "auto_pad": auto_pad}
    window = _checked_window("QLinearConv", x, w, group, kernel_shape, **attrs)
    total = add_bias(_integer_convolve(x, w, x_zero_point, w_zero_point, window, group), b, "QLinearConv")
    per_channel = w_scale.reshape(-1, *[1] * window.rank) if w_scale.size > 1 else w_scale.reshape(())
    return requantize(total, x_scale.reshape(()) * per_channel / y_scale.reshape(()), y_zero_point)


FAMILY.check("QLinearConv")(positive_scales(1, 4, 6))
FAMILY.check("QLinearConv")(_fits(weight=3, bias=8))


def _transposed_macs(node: Node) -> Size:
    return product(node_shape(node.inputs[0])) * product(node_shape(node.inputs[1])[1:])


def _transposed_types(node: Node) -> list[Type]:
    """Take the sizes that are asked for: onnx's inference gives up half-way where one is smaller than the input's."""
    types: list[Type] = list(infer_types(node))
    sizes, shape, weight_shape = node.attrs.get("output_shape"), node.operand(0).shape, node.operand(1).shape
    if not sizes or shape is None or weight_shape is None or len(sizes) != len(shape) - 2:
        return types
    columns = weight_shape[1]
    channels = columns * int(node.attrs.get("group", 1)) if isinstance(columns, int) else None
    return [TensorType(tensor(types[0]).dtype, (shape[0], channels, *sizes))]


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
    """Return the transposed convolution; the weight is (C, M / group, kernel…).

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


FAMILY.check("ConvTranspose")(_fits(weight=1, bias=2, transposed=True))


def transposed_window(
    op: str,
    sizes: Sequence[int],
    kernel: Sequence[int],
    adjust: Sequence[int],
    output_shape: Ints,
    *,
    strides: Ints = None,
    dilations: Ints = None,
    pads: Ints = None,
    auto_pad: str = "NOTSET",
) -> Window[int]:
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


def fold(taps: Array, window: Window[int]) -> Array:
    """Return the sum of overlapping windows, the inverse of unfolding.

    ``taps`` is (batch, channels, *kernel, *windows); the result has the ``sizes`` of the window.
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


@FAMILY.sizes("Col2Im")
def _image_sizes(node: Node, shapes: Sequence[Sizes | None]) -> list[Sizes | None]:
    x, image, block = shapes[0], node.operand(1).contents, node.operand(2).contents
    if x is None or len(x) < 2 or image is None or block is None:
        return [None]
    rows, elements = x[1], [size for size in block if size is not None]
    if rows is None or len(elements) != len(block) or 0 in elements:
        return [(x[0], None, *image)]
    return [(x[0], rows // maximum(product(elements), 1), *image)]


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
    """Convolve with taps moved by ``offset`` and weighted by ``mask``, with linear interpolation.

    ``offset`` is (N, offset_group * taps * r, output…) for r spatial axes, ``mask`` (N, offset_group * taps, output…).

    Raises:
        ModelError: If weight, groups, offset, mask or window do not fit the input.
    """
    op = "DeformConv"
    window = _checked_window(op, x, w, group, kernel_shape, strides=strides, dilations=dilations, pads=pads)
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


def _columns(x: Array, offset: Array, mask: Array | None, window: Window[int], groups: int) -> Array:
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


def _regular_places(window: Window[int]) -> list[Array]:
    """Return, per axis, the input coordinate of each tap of each window, (taps, windows), without offsets."""
    taps, windows = np.indices(window.kernel), np.indices(window.output)
    return [
        taps[i].reshape(-1, 1) * window.dilations[i] + windows[i].reshape(1, -1) * window.strides[i] - window.before[i]
        for i in range(window.rank)
    ]


@FAMILY.sizes("Conv", "ConvInteger", "QLinearConv")
def _conv_sizes(node: Node, shapes: Sequence[Sizes | None]) -> list[Sizes | None]:
    x, w = shapes[0], shapes[3 if node.op == "QLinearConv" else 1]
    if x is None or w is None or None in x[2:]:
        return [None]
    kernel = [size for size in node.attrs.get("kernel_shape") or w[2:] if isinstance(size, int)]
    window = make_window(node.op, [size for size in x[2:] if size is not None], kernel, **window_attributes(node))
    return [(x[0], w[0], *window.output)]


@FAMILY.sizes("ConvTranspose")
def _conv_transpose_sizes(node: Node, shapes: Sequence[Sizes | None]) -> list[Sizes | None]:
    x, w, attrs = shapes[0], shapes[1], node.attrs
    if x is None or w is None or attrs.get("auto_pad", "NOTSET") != "NOTSET" or attrs.get("output_shape"):
        return [None]
    rank = len(x) - 2
    ones, zeros = [1] * rank, [0] * rank
    steps, dilations = attrs.get("strides") or ones, attrs.get("dilations") or ones
    extra, pads = attrs.get("output_padding") or zeros, attrs.get("pads") or [*zeros, *zeros]
    sizes: list[Size | None] = []
    for i in range(rank):
        size, kernel = x[2 + i], w[2 + i]
        known = size is not None and kernel is not None
        sizes.append(
            (size - 1) * steps[i] + extra[i] + (kernel - 1) * dilations[i] + 1 - pads[i] - pads[rank + i]
            if size is not None and kernel is not None and known else None
        )  # fmt: skip
    channels = None if w[1] is None else w[1] * int(attrs.get("group", 1))
    return [(x[0], channels, *sizes)]


FAMILY.trait("product", "Conv")
FAMILY.trait("integer_product", "ConvInteger", "QLinearConv")
FAMILY.trait("window", "Conv", "ConvInteger", "QLinearConv")
FAMILY.trait("per_image", "Conv", "ConvTranspose")
FAMILY.zero_points("ConvInteger", {0: 2, 1: 3})
FAMILY.zero_points("QLinearConv", {0: 2, 3: 5})
