"""PartitionGraph: outline every region as one node with a body, a target and a symbol."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tinycomp.errors import VerifyError
from tinycomp.ir.graph import REGION, Graph, Node, tangles
from tinycomp.passes.base import Pass
from tinycomp.records import dataclass
from tinycomp.remark import Remark
from tinycomp.rewrite.rules import open_graphs
from tinycomp.target import Target, find_all


@dataclass(frozen=True)
class PartitionGraph(Pass):
    """Outline every region that :class:`MergeRegions` has numbered.

    A region node's operands are the distinct values it needs from outside in order of first use, its results the
    distinct values that are used outside in order of production. Host nodes do not move. The symbol is a C identifier,
    ``<target>_<number>``, unique in the graph with all its bodies, and the same from run to run. Inlining every region
    gives the graph back.

    Before and after::

        %a = Conv(%x, %w) target "npu" region 0   ->  %b = tinycomp.region::npu_0(%x) target "npu"
        %b = Relu(%a) target "npu" region 0             body = graph @npu_0(%x) -> (%b) { … }

    Attributes:
        targets: Targets (or names) whose ``bind_constants`` is respected; other targets get their constants bound.
    """

    targets: Sequence[Target | str] = ()

    def run(self, graph: Graph) -> bool:
        """Outline the regions of ``graph`` and of its open bodies.

        Raises:
            VerifyError: If the region numbers do not fit the graph (any more).
        """
        targets = find_all(self.targets)
        free = {t.name for t in targets if not t.bind_constants}
        symbols = Symbols(graph)
        changed = False
        for scope in open_graphs(graph):
            regions = marked_regions(scope)
            _check(scope, regions)
            for members in regions:
                changed = True
                _cut_out(scope, members, symbols, free, graph.remarks)
        return changed


_NOT_IN_SYMBOLS = re.compile(r"\W", re.ASCII)


class Symbols:
    """Make region symbols that are free in a graph and all its bodies."""

    def __init__(self, graph: Graph) -> None:
        self._taken = {node.op for _, node in graph.walk() if node.is_region}
        self._next: dict[str, int] = {}

    def fresh(self, target: str) -> str:
        """Return a symbol for a region of ``target``."""
        prefix = _NOT_IN_SYMBOLS.sub("_", target)
        prefix = prefix if prefix[:1].isalpha() else f"t{prefix}"
        number = self._next.get(prefix, 0)
        while f"{prefix}_{number}" in self._taken:
            number += 1
        self._next[prefix] = number + 1
        return f"{prefix}_{number}"


def marked_regions(graph: Graph) -> list[list[Node]]:
    """Return the nodes of every numbered region of ``graph``, by number."""
    regions: dict[int, list[Node]] = {}
    for node in graph.nodes:
        if node.region is not None:
            regions.setdefault(node.region, []).append(node)
    return [regions[number] for number in sorted(regions)]


def _check(graph: Graph, regions: list[list[Node]]) -> None:
    """Refuse region numbers that would give a region two targets, or the graph a cycle, before anything changes."""
    for members in regions:
        names = sorted({n.target or "host" for n in members})
        if len(names) > 1 or names == ["host"]:
            raise VerifyError(
                f"region {members[0].region} belongs to {' and '.join(names)}",
                where=f"graph {graph.name}, node {members[0].label}",
                expected="one target",
                hint="Run MergeRegions again after passes that change the graph.",
            )
    first = {node: node for node in graph.nodes} | {node: region[0] for region in regions for node in region}
    for component in tangles(graph.edges, first):
        raise VerifyError(
            "the regions depend on each other in a cycle",
            where=f"graph {graph.name}",
            found=", ".join(node.label for node in graph.nodes if first[node] in component),
            hint="Run MergeRegions again after passes that change the graph.",
        )


def _cut_out(graph: Graph, members: list[Node], symbols: Symbols, free: set[str], remarks: list[Remark]) -> None:
    target = members[0].target
    assert target is not None, "checked before"
    inside = set(members)
    for node in members:
        node.region = None
    if not any(graph.is_output(v) or not inside.issuperset(v.users) for n in members for v in n.outputs):
        sources = tuple(s for n in members for s in n.sources)
        remarks.append(Remark(PartitionGraph.name, sources, target, "unused", "no result of the region is used"))
        for node in members:
            node.target = None
        return
    graph.outline(members, symbols.fresh(target), domain=REGION, target=target, bind_constants=target not in free)
