"""Choosing opset versions for export: one per domain under which every node means what it means here.

A function may import opsets of its own, but only as far as its operators mean the same in the opset of the model:
ONNX's checker refuses anything else, and onnxruntime, which inlines functions, would run such an operator with the
meaning of the opset of the model. So one version is chosen for a graph and everything in it.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping

from onnx import defs

from tinycomp.errors import UnsupportedError
from tinycomp.frontend.extension import is_extension_call
from tinycomp.frontend.loading import newest_opsets, shown
from tinycomp.ir.graph import Graph, Node

Interval = tuple[int, int]


def choose_opsets(graph: Graph) -> dict[str, int]:
    """Return an opset version per domain under which every node keeps the version it has.

    The version that the graph imports wins where it suits all nodes, else the lowest that does.

    Args:
        graph: The graph; nodes in bodies count too, but not what defines an operator of another domain.

    Raises:
        UnsupportedError: If no version suits all nodes.
    """
    spans: dict[str, Counter[Interval]] = {}
    defined = {id(inner) for _, node in graph.walk() if is_extension_call(node) for _, inner in node.body.walk()}
    nodes = [node for _, node in graph.walk() if not node.is_call and id(node) not in defined]
    for node in nodes:
        span = interval(node.op, node.domain, node.version)
        if span is not None:
            spans.setdefault(node.domain, Counter())[span] += 1
    chosen = {domain: _choose(counts, graph.opsets.get(domain)) for domain, counts in spans.items()}
    for node in nodes:
        _check(node, chosen)
    return {**graph.opsets, **chosen}


def _choose(counts: Counter[Interval], preferred: int | None) -> int:
    """Return the version that suits most nodes; ties go to the preferred one, then to the lowest."""
    candidates = {low for low, _ in counts} | ({preferred} if preferred is not None else set())
    return max(candidates, key=lambda version: (_suited(counts, version), version == preferred, -version))


def _suited(counts: Counter[Interval], version: int) -> int:
    return sum(count for (low, high), count in counts.items() if low <= version <= high)


def _check(node: Node, chosen: Mapping[str, int]) -> None:
    span = interval(node.op, node.domain, node.version)
    if span is not None and not span[0] <= chosen[node.domain] <= span[1]:
        raise UnsupportedError(
            f"no opset of domain {shown(node.domain)} suits every node of the graph",
            where=f"node {node.label} ({node.qualified_op}, version {node.version})",
            expected=f"an opset from {span[0]} to {span[1]} for this node",
            found=f"{chosen[node.domain]} for most others",
            hint="Build the graph with one opset, or convert the model with onnx.version_converter first.",
        )


@functools.cache
def interval(op: str, domain: str, version: int) -> Interval | None:
    """Return the first and last opset in which ``version`` of an operator is in force; None where onnx has none."""
    sinces = _since_versions().get((op, domain))
    if not sinces or version not in sinces:
        return None
    later = [v for v in sinces if v > version]
    return version, (min(later) - 1 if later else newest_opsets()[domain])


@functools.cache
def _since_versions() -> Mapping[tuple[str, str], frozenset[int]]:
    found: dict[tuple[str, str], set[int]] = {}
    for schema in defs.get_all_schemas_with_history():
        found.setdefault((schema.name, schema.domain), set()).add(int(schema.since_version))
    return {key: frozenset(versions) for key, versions in found.items()}
