"""DecomposeStrides: long strides as a shorter one, behind which pixels are left out.

>>> from tinycomp.ir.text.parser import parse_graph
>>> from tinycomp.ops.typing import infer_node_types
>>> graph = parse_graph('''
... graph @main opset {"" = 17} (%x: float32[1, 2, 12, 12]) -> (%y) {
...   %w: float32[2, 1, 1, 1] = const [1, 2]
...   %c = Conv(%x, %w) {group = 2, strides = [4, 2]} from ["conv"]
...   %y = Relu(%c) from ["relu"]
... }''', infer=infer_node_types)
>>> DecomposeStrides(3).run(graph)
True
>>> print(graph)
graph @main opset {"" = 17} (%x: float32[1, 2, 12, 12]) -> (%y) {
  %w: float32[2, 1, 1, 1] = const [1.0, 2.0]
  %conv: float32[1, 2, 6, 6] = Conv@11(%x, %w) {group = 2, strides = [2, 2]} from ["conv"]
  %relu: float32[1, 2, 6, 6] = Relu@14(%conv) from ["relu"]
  %y: float32[1, 2, 3, 6] = MaxPool@12(%relu) {kernel_shape = [1, 1], strides = [2, 1]} from ["conv"]
}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.passes.legalize.base import Legalization
from tinycomp.passes.legalize.layer import Layer, attributes, given, has_plain_pads
from tinycomp.records import dataclass
from tinycomp.rewrite.edits import version_of

MAX_OF_BYTES = 12
"""The version since which MaxPool knows numbers of 8 bits."""


@dataclass(frozen=True)
class DecomposeStrides(Legalization):
    """Take windows at strides up to a limit, and every second or third result of that.

    A maximum of single elements leaves the others out. Targets want it that have an upper limit of strides, such as
    Ethos-U55 and U65 with 3. Strides with a prime factor above the limit stay as they are.

    Attributes:
        largest: The limit.
    """

    largest: int = 3
    ops: ClassVar = frozenset({"AveragePool", "Conv", "MaxPool"})

    def rewrite(self, graph: Graph, node: Node) -> bool:
        """Rewrite one convolution or pool."""
        rank = (node.operand(0).rank or 2) - 2
        strides = given(node, "strides", rank)
        steps = strides_within(strides, self.largest)
        layer = Layer.around(graph, node)
        if max(strides, default=1) <= self.largest or steps is None or not has_plain_pads(node):
            return False
        if len(node.used_outputs()) > 1 or version_of(graph, "MaxPool") < MAX_OF_BYTES:
            return False
        first, *others = steps
        value = layer.finished(layer.add(node.op, node.inputs, **attributes(node, strides=first)))
        return layer.replace(leave_out(layer, value, others))


def strides_within(strides: Sequence[int], largest: int) -> list[list[int]] | None:
    """Return strides of at most ``largest`` whose products these are, the largest first; None if there are none.

    >>> strides_within([4, 1], 3), strides_within([6, 12], 3), strides_within([5, 5], 3)
    ([[2, 1], [2, 1]], [[3, 3], [2, 2], [1, 2]], None)
    """
    chains: list[list[int]] = []
    for stride in strides:
        chain = []
        while stride > 1:
            factor = next((f for f in range(min(largest, stride), 1, -1) if stride % f == 0), 0)
            if not factor:
                return None
            chain.append(factor)
            stride //= factor
        chains.append(chain)
    length = max(map(len, chains), default=0)
    return [[chain[place] if place < len(chain) else 1 for chain in chains] for place in range(length)]


def leave_out(layer: Layer, value: Value, steps: Sequence[Sequence[int]]) -> Value:
    """Take every element of the spatial axes whose place is a multiple of the steps, one after the other."""
    for step in steps:
        value = layer.add("MaxPool", [value], kernel_shape=[1] * len(step), strides=list(step))
    return value
