"""Convolutions: im2col and BLAS, or a sum over kernel taps where the convolution is depthwise.

Layout is ONNX's: x (N, C, spatial…), w (M, C / group, kernel…), y (N, M, spatial…). Transposed convolution and Col2Im
sum overlapping windows into a larger tensor. In deformable convolution (Zhu et al., 2018, "Deformable ConvNets v2")
every tap of every window has its own offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tinycomp.ir.graph import Node
from tinycomp.lazy import LazyModule
from tinycomp.ops.numeric import Array, exact_float, minus_zero_point, node_shape, prod, to_int32, widened
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Facts, Results, Sizes, known_product
from tinycomp.ops.spatial import (
    WINDOW,
    S,
    Window,
    attempt,
    make_window,
    pad_for,
    sliding_view,
    spatial_tuple,
    window_attributes,
    window_counts,
    window_steps,
)
from tinycomp.symbolic import Size, maximum, product

if TYPE_CHECKING:
    from tinycomp.ops import quantize, sampling
else:
    quantize, sampling = LazyModule("tinycomp.ops.quantize"), LazyModule("tinycomp.ops.sampling")

FAMILY = OpFamily("conv")

# Images are unfolded in blocks of about this many bytes, so that a large batch does not multiply the memory needed.
_UNFOLD_BYTES = 1 << 26

Ints = Sequence[int] | None


def conv_macs(node: Node) -> Size:
    """Return output elements times taps times channels per group; the weight is input 1 (3 in QLinearConv)."""
    weight = node_shape(node.inputs[3 if node.op == "QLinearConv" else 1])
    return product(node_shape(node.outputs[0])) * product(weight[1:])


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


def add_bias(y: Array, bias: Array | None) -> Array:
    """Add a bias per channel to ``y`` in place and return it; None adds nothing."""
    if bias is not None:
        y += bias.reshape(-1, *[1] * (y.ndim - 2))
    return y


def _rank(facts: Facts, weight: int) -> int | None:
    """Return the number of dimensions of input and weight, which must be equal."""
    facts.require_rank_from(0, 3, "the input")
    facts.require_rank_from(weight, 3, "the weight")
    stated = facts.attr("kernel_shape")
    ranks = [facts.rank(0), facts.rank(weight), len(stated) + 2 if stated else None]
    rank = next((rank for rank in ranks if rank is not None), None)
    if rank is not None:
        facts.require_rank(weight, rank, "the weight")
        facts.require(ranks[2] in (None, rank), "kernel_shape does not fit the weight",
                      expected=f"{rank - 2} entries", found=stated)  # fmt: skip
    return rank


def _kernel(facts: Facts, weight: Sizes) -> list[Size | None]:
    """Return the sizes of the kernel, which the attribute may only repeat."""
    kernel = list(weight[2:])
    for axis, stated in enumerate(facts.attr("kernel_shape") or ()):
        kernel[axis] = facts.require_equal(kernel[axis], stated, "kernel_shape does not fit the weight")
    for size in kernel:
        facts.require_at_least(size, 1, "the kernel is empty")
    return kernel


def _group(facts: Facts, channels: Size | None, expected: Size | None, what: str) -> int:
    """Return the number of groups, given the input channels and how many of them the weight wants."""
    group = int(facts.attr("group", 1))
    facts.require(group > 0, "group is out of range", expected="1 or more", found=group)
    if expected is None or isinstance(channels, int):
        facts.require_divisible(channels, group, "group does not divide the input channels")
    facts.require_equal(channels, expected, f"the input's channels do not fit {what} of the weight")
    return group


def _times(size: Size | None, factor: int) -> Size | None:
    return None if size is None else size * factor


def _convolved(facts: Facts, weight: int, bias: int | None = None) -> tuple[Sizes | None, Size | None]:
    """Return the shape of a convolution's result, and its channels."""
    rank = _rank(facts, weight)
    x, w = facts.shape(0) or (None,) * (rank or 3), facts.shape(weight) or (None,) * (rank or 3)
    group = _group(facts, x[1], _times(w[1], int(facts.attr("group", 1))), "axis 1")
    facts.require_divisible(w[0], group, "group does not divide the output channels")
    if bias is not None:
        facts.require_vector(bias, w[0], "the bias")
    return (None if rank is None else (x[0], w[0], *window_counts(facts, x[2:], _kernel(facts, w)))), w[0]


@FAMILY.op("Conv", macs=conv_macs, passed=WINDOW)
@widened
def conv(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    group: int = 1,
    kernel_shape: Ints = None,
    **window: Any,
) -> Array:
    """Return the convolution of any spatial rank."""
    return add_bias(convolve(x, w, make_window("Conv", x.shape[2:], w.shape[2:], **window), group), b)


@FAMILY.infer("Conv")
def _conv(facts: Facts) -> Results:
    return [facts.tensor(facts.first_dtype(), _convolved(facts, 1, 2)[0])]


@FAMILY.op("ConvInteger", macs=conv_macs, passed=WINDOW)
def conv_integer(
    x: Array,
    w: Array,
    x_zero_point: Array | None = None,
    w_zero_point: Array | None = None,
    *,
    group: int = 1,
    kernel_shape: Ints = None,
    **window: Any,
) -> Array:
    """Convolve 8-bit integers with int32 result; padding stands for the zero point."""
    made = make_window("ConvInteger", x.shape[2:], w.shape[2:], **window)
    return _integer_convolve(x, w, x_zero_point, w_zero_point, made, group)


@FAMILY.infer("ConvInteger")
def _conv_integer(facts: Facts) -> Results:
    shape, outer = _convolved(facts, 1)
    facts.require_scalar(2, "the input's zero point")
    facts.require_broadcast(3, (outer,), "the weight's zero point")
    return [facts.tensor("int32", shape)]


def _integer_convolve(
    x: Array, w: Array, x_zero_point: Array | None, w_zero_point: Array | None, window: Window[int], group: int
) -> Array:
    dtype = exact_float(w[0].size)
    offset_x = minus_zero_point(x, x_zero_point, dtype)
    offset_w = minus_zero_point(w, w_zero_point, dtype, axis=0)
    return to_int32(convolve(offset_x, offset_w, window, group))


@FAMILY.op("QLinearConv", macs=conv_macs, passed=WINDOW)
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
    group: int = 1,
    kernel_shape: Ints = None,
    **window: Any,
) -> Array:
    """Convolve with an exact int32 sum, then one requantisation; ``w_scale`` may be per output channel."""
    made = make_window("QLinearConv", x.shape[2:], w.shape[2:], **window)
    total = add_bias(_integer_convolve(x, w, x_zero_point, w_zero_point, made, group), b)
    per_channel = w_scale.reshape(-1, *[1] * made.rank) if w_scale.size > 1 else w_scale.reshape(())
    return quantize.requantize(total, x_scale.reshape(()) * per_channel / y_scale.reshape(()), y_zero_point)


@FAMILY.infer("QLinearConv")
def _qlinear_conv(facts: Facts) -> Results:
    quantize.require_scales(facts, 1, 4, 6)
    shape, outer = _convolved(facts, 3, 8)
    for index in (1, 2, 6, 7):
        facts.require_scalar(index)
    for index, what in ((4, "the weight's scale"), (5, "the weight's zero point")):
        facts.require_broadcast(index, (outer,), what)
    return [facts.tensor(facts.dtype(7), shape)]


def _transposed_macs(node: Node) -> Size:
    return product(node_shape(node.inputs[0])) * product(node_shape(node.inputs[1])[1:])


@FAMILY.op("ConvTranspose", macs=_transposed_macs, passed=WINDOW)
@widened
def conv_transpose(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    group: int = 1,
    kernel_shape: Ints = None,
    output_padding: Ints = None,
    output_shape: Ints = None,
    **window: Any,
) -> Array:
    """Return the transposed convolution; the weight is (C, M / group, kernel…)."""
    op = "ConvTranspose"
    adjust = spatial_tuple(op, "output_padding", output_padding, x.ndim - 2, 0, 0)
    scatter = transposed_window(op, x.shape[2:], w.shape[2:], adjust, output_shape, **window)
    rows = w.reshape(group, len(w) // group, w[0].size).swapaxes(1, 2)
    columns = np.matmul(rows, x.reshape(len(x), group, len(w) // group, prod(x.shape[2:])))
    channels = w.shape[1] * group
    taps = columns.reshape(len(x), channels, *w.shape[2:], *x.shape[2:])
    return add_bias(fold(taps, scatter), b)


@FAMILY.infer("ConvTranspose")
def _conv_transpose(facts: Facts) -> Results:
    rank, dtype = _rank(facts, 1), facts.first_dtype()
    x, w = facts.shape(0) or (None,) * (rank or 3), facts.shape(1) or (None,) * (rank or 3)
    group = _group(facts, x[1], w[0], "axis 0")
    facts.require_vector(2, _times(w[1], group), "the bias")
    if rank is None:
        return [facts.tensor(dtype, None)]
    attrs, space = window_attributes(facts.node.attrs), rank - 2
    adjust = attempt(facts, spatial_tuple, "output_padding", facts.attr("output_padding"), space, 0, 0)
    steps = attempt(facts, _transposed_steps, space, facts.attr("output_shape"), **attrs)
    auto_pad, sizes = attrs.get("auto_pad", "NOTSET"), list[Size | None]()
    for size, own, extra, step in zip(x[2:], _kernel(facts, w), adjust, zip(*steps, strict=True), strict=True):
        if own is None and (step[-1] is not None or auto_pad.startswith("SAME")):
            own = 1  # does not matter
        if size is None or own is None:
            sizes.append(step[-1])
            continue
        sizes.append(_transposed_axis(size, own, extra, *step, auto_pad=auto_pad)[2])
        facts.require_at_least(sizes[-1], 1, "the output would be empty")
    return [facts.tensor(dtype, (x[0], _times(w[1], group), *sizes))]


def transposed_window(
    op: str, sizes: Sequence[S], kernel: Sequence[int], adjust: Sequence[int], output_shape: Ints, **attrs: Any
) -> Window[S]:
    """Return the window whose inverse the transposed convolution is: ``output`` is x's size, ``sizes`` is y's.

    Args:
        op: Operator name, for messages.
        sizes: Spatial sizes of x.
        kernel: Kernel sizes.
        adjust: What ``output_padding`` says.
        output_shape: Spatial sizes of y, if they are given.
        attrs: ``strides``, ``dilations``, ``pads``, ``auto_pad``.
    """
    steps = _transposed_steps(op, len(sizes), output_shape, **attrs)
    axes = zip(sizes, kernel, adjust, *steps, strict=True)
    auto_pad = attrs.get("auto_pad", "NOTSET")
    before, after, wanted = zip(*[_transposed_axis(*axis, auto_pad=auto_pad) for axis in axes], strict=True)
    return Window(wanted, tuple(kernel), steps[0], steps[1], before, after, tuple(sizes))


def _transposed_steps(
    op: str, rank: int, output_shape: Ints, *, pads: Ints = None, auto_pad: str = "NOTSET", **attrs: Ints
) -> Any:
    """Return the checked strides, dilations, pads in front and behind, and the sizes that are asked for, if any."""
    steps = window_steps(op, rank, pads=None if output_shape else pads, auto_pad=auto_pad, **attrs)
    if not output_shape:
        return (*steps, (None,) * rank)
    # Some exporters write the batch and channel sizes too.
    spatial = output_shape[2:] if len(output_shape) == rank + 2 else output_shape
    return (*steps, spatial_tuple(op, "output_shape", spatial, rank, 1, 1))


def _transposed_axis(
    size: Size, kernel: Size, extra: int, step: int, dilation: int, before: int, after: int, asked: int | None, *,
    auto_pad: str,
) -> Any:  # fmt: skip
    """Return the padding in front and behind, and the size of the result."""
    full = (size - 1) * step + (kernel - 1) * dilation + 1 + extra
    if asked is None and not auto_pad.startswith("SAME"):
        return before, after, full - before - after
    wanted = size * step if asked is None else asked
    total = maximum(full - wanted, 0)
    less, more = total // 2, total - total // 2
    return (less, more, wanted) if auto_pad == "SAME_UPPER" else (more, less, wanted)


def fold(taps: Array, window: Window[int]) -> Array:
    """Return the sum of overlapping windows, the inverse of unfolding.

    ``taps`` is (batch, channels, *kernel, *windows); the result has the ``sizes`` of the window.
    """
    if prod(window.output) < prod(window.kernel):  # fewer windows than taps, which may change roles
        space = range(2, 2 + window.rank)
        taps = np.moveaxis(taps, space, [axis + window.rank for axis in space])
        window = replace(
            window, kernel=window.output, output=window.kernel, strides=window.dilations, dilations=window.strides
        )
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
    return fold(x.reshape(len(x), x.shape[1] // prod(block), *block, *window.output), window)


@FAMILY.infer("Col2Im", sizing=(1, 2))
def _col2im(facts: Facts) -> Results:
    batch, rows, columns = facts.dims(0, 3)
    dtype, image, block = facts.dtype(0), facts.elements(1), facts.elements(2)
    rank = next((len(known) for known in (image, block) if known is not None), None)
    if rank is None:
        return [facts.tensor(dtype, None)]
    facts.require(rank > 0, "the image has no axis", expected="1 or more", found=facts.shown(1))
    facts.require_vector(1, rank, "image_shape")
    facts.require_vector(2, rank, "block_shape")
    image, block = image or (None,) * rank, block or (None,) * rank
    for size in block:
        facts.require_at_least(size, 1, "the block is empty")
    blocks, elements = known_product(window_counts(facts, image, block)), known_product(block)
    facts.require_equal(columns, blocks, "the columns do not fit the blocks of the image")
    facts.require_divisible(rows, elements, "the rows cannot be split into blocks")
    channels = None if rows is None or elements is None else rows // maximum(elements, 1)
    return [facts.tensor(dtype, (batch, channels, *image))]


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
    """
    window = make_window("DeformConv", x.shape[2:], w.shape[2:], strides=strides, dilations=dilations, pads=pads)
    taps = prod(window.kernel)
    columns = _columns(x, offset, mask, window, offset_group)
    rows = w.reshape(group, len(w) // group, w.shape[1] * taps)
    product: Array = np.matmul(rows, columns.reshape(len(x), group, w.shape[1] * taps, prod(window.output)))
    return add_bias(product.reshape(len(x), len(w), *window.output), b)


@FAMILY.infer("DeformConv")
def _deform_conv(facts: Facts) -> Results:
    shape, _ = _convolved(facts, 1, 3)
    groups, dtype = int(facts.attr("offset_group", 1)), facts.first_dtype(0, 1)
    facts.require(groups > 0, "offset_group is out of range", expected="1 or more", found=groups)
    if shape is None:
        return [facts.tensor(dtype, None)]
    rank = len(shape) - 2
    facts.require_divisible(facts.dim(0, 1), groups, "offset_group does not divide the channels")
    taps, whole = known_product(_kernel(facts, facts.dims(1, rank + 2))), list(shape)
    for index, what, count in ((2, "offset", _times(taps, groups * rank)), (4, "mask", _times(taps, groups))):
        given = facts.dims(index, rank + 2)
        facts.require_equal(given[1], count, f"{what} does not fit the taps")
        for axis in (0, *range(2, rank + 2)):
            whole[axis] = facts.require_equal(given[axis], whole[axis], f"{what} does not fit the result")
    return [facts.tensor(dtype, whole)]


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
        columns[:, part] = sampling.sample(x[:, part], places, "linear")
        columns[:, part] *= weights[:, g].reshape(batch, 1, taps * windows)
    return columns


def _regular_places(window: Window[int]) -> list[Array]:
    """Return, per axis, the input coordinate of each tap of each window, (taps, windows), without offsets."""
    taps, windows = np.indices(window.kernel), np.indices(window.output)
    return [
        taps[i].reshape(-1, 1) * window.dilations[i] + windows[i].reshape(1, -1) * window.strides[i] - window.before[i]
        for i in range(window.rank)
    ]


FAMILY.trait("product", "Conv")
FAMILY.trait("integer_product", "ConvInteger", "QLinearConv")
FAMILY.trait("window", "Conv", "ConvInteger", "QLinearConv")
FAMILY.trait("per_image", "Conv", "ConvTranspose")
FAMILY.zero_points("ConvInteger", {0: 2, 1: 3})
FAMILY.zero_points("QLinearConv", {0: 2, 3: 5})
