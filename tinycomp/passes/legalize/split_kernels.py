"""SplitKernels: a convolution with a large kernel as one with a small kernel of shifted copies of the data.

>>> from tinycomp.ir.text.parser import parse_graph
>>> from tinycomp.ops.typing import infer_node_types
>>> graph = parse_graph('''
... graph @main opset {"" = 17} (%x: float32[1, 1, 1, 8]) -> (%y) {
...   %w: float32[1, 1, 1, 3] = const [1, 2, 3]
...   %y = Conv(%x, %w) from ["conv"]
... }''', infer=infer_node_types)
>>> SplitKernels(2).run(graph)
True
>>> print(graph)
graph @main opset {"" = 17} (%x: float32[1, 1, 1, 8]) -> (%y) {
  %x_pads: int64[8] = const [0, 0, 0, 0, 0, 0, 0, 1]
  %x_fill: float32[] = const 0.0
  %pad: float32[1, 1, 1, 9] = Pad@13(%x, %x_pads, %x_fill) {mode = "constant"} from ["conv"]
  %pad_starts: int64[2] = const [0, 0]
  %pad_ends: int64[2] = const [1, 7]
  %pad_axes: int64[2] = const [2, 3]
  %slice: float32[1, 1, 1, 7] = Slice@13(%pad, %pad_starts, %pad_ends, %pad_axes) from ["conv"]
  %pad_starts_1: int64[2] = const [0, 2]
  %pad_ends_1: int64[2] = const [1, 9]
  %pad_axes_1: int64[2] = const [2, 3]
  %slice_1: float32[1, 1, 1, 7] = Slice@13(%pad, %pad_starts_1, %pad_ends_1, %pad_axes_1) from ["conv"]
  %concat: float32[1, 2, 1, 7] = Concat@13(%slice, %slice_1) {axis = 1} from ["conv"]
  %w_1: float32[1, 2, 1, 2] = const [1.0, 2.0, 3.0, 0.0]
  %y: float32[1, 1, 1, 6] = Conv@11(%concat, %w_1) {kernel_shape = [1, 2]} from ["conv"]
}
"""

from __future__ import annotations

import itertools
from typing import ClassVar

import numpy as np

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ops.numeric import Array
from tinycomp.passes.legalize.base import Legalization
from tinycomp.passes.legalize.explicit_pads import PAD_OF_OPERANDS
from tinycomp.passes.legalize.layer import Layer, attributes, given, has_plain_pads
from tinycomp.records import dataclass
from tinycomp.rewrite.edits import version_of


@dataclass(frozen=True)
class SplitKernels(Legalization):
    """Cut a kernel into blocks up to a limit along every axis, and make channels of them.

    The data are padded, and every block reads a copy that is shifted by its place. The copies are joined as channels:
    one convolution sums up everything, in integers to the same bits. Targets want it that have an upper limit of
    kernels. Convolutions of groups stay as they are: split them first.

    Attributes:
        largest: The limit, in taps.
    """

    largest: int = 64
    ops: ClassVar = frozenset({"Conv"})

    def rewrite(self, graph: Graph, node: Node) -> bool:
        """Rewrite one convolution of data of known size."""
        layer = Layer.around(graph, node)
        data, weight, shape = layer.operand(), layer.operand(1), node.operand(0).static_shape
        kernel = () if weight.array is None else weight.array.shape[2:]
        if shape is None or max(kernel, default=0) <= self.largest or node.attrs.get("group", 1) != 1:
            return False
        ready = has_plain_pads(node) and data.is_even and version_of(graph, "Pad") >= PAD_OF_OPERANDS
        along = 0 if weight.dequantizer is None else weight.dequantizer.attrs.get("axis", 1)
        if not ready or not (weight.is_even or along == 0):
            return False
        assert weight.array is not None
        rank = len(kernel)
        pads, dilations = given(node, "pads", 2 * rank, 0), given(node, "dilations", rank)
        strides, results = given(node, "strides", rank), (node.output.static_shape or ())[2:]
        blocks = [min(self.largest, size) for size in kernel]
        counts = [-(-size // block) for size, block in zip(kernel, blocks, strict=True)]
        lengths = [
            (n - 1) * step + (block - 1) * gap + 1
            for n, step, block, gap in zip(results, strides, blocks, dilations, strict=True)
        ]
        reach = [
            (count - 1) * block * gap + length
            for count, block, gap, length in zip(counts, blocks, dilations, lengths, strict=True)
        ]
        behind = [max(0, r - n - p) for r, n, p in zip(reach, shape[2:], pads[:rank], strict=True)]
        padded = layer.padded(data.value, [0, 0, *pads[:rank]], [0, 0, *behind], data.zero)
        parts: list[Value] = []
        axes = list(range(2, rank + 2))
        places = list(itertools.product(*map(range, counts)))
        for place in places:
            starts = [at * block * gap for at, block, gap in zip(place, blocks, dilations, strict=True)]
            ends = [start + length for start, length in zip(starts, lengths, strict=True)]
            parts.append(layer.cut(padded, starts, ends, axes))
        copies = layer.add("Concat", parts, axis=1)
        inputs = [data.real(copies, node), weight.constant(_blocks(weight.array, weight.zero, blocks, counts), node)]
        changed = attributes(node, pads=None, auto_pad=None, kernel_shape=blocks)
        return layer.replace(layer.finished(layer.add("Conv", [*inputs, *node.inputs[2:]], **changed)))


def _blocks(weight: Array, zero: Array, blocks: list[int], counts: list[int]) -> Array:
    """Return ``[filters, places * channels, block, …]`` of ``[filters, channels, kernel, …]``, filled up with 0."""
    whole = [block * count for block, count in zip(blocks, counts, strict=True)]
    filled = np.empty((*weight.shape[:2], *whole), weight.dtype)
    filled[...] = zero.reshape(-1, *[1] * (weight.ndim - 1))
    filled[tuple(map(slice, weight.shape))] = weight
    apart = filled.reshape(*weight.shape[:2], *itertools.chain(*zip(counts, blocks, strict=True)))
    rank = len(blocks)
    order = [0, *range(2, 2 + 2 * rank, 2), 1, *range(3, 3 + 2 * rank, 2)]
    return np.ascontiguousarray(apart.transpose(order).reshape(len(weight), -1, *blocks))
