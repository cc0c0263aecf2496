"""Regions that code generators decline: their nodes are offered to the next targets, and in the end to the host."""

from __future__ import annotations

from tinycomp.driver.lowering import Lowering
from tinycomp.ir.graph import Graph, Node
from tinycomp.passes.merge_regions import MergeRegions
from tinycomp.passes.offer_to_target import GivenBack
from tinycomp.passes.partition_graph import PartitionGraph
from tinycomp.remark import Remark
from tinycomp.rewrite.edits import joined_sources
from tinycomp.target import Decline, decline

STAGE = "code-generation"
"""The stage that the remarks on declined regions name."""
FAILURE = "failure"
"""The rule that they name where the nodes should have been compiled."""


def replace_declined(graph: Graph, target: str, lowering: Lowering, given_back: GivenBack) -> None:
    """Offer the nodes of the regions that a target declines to the targets after it, and partition these again.

    Args:
        graph: A partitioned graph, changed in place.
        target: Name of a target that has declined a region; its other regions are built now to see which it declines.
        lowering: Builds the regions, and keeps the code of those that stay.
        given_back: The targets, and the nodes that they gave back before.

    Raises:
        TargetError: If a code generator, a rule or a check fails.
    """
    keeps_nodes = False
    for scope, node in _regions(graph, {target}):
        try:
            lowering.region(node)
        except Decline as declined:
            lowering.forget(node)
            nodes = scope.inline(node)
            cannot = [nodes[place] for place in declined.places] or nodes
            keeps_nodes |= len(cannot) < len(nodes)
            rule = FAILURE if declined.is_failure else ""
            if declined.is_failure:
                decline.log(declined.where, declined.reason)
            graph.remarks.append(Remark(STAGE, joined_sources(*cannot), target, rule, f"declined: {declined.reason}"))
            given_back.add(scope, cannot, target)
    if not given_back.offer(graph) and not keeps_nodes:
        return
    names = [t.name for t in given_back.targets]
    for scope, node in _regions(graph, {*names[names.index(target) :]} - {target}):
        lowering.forget(node)  # its nodes may end up in a larger region, and its symbol may be used again
        scope.inline(node)
    MergeRegions(policy=given_back.policy).merge(graph, given_back)
    PartitionGraph(given_back.targets).run(graph)


def declined_names(graph: Graph) -> dict[str, set[str]]:
    """Return the source names of the nodes that code generators have declined, by target."""
    found: dict[str, set[str]] = {}
    for remark in graph.remarks:
        if remark.stage == STAGE:
            found.setdefault(remark.target, set()).update(remark.sources)
    return found


def _regions(graph: Graph, targets: set[str]) -> list[tuple[Graph, Node]]:
    return [(scope, node) for scope, node in graph.walk() if node.is_region and node.target in targets]
