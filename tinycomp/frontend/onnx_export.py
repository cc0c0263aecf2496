"""Export graphs as ONNX models that any runtime can run.

What tinycomp adds to ONNX is expressed in ONNX: composites, regions and calls as model-local functions with their
constants inside, changes of memory layout and fusion barriers as Identity.

One opset version per domain is chosen for a graph and everything in it, so that every node means what it means here. A
function may import opsets of its own, but only as far as its operators mean the same in the opset of the model: ONNX's
checker refuses anything else, and onnxruntime, which inlines functions, would run such an operator with the meaning of
the opset of the model.

Values keep the user's names where possible; they are unique where ONNX asks for it. A body of control flow sees the
names around it and must not define one of them again; a captured value keeps the name that it has outside.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import onnx
from onnx import helper

from tinycomp.arguments import checked
from tinycomp.errors import ModelError, UnsupportedError
from tinycomp.frontend.extension import is_extension_call
from tinycomp.frontend.inlining import without_calls
from tinycomp.frontend.loading import shown
from tinycomp.frontend.onnx_import import OP_KEY, TARGET_KEY
from tinycomp.ir.graph import TINYCOMP, Graph, Node, Value
from tinycomp.ir.infer import may_lack
from tinycomp.ir.schemas import known_opsets, schema, versions
from tinycomp.ir.to_proto import attribute_to_proto, tensor_to_proto, type_to_proto
from tinycomp.ir.types import UNKNOWN
from tinycomp.version import installed_version

Interval = tuple[int, int]
_IDENTITIES = frozenset({"Conditions", "Declared", "Relayout", "StopFusion"})
_OLDEST_IR = 8
_IR_WITH_METADATA = 10


@checked("graph")
def export_model(graph: Graph, *, model_name: str | None = None, functions: bool = True) -> onnx.ModelProto:
    """Return a graph as an ONNX model.

    Each domain is imported in a version under which the nodes keep the operator version they have. Names of inputs,
    outputs and, where ONNX allows it, of values and nodes are kept; :func:`tinycomp.frontend.import_model` turns the
    functions of composites and regions back into such nodes.

    Args:
        graph: The graph.
        model_name: Name of the exported graph; by default the name it has.
        functions: Whether composites, regions and calls become functions; otherwise they are inlined, which is for
            runtimes that do not know functions, or their domains.

    Raises:
        ModelError: If it is not a graph.
        UnsupportedError: If a node has no counterpart in ONNX, or no opset suits all nodes.
    """
    if not isinstance(graph, Graph):
        raise ModelError(
            "not a graph",
            expected="a tinycomp.Graph",
            found=type(graph).__name__,
            hint="Graphs come from tinycomp.from_onnx and leave a tinycomp.Pipeline.",
        )
    graph = graph if functions else without_calls(graph)
    library = Library()
    chosen = choose_opsets(graph)
    writer = Writer(library, chosen)
    proto = onnx.ModelProto(producer_name="tinycomp", producer_version=installed_version())
    proto.graph.CopyFrom(writer.graph(graph, Names(), {}, nested=False))
    proto.graph.name = model_name or graph.name
    opsets = writer.opsets or {"": chosen.get("", known_opsets()[""])}
    for function in library.protos:  # runtimes that inline functions want their domains imported by the model too
        for entry in function.opset_import:
            opsets.setdefault(entry.domain, entry.version)
    proto.opset_import.extend(helper.make_opsetid(domain, version) for domain, version in opsets.items())
    proto.functions.extend(library.protos)
    proto.ir_version = _ir_version(proto)
    helper.set_model_props(proto, graph.metadata)
    return proto


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
        restated = _restated(graph)
        for node in restated:
            names.alias(node.operand(0), names[node.output])
        proto = onnx.GraphProto(name=graph.name)
        own = [v for v in graph.inputs if v not in captured]
        proto.input.extend(value_info(v, names[v]) for v in own)
        used = [v for v in graph.constants if graph.use_count(v)]
        proto.initializer.extend(_initializer(v, names[v]) for v in used)
        proto.initializer.extend(tensor_to_proto(a, name) for name, a in graph.defaults.items())
        proto.node.extend(self.nodes([n for n in graph.nodes if n not in restated], names))
        # A body of onnxruntime's may neither return what is around it, nor hand on an input, which changes under it.
        indirect = frozenset(graph.inputs if nested else ())
        outputs, copies = bind_outputs(graph, names, () if nested else graph.output_names, indirect)
        self.add_identities(proto.node, copies)
        proto.output.extend(value_info(v, name) for v, name in zip(graph.outputs, outputs, strict=True))
        # Of two values under one name the later one counts: what the model declares is what the node states.
        inner = {names[v]: v for n in graph.nodes for v in n.used_outputs() if v.type != UNKNOWN}
        proto.value_info.extend(value_info(v, name) for name, v in inner.items() if name not in outputs)
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
        known = schema(node.op, node.domain, node.version)
        for place, value in enumerate(node.outputs[: len(proto.output)]):
            if not value.name and known is not None and not may_lack(known, place):
                proto.output[place] = names.fresh(f"{node.label}_{place}")
        proto.attribute.extend(attribute_to_proto(k, v, known) for k, v in node.attrs.items())
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
        self.opsets.setdefault(domain, self._chosen.get(domain, known_opsets().get(domain, 1)))


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


def choose_opsets(graph: Graph) -> dict[str, int]:
    """Return an opset version per domain under which every node keeps the version it has.

    The version that the graph imports wins where it suits all nodes, else the lowest that does.

    Args:
        graph: The graph; nodes in bodies count too, but not what defines an operator of another domain.

    Raises:
        UnsupportedError: If no version suits all nodes.
    """
    spans: dict[str, Counter[Interval]] = {}
    defined = {id(inner) for _, node in graph.walk() if is_extension_call(node) for _, inner in node.body.walk()}
    nodes = [node for _, node in graph.walk() if not node.is_call and id(node) not in defined]
    for node in nodes:
        span = interval(node.op, node.domain, node.version)
        if span is not None:
            spans.setdefault(node.domain, Counter())[span] += 1
    chosen = {domain: _choose(counts, graph.opsets.get(domain)) for domain, counts in spans.items()}
    for node in nodes:
        _check(node, chosen)
    return {**graph.opsets, **chosen}


def _choose(counts: Counter[Interval], preferred: int | None) -> int:
    """Return the version that suits most nodes; ties go to the preferred one, then to the lowest."""
    candidates = {low for low, _ in counts} | ({preferred} if preferred is not None else set())
    return max(candidates, key=lambda version: (_suited(counts, version), version == preferred, -version))


def _suited(counts: Counter[Interval], version: int) -> int:
    return sum(count for (low, high), count in counts.items() if low <= version <= high)


def _check(node: Node, chosen: Mapping[str, int]) -> None:
    span = interval(node.op, node.domain, node.version)
    if span is not None and not span[0] <= chosen[node.domain] <= span[1]:
        raise UnsupportedError(
            f"no opset of domain {shown(node.domain)} suits every node of the graph",
            where=f"node {node.label} ({node.qualified_op}, version {node.version})",
            expected=f"an opset from {span[0]} to {span[1]} for this node",
            found=f"{chosen[node.domain]} for most others",
            hint="Build the graph with one opset, or convert the model with onnx.version_converter first.",
        )


@functools.cache
def interval(op: str, domain: str, version: int) -> Interval | None:
    """Return the first and last opset in which ``version`` of an operator is in force; None where onnx has none."""
    sinces = versions(op, domain)
    if version not in sinces:
        return None
    later = [v for v in sinces if v > version]
    return version, (min(later) - 1 if later else known_opsets()[domain])


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
    goals: list[str] = []
    copies: list[onnx.NodeProto] = []
    for index, value in enumerate(graph.outputs):
        name = names[value]
        goal = wanted[index] if wanted else name
        if value in indirect or name in goals or goal != name:
            goal = goal if goal != name and goal not in goals and wanted else names.fresh(f"{goal}_copy")
            copies.append(onnx.NodeProto(op_type="Identity", input=[name], output=[goal], name=goal))
        goals.append(goal)
    return goals, copies


def _restated(graph: Graph) -> set[Node]:
    """Return the nodes that state what the model declares, where the type of a node's result can say so again."""
    nodes = (node for node in graph.nodes if (node.domain, node.op) == (TINYCOMP, "Declared"))
    return {n for n in nodes if n.operand(0).producer is not None and graph.use_count(n.operand(0)) == 1}


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


def _ir_version(proto: onnx.ModelProto) -> int:
    """Return the oldest IR version that has everything the model uses, so that older runtimes can read it."""
    imports = [*proto.opset_import, *(entry for f in proto.functions for entry in f.opset_import)]
    known = [entry for entry in imports if (entry.domain or "ai.onnx", entry.version) in helper.OP_SET_ID_VERSION_MAP]
    by_opset = helper.find_min_ir_version_for(known) if known else _OLDEST_IR
    return max(_OLDEST_IR, by_opset, _IR_WITH_METADATA if proto.functions else 0)
