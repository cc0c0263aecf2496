"""Applying policies to regions: a region stays whole or goes back to the host as a whole."""

from __future__ import annotations

from collections.abc import Sequence

from tinycomp.ir.graph import Graph, Node
from tinycomp.remark import Remark
from tinycomp.target import Policy, Target

_STAGE = "merge-regions"


def apply_policy(
    graph: Graph,
    regions: Sequence[list[Node]],
    policy: Policy,
    targets: Sequence[Target],
    remarks: list[Remark],
) -> list[list[Node]]:
    """Return the regions that ``policy`` and the policies of ``targets`` keep; the others become host nodes.

    Composites of a region that goes back to the host are taken apart, so that the host (or a target that annotates
    later) sees plain operators. Limits on the number of regions count per target.
    """
    own = {t.name: t.policy for t in targets}
    kept: list[list[Node]] = []
    for region in regions:
        refusal = next(filter(None, (p.refusal(graph, region) for p in _policies(region, policy, own))), None)
        if refusal is None:
            kept.append(region)
        else:
            _release(graph, region, *refusal, remarks)
    return _limit(graph, kept, policy, own, remarks)


def _policies(region: list[Node], policy: Policy, own: dict[str, Policy]) -> list[Policy]:
    name = region[0].target
    return [policy, own[name]] if name in own else [policy]


def _limit(
    graph: Graph, regions: list[list[Node]], policy: Policy, own: dict[str, Policy], remarks: list[Remark]
) -> list[list[Node]]:
    by_target: dict[str | None, list[list[Node]]] = {}
    for region in regions:
        by_target.setdefault(region[0].target, []).append(region)
    dropped = set()
    for peers in by_target.values():
        for limit in _policies(peers[0], policy, own):
            for index in limit.surplus(peers):
                dropped.add(id(peers[index]))
    kept = [r for r in regions if id(r) not in dropped]
    for region in regions:
        if id(region) in dropped:
            _release(graph, region, "max_regions", "other regions have more work, and their number is limited", remarks)
    return kept


def _release(graph: Graph, region: list[Node], rule: str, reason: str, remarks: list[Remark]) -> None:
    sources = tuple(dict.fromkeys(s for n in region for s in n.sources))
    remarks.append(Remark(_STAGE, sources, region[0].target or "", f"policy.{rule}", reason))
    for node in region:
        node.target = None
        if node.is_composite:
            graph.inline(node)
