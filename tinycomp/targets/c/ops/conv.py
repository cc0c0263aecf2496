"""Convolutions and transposed convolutions on the C target: channels last, with a fused epilogue.

A convolution of volumes becomes a sum of convolutions of planes, one per tap along the depth of the kernel. If the
number of planes is known only at run time, it becomes one convolution of planes that hold the channels of all taps.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any, cast

import numpy as np

from tinycomp.ir.graph import Node, Value
from tinycomp.ir.types import tensor
from tinycomp.ops.spatial import POOLING, Window, make_window, window_attributes
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.records import dataclass, fields, replace
from tinycomp.rewrite import reject
from tinycomp.symbolic import Size, maximum, minimum, product, typical
from tinycomp.target.policy import symbolic_macs
from tinycomp.targets.c.codegen.emitter import OWN_BLOCKS, Emitter, View, nd_params
from tinycomp.targets.c.codegen.epilogue import (
    IDENTITY,
    Activation,
    Fused,
    bias_and_residual,
    sum_per_channel,
    take_apart,
)
from tinycomp.targets.c.codegen.images import FLOAT, Pixels, is_planar, pixels_of, pixels_to, residual_of, spaced
from tinycomp.targets.c.codegen.placement import emit_copy
from tinycomp.targets.c.codegen.rules import LoweringRules, known
from tinycomp.targets.c.ops.conv_planes import emit_planes, fits_planes
from tinycomp.targets.c.ops.conv_strips import X, best_schedule, chain, part_of, read_of
from tinycomp.targets.common.checks import Verdict, all_of, constant, dtypes, float32, ranks, settled, sized_type

FAMILY = LoweringRules()
_MOST_AXES = 3
"""The most spatial axes of blocks."""


def _blocks_check(node: Node) -> Verdict:
    shape = node.operand(1).static_shape
    if shape is None or not 1 <= shape[0] <= _MOST_AXES:
        return reject(f"images of {'unknown' if shape is None else shape[0]} axes")
    return True


@FAMILY.lower(
    "Col2Im", check=all_of(dtypes("float32", operands=(0,)), ranks(3), settled(1, 2), _blocks_check),
    layout=LayoutRule.ROW_MAJOR,
)  # fmt: skip
def col2im(emit: Emitter, node: Node) -> None:
    """Emit the sum of overlapping blocks."""
    x = node.operand(0)
    batch, channels, *sizes = sized_type(node.output)[1]
    block, rank = known(node.operand(2).contents or ()), len(sizes)
    strides, dilations = (list(node.attrs.get(name) or [1] * rank) for name in ("strides", "dilations"))
    pads = list(node.attrs.get("pads") or [0] * 2 * rank)
    reach = [
        size + before + after - dilation * (own - 1) - 1
        for size, before, after, dilation, own in zip(sizes, pads[:rank], pads[rank:], dilations, block, strict=True)
    ]
    blocks = [maximum(r, -s) // s + 1 for r, s in zip(reach, strides, strict=True)]
    params = {
        "images": batch * channels,
        **axis_params("", sizes, 1),
        **axis_params("block_", block, 1),
        **axis_params("blocks_", blocks, 1),
        **axis_params("stride_", strides, 1),
        **axis_params("dilation_", dilations, 1),
        **axis_params("before_", pads[:rank], 0),
    }
    emit.call("col2im_f32", [node.output, x], params, node)


_AXES = ("depth", "height", "width")


def axis_params(prefix: str, values: Sequence[Size], missing: Size) -> dict[str, float | Size]:
    """Name a value for each axis of images or volumes; ``missing`` stands for the leading axes of lower ranks."""
    padded = [*[missing] * (len(_AXES) - len(values)), *values]
    return {f"{prefix}{axis}": value for axis, value in zip(_AXES, padded, strict=True)}


conv_check = all_of(float32, ranks(3, 4, 5), constant(1, 2))


@dataclass(slots=True)
class Image:
    """The sizes of an image tensor as the kernels see it; a one-dimensional tensor has height 1."""

    batch: Size
    channels: Size
    height: Size
    width: Size


def image(value: Value) -> Image:
    """Return the sizes of a value of shape (N, C, …); all spatial axes but the innermost make up the height."""
    _, shape = sized_type(value)
    batch, channels, *spatial = shape
    *outer, width = spatial or [1]
    return Image(batch, channels, product(outer), width)


def window_of(node: Node, x: Value, kernel: tuple[int, ...]) -> Window[Size]:
    """Return the geometry of a convolution or pooling node; a single spatial axis becomes the width."""
    return window_at(node.op, node.attrs, sized_type(x)[1], kernel)


def window_at(op: str, attrs: Mapping[str, Any], shape: Sequence[Size], kernel: tuple[int, ...]) -> Window[Size]:
    """Do as :func:`window_of`, given the attributes of the operator and the shape of its data."""
    window = make_window(op, shape[2:], kernel, **window_attributes(attrs, POOLING))
    return _two_dimensional(window) if window.rank == 1 else window


def _two_dimensional(window: Window[Size]) -> Window[Size]:
    return Window(
        (1, *window.sizes),
        (1, *window.kernel),
        (1, *window.strides),
        (1, *window.dilations),
        (0, *window.before),
        (0, *window.after),
        (1, *window.output),
    )


def window_params(window: Window[Size]) -> dict[str, float | Size]:
    """Return the parameters that all window kernels share."""
    return {
        "height": window.sizes[0],
        "width": window.sizes[1],
        "out_height": window.output[0],
        "out_width": window.output[1],
        "kernel_height": window.kernel[0],
        "kernel_width": window.kernel[1],
        "stride_height": window.strides[0],
        "stride_width": window.strides[1],
        "dilation_height": window.dilations[0],
        "dilation_width": window.dilations[1],
        "pad_top": window.before[0],
        "pad_left": window.before[1],
    }


def _conv_layout(node: Node) -> LayoutRule:
    fused = take_apart(node)
    x, w = fused.factors
    if x.rank == _VOLUME_RANK:
        return LayoutRule.CHANNELS_LAST
    filters, own, *kernel = (int(n) for n in sized_type(w)[1])
    window = window_of(fused.anchor, x, tuple(kernel))
    if own == 1 and filters == fused.anchor.attrs.get("group", 1) == sized_type(x)[1][1] and filters > 1:
        fits = x.rank == _LINE_RANK and window.strides[1] == 1 and typical(window.output[1]) >= _WIDE
        return LayoutRule.FOLLOW if fits else LayoutRule.CHANNELS_LAST
    return LayoutRule.EITHER if fits_planes(fused, window) else LayoutRule.CHANNELS_LAST


_LINE_RANK, _VOLUME_RANK = 3, 5
_WIDE = 16
"""From this number of columns on, lines are filtered as they lie; channels last, shorter ones take less, as do images,
whose tiles load every number once."""


@FAMILY.lower("Conv", check=conv_check, layout=_conv_layout)
def conv(emit: Emitter, node: Node) -> None:
    """Emit a convolution; for a chain of convolutions, the last one emits the whole chain."""
    if is_planar(node.output) and tensor(node.output.type).rank != _VOLUME_RANK:
        _emit_planar(emit, node)
        return
    is_fast = emit.settings.memory == "fast"
    nodes = chain(emit.graph, node, emit.settings.threads) if is_fast else [node]
    if len(nodes) == 1:
        lower_conv(emit, take_apart(node), node)
    elif node is nodes[-1]:
        emit_chain(emit, [_convolution(emit, take_apart(each), each) for each in nodes])


def _emit_planar(emit: Emitter, node: Node) -> None:
    """Emit a convolution of a row-major image: a depthwise one, or a product of its filters and windows."""
    fused = take_apart(node)
    x, w = fused.factors
    window = window_of(fused.anchor, x, tuple(int(n) for n in sized_type(w)[1][2:]))
    if fused.anchor.attrs.get("group", 1) == 1:
        emit_planes(emit, node, fused, window)
        return
    bias, added = bias_and_residual(emit, fused, axis=1)
    source = image(x)
    residual = None if added is None else Pixels(emit.view(added), source.channels)
    images = Images(Pixels(emit.view(fused.output), source.channels), Pixels(emit.view(x), source.channels), residual)
    shape = ConvShape(source.batch, source.channels, source.channels, int(fused.anchor.attrs["group"]), window)
    emit_conv(emit, node, images, (emit.view(w), bias), shape, fused.activation, is_planar=True)


def lower_conv(emit: Emitter, fused: Fused, node: Node) -> None:
    """Emit a convolution with its epilogue: one call for images, one per tap of the depth for volumes."""
    _emit_whole(emit, _convolution(emit, fused, node))


def _emit_whole(emit: Emitter, link: Convolution) -> None:
    shape, node, activation = link.shape, link.node, link.fused.activation
    images = Images(_written(emit, link), _read(emit, link), link.residual)
    if shape.window.rank == 2:
        emit_conv(emit, node, images, (emit.view(link.weights), link.bias), shape, activation)
        return
    assert link.weights.const is not None, node
    depth = axes_of(shape.window, 0, 1)
    is_known = all(isinstance(size, int) for size in (shape.batch, *depth.sizes, *depth.output, *depth.before))
    emit_any_volume = emit_volume if is_known else emit_unfolded_volume
    emit_any_volume(emit, node, images, (link.weights.const, link.bias), shape, activation)


def emit_chain(emit: Emitter, links: Sequence[Convolution]) -> None:
    """Emit the kernel calls of a chain of convolutions, image by image and strip by strip (:mod:`conv_strips`)."""
    from tinycomp.targets.c.codegen.strips import Move  # imported here, because few convolutions are in chains

    windows = [cast("Window[int]", link.shape.window) for link in links]
    bytes_of = [FLOAT * w.output[1] * int(link.shape.out_channels) for w, link in zip(windows, links, strict=True)]
    plan = best_schedule(windows, bytes_of[:-1], emit.settings.threads)
    rooms = [
        Pixels(emit.scratch(lines * size), link.shape.out_channels)
        for lines, size, link in zip(plan.rooms[:-1], bytes_of, links, strict=False)
    ]
    x, y, batch = _read(emit, links[0]), _written(emit, links[-1]), int(links[0].shape.batch)
    for image_number in range(batch):
        for step in plan.steps:
            link, window = links[step.link], windows[step.link]
            line = window.output[1]
            if isinstance(step, Move):
                room, count = rooms[step.link], step.count * line * link.shape.out_channels
                kept = room.from_pixel(step.source * line).view
                emit_copy(emit, link.node, room.view, kept, [count], [1], [1], FLOAT)
                continue
            whole = image_number * prod(window.output) + step.lines.start * line
            before = rooms[step.link - 1] if step.link else x.from_pixel(image_number * prod(window.sizes))
            images = Images(
                y.from_pixel(whole)
                if link is links[-1]
                else rooms[step.link].from_pixel((step.lines.start - step.first) * line),
                before.from_pixel((read_of(window).of(step.lines).start - step.firsts.get(X, 0)) * window.sizes[1]),
                None if link.residual is None else link.residual.from_pixel(whole),
            )
            shape = replace(link.shape, batch=1, window=cast("Window[Size]", part_of(window, step)))
            emit_conv(emit, link.node, images, (emit.view(link.weights), link.bias), shape, link.fused.activation)
            is_last = step.lines.stop == window.output[0]
            if is_last and image_number == batch - 1 and link is not links[-1]:
                emit.count_macs(symbolic_macs([link.node]))


@dataclass(slots=True)
class Convolution:
    """A convolution with its fused epilogue, ready to be emitted.

    Attributes:
        node: Its node.
        fused: The parts of the node.
        shape: Its sizes.
        weights: Its weights, a constant.
        bias: The sum of all addends per channel.
        residual: The place of an addend with the shape of the result.
    """

    node: Node
    fused: Fused
    shape: ConvShape
    weights: Value
    bias: View | None
    residual: Pixels | None


def _convolution(emit: Emitter, fused: Fused, node: Node) -> Convolution:
    x, w = fused.factors
    assert w.const is not None, w
    source, result = image(x), image(fused.output)
    window = window_of(fused.anchor, x, w.const.shape[2:])
    groups = int(fused.anchor.attrs.get("group", 1))
    bias, added = bias_and_residual(emit, fused, axis=1)
    residual = None if added is None else residual_of(emit, added, tensor(fused.output.type).layout)
    shape = ConvShape(source.batch, source.channels, result.channels, groups, window)
    return Convolution(node, fused, shape, w, bias, residual)


def _read(emit: Emitter, link: Convolution) -> Pixels:
    x, _ = link.fused.factors
    read = pixels_of(emit, x)
    if read.stride != link.shape.channels and link.shape.has_lines:
        return Pixels(emit.view(x), link.shape.channels)
    return read


def _written(emit: Emitter, link: Convolution) -> Pixels:
    return spaced(emit, link.node, link.fused.output) or pixels_to(emit, link.fused.output)


@dataclass(slots=True)
class ConvShape:
    """The sizes of a convolution."""

    batch: Size
    channels: Size
    out_channels: Size
    groups: int
    window: Window[Size]

    @property
    def has_lines(self) -> bool:
        """Whether the kernel would read whole lines of its window at once if the pixels were adjacent in memory."""
        few = self.groups == 1 and self.channels < FEW_CHANNELS
        return few and self.window.kernel[-1] > 1 and self.window.dilations[-1] == 1


FEW_CHANNELS = 32
"""With this many channels or more, adjacent pixels gain nothing (``CONV_FEW_CHANNELS`` of the runtime)."""


@dataclass(slots=True)
class Images:
    """The images that a convolution writes and reads."""

    y: Pixels
    x: Pixels
    residual: Pixels | None


def emit_conv(
    emit: Emitter,
    node: Node,
    images: Images,
    weights: tuple[View, View | None],
    shape: ConvShape,
    activation: Activation,
    *,
    is_planar: bool = False,
) -> None:
    """Emit the kernel call of a convolution of images; ``weights`` are the weights and the bias."""
    y, x, residual = images.y, images.x, images.residual
    params = {
        "batch": shape.batch,
        "channels": shape.channels,
        **window_params(shape.window),
        "x_pixel_stride": x.stride,
        "y_pixel_stride": y.stride,
        "residual_pixel_stride": shape.out_channels if residual is None else residual.stride,
        **activation.params(),
    }
    depthwise = shape.groups == shape.channels == shape.out_channels
    if depthwise:
        params["planar"] = int(is_planar)
    else:
        params |= {"out_channels": shape.out_channels, "groups": shape.groups, "algorithm": 0}
        params |= {"group_channels": 0, **OWN_BLOCKS}
    kernel = "dwconv2d_f32" if depthwise else "conv2d_f32"
    emit.call(kernel, [y.view, x.view, *weights, None if residual is None else residual.view], params, node)


def emit_volume(
    emit: Emitter,
    node: Node,
    images: Images,
    weights: tuple[np.ndarray, View | None],
    shape: ConvShape,
    activation: Activation,
) -> None:
    """Emit the kernel calls of a convolution of volumes; each adds the product of one tap to the result."""
    w, bias = weights
    taps = [emit.constant(np.ascontiguousarray(w[:, :, tap])) for tap in range(w.shape[2])]
    out_pixels, pixels = product(shape.window.output[1:]), product(shape.window.sizes[1:])
    for volume in range(shape.batch):
        for part in planes_of(shape.window):
            written = (volume * shape.window.output[0] + part.target) * out_pixels
            y = images.y.from_pixel(written)
            x = images.x.from_pixel((volume * shape.window.sizes[0] + part.source) * pixels)
            sums: Pixels | None = y
            if part.is_first:
                sums = None if images.residual is None else images.residual.from_pixel(written)
            emit_conv(
                emit,
                node,
                Images(y, x, sums),
                (taps[part.tap], bias if part.is_first else None),
                replace(shape, batch=part.count, window=part.window),
                activation if part.is_last else IDENTITY,
            )


def emit_unfolded_volume(
    emit: Emitter,
    node: Node,
    images: Images,
    weights: tuple[np.ndarray, View | None],
    shape: ConvShape,
    activation: Activation,
) -> None:
    """Emit a convolution of volumes as one convolution of planes, where the taps along the depth are channels."""
    w, bias = weights
    depth, plane = axes_of(shape.window, 0, 1), axes_of(shape.window, 1, 3)
    (taps,), (output,) = depth.kernel, depth.output
    filters, _, _, *kernel = w.shape
    unfolded = emit.constant(np.ascontiguousarray(w.swapaxes(1, 2)).reshape(filters, -1, *kernel))
    x = images.x if depth.is_pointwise else _unfolded(emit, node, images.x, shape)
    planes = replace(shape, batch=shape.batch * output, channels=taps * shape.channels, window=plane)
    emit_conv(emit, node, Images(images.y, x, images.residual), (unfolded, bias), planes, activation)


def _unfolded(emit: Emitter, node: Node, x: Pixels, shape: ConvShape) -> Pixels:
    """Copy, for each plane of the result, the planes under its taps side by side; those in the padding are 0."""
    depth, pixels = axes_of(shape.window, 0, 1), product(shape.window.sizes[1:])
    (size,), (output,), (stride,), (before,) = depth.sizes, depth.output, depth.strides, depth.before
    taps, own = depth.kernel[0], shape.channels // shape.groups
    wide = taps * shape.channels
    count = shape.batch * output * pixels * wide
    place = emit.scratch(FLOAT * count)
    if before != 0 or depth.after[0] != 0:
        fill = {"element_size": FLOAT, "pattern": 0, **nd_params((count,), stride=(1,))}
        emit.call("fill", [place], fill, node)
    for tap in range(taps):
        shift = before - tap * depth.dilations[0]
        first, last = (minimum(maximum(-(-n // stride), 0), output) for n in (shift, size + shift))
        source = minimum(maximum(first * stride - shift, 0), size)
        emit_copy(
            emit, node, place.at((first * pixels * wide + tap * own) * FLOAT), x.from_pixel(source * pixels).view,
            [shape.batch, maximum(last - first, 0), pixels, shape.groups, own],
            [output * pixels * wide, pixels * wide, wide, taps * own, 1],
            [size * pixels * x.stride, stride * pixels * x.stride, x.stride, own, 1],
            FLOAT,
        )  # fmt: skip
    return Pixels(place, wide)


def _transpose_check(node: Node) -> Verdict:
    if node.attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or node.attrs.get("output_shape"):
        return reject("the padding follows from the output shape")
    return True


conv_transpose_check = all_of(float32, ranks(3, 4), constant(1, 2), _transpose_check)


@FAMILY.lower("ConvTranspose", check=conv_transpose_check, layout=LayoutRule.CHANNELS_LAST)
def conv_transpose(emit: Emitter, node: Node) -> None:
    """Emit a transposed convolution; values outside the result are dropped, so pads at the end need no parameter."""
    fused = take_apart(node)
    x, w = fused.factors
    source, result, attrs = image(x), image(fused.output), fused.anchor.attrs
    _, filters = sized_type(w)
    bias, residual = bias_and_residual(emit, fused, axis=1)
    assert residual is None, node
    to, of = pixels_to(emit, fused.output), pixels_of(emit, x)
    if phases := _phases_of(fused, w):
        _emit_phases(emit, node, fused, Images(to, of, None), phases, bias)
        return
    if to.stride == result.channels and (joined := _joined_phases(fused, w, source)) is not None:
        _emit_joined(emit, node, fused, Images(to, of, None), joined)
        return
    pads = attrs.get("pads") or [0]
    params: dict[str, float | Size] = {
        "batch": source.batch,
        "channels": source.channels,
        "out_channels": result.channels,
        "height": source.height,
        "width": source.width,
        "out_height": result.height,
        "out_width": result.width,
        **_by_axis("kernel", filters[2:], 1),
        **_by_axis("stride", attrs.get("strides") or [1], 1),
        **_by_axis("dilation", attrs.get("dilations") or [1], 1),
        "pad_top": pads[0] if len(filters) == 4 else 0,
        "pad_left": pads[len(filters) - 3] if len(pads) > 1 else 0,
        "groups": int(attrs.get("group", 1)),
        "x_pixel_stride": of.stride,
        "y_pixel_stride": to.stride,
        **fused.activation.params(),
    }
    emit.call("conv_transpose2d_f32", [to.view, of.view, w, bias], params, node)


_MOST_PHASES = 64
"""With more of them, a transposed convolution is one call."""


@dataclass(frozen=True)
class _Phase:
    """Every so many positions of an axis of a transposed convolution: a convolution of its own.

    Attributes:
        taps: Which positions of the kernel these see, in the order of the operand.
        before: The padding in front of the operand.
    """

    taps: tuple[int, ...]
    before: int

    @classmethod
    def of(cls, first: int, kernel: int, stride: int, pad: int) -> _Phase | None:
        """Return that of the positions ``first``, ``first + stride``, …; None where it is no padded convolution."""
        taps = tuple(reversed(range((first + pad) % stride, kernel, stride)))
        before = len(taps) - 1 - (first + pad) // stride
        return cls(taps, before) if before >= 0 else None


def _phases_of(fused: Fused, w: Value) -> tuple[list[_Phase], list[_Phase]] | None:
    """Return the phases of the lines and columns of a depthwise node; None where the general kernel is to compute it.

    That one multiplies matrices, which have one element if every channel has a filter of its own.
    """
    attrs, (channels, own, *kernel) = fused.anchor.attrs, sized_type(w)[1]
    depthwise = own == 1 and channels == attrs.get("group", 1) and channels != 1
    if not depthwise or any(d != 1 for d in attrs.get("dilations") or [1]):
        return None
    rank = len(kernel)
    strides, pads = attrs.get("strides") or [1] * rank, attrs.get("pads") or [0] * rank
    if prod(strides) > _MOST_PHASES:
        return None
    axes = [
        [_Phase.of(first, int(size), stride, pad) for first in range(stride)]
        for size, stride, pad in zip(kernel, strides, pads, strict=False)
    ]
    found = [[phase for phase in axis if phase is not None] for axis in axes]
    if any(len(own) < len(axis) for own, axis in zip(found, axes, strict=True)):
        return None
    lines, columns = [[_Phase((0,), 0)], *found][-2:]
    return lines, columns


def _emit_phases(
    emit: Emitter,
    node: Node,
    fused: Fused,
    images: Images,
    phases: tuple[list[_Phase], list[_Phase]],
    bias: View | None,
) -> None:
    """Emit a depthwise transposed convolution as one depthwise convolution per phase, and put their pixels in order.

    Columns are written where they belong, between those of other phases; lines of one phase follow each other first.
    """
    x, w = fused.factors
    assert w.const is not None
    source, result = image(x), image(fused.output)
    channels = source.channels
    lines, columns = phases
    filters = w.const.reshape(*w.const.shape[:2], *[1] * (4 - w.const.ndim), *w.const.shape[2:])
    height, width = -(-result.height // len(lines)), -(-result.width // len(columns))
    line = width * len(columns) * channels
    in_place = len(lines) == 1 and images.y.stride == channels and width * len(columns) == result.width
    for number, rows in enumerate(lines):
        part = images.y.view if in_place else emit.scratch(FLOAT * source.batch * height * line)
        for place, own in enumerate(columns):
            taps = np.ascontiguousarray(filters[:, :, rows.taps][..., own.taps])
            window: Window[Size] = Window(
                (source.height, source.width), taps.shape[2:], (1, 1), (1, 1),
                (rows.before, own.before), (0, 0), (height, width),
            )  # fmt: skip
            shape = ConvShape(source.batch, channels, channels, int(fused.anchor.attrs["group"]), window)
            to = Pixels(part.at(place * channels * FLOAT), len(columns) * channels)
            emit_conv(emit, node, Images(to, images.x, None), (emit.constant(taps), bias), shape, fused.activation)
        if not in_place:
            stride = images.y.stride
            emit_copy(
                emit, node, images.y.view.at(number * result.width * stride * FLOAT), part,
                [source.batch, -((number - result.height) // len(lines)), result.width, channels],
                [result.height * result.width * stride, len(lines) * result.width * stride, stride, 1],
                [height * line, line, channels, 1],
                FLOAT,
            )  # fmt: skip


_VECTOR = 16
"""Numbers of the widest vectors."""


@dataclass(slots=True)
class _Joined:
    """A transposed convolution of few filters as a convolution: neighbouring pixels are the channels of one.

    Attributes:
        weights: Those of all phases side by side, with zeros where a phase has fewer taps.
        shape: The sizes of the convolution.
    """

    weights: np.ndarray
    shape: ConvShape


def _joined_phases(fused: Fused, w: Value, source: Image) -> _Joined | None:
    """Join the phases of the columns of a node; None where that gains nothing, or where they do not end together."""
    attrs, (channels, filters, *kernel) = fused.anchor.attrs, cast("tuple[int, ...]", sized_type(w)[1])
    rank, taps = len(kernel), kernel[-1]
    strides, pads = attrs.get("strides") or [1] * rank, attrs.get("pads") or [0] * 2 * rank
    others = [*kernel[:-1], *strides[:-1], *(1 + pads[axis] + pads[rank + axis] for axis in range(rank - 1))]
    more = (attrs.get("output_padding") or [0] * rank)[:-1]
    if attrs.get("group", 1) != 1 or {*others, *(attrs.get("dilations") or [1])} != {1} or any(more):
        return None
    stride, before = strides[-1], pads[rank - 1]
    beyond = taps - stride - before - pads[-1] + (attrs.get("output_padding") or [0])[-1]
    last, first = (taps - 1 - before) // stride, -((before + stride - 1) // stride)
    wide = last - first + 1
    gains = stride * filters <= _VECTOR // 2 or 2 * wide * _vectors(stride * filters) <= taps * _vectors(filters)
    if beyond % stride or last < 0 or not gains:
        return None
    assert w.const is not None
    joined = np.zeros((stride, filters, channels, 1, wide), np.float32)
    for phase, place in itertools.product(range(stride), range(wide)):
        tap = stride * (last - place) + phase + before
        if 0 <= tap < taps:
            joined[phase, ..., 0, place] = w.const.reshape(channels, filters, taps)[..., tap].T
    window: Window[Size] = Window(
        (source.height, source.width), (1, wide), (1, 1), (1, 1), (0, last), (0, 0),
        (source.height, source.width + beyond // stride),
    )  # fmt: skip
    shape = ConvShape(source.batch, channels, stride * filters, 1, window)
    return _Joined(joined.reshape(-1, *joined.shape[2:]), shape)


def _vectors(channels: int) -> int:
    return -(-channels // _VECTOR)


def _emit_joined(emit: Emitter, node: Node, fused: Fused, images: Images, joined: _Joined) -> None:
    vector, _ = sum_per_channel(fused, axis=1)
    times = len(joined.weights) // cast("int", image(fused.output).channels)
    bias = None if vector is None else emit.constant(np.tile(vector, times))
    to = replace(images, y=Pixels(images.y.view, joined.shape.out_channels))
    emit_conv(emit, node, to, (emit.constant(joined.weights), bias), joined.shape, fused.activation)


def _by_axis(name: str, values: Sequence[Size], default: int) -> dict[str, Size]:
    """Return one entry per spatial axis; a one-dimensional operator has only a width, so its height is ``default``."""
    both = [*[default] * (2 - len(values)), *values]
    return {f"{name}_height": both[0], f"{name}_width": both[1]}


@dataclass(frozen=True)
class Planes:
    """The contribution of one tap to neighbouring planes of the result.

    Attributes:
        target: The first plane of the result.
        source: The first plane of the operand.
        count: The number of planes of either.
        tap: The slice of the kernel along its depth.
        is_first: Whether this is the first contribution to these planes.
        is_last: Whether it is the last one.
        window: The geometry inside a plane.
    """

    target: int
    source: Size
    count: int
    tap: int
    is_first: bool
    is_last: bool
    window: Window[Size]


def planes_of(window: Window[Size]) -> Iterator[Planes]:
    """Yield the parts of a convolution of one volume in order.

    At stride 1, neighbouring planes under the same taps form one part, because their operands are neighbours, too.
    """
    depth, plane = axes_of(window, 0, 1), axes_of(window, 1, 3)
    outside = replace(plane, sizes=(0, plane.sizes[1]))  # an image of height 0 is padding alone
    for first, count, taps in _runs(depth):
        if not taps:
            yield Planes(first, 0, count, 0, True, True, outside)
        for tap in taps:
            yield Planes(first, _source(depth, first, tap), count, tap, tap == taps[0], tap == taps[-1], plane)


def axes_of(window: Window[Size], start: int, stop: int) -> Window[Size]:
    """Return the geometry along the axes from ``start`` to ``stop``."""
    return Window(*(getattr(window, f.name)[start:stop] for f in fields(window)))


def _source(depth: Window[Size], plane: int, tap: int) -> Size:
    """Return the plane of the operand under a tap for a plane of the result; it may lie in the padding."""
    return plane * depth.strides[0] - depth.before[0] + tap * depth.dilations[0]


def _runs(depth: Window[Size]) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """Yield the first plane and the number of planes of every part, and the taps that lie inside the volume there."""

    def reaching(plane: int) -> tuple[int, ...]:
        return tuple(tap for tap in range(depth.kernel[0]) if 0 <= _source(depth, plane, tap) < depth.sizes[0])

    for taps, group in itertools.groupby(range(depth.output[0]), reaching):
        planes = list(group)
        if depth.strides[0] == 1:
            yield planes[0], len(planes), taps
        else:
            yield from ((plane, 1, taps) for plane in planes)
