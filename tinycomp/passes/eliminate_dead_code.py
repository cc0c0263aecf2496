"""EliminateDeadCode: remove nodes, constants and captures that no result depends on.

>>> from tinycomp.ir.text.parser import parse_graph
>>> graph = parse_graph('''
... graph @main opset {"" = 17} (%x: float32[2]) -> (%y) {
...   %a: float32[2] = Exp(%x)
...   %b: float32[2] = Neg(%a)
...   %y: float32[2] = Relu(%x)
... }''')
>>> EliminateDeadCode().run(graph)
True
>>> print(graph)
graph @main opset {"" = 17} (%x: float32[2]) -> (%y) {
  %y: float32[2] = Relu@14(%x)
}
"""

from __future__ import annotations

from tinycomp.ir.graph import Graph
from tinycomp.passes.base import Pass
from tinycomp.records import dataclass
from tinycomp.rewrite.edits import drop_unused_captures
from tinycomp.rewrite.rules import open_graphs


@dataclass(frozen=True)
class EliminateDeadCode(Pass):
    """Remove unused nodes, constants and captures from the graph and from the bodies of unclaimed nodes.

    A captured value that no body of its node reads is dropped from the node, so that its producer can die too.
    """

    def run(self, graph: Graph) -> bool:
        """Sweep every graph once, inner graphs first and each from its results to its inputs."""
        return sum(_sweep(each) for each in reversed(list(open_graphs(graph)))) > 0


def _sweep(graph: Graph) -> bool:
    changed = False
    for node in reversed(graph.nodes):
        if graph.is_dead(node):
            graph.erase(node)
            changed = True
        elif node.captures and node.target is None:
            changed |= drop_unused_captures(graph, node)
    for value in graph.constants:
        if not value.users and not graph.is_output(value):
            graph.erase_unused(value)
            changed = True
    return changed
