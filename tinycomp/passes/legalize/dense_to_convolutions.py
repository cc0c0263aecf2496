"""DenseToConvolutions: a matrix product as a convolution with a kernel of 1.

>>> from tinycomp.ir.text.parser import parse_graph
>>> from tinycomp.ops.typing import infer_node_types
>>> graph = parse_graph('''
... graph @main opset {"" = 17} (%x: float32[2, 3]) -> (%y) {
...   %w: float32[3, 1] = const [1, 2, 3]
...   %m = MatMul(%x, %w) from ["product"]
...   %y = Relu(%m) from ["relu"]
... }''', infer=infer_node_types)
>>> DenseToConvolutions().run(graph)
True
>>> print(graph)
graph @main opset {"" = 17} (%x: float32[2, 3]) -> (%y) {
  %x_shape: int64[4] = const [2, 3, 1, 1]
  %reshape: float32[2, 3, 1, 1] = Reshape@14(%x, %x_shape) from ["product"]
  %w_1: float32[1, 3, 1, 1] = const [1.0, 2.0, 3.0]
  %conv: float32[2, 1, 1, 1] = Conv@11(%reshape, %w_1) from ["product"]
  %relu: float32[2, 1, 1, 1] = Relu@14(%conv) from ["relu"]
  %relu_shape: int64[2] = const [2, 1]
  %y: float32[2, 1] = Reshape@14(%relu, %relu_shape) from ["product"]
}
"""

from __future__ import annotations

from typing import Any, ClassVar

from tinycomp.ir.graph import Graph, Node
from tinycomp.ops.numeric import prod
from tinycomp.passes.legalize.base import Legalization
from tinycomp.passes.legalize.layer import Layer
from tinycomp.records import dataclass, replace


@dataclass(frozen=True)
class DenseToConvolutions(Legalization):
    """Compute a Gemm, or a MatMul with a constant matrix, as a convolution of images of one pixel.

    Every row is an image. Targets want it that have convolutions, but no matrix products.
    """

    ops: ClassVar = frozenset({"Gemm", "MatMul"})

    def rewrite(self, graph: Graph, node: Node) -> bool:
        """Rewrite one product of rows of known number."""
        layer = Layer.around(graph, node)
        data, weight, bias = layer.operand(), layer.operand(1), layer.bias
        shape, result = node.operand(0).static_shape, node.output.static_shape
        if weight.array is None or weight.array.ndim != 2 or not shape or result is None or not data.is_even:
            return False
        plain = node.attrs.get("alpha", 1.0) == node.attrs.get("beta", 1.0) == 1.0 and not node.attrs.get("transA", 0)
        turned = bool(node.attrs.get("transB", 0))
        columns = weight.array.shape[0 if turned else 1]
        along = 0 if weight.dequantizer is None else weight.dequantizer.attrs.get("axis", 1) % 2
        row = None if bias is None or bias.array is None else bias.array.shape
        per_column = bias is None or row == (columns,) or (row == (1, columns) and bias.is_even)
        if not plain or not per_column or len(shape) < 2 or 0 in shape:
            return False
        if not weight.is_even and along != (0 if turned else 1):
            return False
        matrix = weight.array if turned else weight.array.T
        attrs: dict[str, Any] = {} if weight.is_even else {"axis": 0}
        filters = weight.constant(matrix[:, :, None, None], node, **attrs)
        rows = prod(shape[:-1])
        inputs = [data.real(layer.reshaped(data.value, [rows, shape[-1], 1, 1]), node), filters]
        if bias is not None and bias.array is not None:
            inputs.append(bias.constant(bias.array.reshape(-1), node))
        rest = replace(layer, node=layer.tail[0], tail=layer.tail[1:]) if node.op == "MatMul" and bias else layer
        return layer.replace(layer.reshaped(rest.finished(layer.add("Conv", inputs)), result))
