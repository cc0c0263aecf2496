"""A convolution of volumes as convolutions of planes, one per tap of the kernel's depth, which are summed up."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

from tinycomp.ops.spatial import Window


@dataclass(frozen=True)
class Planes:
    """One tap's share of neighbouring planes of the result.

    Attributes:
        target: The first plane of the result.
        source: The first plane of the operand.
        count: How many planes of either.
        tap: Which slice of the kernel.
        is_first: Whether nothing has been summed up in these planes before.
        is_last: Whether their sums are complete with it.
        window: The geometry inside a plane.
    """

    target: int
    source: int
    count: int
    tap: int
    is_first: bool
    is_last: bool
    window: Window


def planes_of(window: Window) -> Iterator[Planes]:
    """Yield the parts of a convolution of one volume in their order.

    Planes that the same taps reach are one part where their operands lie side by side, that is, at stride 1.
    """
    depth, plane = axes_of(window, 0, 1), axes_of(window, 1, 3)
    outside = replace(plane, sizes=(0, plane.sizes[1]))  # an image of height 0 is padding alone
    for first, count, taps in _runs(depth):
        if not taps:
            yield Planes(first, 0, count, 0, True, True, outside)
        for tap in taps:
            yield Planes(first, _source(depth, first, tap), count, tap, tap == taps[0], tap == taps[-1], plane)


def axes_of(window: Window, start: int, stop: int) -> Window:
    """Return the geometry along some of the axes."""
    return Window(*(getattr(window, f.name)[start:stop] for f in fields(window)))


def _source(depth: Window, plane: int, tap: int) -> int:
    """The plane of the operand that a plane of the result sees through a tap; it may lie in the padding."""
    return plane * depth.strides[0] - depth.before[0] + tap * depth.dilations[0]


def _runs(depth: Window) -> Iterator[tuple[int, int, tuple[int, ...]]]:
    """The first plane and the number of planes of every part, and the taps that reach into the volume there."""

    def reaching(plane: int) -> tuple[int, ...]:
        return tuple(tap for tap in range(depth.kernel[0]) if 0 <= _source(depth, plane, tap) < depth.sizes[0])

    for taps, group in itertools.groupby(range(depth.output[0]), reaching):
        planes = list(group)
        if depth.strides[0] == 1:
            yield planes[0], len(planes), taps
        else:
            yield from ((plane, 1, taps) for plane in planes)
