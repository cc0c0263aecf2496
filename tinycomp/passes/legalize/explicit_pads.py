"""ExplicitPads: the padding of a convolution or mean as a Pad of its own, of stored numbers.

>>> from tinycomp.ir.text.parser import parse_graph
>>> from tinycomp.ops.typing import infer_node_types
>>> graph = parse_graph('''
... graph @main opset {"" = 17} (%q: int8[1, 1, 4, 4]) -> (%y) {
...   %s: float32[] = const 0.5
...   %z: int8[] = const 3
...   %x = DequantizeLinear(%q, %s, %z) from ["x"]
...   %m = AveragePool(%x) {count_include_pad = 1, kernel_shape = [2, 2], pads = [1, 1, 0, 0]} from ["mean"]
...   %y = QuantizeLinear(%m, %s, %z) from ["y"]
... }''', infer=infer_node_types)
>>> ExplicitPads().run(graph)
True
>>> print(graph)
graph @main opset {"" = 17} (%q: int8[1, 1, 4, 4]) -> (%y) {
  %q_pads: int64[8] = const [0, 0, 1, 1, 0, 0, 0, 0]
  %q_fill: int8[] = const 3
  %pad: int8[1, 1, 5, 5] = Pad@13(%q, %q_pads, %q_fill) {mode = "constant"} from ["mean"]
  %s: float32[] = const 0.5
  %z: int8[] = const 3
  %dequantizelinear: float32[1, 1, 5, 5] = DequantizeLinear@13(%pad, %s, %z) from ["x"]
  %averagepool: float32[1, 1, 4, 4] = AveragePool@11(%dequantizelinear) {count_include_pad = 1, kernel_shape = [2, 2]} from ["mean"]
  %y: int8[1, 1, 4, 4] = QuantizeLinear@13(%averagepool, %s, %z) from ["y"]
}
"""  # noqa: E501 - a node is a line

from __future__ import annotations

from typing import ClassVar

from tinycomp.ir.graph import Graph, Node
from tinycomp.passes.legalize.base import Legalization
from tinycomp.passes.legalize.layer import Layer, attributes, given, has_plain_pads
from tinycomp.records import dataclass
from tinycomp.rewrite.edits import version_of

PAD_OF_OPERANDS = 11
"""The version since which Pad takes widths and value as operands, of any dtype."""


@dataclass(frozen=True)
class ExplicitPads(Legalization):
    """Pad the stored numbers with what stands for 0, in front of a convolution or mean without padding.

    Means whose counts leave the padding out stay as they are. Targets want it that have no padding, or no padded means,
    such as those by way of TOSA. The opposite, a Pad that becomes padding, is a rule of
    :class:`~tinycomp.passes.simplify.Simplify`.
    """

    ops: ClassVar = frozenset({"AveragePool", "Conv"})

    def rewrite(self, graph: Graph, node: Node) -> bool:
        """Rewrite one convolution or mean."""
        layer = Layer.around(graph, node)
        data, rank = layer.operand(), (node.operand(0).rank or 2) - 2
        pads = given(node, "pads", 2 * rank, 0)
        if not any(pads) or not has_plain_pads(node) or not data.is_even:
            return False
        counted = node.op == "Conv" or node.attrs.get("count_include_pad", 0)
        if not counted or version_of(graph, "Pad") < PAD_OF_OPERANDS:
            return False
        value = layer.padded(data.value, [0, 0, *pads[:rank]], [0, 0, *pads[rank:]], data.zero)
        inputs = [data.real(value, node), *node.inputs[1:]]
        return layer.replace(layer.finished(layer.add(node.op, inputs, **attributes(node, pads=None, auto_pad=None))))
