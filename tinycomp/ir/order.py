"""The stable topological order: dependencies first, ties by a node's place in the model."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from tinycomp.errors import VerifyError
from tinycomp.ir.node import Node

if TYPE_CHECKING:
    import networkx as nx


def stable_order(members: Collection[Node]) -> list[Node]:
    """Return nodes in topological order; among independent ones the earlier in the model comes first.

    Args:
        members: The nodes to order, by the links among themselves; a set or a mapping, which is asked for members.

    Raises:
        VerifyError: If the links have a cycle; the message shows it.
    """
    by_place = sorted(members, key=_place)
    return by_place if _is_ordered(by_place, members) else _searched_order(members)


def _place(node: Node) -> tuple[int, int]:
    return node.position, node.serial


def _is_ordered(nodes: list[Node], members: Collection[Node]) -> bool:
    """Whether every node stands behind what it reads, as in most graphs they do by their places alone."""
    seen: set[Node | None] = {None}
    for node in nodes:
        for value in node.inputs:
            if value is not None and value.producer not in seen and value.producer in members:
                return False
        seen.add(node)
    return True


def _searched_order(members: Collection[Node]) -> list[Node]:
    waiting = {node: sum(v is not None and v.producer in members for v in node.inputs) for node in members}
    ready = [(*_place(node), node) for node, slots in waiting.items() if not slots]
    heapq.heapify(ready)
    order: list[Node] = []
    while ready:
        node = heapq.heappop(ready)[2]
        order.append(node)
        for user, slots in _users(node):
            if user in waiting:
                waiting[user] -= slots
                if not waiting[user]:
                    heapq.heappush(ready, (*_place(user), user))
    if len(order) != len(waiting):
        raise _cycle_error([node for node, slots in waiting.items() if slots])
    return order


def _users(node: Node) -> Iterable[tuple[Node, int]]:
    return (use for value in node.outputs for use in value.users.items())


def links_among(members: Collection[Node]) -> nx.DiGraph[Node]:
    """Return the links among nodes; the attribute ``slots`` counts the operand slots of each.

    Args:
        members: The nodes; a set or a mapping, which is asked for members.
    """
    import networkx as nx  # 17 MB, and hardly any compilation asks for it

    links: nx.DiGraph[Node] = nx.DiGraph()
    links.add_nodes_from(members)
    for node in members:
        for user, slots in _users(node):
            if user in members:
                held = links.get_edge_data(node, user, {"slots": 0})["slots"]
                links.add_edge(node, user, slots=held + slots)
    return links


def _cycle_error(tangle: list[Node]) -> VerifyError:
    import networkx as nx

    cycle = nx.find_cycle(links_among(dict.fromkeys(tangle)))
    path = " -> ".join(edge[0].label for edge in cycle)
    return VerifyError(f"the graph has a cycle: {path} -> {cycle[0][0].label}")
