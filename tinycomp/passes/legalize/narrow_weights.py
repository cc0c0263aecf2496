"""NarrowWeights: weights whose zero point makes them leave int8, as two halves of twice as many channels.

>>> from tinycomp.ir.text.parser import parse_graph
>>> from tinycomp.ops.typing import infer_node_types
>>> graph = parse_graph('''
... graph @main opset {"" = 17} (%q: int8[1, 1, 2, 2]) -> (%y) {
...   %s: float32[] = const 0.5
...   %z: int8[] = const 3
...   %x = DequantizeLinear(%q, %s, %z) from ["x"]
...   %wq: uint8[1, 1, 1, 1] = const [255]
...   %wz: uint8[] = const 10
...   %w = DequantizeLinear(%wq, %s, %wz) from ["w"]
...   %y = Conv(%x, %w) from ["conv"]
... }''', infer=infer_node_types)
>>> NarrowWeights().run(graph)
True
>>> print(graph)
graph @main opset {"" = 17} (%q: int8[1, 1, 2, 2]) -> (%y) {
  %concat: int8[1, 2, 2, 2] = Concat@13(%q, %q) {axis = 1} from ["conv"]
  %wq_narrow: int8[1, 2, 1, 1] = const [122, 123]
  %s: float32[] = const 0.5
  %wq_zero_point: int8[] = const 0
  %dequantizelinear: float32[1, 2, 1, 1] = DequantizeLinear@13(%wq_narrow, %s, %wq_zero_point) from ["w"]
  %z: int8[] = const 3
  %dequantizelinear_1: float32[1, 2, 2, 2] = DequantizeLinear@13(%concat, %s, %z) from ["x"]
  %y: float32[1, 1, 2, 2] = Conv@11(%dequantizelinear_1, %dequantizelinear) from ["conv"]
}
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tinycomp.ir.graph import Graph, Node
from tinycomp.passes.legalize.base import Legalization
from tinycomp.passes.legalize.layer import Layer
from tinycomp.records import dataclass


@dataclass(frozen=True)
class NarrowWeights(Legalization):
    """Write weights without their zero point as a sum of two of int8, and let both read the same data.

    That costs twice the multiplications, and gives the same sums. Targets want it whose weights are of int8 without
    zero points, such as those by way of TOSA. Convolutions of groups stay as they are.
    """

    ops: ClassVar = frozenset({"Conv", "Gemm", "MatMul"})

    def rewrite(self, graph: Graph, node: Node) -> bool:
        """Rewrite one product whose weights do not fit."""
        layer = Layer.around(graph, node)
        data, weight = layer.operand(), layer.operand(1)
        if weight.array is None or weight.dequantizer is None or data.dequantizer is None or not data.is_even:
            return False
        if node.attrs.get("group", 1) != 1 or weight.array.ndim < 2 or node.attrs.get("transA", 0):
            return False
        axis = weight.dequantizer.attrs.get("axis", 1) % weight.array.ndim
        channels = 1 if node.op == "Conv" or node.attrs.get("transB", 0) else weight.array.ndim - 2
        if not weight.is_even and axis == channels:
            return False
        spread = [1] * weight.array.ndim
        spread[axis] = -1
        points = weight.zero.astype(np.int64).reshape(spread if weight.zero.size > 1 else ())
        whole = weight.array.astype(np.int64) - points
        if np.array_equal(whole, whole.astype(np.int8)):
            return False
        halves = np.concatenate([whole >> 1, whole - (whole >> 1)], axis=channels).astype(np.int8)
        rank = node.operand(0).rank or 0
        twice = layer.add("Concat", [data.value, data.value], axis=1 if node.op == "Conv" else rank - 1)
        name = weight.value.name
        operands = [
            graph.add_const(halves, f"{name}_narrow"), weight.dequantizer.inputs[1],
            graph.add_const(np.zeros(weight.zero.shape, np.int8), f"{name}_zero_point"),
        ]  # fmt: skip
        real = graph.add(
            "DequantizeLinear", operands, weight.dequantizer.attrs, version=weight.dequantizer.version, at=node,
            sources=weight.dequantizer.sources,
        ).output  # fmt: skip
        inputs = [data.real(twice, node), real, *node.inputs[2:]]
        return layer.replace(layer.finished(layer.add(node.op, inputs, **node.attrs)))
