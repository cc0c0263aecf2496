"""Room between the pixels of images whose lines would all fall into the same few sets of the first-level cache.

A depthwise convolution reads the same few channels of neighbouring pixels on several lines, and comes back to the
other half of each cache line afterwards. Where pixels are a power of two apart, all of those lie in a handful of sets
and push each other out: 14x14x512 takes 2.2 times as long as it does with one more cache line per pixel (Zen 3).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from tinycomp.ir.graph import Node, Value
from tinycomp.ir.types import tensor
from tinycomp.targets.c.emit import Emitter, Strided, View
from tinycomp.targets.c.movement import leave
from tinycomp.targets.c.pixels import FLOAT, Pixels
from tinycomp.targets.common.checks import operand, static_type

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
        """Whether some set of the cache has more lines to hold than it can, if pixels are ``stride`` floats apart.

        >>> Band(4, 14).is_crowded(512), Band(4, 14).is_crowded(528)
        (True, False)
        """
        sets = [p * stride * FLOAT // CACHE_LINE % SETS for p in range(self.lines * self.width)]
        return max(Counter(sets).values()) > WAYS


def spaced(emit: Emitter, node: Node, value: Value) -> Pixels | None:
    """Place a result of ``node`` with a cache line of room behind every pixel, if its readers gain by that.

    Args:
        emit: The region's emitter.
        node: The node that computes the value.
        value: An image (N, C, H, W) that lies channels last.

    Returns:
        Where to write, or None if the image should lie as usual.
    """
    shape = tensor(value.type).static_shape
    if shape is None or len(shape) != 4 or emit.graph.is_output(value) or not value.users or 0 in shape:
        return None
    channels, _, width = shape[1:]
    heights = [_lines_read(user, value) for user in value.users]
    stride = channels + CACHE_LINE // FLOAT
    if None in heights or not any(_gains(Band(h, width), channels, stride) for h in heights if h is not None):
        return None
    steps = (math.prod(shape[2:]) * stride, 1, width * stride, stride)
    view = View(emit.scratch(math.prod((shape[0], *shape[2:], stride)) * FLOAT).buffer)
    leave(emit, node, value, Strided(view, steps))
    return Pixels(view, stride)


def _gains(band: Band, usual: int, wider: int) -> bool:
    return band.is_crowded(usual) and not band.is_crowded(wider)


def _lines_read(user: Node, value: Value) -> int | None:
    """Lines of ``value`` that a depthwise convolution reads at a time; None if ``user`` is anything else."""
    nodes = user.body.nodes if user.is_composite else (user,)
    convolution = next((n for n in nodes if n.op == "Conv"), None)
    if convolution is None or [v is value for v in user.inputs] != [True, *[False] * (len(user.inputs) - 1)]:
        return None
    _, (_, channels, *_) = static_type(value)
    weights = operand(convolution, 1)
    assert weights is not None, user
    _, (filters, _, kernel, *_) = static_type(weights)
    if not convolution.attrs.get("group", 1) == channels == filters:
        return None
    stride = (convolution.attrs.get("strides") or [1])[0]
    return int((BAND - 1) * stride + kernel)
