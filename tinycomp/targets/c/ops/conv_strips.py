"""Chains of convolutions whose images between are large, computed strip by strip.

The first layers of a network for small devices do little with large images: whole, each goes through the third-level
cache or memory once when it is written and again when it is read. So a strip of the last result is computed at a time,
some lines of it, and of every image before only those lines that are not there yet. Images between are never whole:
each has room for the lines of one strip and those of the strip before that are read once more. Nothing is computed
twice, and nothing otherwise: results are the same to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from tinycomp.ir.graph import Graph, Node
from tinycomp.lazy import LazyModule
from tinycomp.ops.spatial import Window
from tinycomp.runtime.native.processor import cache_bytes

if TYPE_CHECKING:
    from tinycomp.targets.c.codegen import lines as line_work
    from tinycomp.targets.c.codegen import strips
else:  # few convolutions are in chains
    line_work = LazyModule("tinycomp.targets.c.codegen.lines")
    strips = LazyModule("tinycomp.targets.c.codegen.strips")

LEAST_CACHE = 1 << 20
"""Bytes of a second-level cache that strips pay for; with 512 KB they were measured not to (Zen 3)."""
LARGE, LARGE_OF_SEVERAL = 5 / 8, 4
"""Images of so many caches per thread are computed in strips. Several threads meet at every strip: images of 2.4 caches
each were measured to be faster whole, larger ones were not measured."""
FEWEST_LINES = 2
FLOAT = 4
X = 1
"""The operand of a convolution that is its image."""


def cache() -> int:
    """Return the bytes of a core's second-level cache; 0 if it is too small for strips."""
    held = cache_bytes(2)
    return held if held >= LEAST_CACHE else 0


def chain(graph: Graph, node: Node, threads: int) -> list[Node]:
    """Return the convolutions that are computed strip by strip with ``node``, in order; most stand alone.

    Args:
        graph: The graph, with layouts.
        node: One of them.
        threads: How many share the work: what each has of an image lies in a cache of its own.
    """
    large = int((LARGE if threads == 1 else LARGE_OF_SEVERAL) * cache()) * threads
    first, last = [node], [node]
    if not large:
        return [node]
    while (previous := first[-1].operand(0).producer) is not None and _joins(graph, previous, first[-1], large):
        first.append(previous)
    while len(users := last[-1].output.users) == 1 and _joins(graph, last[-1], next(iter(users)), large):
        last += users
    return [*first[:0:-1], *last]


def _joins(graph: Graph, first: Node, second: Node, large: int) -> bool:
    """Tell whether only ``second`` reads what ``first`` gives, a ``large`` image, and one of the two is depthwise.

    Convolutions that may be computed by Winograd's algorithm are left out: how depends on the number of lines, and with
    it the bits of the result.
    """
    image = first.outputs[0]
    dims = image.static_shape
    if dims is None or len(dims) != 4 or prod(dims[1:]) * FLOAT < large or graph.is_output(image):
        return False
    if dict(image.users) != {second: 1} or second.inputs[0] is not image:
        return False
    both = [_convolution(node) for node in (first, second)]
    images = (first.operand(0), image, second.output)
    are_plain = all(v.static_shape is not None and v.dtype == "float32" for v in images)
    convolutions = [node for node in both if node is not None and not _is_far_padded(node) and not _is_dense(node)]
    return are_plain and len(convolutions) == 2 and any(map(_is_depthwise, convolutions))


def _convolution(node: Node) -> Node | None:
    nodes = node.body.nodes if node.is_composite else [node]
    return next((n for n in nodes if n.op == "Conv" and not n.domain), None)


def _is_far_padded(node: Node) -> bool:
    """Tell whether a result may follow from padding alone; padding that is not written out never is that wide."""
    weights = node.operand(1).static_shape
    return weights is None or max(node.attrs.get("pads", [0])) >= max(min(weights[2:]), 1)


def _is_dense(node: Node) -> bool:
    """Tell whether it is one of windows of several pixels, each next to the other."""
    weights, strides = node.operand(1).static_shape, node.attrs.get("strides") or [1]
    return weights is None or (prod(weights[2:]) > 1 and max(strides) == 1 and not _is_depthwise(node))


def _is_depthwise(node: Node) -> bool:
    weights = node.operand(1).static_shape
    return weights is not None and weights[1] == 1 and weights[0] == node.attrs.get("group", 1)


def read_of(window: Window[int]) -> line_work.Read:
    """Return which lines of its operand, without padding, a convolution's lines follow from."""
    return line_work.Read(X, window.sizes[0], 0, window.extents[0], window.strides[0], window.before[0])


def in_strips(windows: Sequence[Window[int]], lines: int) -> strips.Schedule:
    """Return how a chain is computed in strips.

    Args:
        windows: The geometry of each convolution, whose padding is less than its kernel's extent.
        lines: Lines of the last result in a strip.
    """
    links = [[(link, read_of(window))] for link, window in enumerate(windows[1:], 1)]
    heights = [window.output[0] for window in windows]
    return strips.schedule(heights, [*links, []], frozenset({len(windows) - 1}), lines)


def best_schedule(windows: Sequence[Window[int]], line_bytes: Sequence[int], threads: int = 1) -> strips.Schedule:
    """Return the schedule of the widest strips for which the images between stay in the cache.

    Args:
        windows: The geometry of every convolution.
        line_bytes: The bytes of a line of each result but the last.
        threads: How many share the work: each has some lines of a strip, in a cache of its own.
    """
    lines = windows[-1].output[0]
    while True:
        found = in_strips(windows, lines)
        held = sum(map(prod, zip(found.rooms, line_bytes, strict=False)))
        if lines <= FEWEST_LINES or held <= cache() // 2 * threads:
            return found
        lines = -(-lines // 2)


def part_of(window: Window[int], step: strips.Compute) -> Window[int]:
    """Return the geometry of one call."""
    reads = read_of(window).of(step.lines)
    above = reads.start - (step.lines.start * window.strides[0] - window.before[0])
    return Window(
        (len(reads), *window.sizes[1:]), window.kernel, window.strides, window.dilations,
        (above, *window.before[1:]), window.after, (len(step.lines), *window.output[1:]),
    )  # fmt: skip
