"""FunctionsToTables: a function of single 8-bit numbers as a table of its 256 results.

>>> from tinycomp.ir.text.parser import parse_graph
>>> from tinycomp.ops.typing import infer_node_types
>>> graph = parse_graph('''
... graph @main opset {"" = 17} (%q: int8[4]) -> (%y) {
...   %s: float32[] = const 0.5
...   %z: int8[] = const 3
...   %x = DequantizeLinear(%q, %s, %z) from ["x"]
...   %l = LeakyRelu(%x) {alpha = 0.5} from ["leaky"]
...   %y = QuantizeLinear(%l, %s, %z) from ["y"]
... }''', infer=infer_node_types)
>>> FunctionsToTables().run(graph)
True
>>> for node in graph.nodes:
...     print(node.op, *(v.type for v in node.inputs))
Cast int8[4]
Gather int8[256] int32[4]
"""

from __future__ import annotations

from typing import ClassVar

from tinycomp.ir.graph import Graph, Node
from tinycomp.ir.proto import NUMBER_BY_DTYPE
from tinycomp.passes.legalize.base import Legalization
from tinycomp.passes.legalize.layer import Layer
from tinycomp.quantized.tables import of_all_bytes
from tinycomp.records import dataclass
from tinycomp.rewrite.traits import has_trait

_BYTES = frozenset({"int8", "uint8"})
_MOST = 32
"""The most nodes of a function: longer chains are searched in vain only once."""


@dataclass(frozen=True)
class FunctionsToTables(Legalization):
    """Compute what stands between a DequantizeLinear and a QuantizeLinear for all bytes, and look results up.

    The function may be a single operator (LeakyRelu, HardSwish, Gelu, Sigmoid, …) or a group of element-wise ones that
    read nothing but that tensor and scalars. A negative index counts from the end of a table, so that an int8 finds its
    byte. Targets want it that look numbers up (Gather) and have no such functions; those that have tables of
    their own, such as TOSA's, make them of the same layers by a pattern (``qtable``).
    """

    ops: ClassVar = frozenset({"QuantizeLinear"})

    def members(self, graph: Graph, node: Node) -> list[Node]:
        """Return the nodes of the function."""
        return _function(graph, node) or [node]

    def rewrite(self, graph: Graph, node: Node) -> bool:
        """Rewrite the function in front of one QuantizeLinear."""
        scale = node.const(1)
        if scale is None or scale.size != 1 or node.output.dtype not in _BYTES:
            return False
        members = _function(graph, node)
        if members is None:
            return False
        first = members[0].operand(0)
        if first.dtype not in _BYTES or first.is_const:
            return False
        layer = Layer(graph, node, ())
        table = graph.add_const(of_all_bytes(members, first, node.output), f"{node.output.name}_table")
        index = layer.add("Cast", [first], to=NUMBER_BY_DTYPE["int32"])
        return layer.replace(layer.add("Gather", [table, index], axis=0))


def _function(graph: Graph, last: Node) -> list[Node] | None:
    """Return a DequantizeLinear, what is computed of it alone, and ``last``, in order; None if there is more to it."""
    found: dict[Node, None] = {}
    waiting, source = [last], None
    while waiting:
        node = waiting.pop()
        if node in found:
            continue
        if len(found) == _MOST or node.target is not None:
            return None
        found[node] = None
        if node.op == "DequantizeLinear" and not node.domain:
            scale = node.const(1)
            if source not in (None, node) or scale is None or scale.size != 1:
                return None
            source = node
            continue
        if node is not last and not has_trait(node, "elementwise"):
            return None
        for value in node.inputs:
            if value is None or (value.const is not None and value.const.size == 1):
                continue
            if value.producer is None:
                return None
            waiting.append(value.producer)
    inner = [node for node in found if node not in (source, last)]
    if source is None or not inner or any(len(n.outputs) > 1 or graph.is_output(n.output) for n in inner):
        return None
    if not all(found.keys() >= n.output.users.keys() for n in inner):
        return None
    ordered = [node for node in graph.nodes if node in found]
    return ordered if ordered[0] is source else None
