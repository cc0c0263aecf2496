"""Why two neighbouring regions of one target are not one region."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set

from tinycomp.ir.graph import Graph, Node
from tinycomp.remark import Remark

MOST = 100
"""Borders explained per graph; a report with more of them helps nobody, and each costs a walk over the graph."""
_MORE = f"only the first {MOST} borders between regions are explained"


def explain_borders(
    graph: Graph,
    regions: Sequence[Sequence[Node]],
    remarks: list[Remark],
    counted: Set[tuple[Node, Node]] = frozenset(),
) -> None:
    """Add a remark for every pair of regions of one target between which data flows directly.

    Args:
        graph: The graph.
        regions: Its regions.
        remarks: Where to add the remarks.
        counted: Dependencies that no region may hold, because only a run shows how many rows there are.
    """
    label = {node: i for i, region in enumerate(regions) for node in region}
    place = {node: i for i, node in enumerate(graph.nodes)}
    seen: set[tuple[int, int]] = set()
    for node in place:
        for user in sorted(graph.successors(node), key=place.__getitem__):
            pair = (label.get(node, -1), label.get(user, -1))
            if -1 in pair or pair[0] == pair[1] or pair in seen or node.target != user.target:
                continue
            seen.add(pair)
            if len(seen) > MOST:
                remarks.append(Remark("merge-regions", (), node.target or "", "acyclic", _MORE))
                return
            sources = (*node.sources, *user.sources)
            parts = set(regions[pair[0]]), set(regions[pair[1]])
            rule, reason = _uncounted(counted, *parts) or ("acyclic", _reason(graph, place, *parts))
            remarks.append(Remark("merge-regions", sources, node.target or "", rule, reason))


def _uncounted(counted: Set[tuple[Node, Node]], first: set[Node], second: set[Node]) -> tuple[str, str] | None:
    """Return the rule and reason if the second region waits for a number of rows that the first one finds out."""
    waiting = sorted((node.label, user.label) for node, user in counted if node in first and user in second)
    if not waiting:
        return None
    node, user = waiting[0]
    return "counted-rows", f"how many rows {node} gives depends on data, and {user} does not work row by row"


def _reason(graph: Graph, place: dict[Node, int], first: set[Node], second: set[Node]) -> str:
    between = _between(graph, place, first, second)
    if between is None:
        return "joining the two regions was not tried: the graph is too large to try everything"
    return f"joining {_name(first, place)} and {_name(second, place)} would close a cycle through {between.label}"


def _name(region: set[Node], place: dict[Node, int]) -> str:
    return f"the region of {min(region, key=place.__getitem__).label}"


def _between(graph: Graph, place: dict[Node, int], first: set[Node], second: set[Node]) -> Node | None:
    """Return a node outside both sets on a path from ``first`` to ``second``, one of the host if there is one."""
    last = max(place[n] for n in second)
    start = {u for n in first for u in graph.successors(n) if u not in first and u not in second}
    ahead = _reachable(start, lambda n: (u for u in graph.successors(n) if place[u] <= last and u not in second))
    end = {p for n in second for p in graph.predecessors(n) if p in ahead}
    path = _reachable(end, lambda n: (p for p in graph.predecessors(n) if p in ahead))
    return min(path, key=lambda n: (n.target is not None, place[n]), default=None)


def _reachable(start: set[Node], step: Callable[[Node], Iterable[Node]]) -> set[Node]:
    found = set(start)
    waiting = list(start)
    while waiting:
        for node in step(waiting.pop()):
            if node not in found:
                found.add(node)
                waiting.append(node)
    return found
