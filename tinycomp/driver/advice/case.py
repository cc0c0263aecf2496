"""A case: one operator that a target does not run, with all that is known about it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tinycomp.driver.advice.setup import Setup
from tinycomp.ir.graph import Graph, Node
from tinycomp.remark import Remark
from tinycomp.rewrite.rules import open_graphs
from tinycomp.target import Target

_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True)
class Case:
    """Hold an operator that a target does not run.

    Attributes:
        setup: What was compiled.
        optimized: The model as the targets were asked about it.
        node: The operator in the partitioned graph.
        target: The target.
        remarks: Why not, the nearest misses first.
    """

    setup: Setup
    optimized: Graph
    node: Node
    target: Target
    remarks: Sequence[Remark]

    def original(self) -> Node | None:
        """Return the operator in the model that was compiled; None if optimisation has made it of others."""
        return twin(self.setup.graph, self.node)

    def unclaimed(self) -> tuple[Graph, Node] | None:
        """Return the operator, and its graph, before targets were asked; None if it came about later."""
        found = ((scope, node) for scope in open_graphs(self.optimized) for node in scope.nodes)
        return next(((scope, node) for scope, node in found if is_twin(node, self.node)), None)


def twin(graph: Graph, node: Node) -> Node | None:
    """Return the node of a graph that has the sources and the operator of another."""
    return next((other for _, other in graph.walk() if is_twin(other, node)), None)


def is_twin(node: Node, other: Node) -> bool:
    """Tell whether two nodes of two graphs are the same node of the model."""
    return (node.sources, node.domain, node.op) == (other.sources, other.domain, other.op)


def by_source(remarks: Iterable[Remark], target: str) -> Mapping[str, list[Remark]]:
    """Return the remarks about a target by the source names that they are about."""
    found: dict[str, list[Remark]] = {}
    for remark in dict.fromkeys(remarks):
        for source in remark.sources if remark.target == target else ():
            found.setdefault(source, []).append(remark)
    return found


def form(reason: str) -> str:
    """Return a reason without its numbers: what refusals of the same kind have in common."""
    return _NUMBERS.sub("#", reason)


def numbers(reason: str) -> list[int]:
    """Return the numbers in a reason, in order."""
    return [int(found) for found in _NUMBERS.findall(reason)]
