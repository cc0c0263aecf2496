"""ReductionsToPools: means and maxima over axes as pools.

>>> from tinycomp.ir.text.parser import parse_graph
>>> from tinycomp.ops.typing import infer_node_types
>>> graph = parse_graph('''
... graph @main opset {"" = 17} (%q: int8[1, 8, 4, 4]) -> (%y) {
...   %s: float32[] = const 0.5
...   %z: int8[] = const 3
...   %x = DequantizeLinear(%q, %s, %z) from ["x"]
...   %m = ReduceMean(%x) {axes = [2, 3], keepdims = 0} from ["mean"]
...   %y = QuantizeLinear(%m, %s, %z) from ["y"]
... }''', infer=infer_node_types)
>>> ReductionsToPools().run(graph)
True
>>> print(graph)
graph @main opset {"" = 17} (%q: int8[1, 8, 4, 4]) -> (%y) {
  %s: float32[] = const 0.5
  %z: int8[] = const 3
  %dequantizelinear: float32[1, 8, 4, 4] = DequantizeLinear@13(%q, %s, %z) from ["x"]
  %globalaveragepool: float32[1, 8, 1, 1] = GlobalAveragePool@1(%dequantizelinear) from ["mean"]
  %quantizelinear: int8[1, 8, 1, 1] = QuantizeLinear@13(%globalaveragepool, %s, %z) from ["y"]
  %quantizelinear_shape: int64[2] = const [1, 8]
  %y: int8[1, 8] = Reshape@14(%quantizelinear, %quantizelinear_shape) from ["mean"]
}
"""

from __future__ import annotations

from typing import ClassVar

from tinycomp.ir.graph import Graph, Node
from tinycomp.ops.numeric import prod
from tinycomp.passes.legalize.base import Legalization
from tinycomp.passes.legalize.layer import Layer
from tinycomp.passes.simplify.facts import ints
from tinycomp.records import dataclass

_IMAGE = 4


@dataclass(frozen=True)
class ReductionsToPools(Legalization):
    """Compute a ReduceMean as a GlobalAveragePool, a ReduceMax or GlobalMaxPool as a MaxPool.

    Where the axes are not those of images, the others become channels: by a Transpose, if they do not come first, and a
    Reshape. Targets want it that have pools, but no reductions, such as those by way of TOSA in 8-bit integers.
    """

    ops: ClassVar = frozenset({"GlobalMaxPool", "ReduceMax", "ReduceMean"})

    def rewrite(self, graph: Graph, node: Node) -> bool:
        """Rewrite one reduction of known sizes."""
        layer = Layer.around(graph, node)
        data, shape = layer.operand(), node.operand(0).static_shape
        result = node.output.static_shape
        if shape is None or result is None or not shape or 0 in shape or not data.is_even:
            return False
        axes = list(range(2, len(shape))) if node.op == "GlobalMaxPool" else _axes(node, len(shape))
        if not axes:
            return False
        kept = [axis for axis in range(len(shape)) if axis not in axes]
        images, value = [shape[axis] for axis in (*kept, *axes)], data.value
        if kept + axes != list(range(len(shape))):
            value = layer.add("Transpose", [value], perm=[*kept, *axes])
        if len(kept) != 2 or len(images) != _IMAGE:
            channels = [1, prod(images[: len(kept)])] if len(kept) != 2 else images[:2]
            value = layer.reshaped(value, [*channels, prod(images[len(kept) :]), 1])
        real = data.real(value, node)
        if node.op == "ReduceMean":
            pool = layer.add("GlobalAveragePool", [real])
        else:
            kernel = list((value.static_shape or ())[2:])
            pool = layer.add("MaxPool", [real], kernel_shape=kernel)
        finished = layer.finished(pool)
        return layer.replace(layer.reshaped(finished, result))


def _axes(node: Node, rank: int) -> list[int]:
    """Return the axes of a reduction in order; none if they are not known."""
    given = ints(node, 1, "axes")
    if given is None and (node.optional_operand(1) is not None or node.attrs.get("noop_with_empty_axes", 0)):
        return []
    return sorted({axis % rank for axis in given or range(rank)})
