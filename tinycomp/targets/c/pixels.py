"""Images as the kernels read and write them: pixels evenly spaced, the channels of each side by side.

An image may be a slice of the channels of a larger one: kernels with pixel strides read slices (Split, Slice) and write
them (Concat) in place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tinycomp.ir.graph import Value
from tinycomp.ir.layout import memory_order
from tinycomp.ir.types import tensor
from tinycomp.targets.c.emit import Emitter, View
from tinycomp.targets.c.movement import destination
from tinycomp.targets.common.checks import static_type


@dataclass(frozen=True)
class Pixels:
    """Where an image lies.

    Attributes:
        view: The first channel of the first pixel.
        stride: Elements from one pixel to the next.
    """

    view: View
    stride: int

    def from_pixel(self, index: int) -> Pixels:
        """Return the image that begins with a later pixel."""
        return Pixels(self.view.at(index * self.stride * FLOAT), self.stride)


FLOAT = 4
"""Bytes of a float32."""


def pixel_stride(shape: Sequence[int], steps: Sequence[int]) -> int | None:
    """Return the distance of pixels of shape (N, C, …) whose elements are ``steps`` apart, or None if it varies.

    >>> pixel_stride((2, 3, 4, 5), (200, 1, 50, 10))
    10
    >>> pixel_stride((2, 3, 4, 5), (60, 20, 5, 1)) is None
    True
    """
    channels = shape[1]
    spaced = [(steps[d], math.prod(shape[max(d + 1, 2) :])) for d in (0, *range(2, len(shape))) if shape[d] != 1]
    stride = spaced[-1][0] // spaced[-1][1] if spaced and spaced[-1][1] else channels
    for step, pixels in spaced:
        if step != stride * pixels:
            return None
    return stride if stride >= channels and (channels == 1 or steps[1] == 1) else None


def pixels_of(emit: Emitter, value: Value) -> Pixels:
    """Return where an image is read: in place, if its pixels lie as the kernels want them."""
    _, shape = static_type(value)
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
    shape = tensor(value.type).static_shape
    assert shape is not None, value
    where = destination(emit, value, lambda steps: pixel_stride(shape, steps) is not None)
    stride = pixel_stride(shape, where.strides)
    assert stride is not None, value
    return Pixels(where.view, stride)
