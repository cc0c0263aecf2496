"""InlineFunctions: replace calls of model-local functions by what the functions do.

>>> from tinycomp.ir.text.parser import parse_graph
>>> graph = parse_graph('''
... graph @main opset {"" = 17, local = 1} (%x: float32[2]) -> (%y) {
...   %y: float32[2] = local::Twice(%x) from ["call"]
...     body = graph @Twice (%a: float32[2]) -> (%b) { %b: float32[2] = Add(%a, %a) }
... }''')
>>> InlineFunctions().run(graph)
True
>>> print(graph)
graph @main opset {"" = 17, local = 1} (%x: float32[2]) -> (%y) {
  %y: float32[2] = Add@14(%x, %x) from ["call"]
}
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tinycomp.ir.graph import Graph, Node
from tinycomp.lazy import LazyModule
from tinycomp.passes.base import Pass
from tinycomp.records import dataclass
from tinycomp.rewrite.rules import open_graphs
from tinycomp.target import Target, find_all

if TYPE_CHECKING:
    from tinycomp.frontend import inlining
else:
    inlining = LazyModule("tinycomp.frontend.inlining")


@dataclass(frozen=True)
class InlineFunctions(Pass):
    """Inline every unclaimed call, also of functions in functions and in bodies; composites and regions stay.

    Attributes:
        targets: Targets, or names of targets. A call that an operator rule of one takes stays whole for it.
    """

    targets: Sequence[Target | str] = ()

    def run(self, graph: Graph) -> bool:
        """Inline until no call is left; functions cannot call themselves, so that comes to an end.

        Raises:
            TargetError: If a target is unknown, or one of its rules fails.
        """
        targets = find_all(self.targets)
        return sum(_inline_all(each, targets) for each in open_graphs(graph)) > 0


def is_function_call(node: Node) -> bool:
    """Tell whether the node calls a function of the model and nobody has claimed it."""
    return node.is_call and not node.is_composite and not node.is_region and node.target is None


def _inline_all(graph: Graph, targets: Sequence[Target]) -> bool:
    waiting = deque(node for node in graph.nodes if is_function_call(node))
    changed = False
    while waiting:
        node = waiting.popleft()
        if any(rule.refusal(node) is None for target in targets for rule in target.rules_for(node)):
            continue
        changed = True
        waiting += (inner for inner in inlining.inline_call(graph, node) if is_function_call(inner))
    return changed
