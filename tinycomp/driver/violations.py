"""Quantised layers that do not obey the quantisation rules of a target, in a partitioned graph."""

from __future__ import annotations

from collections.abc import Sequence

from tinycomp.driver.near_misses import opened
from tinycomp.ir.graph import Graph
from tinycomp.rewrite.rules import open_graphs
from tinycomp.runtime.rows import ViolationRow
from tinycomp.target import Target
from tinycomp.target.quantization import disobedient


def find_violations(partitioned: Graph, targets: Sequence[Target]) -> list[ViolationRow]:
    """Return what layers do that targets with quantisation rules do not allow.

    What such a target took obeys its rules, and is not looked at.
    """
    strict = [target for target in targets if target.quantization_rules]
    if not strict:
        return []
    rows: list[ViolationRow] = []
    for scope in open_graphs(partitioned.clone()):
        owners, _ = opened(scope)
        for target in strict:
            others = [node for node in scope.nodes if owners.get(node, "").partition(".")[0] != target.name]
            for node, found in disobedient(others, target.quantization_rule):
                rows.append(
                    ViolationRow(target.name, node.label, node.qualified_op, node.sources, found.reason, found.remedy)
                )
    return rows
