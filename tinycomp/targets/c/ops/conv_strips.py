"""Chains of convolutions whose images between are large, computed strip by strip.

The first layers of a network for small devices do little with large images: whole, each goes through the third-level
cache or memory once when it is written and again when it is read. So a strip of the last result is computed at a time,
some lines of it, and of every image before only those lines that are not there yet. Images between are never whole:
each has room for the lines of one strip and those of the strip before that are read once more. Nothing is computed
twice, and nothing otherwise: results are the same to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tinycomp.ir.graph import Graph, Node
from tinycomp.ops.spatial import Window
from tinycomp.runtime.native.processor import cache_bytes

LEAST_CACHE = 1 << 20
"""Bytes of a second-level cache that strips pay for; with 512 KB they were measured not to (Zen 3)."""
LARGE, LARGE_OF_SEVERAL = 5 / 8, 4
"""Images of so many caches per thread are computed in strips. Several threads meet at every strip: images of 2.4 caches
each were measured to be faster whole, larger ones were not measured."""
FEWEST_LINES = 2
FLOAT = 4


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


@dataclass(frozen=True)
class Compute:
    """Lines of one result that a call computes.

    Attributes:
        link: Which convolution of the chain.
        lines: Which lines of its result.
        reads: Which lines of its operand that takes.
        at: Where the first of ``lines`` goes: a line of the result's room.
        reads_at: Where the first of ``reads`` is: a line of the operand's room.
        is_last: Whether the result is complete then.
    """

    link: int
    lines: range
    reads: range
    at: int
    reads_at: int
    is_last: bool


@dataclass(frozen=True)
class Move:
    """Lines of one result that are read once more: from ``source`` on, ``count`` of its room move to its beginning."""

    link: int
    source: int
    count: int


@dataclass(frozen=True)
class Schedule:
    """The calls for one image, in order.

    Attributes:
        steps: The calls.
        rooms: Lines that are held of each result but the last.
    """

    steps: Sequence[Compute | Move]
    rooms: Sequence[int]


def schedule(windows: Sequence[Window[int]], lines: int) -> Schedule:
    """Return how a chain is computed in strips.

    Args:
        windows: The geometry of each convolution, whose padding is less than its kernel's extent.
        lines: Lines of the last result in a strip.

    >>> same = Window((8, 8), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), (8, 8))
    >>> for step in schedule([same, same], 4).steps:
    ...     print(step)
    Compute(link=0, lines=range(0, 5), reads=range(0, 6), at=0, reads_at=0, is_last=False)
    Compute(link=1, lines=range(0, 4), reads=range(0, 5), at=0, reads_at=0, is_last=False)
    Move(link=0, source=3, count=2)
    Compute(link=0, lines=range(5, 8), reads=range(4, 8), at=2, reads_at=4, is_last=True)
    Compute(link=1, lines=range(4, 8), reads=range(3, 8), at=4, reads_at=0, is_last=True)
    """
    last = len(windows) - 1
    done = [0] * len(windows)  # lines of each result that have been computed
    first = [0] * last  # the line that each room begins with
    rooms = [0] * last
    steps: list[Compute | Move] = []
    total = windows[last].output[0]
    for strip in range(lines, total + lines, lines):
        ends = [min(strip, total)]
        for window in reversed(windows[1:]):
            ends.insert(0, _reads(window, range(ends[0] - 1, ends[0])).stop)
        for link, (window, end) in enumerate(zip(windows, ends, strict=True)):
            if end <= done[link]:
                continue
            new = range(done[link], end)
            if link < last:
                wanted = _reads(windows[link + 1], range(done[link + 1], done[link + 1] + 1)).start
                kept = max(done[link] - wanted, 0)
                if kept <= wanted - first[link] > 0:  # they do not overlap
                    steps += [Move(link, wanted - first[link], kept)] if kept else []
                    first[link] = done[link] - kept
                rooms[link] = max(rooms[link], end - first[link])
            reads = _reads(window, new)
            at, reads_at = (done[link] - first[link] if link < last else done[link]), reads.start
            reads_at -= first[link - 1] if link else 0
            done[link] = end
            steps.append(Compute(link, new, reads, at, reads_at, end == window.output[0]))
    return Schedule(steps, rooms)


def _reads(window: Window[int], lines: range) -> range:
    """Return the lines of the operand, without padding, that some lines of a result follow from."""
    begin, end = (line * window.strides[0] - window.before[0] for line in (lines[0], lines[-1]))
    return range(max(begin, 0), min(end + window.extents[0], window.sizes[0]))


def best_schedule(windows: Sequence[Window[int]], line_bytes: Sequence[int], threads: int = 1) -> Schedule:
    """Return the schedule of the widest strips for which the images between stay in the cache.

    Args:
        windows: The geometry of every convolution.
        line_bytes: The bytes of a line of each result but the last.
        threads: How many share the work: each has some lines of a strip, in a cache of its own.
    """
    lines = windows[-1].output[0]
    while True:
        found = schedule(windows, lines)
        if lines <= FEWEST_LINES or sum(map(prod, zip(found.rooms, line_bytes, strict=True))) <= cache() // 2 * threads:
            return found
        lines = -(-lines // 2)


def part_of(window: Window[int], step: Compute) -> Window[int]:
    """Return the geometry of one call."""
    above = step.reads.start - (step.lines.start * window.strides[0] - window.before[0])
    return Window(
        (len(step.reads), *window.sizes[1:]), window.kernel, window.strides, window.dilations,
        (above, *window.before[1:]), window.after, (len(step.lines), *window.output[1:]),
    )  # fmt: skip
