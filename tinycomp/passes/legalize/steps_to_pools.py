"""StepsToPools: a Slice that leaves pixels out as one that does not, and a maximum of single elements.

>>> from tinycomp.ir.text.parser import parse_graph
>>> from tinycomp.ops.typing import infer_node_types
>>> graph = parse_graph('''
... graph @main opset {"" = 17} (%x: int8[1, 3, 8, 8]) -> (%y) {
...   %starts: int64[2] = const [0, 1]
...   %ends: int64[2] = const [8, 8]
...   %axes: int64[2] = const [2, 3]
...   %steps: int64[2] = const [2, 2]
...   %y = Slice(%x, %starts, %ends, %axes, %steps) from ["slice"]
... }''', infer=infer_node_types)
>>> StepsToPools().run(graph)
True
>>> print(graph)
graph @main opset {"" = 17} (%x: int8[1, 3, 8, 8]) -> (%y) {
  %x_starts: int64[2] = const [0, 1]
  %x_ends: int64[2] = const [8, 8]
  %x_axes: int64[2] = const [2, 3]
  %slice: int8[1, 3, 8, 7] = Slice@13(%x, %x_starts, %x_ends, %x_axes) from ["slice"]
  %y: int8[1, 3, 4, 4] = MaxPool@12(%slice) {kernel_shape = [1, 1], strides = [2, 2]} from ["slice"]
}
"""

from __future__ import annotations

from typing import ClassVar

from tinycomp.ir.graph import Graph, Node
from tinycomp.passes.legalize.base import Legalization
from tinycomp.passes.legalize.decompose_strides import MAX_OF_BYTES, leave_out, strides_within
from tinycomp.passes.legalize.layer import Layer
from tinycomp.passes.simplify.facts import ints
from tinycomp.records import dataclass
from tinycomp.rewrite.edits import version_of

_NUMBERS = frozenset({"int8", "uint8", "float32"})
_OPERANDS_SINCE = 10


@dataclass(frozen=True)
class StepsToPools(Legalization):
    """Take images without steps, and every second or third pixel by a maximum of single elements.

    Targets want it whose slices have no steps, such as those by way of TOSA.

    Attributes:
        largest: The longest stride of a pool.
    """

    largest: int = 3
    ops: ClassVar = frozenset({"Slice"})

    def rewrite(self, graph: Graph, node: Node) -> bool:
        """Rewrite one Slice of images or lines."""
        x, steps = node.operand(0), ints(node, 4, "steps")
        shape = x.static_shape
        starts, ends = ints(node, 1, "starts"), ints(node, 2, "ends")
        if steps is None or shape is None or starts is None or ends is None or node.version < _OPERANDS_SINCE:
            return False
        axes = [axis % len(shape) for axis in ints(node, 3, "axes") or range(len(steps))]
        strides = [1] * len(shape)
        for axis, step in zip(axes, steps, strict=True):
            strides[axis] = step
        chain = strides_within(strides[2:], self.largest) if min(strides) > 0 else None
        fits = x.dtype in _NUMBERS and len(shape) in (3, 4) and version_of(graph, "MaxPool") >= MAX_OF_BYTES
        if not fits or not chain or max(strides[:2]) > 1:
            return False
        layer = Layer(graph, node, ())
        taken = [range(shape[axis])[start:end] for axis, start, end in zip(axes, starts, ends, strict=True)]
        if not all(taken):
            return False
        cut = layer.cut(x, [r.start for r in taken], [r.stop for r in taken], axes)
        return layer.replace(leave_out(layer, cut, chain))
