"""Making one node of every chosen match."""

from __future__ import annotations

from collections.abc import Sequence

from tinycomp.ir.graph import COMPOSITE, Graph, Node, Value
from tinycomp.rewrite.compiled import Pattern
from tinycomp.rewrite.composite import Composite
from tinycomp.rewrite.engine import open_graphs
from tinycomp.rewrite.matcher import Check
from tinycomp.rewrite.select import Chosen, Selection, copies_needed


def partition(
    graph: Graph, pattern: Pattern, name: str = "", *, target: str = "", checks: Sequence[Check] = ()
) -> list[Node]:
    """Make a composite node of every match of ``pattern`` in ``graph`` and its open bodies.

    Args:
        graph: Changed in place.
        pattern: What to find.
        name: Operator name of the composites, by default the pattern's.
        target: Target of the composites; it stands before the name.
        checks: Further predicates over a match.

    Returns:
        The composite nodes.
    """
    composite = Composite(name or pattern.name, pattern, list(checks), target)
    made = []
    for scope in open_graphs(graph):
        selection = Selection(scope)
        selection.choose(composite)
        made += outline_all(selection)
    return made


def outline_all(selection: Selection) -> list[Node]:
    """Make one composite node of each chosen match, in the order of their choice."""
    nodes = (_outline(chosen, selection) for chosen in selection.chosen)
    return [node for node in nodes if node is not None]


def _outline(chosen: Chosen, selection: Selection) -> Node | None:
    graph, match, composite = selection.graph, chosen.match, chosen.composite
    if not any(graph.use_count(v) for v in match.outputs):
        return None  # every user has a copy of its own
    members = _own_copies(chosen, selection)
    inside = set(members)
    read = {v for n in members for v in n.inputs if v is not None and v.producer not in inside}
    node = graph.outline(
        members,
        composite.qualified_name,
        domain=COMPOSITE,
        target=composite.target or None,
        params=[v for v in match.free if v in read],
    )
    node.attrs["ops"] = [n.op for n in node.body.nodes]
    return node


def _own_copies(chosen: Chosen, selection: Selection) -> list[Node]:
    """Return the members, with a copy in place of each shared one; the last match to share a node keeps it."""
    graph, match = selection.graph, chosen.match
    needed = copies_needed(match, graph)
    assert isinstance(needed, set), "the graph around a chosen match has changed"
    nodes = match.nodes
    shared = [n for n in nodes if n in needed or selection.taken.get(n, chosen) is not chosen]
    if not shared:
        return list(nodes)
    keep = [n for n in nodes if n not in shared]
    renamed: dict[Value, Value] = {}
    copies = [_copy(node, graph, renamed) for node in shared]
    for node in keep:
        for index, value in enumerate(node.inputs):
            if value in renamed:
                graph.set_input(node, index, renamed[value])
    return [*keep, *copies]


def _copy(node: Node, graph: Graph, renamed: dict[Value, Value]) -> Node:
    copy = graph.add(
        node.op,
        [renamed.get(v, v) if v is not None else None for v in node.inputs],
        node.attrs,
        domain=node.domain,
        version=node.version,
        outputs=[v.name and graph.fresh(v.name) for v in node.outputs],
        types=[v.type for v in node.outputs],
        sources=node.sources,
        at=node,
    )
    renamed.update(zip(node.outputs, copy.outputs, strict=True))
    return copy
