"""What a legalising pass is: a rewrite of single layers, which a target may ask for."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from tinycomp.ir.graph import Graph, Node
from tinycomp.passes.base import Pass
from tinycomp.passes.legalize.layer import Layer
from tinycomp.records import dataclass
from tinycomp.rewrite.rules import open_graphs


@dataclass(frozen=True)
class Legalization(Pass):
    """Say a layer in other operators, with the same results: of 8-bit integers the same bits.

    As a pass it does so wherever it can. A target that names it (``Target(legalize=…)``) has it done where that makes
    the target take a layer that it refuses as it stands, see :class:`~tinycomp.passes.legalize.Legalize`.
    """

    ops: ClassVar[frozenset[str]]
    """The operators of ONNX that it may start at."""
    whole: ClassVar[bool] = False
    """Whether it works on more than single layers, so that a target has it done wherever it can be."""

    def run(self, graph: Graph) -> bool:
        """Rewrite in ``graph`` and its open bodies."""
        changed = False
        for scope in open_graphs(graph):
            for node in scope.nodes:
                if self.starts_at(node) and node in scope:
                    changed |= self.rewrite(scope, node)
        return changed

    def starts_at(self, node: Node) -> bool:
        """Tell whether a node is one of the operators, and nobody has claimed it."""
        return node.op in self.ops and not node.domain and node.target is None

    def members(self, graph: Graph, node: Node) -> list[Node]:
        """Return the nodes of the layer of an operator, the one that gives its result last."""
        return Layer.around(graph, node).nodes

    @abstractmethod
    def rewrite(self, graph: Graph, node: Node) -> bool:
        """Rewrite the layer of one operator; return whether that was possible."""
