"""Files for Model Explorer: the graph with regions and composites as namespaces, and data to lay over its nodes.

The formats are those of its ``graph_builder`` and ``node_data_builder``. Operators alone are nodes there; what holds
them is a layer that opens and closes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tinycomp.runtime.diagram import Diagram, DiagramNode
from tinycomp.runtime.files import make_folder, write_file
from tinycomp.runtime.picture.view import NodeFacts, Reason, View

_TARGETS = ("#cfe3f3", "#cdeadd", "#e6d7ec", "#efe4b8", "#d6dfe4", "#e4d8c8")
_HOST = "#f6cfae"
_GRADIENT = [{"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#f0803c"}]
_REASONS = 5
"""The most reasons that a node lists."""


def write_model_explorer(view: View, folder: Path) -> list[Path]:
    """Write the graph and its overlays, and overlays for the ONNX model by the names of its nodes.

    Args:
        view: The report with its graph.
        folder: Where to; it is made if it is not there.

    Returns:
        The files that were written, the graph first.

    Raises:
        WriteError: If there is no space or permission.
    """
    graph = _Graph(view)
    overlays = {name: list(values) for name, values in _overlays(view).items() if view.profile or name != "time"}
    contents: dict[str, Any] = {"graph.json": [graph.to_dict()]}
    for name, values in overlays.items():
        by_node = {graph.ids[number]: value for number, value in values if number in graph.ids}
        contents[f"{name}.json"] = {graph.name: _node_data(name, by_node)}
        contents[f"onnx-{name}.json"] = _node_data(name, _by_source(view.diagram, values))
    make_folder(folder)
    paths = []
    for name, content in contents.items():
        paths.append(folder / name)
        write_file(paths[-1], json.dumps(content, indent=1).encode())
    return paths


class _Graph:
    """The graph of a view as Model Explorer wants it."""

    def __init__(self, view: View) -> None:
        self.name = str(view.report["model"]) or "model"
        self.ids: dict[int, str] = {}
        """Ids of the nodes that are shown, by their numbers."""
        self._view, self._diagram = view, view.diagram
        self._holders = {node.parent for node in view.diagram.nodes}
        self._makers: dict[int, tuple[str, int]] = {}
        self._same = _same_values(view.diagram)
        for place, value in enumerate(self._diagram.inputs):
            self._makers[value] = f"input{place}", 0
        for number, node in enumerate(self._diagram.nodes):
            if number not in self._holders:
                self.ids[number] = str(number)
                self._makers.update({value: (str(number), slot) for slot, value in enumerate(node.writes)})

    def to_dict(self) -> dict[str, Any]:
        diagram = self._diagram
        ends = [
            *((f"input{place}", value, [], [value]) for place, value in enumerate(diagram.inputs)),
            *((f"output{place}", value, [value], []) for place, value in enumerate(diagram.outputs) if value >= 0),
        ]
        borders = [
            {
                "id": name, "label": diagram.values[value].name, "namespace": "", "attrs": [],
                "incomingEdges": self._edges(read), "outputsMetadata": self._metadata(given),
            }
            for name, value, read, given in ends
        ]  # fmt: skip
        namespaces = self._namespaces()
        nodes = [
            {
                "id": self.ids[number], "label": node.op, "namespace": namespaces[number],
                "attrs": _attributes(node, facts, self._view), "incomingEdges": self._edges(node.reads),
                "outputsMetadata": self._metadata(node.writes),
            }
            for number, (node, facts) in enumerate(zip(diagram.nodes, self._view.facts, strict=True))
            if number in self.ids
        ]  # fmt: skip
        layers = {
            _joined(namespaces[number], _layer(node)): {pair["key"]: pair["value"] for pair in attributes}
            for number, node in enumerate(diagram.nodes)
            if number in self._holders and (attributes := _attributes(node, self._view.facts[number], self._view))
        }
        return {"id": self.name, "nodes": [*borders, *nodes], "groupNodeAttributes": layers}

    def _namespaces(self) -> list[str]:
        """Return the path of what holds each node."""
        inside: list[str] = []
        found = []
        for node in self._diagram.nodes:
            path = inside[node.parent] if node.parent is not None else ""
            found.append(path)
            inside.append(_joined(path, _layer(node)))
        return found

    def _edges(self, values: Sequence[int]) -> list[dict[str, str]]:
        return [
            {"sourceNodeId": source, "sourceNodeOutputId": str(slot), "targetNodeInputId": str(place)}
            for place, value in enumerate(values)
            for source, slot in self._sources(value)
        ]

    def _sources(self, value: int) -> Iterator[tuple[str, int]]:
        """Yield the shown nodes that make a value, through the borders of what holds them."""
        waiting, seen = [value], {-1}
        while waiting:
            each = waiting.pop()
            if each in seen:
                continue
            seen.add(each)
            if each in self._makers:
                yield self._makers[each]
            waiting += self._same.get(each, ())

    def _metadata(self, values: Iterable[int]) -> list[dict[str, Any]]:
        described = ((slot, self._diagram.values[value]) for slot, value in enumerate(values) if value >= 0)
        return [
            {
                "id": str(slot),
                "attrs": [_pair("tensor_name", value.name), _pair("type", value.type), _pair("bytes", value.bytes)],
            }
            for slot, value in described
        ]


def _same_values(diagram: Diagram) -> dict[int, list[int]]:
    """Return, for values that cross a border, what they are on its other side, towards where they are made."""
    same: dict[int, list[int]] = {}
    for node in diagram.nodes:
        for inner, outer in zip(node.takes[::-1], node.reads[::-1], strict=False):
            same.setdefault(inner, []).append(outer)
        results = node.writes
        if node.kind == "body" and node.parent is not None:
            results = diagram.nodes[node.parent].writes
        for inner, outer in zip(node.gives[::-1], results[::-1], strict=False):
            if outer >= 0:
                same.setdefault(outer, []).append(inner)
    return same


def _layer(node: DiagramNode) -> str:
    """Return what a node that holds others is called in a path, whose parts slashes part."""
    name = node.op if node.kind in ("region", "body") else f"{node.op} {node.label}"
    return name.replace("/", "∕")  # noqa: RUF001 - a slash that parts nothing


def _joined(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


def _attributes(node: DiagramNode, facts: NodeFacts, view: View) -> list[dict[str, str]]:
    calls = [view.calls[number] for number in facts.calls]
    kernels = dict.fromkeys(f"{call.kernel}, {call.algorithm}" if call.algorithm else call.kernel for call in calls)
    pairs = [
        ("target", node.target or "host"),
        ("tier", facts.tier),
        ("source nodes", ", ".join(node.sources)),
        ("kernels", "; ".join(kernels)),
        ("MACs", f"{node.macs}" if node.macs else ""),
        ("milliseconds", "" if facts.seconds is None else f"{facts.seconds * 1e3:.4f}"),
        *((f"why not, {place}", _text(reason)) for place, reason in enumerate(facts.reasons[:_REASONS], 1)),
        *node.attributes.items(),
    ]
    return [_pair(key, value) for key, value in pairs if value]


def _pair(key: str, value: object) -> dict[str, str]:
    return {"key": key, "value": str(value)}


def _text(reason: Reason) -> str:
    subject = reason["rule"] or reason["target"]
    return f"{subject}: {reason['text']}" if subject else str(reason["text"])


_Values = Iterable[tuple[int, dict[str, Any]]]


def _overlays(view: View) -> dict[str, _Values]:
    """Return what is laid over the nodes by number: a value and, where it is a word, a colour."""
    colours = {target: _TARGETS[place % len(_TARGETS)] for place, target in enumerate(view.report["targets"])}
    nodes = list(zip(view.diagram.nodes, view.facts, strict=True))
    return {
        "target": (
            (number, {"value": node.target or "host", "bgColor": colours.get(node.target, _HOST)})
            for number, (node, _) in enumerate(nodes)
        ),
        "reason": (
            (number, {"value": _text(facts.reasons[0]), "bgColor": colours.get(node.target, _HOST)})
            for number, (node, facts) in enumerate(nodes)
            if facts.reasons
        ),
        "time": (
            (number, {"value": facts.seconds * 1e6})
            for number, (_, facts) in enumerate(nodes)
            if facts.seconds is not None
        ),
    }


def _node_data(name: str, results: dict[str, Any]) -> dict[str, Any]:
    unit = ", microseconds" if name == "time" else ""
    data: dict[str, Any] = {"results": results, "name": f"tinycomp {name}{unit}"}
    return data | ({"gradient": _GRADIENT} if name == "time" else {"showExpandedSummaryOnGroupNode": True})


def _by_source(diagram: Diagram, values: _Values) -> dict[str, Any]:
    """Return the values of innermost nodes by source name; numbers are shared out among names and added up."""
    holders = {node.parent for node in diagram.nodes}
    found: dict[str, Any] = {}
    for number, value in values:
        sources = diagram.nodes[number].sources
        if number in holders and not isinstance(value["value"], str):
            continue
        for source in sources:
            if isinstance(value["value"], str):
                found[source] = value  # of several, that of the innermost node
            else:
                before = found.get(source, {"value": 0.0})["value"]
                found[source] = {"value": before + value["value"] / len(sources)}
    return found
