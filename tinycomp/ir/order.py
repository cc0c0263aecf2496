"""The stable topological order: dependencies first, ties by a node's place in the model."""

from __future__ import annotations

import heapq
from collections.abc import Collection

import networkx as nx

from tinycomp.errors import VerifyError
from tinycomp.ir.node import Node


def stable_order(links: nx.DiGraph[Node], members: Collection[Node] | None = None) -> list[Node]:
    """Return nodes in topological order; among independent ones the earlier in the model comes first.

    Args:
        links: The node graph.
        members: The nodes to order, by the links among themselves; all by default.

    Raises:
        VerifyError: If the links have a cycle; the message shows it.
    """
    chosen = links if members is None else links.subgraph(members)
    waiting: dict[Node, int] = dict(chosen.in_degree())
    ready = [(n.position, n.serial, n) for n, degree in waiting.items() if not degree]
    heapq.heapify(ready)
    order: list[Node] = []
    while ready:
        node = heapq.heappop(ready)[2]
        order.append(node)
        for user in chosen.successors(node):
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, (user.position, user.serial, user))
    if len(order) != len(waiting):
        raise _cycle_error(chosen.subgraph(n for n, degree in waiting.items() if degree))
    return order


def _cycle_error(tangle: nx.DiGraph[Node]) -> VerifyError:
    cycle = nx.find_cycle(tangle)
    path = " -> ".join(edge[0].label for edge in cycle)
    return VerifyError(f"the graph has a cycle: {path} -> {cycle[0][0].label}")
