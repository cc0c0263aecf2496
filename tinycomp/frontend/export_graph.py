"""Graphs as GraphProto and FunctionProto.

Composites, regions and calls become model-local functions with their constants inside; what a body of control flow
captures is read from the graph around it again. A node whose operator version no common opset has is wrapped into a
function with an opset import of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import onnx
from onnx import helper

from tinycomp.errors import UnsupportedError
from tinycomp.frontend.contents import OP_KEY, TARGET_KEY
from tinycomp.frontend.export_names import Names, bind_outputs
from tinycomp.frontend.loading import newest_opsets
from tinycomp.frontend.opsets import choose_opsets, keeps_version
from tinycomp.ir.graph import TINYCOMP, Graph, Node, Value
from tinycomp.ir.infer import schema
from tinycomp.ir.proto import attribute_to_proto, tensor_to_proto, type_to_proto
from tinycomp.ir.types import UNKNOWN

VERSIONS = "tinycomp.version"
"""Domain of the functions that keep a single node at its operator version."""
_IDENTITIES = frozenset({"Relayout", "StopFusion"})


class Library:
    """The model-local functions of one export."""

    def __init__(self) -> None:
        self.protos: list[onnx.FunctionProto] = []
        self._names: dict[tuple[str, str], dict[bytes, str]] = {}

    def add(self, proto: onnx.FunctionProto) -> str:
        """Add a function under a name near the one it has; an equal function is added once.

        Returns:
            The name.
        """
        held = self._names.setdefault((proto.domain, proto.name), {})
        key = proto.SerializeToString(deterministic=True)
        if key not in held:
            held[key] = self._unique(proto.domain, proto.name)
            proto.name = held[key]
            self.protos.append(proto)
        return held[key]

    def _unique(self, domain: str, name: str) -> str:
        taken = {p.name for p in self.protos if p.domain == domain}
        candidate, count = name, 1
        while candidate in taken:
            count += 1
            candidate = f"{name}_{count}"
        return candidate


class Writer:
    """Writes the nodes that share one set of opset imports.

    Args:
        library: Receives the functions that the nodes need.
        nodes: The nodes of the graph or function body.
        preferred: Opset versions that the graph imports.

    Attributes:
        opsets: The chosen versions of the domains that have been used so far.
        preferred: Versions that functions should use if they suit them.
    """

    def __init__(self, library: Library, nodes: Iterable[Node], preferred: Mapping[str, int]) -> None:
        self._library = library
        self._chosen = choose_opsets(nodes, preferred)
        self.preferred = {**preferred, **self._chosen}
        self._labels: set[str] = set()
        self.opsets: dict[str, int] = {}

    def graph(self, graph: Graph, names: Names, captured: Mapping[Value, str], *, nested: bool) -> onnx.GraphProto:
        """Return a graph or the body of a control-flow node.

        Args:
            graph: The graph.
            names: Empty names, inside those of the graph around a body.
            captured: Names outside of the inputs that are captured values.
            nested: Whether it is a body.
        """
        names.claim_all(graph, captured)
        proto = onnx.GraphProto(name=graph.name)
        own = [v for v in graph.inputs if v not in captured]
        proto.input.extend(value_info(v, names[v]) for v in own)
        used = [v for v in graph.constants if graph.use_count(v)]
        proto.initializer.extend(_initializer(v, names[v]) for v in used)
        proto.initializer.extend(tensor_to_proto(a, name) for name, a in graph.defaults.items())
        proto.node.extend(self.nodes(graph.nodes, names))
        outputs, copies = bind_outputs(graph, names, () if nested else graph.output_names, frozenset(captured))
        self.add_identities(proto.node, copies)
        proto.output.extend(value_info(v, name) for v, name in zip(graph.outputs, outputs, strict=True))
        inner = [v for n in graph.nodes for v in n.used_outputs() if v.type != UNKNOWN and names[v] not in outputs]
        proto.value_info.extend(value_info(v, names[v]) for v in inner)
        return proto

    def nodes(self, nodes: Iterable[Node], names: Names) -> list[onnx.NodeProto]:
        """Return the nodes as NodeProtos."""
        return [self._node(node, names) for node in nodes]

    def add_identities(self, nodes: list[onnx.NodeProto], copies: Sequence[onnx.NodeProto]) -> None:
        """Append Identity nodes, and note that ONNX's own domain is used."""
        if copies:
            self.use("")
            nodes.extend(copies)

    def plain(self, node: Node, names: Names) -> onnx.NodeProto:
        """Return a node as it is, its bodies as graph attributes."""
        self.use(node.domain)
        operands = node.inputs[: len(node.inputs) - node.captures]
        proto = self._head(node, node.op, node.domain, operands, names)
        found = schema(node.op, node.domain, node.version)
        proto.attribute.extend(attribute_to_proto(k, v, found) for k, v in node.attrs.items())
        for key, body in node.bodies.items():
            formals = body.inputs[len(body.inputs) - node.captures :]
            outer = node.inputs[len(node.inputs) - node.captures :]
            captured = {f: names[v] for f, v in zip(formals, outer, strict=True) if v is not None}
            proto.attribute.append(helper.make_attribute(key, self.graph(body, Names(names), captured, nested=True)))
        return proto

    def _node(self, node: Node, names: Names) -> onnx.NodeProto:
        if node.is_call:
            self.use(node.domain)
            name = self._library.add(_call_function(self._library, node, self.preferred))
            return self._head(node, name, node.domain, node.inputs, names)
        if node.domain == TINYCOMP:
            return self._identity(node, names)
        if keeps_version(node, self._chosen):
            return self.plain(node, names)
        self.use(VERSIONS)
        name = self._library.add(_version_function(self._library, node, self.preferred))
        operands = tuple(dict.fromkeys(v for v in node.inputs if v is not None))
        return self._head(node, name, VERSIONS, operands, names)

    def _identity(self, node: Node, names: Names) -> onnx.NodeProto:
        if node.op not in _IDENTITIES:
            raise UnsupportedError(
                f"{node.qualified_op} has no counterpart in ONNX",
                where=f"node {node.label}",
                expected=f"one of {sorted(_IDENTITIES)}",
                hint="Export the graph before it is lowered.",
            )
        self.use("")
        return self._head(node, "Identity", "", node.inputs[:1], names)

    def _head(self, node: Node, op: str, domain: str, operands: Sequence[Value | None], names: Names) -> onnx.NodeProto:
        label = node.label
        while label in self._labels:
            label = f"{node.label}_{len(self._labels)}"
        self._labels.add(label)
        proto = onnx.NodeProto(op_type=op, domain=domain, name=label)
        proto.input.extend("" if v is None else names[v] for v in operands)
        proto.output.extend(_trimmed([names[v] if v.name else "" for v in node.outputs]))
        return proto

    def use(self, domain: str) -> None:
        """Note that the nodes need ``domain``."""
        known = (self._chosen, self.preferred, newest_opsets())
        self.opsets.setdefault(domain, next((d[domain] for d in known if domain in d), 1))


def _trimmed(names: list[str]) -> list[str]:
    while len(names) > 1 and not names[-1]:
        names.pop()
    return names


def value_info(value: Value, name: str) -> onnx.ValueInfoProto:
    """Return name and type of a value; an unknown type is left out."""
    info = onnx.ValueInfoProto(name=name)
    if value.type != UNKNOWN:
        info.type.CopyFrom(type_to_proto(value.type))
    return info


def _initializer(value: Value, name: str) -> onnx.TensorProto:
    assert value.const is not None
    return tensor_to_proto(value.const, name)


def _call_function(library: Library, node: Node, preferred: Mapping[str, int]) -> onnx.FunctionProto:
    """Return the body of a composite, region or call as a function, constants as Constant nodes."""
    body = node.body
    names = Names()
    names.claim_all(body, {})
    writer = Writer(library, body.nodes, {**body.opsets, **preferred})
    proto = onnx.FunctionProto(name=node.op, domain=node.domain)
    proto.input.extend(names[v] for v in body.inputs)
    used = [v for v in body.constants if body.use_count(v)]
    if used:
        writer.use("")
    for value in used:
        proto.node.append(
            helper.make_node("Constant", [], [names[value]], name=names[value], value=_initializer(value, ""))
        )
    proto.node.extend(writer.nodes(body.nodes, names))
    indirect = frozenset([*body.inputs, *body.constants])
    outputs, copies = bind_outputs(body, names, (), indirect)
    writer.add_identities(proto.node, copies)
    proto.output.extend(outputs)
    _finish(proto, writer.opsets)
    if node.is_composite or node.is_region:
        helper.set_metadata_props(proto, {OP_KEY: node.op} | ({TARGET_KEY: node.target} if node.target else {}))
    return proto


def _version_function(library: Library, node: Node, preferred: Mapping[str, int]) -> onnx.FunctionProto:
    """Return a function that holds one node; its names are canonical, so that equal nodes share it."""
    names = Names()
    writer = Writer(library, [node], {**preferred, node.domain: node.version})
    proto = onnx.FunctionProto(name=f"{node.op}_{node.version}", domain=VERSIONS)
    operands = dict.fromkeys(v for v in node.inputs if v is not None)
    proto.input.extend(names.claim(v, f"x{i}") for i, v in enumerate(operands))
    proto.output.extend(names.claim(v, f"y{i}") for i, v in enumerate(node.outputs) if v.name)
    inner = writer.plain(node, names)
    inner.name = node.op
    proto.node.append(inner)
    _finish(proto, writer.opsets)
    return proto


def _finish(proto: onnx.FunctionProto, opsets: Mapping[str, int]) -> None:
    proto.opset_import.extend(helper.make_opsetid(domain, version) for domain, version in opsets.items())
