"""SplitGroups: a convolution of groups as one convolution per group.

>>> from tinycomp.ir.text.parser import parse_graph
>>> from tinycomp.ops.typing import infer_node_types
>>> graph = parse_graph('''
... graph @main opset {"" = 17} (%x: float32[1, 4, 1, 1]) -> (%y) {
...   %w: float32[2, 2, 1, 1] = const [1, 2, 3, 4]
...   %y = Conv(%x, %w) {group = 2} from ["conv"]
... }''', infer=infer_node_types)
>>> SplitGroups().run(graph)
True
>>> print(graph)
graph @main opset {"" = 17} (%x: float32[1, 4, 1, 1]) -> (%y) {
  %x_split: int64[2] = const [2, 2]
  %split: float32[1, 2, 1, 1], %split_1: float32[1, 2, 1, 1] = Split@13(%x, %x_split) {axis = 1} from ["conv"]
  %w_1: float32[1, 2, 1, 1] = const [1.0, 2.0]
  %conv: float32[1, 1, 1, 1] = Conv@11(%split, %w_1) from ["conv"]
  %w_2: float32[1, 2, 1, 1] = const [3.0, 4.0]
  %conv_1: float32[1, 1, 1, 1] = Conv@11(%split_1, %w_2) from ["conv"]
  %y: float32[1, 2, 1, 1] = Concat@13(%conv, %conv_1) {axis = 1} from ["conv"]
}
"""

from __future__ import annotations

from typing import ClassVar

from tinycomp.ir.graph import Graph, Node
from tinycomp.passes.legalize.base import Legalization
from tinycomp.passes.legalize.layer import Layer, attributes
from tinycomp.records import dataclass
from tinycomp.rewrite.edits import version_of

_SIZES_ARE_OPERANDS = 13


@dataclass(frozen=True)
class SplitGroups(Legalization):
    """Split the channels of a convolution of groups, convolve each group, and join the results.

    Targets want it whose convolutions have no groups. Depthwise convolutions, whose groups are single channels, are
    left alone.

    Attributes:
        depthwise: Whether depthwise convolutions are split as well.
    """

    depthwise: bool = False
    ops: ClassVar = frozenset({"Conv"})

    def rewrite(self, graph: Graph, node: Node) -> bool:
        """Rewrite one convolution."""
        layer, groups = Layer.around(graph, node), node.attrs.get("group", 1)
        data, weight, bias = layer.operand(), layer.operand(1), layer.optional(2)
        if groups == 1 or weight.array is None or not data.is_even or (bias is not None and bias.array is None):
            return False
        each = weight.array.shape[1]
        if each == 1 and not self.depthwise:
            return False
        rows = len(weight.array) // groups
        sizes = [each] * groups
        operands = [data.value]
        by_operand = version_of(graph, "Split") >= _SIZES_ARE_OPERANDS
        if by_operand:
            operands.append(layer.sizes(sizes, f"{data.value.name}_split"))
        split = graph.add(
            "Split", operands, {"axis": 1} if by_operand else {"axis": 1, "split": sizes}, at=node, outputs=groups
        )
        parts = []
        for group, part in enumerate(split.outputs):
            own = slice(group * rows, (group + 1) * rows)
            inputs = [data.real(part, node), weight.constant(weight.array[own], node, own)]
            if bias is not None and bias.array is not None:
                inputs.append(bias.constant(bias.array[own], node, own))
            parts.append(layer.finished(layer.add("Conv", inputs, **attributes(node, group=None))))
        return layer.replace(layer.add("Concat", parts, axis=1))
