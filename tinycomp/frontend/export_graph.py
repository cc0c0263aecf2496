"""Graphs as GraphProto and FunctionProto.

Composites, regions and calls become model-local functions with their constants inside; what a body of control flow
captures is read from the graph around it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import onnx
from onnx import helper

from tinycomp.errors import UnsupportedError
from tinycomp.frontend.contents import OP_KEY, TARGET_KEY
from tinycomp.frontend.export_names import Names, bind_outputs
from tinycomp.frontend.extension import is_extension_call
from tinycomp.frontend.loading import newest_opsets
from tinycomp.ir.graph import TINYCOMP, Graph, Node, Value
from tinycomp.ir.infer import schema
from tinycomp.ir.proto import attribute_to_proto, tensor_to_proto, type_to_proto
from tinycomp.ir.types import UNKNOWN

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
    """Writes the nodes of one graph or function body, the bodies of control flow included.

    Args:
        library: Receives the functions that the nodes need.
        chosen: The opset version of every domain.

    Attributes:
        opsets: The versions of the domains that have been used so far.
    """

    def __init__(self, library: Library, chosen: Mapping[str, int]) -> None:
        self._library = library
        self._chosen = chosen
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

    def _node(self, node: Node, names: Names) -> onnx.NodeProto:
        if is_extension_call(node):
            return self._extension(node, names)
        if node.is_call:
            self.use(node.domain)
            name = self._library.add(_call_function(self._library, node, self._chosen))
            return self._head(node, name, node.domain, node.inputs, names)
        if node.domain == TINYCOMP:
            return self._identity(node, names)
        return self._plain(node, names)

    def _extension(self, node: Node, names: Names) -> onnx.NodeProto:
        """Write an operator of another domain as the model had it, without its definition."""
        self.use(node.domain)
        given = max((i + 1 for i, v in enumerate(node.inputs) if v is not None), default=0)
        proto = self._head(node, node.op, node.domain, node.inputs[:given], names)
        proto.attribute.extend(attribute_to_proto(k, v, None) for k, v in node.attrs.items())
        return proto

    def _plain(self, node: Node, names: Names) -> onnx.NodeProto:
        """Write a node as it is, its bodies as graph attributes."""
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
        self.opsets.setdefault(domain, self._chosen.get(domain, newest_opsets().get(domain, 1)))


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


def _call_function(library: Library, node: Node, chosen: Mapping[str, int]) -> onnx.FunctionProto:
    """Return the body of a composite, region or call as a function, constants as Constant nodes."""
    body = node.body
    names = Names()
    names.claim_all(body, {})
    writer = Writer(library, chosen)
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
    proto.opset_import.extend(helper.make_opsetid(domain, version) for domain, version in writer.opsets.items())
    if node.is_composite or node.is_region:
        helper.set_metadata_props(proto, {OP_KEY: node.op} | ({TARGET_KEY: node.target} if node.target else {}))
    return proto
