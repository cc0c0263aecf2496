"""What the constants of a graph take up while nobody needs them: as little as ``memory/constants.py`` can arrange."""

from __future__ import annotations

from collections.abc import Sequence

from tinycomp.ir.graph import Graph, Value
from tinycomp.memory.constants import Constants, is_evictable, spilled
from tinycomp.memory.mapped import mappings_of


def evict(graphs: Sequence[Graph]) -> None:
    """Let large constants lie in mapped files, and give the pages back that reading them has brought into memory.

    Args:
        graphs: Graphs that share arrays; each of these is written once. A graph may stand more than once.
    """
    values = [value for graph in dict.fromkeys(graphs) for value in _constants(graph)]
    arrays = {id(v.const): v.const for v in values if v.const is not None and is_evictable(v.const)}
    moved = dict(zip(arrays, spilled([*arrays.values()]), strict=True))
    for value in values:
        value.const = moved.get(id(value.const), value.const)
    for mapping in mappings_of([v.const for v in values if v.const is not None]):
        mapping.give_back()


def own_constants(graph: Graph, constants: Constants) -> None:
    """Move constants out of files of others, for code generators whose code reads constants while it runs."""
    for value in _constants(graph):
        if value.const is not None:
            value.const = constants.own(value.const)


def check_files(graph: Graph) -> None:
    """See that the files in which constants lie are as they were, before reading them again.

    Raises:
        ModelError: If one was written to.
    """
    for mapping in mappings_of([v.const for v in _constants(graph) if v.const is not None]):
        mapping.check()


def _constants(graph: Graph) -> list[Value]:
    """Return the constants of a graph and of all bodies below it."""
    found: list[Value] = []
    graphs = [graph]
    for each in graphs:
        found += each.constants
        for node in each.nodes:
            graphs.extend(node.bodies.values())
    return found
