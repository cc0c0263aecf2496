"""Images as the kernels read and write them: pixels evenly spaced, the channels of each side by side.

An image may be a slice of the channels of a larger one: kernels with pixel strides read slices (Split, Slice) and write
them (Concat) in place.

Some images have room between their pixels, since otherwise all lines would fall into the same few sets of the
first-level cache: a depthwise convolution reads the same few channels of neighbouring pixels on several lines, and
comes back to the other half of each cache line afterwards. Where pixels are a power of two apart, all of those lie in a
handful of sets and push each other out: 14x14x512 takes 2.2 times as long as it does with one more cache line per pixel
(Zen 3).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tinycomp.ir.graph import Node, Value
from tinycomp.ir.layout import memory_order
from tinycomp.ir.types import ROW_MAJOR, tensor
from tinycomp.records import dataclass
from tinycomp.symbolic import Size, product, surely_at_most
from tinycomp.targets.c.codegen.emitter import Emitter, Strided, View
from tinycomp.targets.c.codegen.placement import destination, leave
from tinycomp.targets.common.checks import sized_type

FLOAT = 4
"""Bytes of a float32."""


@dataclass(slots=True)
class Pixels:
    """Where an image lies.

    Attributes:
        view: The first channel of the first pixel.
        stride: Elements from one pixel to the next.
    """

    view: View
    stride: Size

    def from_pixel(self, index: Size) -> Pixels:
        """Return the image that begins with a later pixel."""
        return Pixels(self.view.at(index * self.stride * FLOAT), self.stride)


def is_planar(value: Value) -> bool:
    """Tell whether an image lies row-major, so that every channel of it is a plane of adjacent elements."""
    return tensor(value.type).layout == ROW_MAJOR


def pixel_stride(shape: Sequence[Size], steps: Sequence[Size]) -> Size | None:
    """Return the distance of pixels of shape (N, C, …) whose elements are ``steps`` apart, or None if it varies.

    >>> pixel_stride((2, 3, 4, 5), (200, 1, 50, 10))
    10
    >>> pixel_stride((2, 3, 4, 5), (60, 20, 5, 1)) is None
    True
    """
    channels = shape[1]
    spaced = [(steps[d], product(shape[max(d + 1, 2) :])) for d in (0, *range(2, len(shape))) if shape[d] != 1]
    stride = spaced[-1][0] // spaced[-1][1] if spaced and spaced[-1][1] != 0 else channels
    for step, pixels in spaced:
        if step != stride * pixels:
            return None
    return stride if surely_at_most(channels, stride) and (channels == 1 or steps[1] == 1) else None


def pixels_of(emit: Emitter, value: Value) -> Pixels:
    """Return where an image is read: in place, if its pixels lie as the kernels want them."""
    _, shape = sized_type(value)
    if value.const is None:
        where = emit.strided(value, adjacent=False)
        stride = pixel_stride(shape, where.strides)
        if stride is not None:
            return Pixels(where.view, stride)
    return Pixels(emit.view(value), shape[1])


def residual_of(emit: Emitter, value: Value, layout: str) -> Pixels:
    """Return where an addend is read; layout assignment leaves constants alone, so they are put in order here."""
    if value.const is None:
        return pixels_of(emit, value)
    order = memory_order(layout, value.const.ndim)
    return Pixels(emit.constant(value.const.transpose(order)), value.const.shape[1])


def pixels_to(emit: Emitter, value: Value) -> Pixels:
    """Return where an image is written: where it is wanted in the end, if its pixels are evenly spaced there."""
    _, shape = sized_type(value)
    where = destination(emit, value, lambda steps: pixel_stride(shape, steps) is not None)
    stride = pixel_stride(shape, where.strides)
    assert stride is not None, value
    return Pixels(where.view, stride)


CACHE_LINE = 64
SETS = 64
"""Sets of the first-level data cache: 32 KB in 8 ways, and 48 KB in 12."""
WAYS = 8

BAND = 2
"""Output lines that the depthwise kernel computes together (``DW_LINES`` of the runtime)."""


@dataclass(frozen=True)
class Band:
    """What one pass of the depthwise kernel reads.

    Attributes:
        lines: Lines of the input.
        width: Pixels of each.
    """

    lines: int
    width: int

    def is_crowded(self, stride: int) -> bool:
        """Tell whether some set of the cache has more lines to hold than it can, if pixels are ``stride`` floats apart.

        >>> Band(4, 14).is_crowded(512), Band(4, 14).is_crowded(528)
        (True, False)
        """
        sets = np.arange(self.lines * self.width) * (stride * FLOAT) // CACHE_LINE % SETS
        return int(np.bincount(sets).max(initial=0)) > WAYS


def spaced(emit: Emitter, node: Node, value: Value) -> Pixels | None:
    """Place a result of ``node`` with a cache line of room after every pixel, if that is faster for its readers.

    ``value`` is an image (N, C, H, W) that lies channels last.

    Returns:
        Where to write, or None if the image should lie as usual.
    """
    _, shape = sized_type(value)
    if (
        emit.settings.memory != "fast"
        or len(shape) != 4
        or emit.graph.is_output(value)
        or not value.users
        or 0 in shape
    ):
        return None
    channels, _, width = shape[1:]
    if not isinstance(channels, int) or not isinstance(width, int):
        return None  # it is not worth a choice at run time
    heights = [_lines_read(user, value) for user in value.users]
    stride = channels + CACHE_LINE // FLOAT
    if None in heights or not any(_gains(Band(h, width), channels, stride) for h in heights if h is not None):
        return None
    steps = (product(shape[2:]) * stride, 1, width * stride, stride)
    view = View(emit.scratch(product((shape[0], *shape[2:], stride)) * FLOAT).buffer)
    leave(emit, node, value, Strided(view, steps))
    return Pixels(view, stride)


def _gains(band: Band, usual: int, wider: int) -> bool:
    return band.is_crowded(usual) and not band.is_crowded(wider)


def _lines_read(user: Node, value: Value) -> int | None:
    """Return the lines of ``value`` that a depthwise convolution reads at a time; None if ``user`` is anything else."""
    nodes = user.body.nodes if user.is_composite else (user,)
    convolution = next((n for n in nodes if n.op == "Conv"), None)
    if convolution is None or [v is value for v in user.inputs] != [True, *[False] * (len(user.inputs) - 1)]:
        return None
    _, (_, channels, *_) = sized_type(value)
    weights = convolution.operand(1)
    _, (filters, _, kernel, *_) = sized_type(weights)
    if not convolution.attrs.get("group", 1) == channels == filters:
        return None
    stride = (convolution.attrs.get("strides") or [1])[0]
    return int((BAND - 1) * stride + kernel)
