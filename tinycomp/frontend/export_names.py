"""Names of values in an exported graph: the user's where possible, unique where ONNX asks for it.

A body of control flow sees the names around it and must not define one of them again; a captured value simply keeps
the name that it has outside.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from tinycomp.ir.graph import Graph, Value


class Names:
    """Value names of one exported graph.

    Args:
        outer: Names of the graph around a body.
    """

    def __init__(self, outer: Names | None = None) -> None:
        self._taken: set[str] = set() if outer is None else set(outer._taken)
        self._names: dict[Value, str] = {}

    def __getitem__(self, value: Value) -> str:
        return self._names[value]

    def alias(self, value: Value, name: str) -> None:
        """Let ``value`` stand under a name that exists already."""
        self._names[value] = name

    def claim(self, value: Value, name: str) -> str:
        """Name ``value``, with a number behind the name if it is taken."""
        self._names[value] = self.fresh(name)
        return self._names[value]

    def fresh(self, name: str) -> str:
        """Take a name near ``name`` that nothing has."""
        candidate, count = name or "v", 0
        while candidate in self._taken:
            count += 1
            candidate = f"{name or 'v'}_{count}"
        self._taken.add(candidate)
        return candidate

    def claim_all(self, graph: Graph, captured: Mapping[Value, str]) -> None:
        """Name every value of a graph; its results take the output names where a node of the graph makes them.

        Args:
            graph: The graph.
            captured: Names outside of the inputs that are captured values.
        """
        for value, name in captured.items():
            self.alias(value, name)
        for value in graph.inputs:
            if value not in captured:
                self.claim(value, value.name)
        for value, name in zip(graph.outputs, graph.output_names, strict=True):
            if value.producer is not None and value not in self._names and name not in self._taken:
                self.claim(value, name)
        for value in graph.values.values():
            if value not in self._names:
                self.claim(value, value.name)


def bind_outputs(
    graph: Graph, names: Names, wanted: tuple[str, ...], indirect: frozenset[Value]
) -> tuple[list[str], list[onnx.NodeProto]]:
    """Return the names of the results, with Identity nodes for those that cannot stand under their own name.

    Args:
        graph: The graph.
        names: Names of its values.
        wanted: Names that the results must have; where empty, any name does.
        indirect: Values that must not be results themselves.
    """
    found: list[str] = []
    copies: list[onnx.NodeProto] = []
    for index, value in enumerate(graph.outputs):
        name = names[value]
        goal = wanted[index] if wanted else name
        if value in indirect or name in found or goal != name:
            goal = goal if goal != name and goal not in found and wanted else names.fresh(f"{goal}_copy")
            copies.append(onnx.NodeProto(op_type="Identity", input=[name], output=[goal], name=goal))
        found.append(goal)
    return found, copies
