"""Choosing opset versions for export: one per domain under which every node keeps the version it has."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from onnx import defs

from tinycomp.frontend.loading import newest_opsets
from tinycomp.ir.graph import Node

Interval = tuple[int, int]


def nodes_in_force(nodes: Iterable[Node]) -> Iterator[Node]:
    """Yield the nodes that share one set of opset imports: bodies of control flow included, of calls not."""
    stack = list(nodes)
    while stack:
        node = stack.pop()
        yield node
        if not node.is_call:
            for body in node.bodies.values():
                stack.extend(body.nodes)


def choose_opsets(nodes: Iterable[Node], preferred: Mapping[str, int]) -> dict[str, int]:
    """Return an opset version per domain that keeps as many nodes as possible at the version they have.

    Where several versions suit equally many nodes, the one that suits most nodes inside calls wins (ONNX's checker
    wants functions and graph to agree), then the preferred one, then the lowest.

    Args:
        nodes: Nodes of one graph or function body.
        preferred: Versions that the graph imports.
    """
    nodes = list(nodes)
    own, inner = _count(nodes_in_force(nodes)), _count(_nodes_in_calls(nodes))
    return {
        domain: _choose(own.get(domain, Counter()), inner.get(domain, Counter()), preferred.get(domain))
        for domain in {**own, **inner}
    }


def _nodes_in_calls(nodes: Iterable[Node]) -> Iterator[Node]:
    for node in nodes_in_force(nodes):
        if node.is_call:
            yield from (inner for _, inner in node.body.walk())


def _count(nodes: Iterable[Node]) -> dict[str, Counter[Interval]]:
    counts: dict[str, Counter[Interval]] = {}
    for node in nodes:
        span = None if node.is_call else interval(node.op, node.domain, node.version)
        if span is not None:
            counts.setdefault(node.domain, Counter())[span] += 1
    return counts


def keeps_version(node: Node, opsets: Mapping[str, int]) -> bool:
    """Whether a node means the same under these opset versions."""
    span = interval(node.op, node.domain, node.version)
    return span is None or span[0] <= opsets.get(node.domain, span[0]) <= span[1]


def _choose(own: Counter[Interval], inner: Counter[Interval], preferred: int | None) -> int:
    candidates = {low for low, _ in [*own, *inner]} | ({preferred} if preferred is not None else set())
    return max(candidates, key=lambda v: (_suited(own, v), _suited(inner, v), v == preferred, -v))


def _suited(counts: Counter[Interval], version: int) -> int:
    return sum(count for (low, high), count in counts.items() if low <= version <= high)


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
