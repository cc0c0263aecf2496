"""TransposedToConvolutions: a transposed convolution as a convolution whose channels become pixels.

>>> from tinycomp.ir.text.parser import parse_graph
>>> from tinycomp.ops.typing import infer_node_types
>>> graph = parse_graph('''
... graph @main opset {"" = 17} (%x: float32[1, 1, 4]) -> (%y) {
...   %w: float32[1, 1, 3] = const [1, 2, 3]
...   %y = ConvTranspose(%x, %w) {strides = [2]} from ["up"]
... }''', infer=infer_node_types)
>>> TransposedToConvolutions().run(graph)
True
>>> print(graph)
graph @main opset {"" = 17} (%x: float32[1, 1, 4]) -> (%y) {
  %x_pads: int64[6] = const [0, 0, 1, 0, 0, 1]
  %x_fill: float32[] = const 0.0
  %pad: float32[1, 1, 6] = Pad@13(%x, %x_pads, %x_fill) {mode = "constant"} from ["up"]
  %w_1: float32[2, 1, 2] = const [3.0, 1.0, 0.0, 2.0]
  %conv: float32[1, 2, 5] = Conv@11(%pad, %w_1) from ["up"]
  %conv_shape: int64[4] = const [1, 2, 1, 5]
  %reshape: float32[1, 2, 1, 5] = Reshape@14(%conv, %conv_shape) from ["up"]
  %transpose: float32[1, 1, 5, 2] = Transpose@13(%reshape) {perm = [0, 2, 3, 1]} from ["up"]
  %transpose_shape: int64[3] = const [1, 1, 10]
  %reshape_1: float32[1, 1, 10] = Reshape@14(%transpose, %transpose_shape) from ["up"]
  %reshape_1_starts: int64[1] = const [0]
  %reshape_1_ends: int64[1] = const [9]
  %reshape_1_axes: int64[1] = const [2]
  %y: float32[1, 1, 9] = Slice@13(%reshape_1, %reshape_1_starts, %reshape_1_ends, %reshape_1_axes) from ["up"]
}
"""

from __future__ import annotations

import itertools
from typing import Any, ClassVar

import numpy as np

from tinycomp.ir.graph import Graph, Node
from tinycomp.ops.numeric import Array, prod
from tinycomp.passes.legalize.base import Legalization
from tinycomp.passes.legalize.explicit_pads import PAD_OF_OPERANDS
from tinycomp.passes.legalize.layer import Layer, given
from tinycomp.records import dataclass
from tinycomp.rewrite.edits import version_of


@dataclass(frozen=True)
class TransposedToConvolutions(Legalization):
    """Compute the results of every place between two strides as channels of one convolution, and put them in order.

    Each place has the taps of the kernel that reach it, so that no product with 0 is computed but those that fill up
    the kernels. Targets want it that have no transposed convolutions in integers, such as those by way of TOSA. Groups
    and dilations stay as they are.
    """

    ops: ClassVar = frozenset({"ConvTranspose"})

    def rewrite(self, graph: Graph, node: Node) -> bool:
        """Rewrite one transposed convolution of data of known size."""
        layer = Layer.around(graph, node)
        data, weight, bias = layer.operand(), layer.operand(1), layer.optional(2)
        shape, result = node.operand(0).static_shape, node.output.static_shape
        if weight.array is None or shape is None or result is None or 0 in shape or not data.is_even:
            return False
        rank = len(shape) - 2
        plain = node.attrs.get("auto_pad", "NOTSET") == "NOTSET" and node.attrs.get("group", 1) == 1
        if not plain or any(d != 1 for d in given(node, "dilations", rank)) or not rank:
            return False
        along = 1 if weight.dequantizer is None else weight.dequantizer.attrs.get("axis", 1) % weight.array.ndim
        known = bias is None or bias.array is not None
        if not known or not (weight.is_even or along == 1) or version_of(graph, "Pad") < PAD_OF_OPERANDS:
            return False
        strides, pads = given(node, "strides", rank), given(node, "pads", 2 * rank, 0)[:rank]
        taps = [-(-size // step) for size, step in zip(weight.array.shape[2:], strides, strict=True)]
        places = [
            max(n, (before + size - 1) // step + 1)
            for n, before, size, step in zip(shape[2:], pads, result[2:], strides, strict=True)
        ]
        around = [tap - 1 for tap in taps]
        behind = [count - n for count, n in zip(places, shape[2:], strict=True)]
        padded = layer.padded(data.value, [0, 0, *around], [0, 0, *behind], data.zero)
        made = weight.array.shape[1]
        rows = np.tile(np.arange(made), prod(strides))
        attrs: dict[str, Any] = {} if weight.is_even else {"axis": 0}
        filters = weight.constant(_phases(weight.array, weight.zero, strides, taps), node, rows, **attrs)
        inputs = [data.real(padded, node), filters]
        if bias is not None and bias.array is not None:
            inputs.append(bias.constant(bias.array.reshape(-1)[rows], node, rows))
        value = layer.finished(layer.add("Conv", inputs))
        value = layer.reshaped(value, [shape[0], *strides, made, *places])
        pairs = itertools.chain(*((rank + 2 + axis, 1 + axis) for axis in range(rank)))
        value = layer.add("Transpose", [value], perm=[0, rank + 1, *pairs])
        whole = [count * step for count, step in zip(places, strides, strict=True)]
        value = layer.reshaped(value, [shape[0], made, *whole])
        if list(result[2:]) != whole:
            ends = [before + size for before, size in zip(pads, result[2:], strict=True)]
            value = layer.cut(value, pads, ends, list(range(2, rank + 2)))
        return layer.replace(value)


def _phases(weight: Array, zero: Array, strides: list[int], taps: list[int]) -> Array:
    """Return ``[places * filters, channels, taps, …]`` of ``[channels, filters, kernel, …]``, as a Conv has it."""
    rank = len(strides)
    whole = [tap * step for tap, step in zip(taps, strides, strict=True)]
    filled = np.empty((*weight.shape[:2], *whole), weight.dtype)
    filled[...] = zero.reshape(-1, *[1] * rank)
    filled[tuple(map(slice, weight.shape))] = weight
    apart = filled.reshape(*weight.shape[:2], *itertools.chain(*zip(taps, strides, strict=True)))
    order = [*range(3, 3 + 2 * rank, 2), 1, 0, *range(2, 2 + 2 * rank, 2)]
    turned = np.flip(apart.transpose(order), axis=tuple(range(rank + 2, 2 * rank + 2)))
    return np.ascontiguousarray(turned.reshape(-1, weight.shape[0], *taps))
