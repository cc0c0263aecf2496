"""Near misses: why a composite does not match at nodes that a region runs one by one.

To record this during partitioning would take longer than partitioning itself. So the finished graph is examined,
with its regions and composites opened again, when a report is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence

from tinycomp.ir.graph import Graph, Node
from tinycomp.passes.merge_composite import MergeComposite
from tinycomp.remark import Remark
from tinycomp.rewrite.composites import explain
from tinycomp.rewrite.rules import open_graphs
from tinycomp.rewrite.traits import is_structural
from tinycomp.target import Target

MOST = 3
"""Composites named per node: those that came furthest."""
_NEAR = 0.5
"""Share of a pattern that must have matched to be worth a remark."""


def near_misses(partitioned: Graph, targets: Sequence[Target]) -> list[Remark]:
    """Return remarks on the composites that came near at nodes that are in a region, but in no composite."""
    tables = {t.name: t.composites for t in targets}
    graph = partitioned.clone()
    remarks: list[Remark] = []
    for scope in open_graphs(graph):
        owners, singles = _opened(scope)
        for node in singles:
            about = [
                explain(composite, node, scope, owners)
                for composite in tables.get(owners[node], ())
                if composite.pattern.can_start_at(node)
            ]
            near = sorted((r for r in about if r is not None and r.progress >= _NEAR), key=lambda r: -r.progress)
            remarks += [_of(node, owners[node], remark) for remark in near[:MOST]]
    return remarks


def _opened(scope: Graph) -> tuple[dict[Node, str], list[Node]]:
    """Open the regions of one scope and their composites; return who owned each node, and those in no composite."""
    owners: dict[Node, str] = {}
    singles: list[Node] = []
    for region in [node for node in scope.nodes if node.is_region]:
        target = region.target or ""
        for node in scope.inline(region):
            parts = scope.inline(node) if node.is_composite else [node]
            owners |= dict.fromkeys(parts, node.op if node.is_composite else target)
            singles += [] if node.is_composite or is_structural(node) else [node]
    return owners, singles


def _of(node: Node, target: str, remark: Remark) -> Remark:
    return Remark(MergeComposite.name, node.sources, target, remark.rule, remark.reason, remark.progress)
