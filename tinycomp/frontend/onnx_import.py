"""Import ONNX models as graphs.

Nothing in a model is trusted: whatever does not fit ONNX's rules is refused with the name of the node, before any of
it reaches a pass or a kernel. Types are inferred as the nodes are inserted, initializers and Constant nodes become
constant values, and the bodies of control flow and of function calls become closed graphs: what the bodies of a node
read from outside, they all receive as trailing inputs, in one order, and the node as trailing operands; outside
constants are copied into each body that reads them instead.

:func:`import_model` reads top to bottom. A :class:`Scope` knows the names that one graph may read, a :class:`Context`
what all graphs of one import share.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tinycomp.errors import ModelError, TinycompWarning, TypeInferenceError, UnsupportedError, did_you_mean
from tinycomp.frontend.declarations import Declarations, check_default, declared_types, symbols_of
from tinycomp.frontend.extension import extension, is_extension
from tinycomp.frontend.external_data import ExternalData
from tinycomp.frontend.functions import FunctionTable, LocalFunction, resolve
from tinycomp.frontend.loading import LoadedModel, check_text, check_texts, load_model, normal_domain, opset_imports
from tinycomp.frontend.naming import (
    MAX_NESTING,
    check_nesting,
    defined_names,
    free_names,
    name_outputs_apart,
    node_label,
    produced_names,
    sorted_nodes,
    too_deep,
)
from tinycomp.frontend.shapes import Shapes, checked_shapes, fixed_symbols, with_symbols
from tinycomp.frontend.signature import find_signature
from tinycomp.ir.graph import COMPOSITE, REGION, TINYCOMP, Attr, Graph, InferTypes, Node, Value
from tinycomp.ir.messages import AttributeProto, FunctionProto, GraphProto, NodeProto
from tinycomp.ir.proto import (
    ReadExternal,
    attribute_from_proto,
    sparse_from_proto,
    tensor_from_proto,
    type_from_proto,
)
from tinycomp.ir.schemas import since_version
from tinycomp.ir.types import UNKNOWN, TensorType, Type, substitute, type_of, without_shape
from tinycomp.ops.body_types import formal_types
from tinycomp.ops.typing import infer_node_types, record_of
from tinycomp.records import dataclass, field, replace

if TYPE_CHECKING:
    import onnx

_AS_ARRAY: Mapping[str, Callable[[Attr], np.ndarray]] = {
    "value": lambda v: v,
    "sparse_value": lambda v: v,
    "value_float": lambda v: np.array(v, np.float32),
    "value_floats": lambda v: np.array(v, np.float32),
    "value_int": lambda v: np.array(v, np.int64),
    "value_ints": lambda v: np.array(v, np.int64),
    "value_string": lambda v: np.array(v, object),
    "value_strings": lambda v: np.array(v, object),
}
OP_KEY, TARGET_KEY = "tinycomp.op", "tinycomp.target"
"""Where a function's metadata keeps the name and target of the composite or region that it was."""
_DEFAULTS_SINCE = 4
"""Before this IR version every initializer had to be listed among the inputs, so that it meant nothing."""


def import_model(
    model: str | os.PathLike[str] | bytes | onnx.ModelProto, *, shapes: Shapes | None = None, mapped: bool = False
) -> Graph:
    """Return an ONNX model as a typed graph.

    Args:
        model: Path of a file, the bytes of a file, or a parsed model. Weights in external files need a path.
        shapes: Shapes that replace the declared ones of graph inputs; a dimension is a size, a symbol or None.
        mapped: Whether large weights may be views of the model's file, at any address: whoever asks for that must not
            read them after the file was written to (:meth:`tinycomp.memory.mapped.Mapping.check` tells).

    Returns:
        The graph. An input that has an initializer (IR version 4 and later) keeps it in ``graph.defaults``.

    Raises:
        ModelError: If the model is not valid ONNX, or ``shapes`` does not fit it.
        UnsupportedError: If the model is valid but newer or more deeply nested than tinycomp can take.
        TypeInferenceError: If operands do not fit their operator.
    """
    return ModelSource.of(model, mapped=mapped).graph(shapes)


@dataclass(frozen=True)
class ModelSource:
    """What a model is imported from, as often as that is wanted.

    Attributes:
        loaded: The parsed model.
        external: The files with weights beside it, each mapped once; None where the model has no folder.
    """

    loaded: LoadedModel
    external: ExternalData | None

    @classmethod
    def of(cls, model: str | os.PathLike[str] | bytes | onnx.ModelProto, *, mapped: bool = False) -> ModelSource:
        """Read a model; see :func:`import_model`."""
        loaded = load_model(model, mapped=mapped)
        return cls(loaded, None if loaded.folder is None else ExternalData(loaded.folder))

    @property
    def nbytes(self) -> int:
        """The memory that it takes, weights in mapped files apart."""
        return self.loaded.nbytes

    def graph(self, shapes: Shapes | None = None) -> Graph:
        """Return the model as a typed graph; see :func:`import_model`."""
        loaded, proto = self.loaded, self.loaded.proto
        declared = {entry.name: type_from_proto(entry.type) for entry in proto.graph.input}
        overrides = checked_shapes(declared, {} if shapes is None else shapes, loaded.where)
        context = Context(
            ir_version=proto.ir_version,
            opsets=opset_imports(proto, loaded.where, proto.ir_version),
            functions=FunctionTable(proto.functions, proto.ir_version),
            read_external=None if self.external is None else self.external.read,
            sizes=fixed_symbols(declared, overrides),
            declarations=Declarations.beside(declared, overrides, proto.graph.node),
        )
        try:
            graph = _import_main(loaded, context, overrides)
        except TypeInferenceError as error:
            if not context.declarations.claimed:
                raise
            said = '", "'.join(context.declarations.claimed)
            context = context.without_claims()
            graph = _import_main(loaded, context, overrides)
            message = f'what the model declares of "{said}" cannot be right, and is ignored: {error}'
            warnings.warn(message, TinycompWarning, stacklevel=2)
        context.declarations.warn()
        return graph


def _import_main(loaded: LoadedModel, context: Context, overrides: Mapping[str, TensorType]) -> Graph:
    proto = loaded.proto.graph
    for text in (proto.name, *(t for entry in loaded.proto.metadata_props for t in (entry.key, entry.value))):
        check_text(text, loaded.where)
    check_nesting(proto.node, loaded.where)
    context.functions.check_expansion(proto.node, loaded.where)
    graph = Graph(proto.name or "main", infer=infer_node_types, opsets=context.opsets)
    graph.metadata = {entry.key: entry.value for entry in loaded.proto.metadata_props}
    scope = Scope(graph, defined_names(proto, loaded.where), declared_types(proto, context.sizes))
    _import_inputs(scope, proto, context, overrides, loaded.where)
    context.declarations.names |= symbols_of(value.type for value in graph.inputs)
    import_contents(scope, proto, context, loaded.where)
    name_outputs_apart(graph)
    for value in graph.inputs:
        if value.name in graph.defaults:
            check_default(value.name, value.type, type_of(graph.defaults[value.name]))
    return graph


def _import_inputs(
    scope: Scope, proto: GraphProto, context: Context, overrides: Mapping[str, TensorType], where: str
) -> None:
    stored = {t.name for t in proto.initializer} | {s.values.name for s in proto.sparse_initializer}
    for entry in proto.input:
        if context.ir_version < _DEFAULTS_SINCE and entry.name in stored:
            continue
        if not entry.name:
            raise ModelError("a graph input has no name", where=where)
        type_ = overrides.get(entry.name) or substitute(type_from_proto(entry.type), context.sizes)
        if type_ == UNKNOWN:
            raise ModelError("the input has no type", where=f'input "{entry.name}"', expected="a type in graph.input")
        scope.define(entry.name, scope.graph.add_input(entry.name, with_symbols(entry.name, type_)))


def import_contents(scope: Scope, proto: GraphProto, context: Context, where: str) -> None:
    """Import the constants, nodes and results of a graph whose inputs stand already.

    Raises:
        ModelError: If anything in the graph is not valid.
    """
    _import_constants(scope, proto, context)
    _import_nodes(scope, proto.node, context, where)
    _set_outputs(scope, [o.name for o in proto.output], where)


@dataclass(frozen=True)
class Context:
    """What an import knows while it is inside one graph or function.

    Attributes:
        ir_version: IR version of the model.
        opsets: Opset imports in force: the model's, or the function's.
        functions: The model-local functions.
        read_external: Fetches external tensor data; None where the model has no folder.
        sizes: Sizes of symbolic dimensions that the caller has fixed.
        environment: Attributes of the function call, None outside functions.
        prefix: Label of the function call, put before the names of nodes.
        depth: How many bodies and calls enclose this graph.
        declarations: How far the types that the model declares are believed.
        is_taken: Whether a run may come here: what is never run is read, but neither typed nor checked.
        labels: The labels given to nodes so far, with how many nodes asked for each.
    """

    ir_version: int
    opsets: Mapping[str, int]
    functions: FunctionTable
    read_external: ReadExternal | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    environment: Mapping[str, AttributeProto] | None = None
    prefix: str = ""
    depth: int = 0
    declarations: Declarations = field(default_factory=Declarations)
    is_taken: bool = True
    labels: dict[str, int] = field(default_factory=dict)

    def label(self, node: NodeProto) -> str:
        """Return a name for a node that no other node of the model has: names may repeat, in other graphs even must."""
        wanted = label = self.prefix + node_label(node)
        while label in self.labels:
            self.labels[wanted] += 1
            label = f"{wanted}#{self.labels[wanted]}"
        self.labels[label] = 1
        return label

    @property
    def infer(self) -> InferTypes:
        """What types the nodes of a graph under construction."""
        return infer_node_types if self.is_taken else _untyped

    def without_claims(self) -> Context:
        """Return the context of another import, which believes nothing that only the model declares of sizes."""
        return replace(self, declarations=self.declarations.without_claims(), labels={})

    def deeper(self, where: str, **changes: object) -> Context:
        """Return the context of a body or function body.

        Raises:
            UnsupportedError: If the nesting limit is passed.
        """
        if self.depth >= MAX_NESTING:
            raise too_deep(where)
        return replace(self, depth=self.depth + 1, **changes)  # type: ignore[arg-type]


class Scope:
    """Names of one graph under construction. Constants enter the graph when they are first read.

    Args:
        graph: The graph.
        reserved: Names that the graph's own nodes will define; captured values must not take them.
        declared: Types that the model states, by name.
    """

    def __init__(self, graph: Graph, reserved: Iterable[str] = (), declared: Mapping[str, Type] | None = None) -> None:
        self.graph = graph
        self.declared = dict(declared or {})
        self.reserved = set(reserved)
        self._values: dict[str, Value | None] = {}
        self._arrays: dict[str, np.ndarray] = {}

    @property
    def values(self) -> Mapping[str, Value | None]:
        """What the names defined so far stand for; constants that nothing has read are not among them."""
        return self._values

    def known(self) -> set[str]:
        """Return the names defined so far."""
        return {*self._values, *self._arrays}

    def define(self, name: str, value: Value | None) -> None:
        """Bind a name to a value of the graph, or to None for an absent optional input of a function."""
        self._values[name] = value

    def define_constant(self, name: str, array: np.ndarray) -> None:
        """Bind a name to a constant."""
        self._arrays[name] = array

    def array(self, name: str) -> np.ndarray | None:
        """Return the array of a name that stands for a constant, else None."""
        return self._arrays.get(name)

    def lookup(self, name: str, where: str) -> Value | None:
        """Return the value of a name; None for the empty name and for absent optional inputs.

        Raises:
            ModelError: If nothing has that name.
        """
        if not name:
            return None
        if name not in self._values:
            if name not in self._arrays:
                raise ModelError(
                    f'reads the value "{name}", which is never produced',
                    where=where,
                    hint=did_you_mean(name, self.known()),
                )
            self._values[name] = self.graph.add_const(self._arrays[name], self.free_name(name))
        return self._values[name]

    def free_name(self, name: str) -> str:
        """Return ``name`` if no other value of the graph has or will have it, else a name near it."""
        if name not in self.graph.values and (name not in self.reserved or name in self._arrays):
            return name
        candidate = name
        while candidate in self.reserved or candidate in self.graph.values:
            candidate = self.graph.fresh(f"{candidate}_outer")
        return candidate


def constant_array(attributes: Sequence[AttributeProto], context: Context, where: str) -> np.ndarray:
    """Return the array of a Constant node.

    Raises:
        ModelError: If the node does not have exactly one value.
    """
    if len(attributes) != 1:
        raise ModelError(
            "a Constant needs exactly one value",
            where=where,
            expected=f"one of {sorted(_AS_ARRAY)}",
            found=str([a.name for a in attributes]),
        )
    value = attribute_from_proto(attributes[0], where, context.read_external)
    return _AS_ARRAY[attributes[0].name](value)


def operands_of(scope: Scope, node: NodeProto, least: int, where: str) -> list[Value | None]:
    """Return the operands of a node without the absent ones at its end, but at least ``least``.

    Raises:
        ModelError: If one is never produced.
    """
    names = list(node.input)
    while len(names) > least and not names[-1]:
        names.pop()
    known = scope.values
    return [known[name] if name in known else scope.lookup(name, where) for name in names]


def result_names(node: NodeProto, least: int) -> list[str]:
    """Return the result names of a node without the skipped ones at its end, but at least ``least``."""
    names = list(node.output)
    while len(names) > max(least, 1) and not names[-1]:
        names.pop()
    return names


def insert(
    scope: Scope,
    draft: Node,
    outputs: Sequence[str],
    context: Context,
    *,
    bodies: Mapping[str, Graph] | None = None,
) -> Node:
    """Add a node to the graph of a scope, bind its results, and check their types against the declared ones.

    Raises:
        TypeInferenceError: If the operands do not fit the operator.
        ModelError: If a declared kind or dtype contradicts the inferred one.
    """
    added = scope.graph.add(
        draft.op,
        draft.inputs,
        draft.attrs,
        domain=draft.domain,
        version=draft.version,
        outputs=outputs,
        bodies=bodies,
        captures=draft.captures,
        target=draft.target,
        sources=draft.sources,
    )
    for value in added.outputs:
        if value.name:
            declared = scope.declared.get(value.name)
            said = None
            if declared is not None and declared != value.type:
                said = context.declarations.compare(value, declared, is_outermost=context.depth == 0)
            if said is None:
                scope.define(value.name, value)
            else:
                _insert_claim(scope, value, said, context)
    return added


def _insert_claim(scope: Scope, value: Value, said: TensorType, context: Context) -> None:
    """Let all that reads a value rely on sizes that only the model declares: each run compares them."""
    name = value.name
    context.declarations.claimed.append(name)
    scope.graph.rename(value, scope.free_name(f"{name}_found"))
    node = scope.graph.add(
        "Declared", [value], {"name": name, "said": said}, domain=TINYCOMP, version=1, outputs=[name], at=value.producer
    )
    scope.define(name, node.output)


def _untyped(node: Node) -> list[Type]:
    return [UNKNOWN] * len(node.outputs)


def _import_constants(scope: Scope, proto: GraphProto, context: Context) -> None:
    """Bind initializers; one that repeats an input of the main graph is that input's default value."""
    arrays = [
        (t.name, tensor_from_proto(t, f'initializer "{t.name}"', context.read_external)) for t in proto.initializer
    ]
    arrays += [(s.values.name, sparse_from_proto(s)) for s in proto.sparse_initializer]
    inputs = {v.name for v in scope.graph.inputs}
    for name, array in arrays:
        if not name:
            raise ModelError("an initializer has no name", where=f"graph {scope.graph.name}")
        if name not in inputs:
            scope.define_constant(name, array)
        elif context.depth == 0:
            scope.graph.defaults[name] = array


def _set_outputs(scope: Scope, names: Sequence[str], where: str) -> None:
    results = []
    for name in names:
        check_text(name, where)
        value = scope.lookup(name, f'{where}, output "{name}"')
        if value is None:
            raise ModelError("an output has no name, or stands for an absent input", where=where)
        results.append(value)
    scope.graph.set_outputs(results, names)


def _import_nodes(scope: Scope, nodes: Sequence[NodeProto], context: Context, where: str) -> None:
    for node in nodes:
        check_texts((node.name, node.op_type, node.domain, *[a.name for a in node.attribute[:]]), where)
    for node in sorted_nodes(nodes, scope.known(), where):
        label = context.label(node)
        function = context.functions.find(node)
        if function is not None:
            _import_call(scope, node, function, context, label)
        elif not _import_extension(scope, node, context, label):
            _import_operator(scope, node, context, label)


def _import_extension(scope: Scope, node: NodeProto, context: Context, label: str) -> bool:
    """Import an operator outside ONNX's own domains as a call of what defines it; tell whether something does."""
    domain = normal_domain(node.domain)
    if not is_extension(domain, node.op_type) or domain not in context.opsets:
        return False
    where = _place(label, node)
    attributes = resolve(node.attribute, context.environment, where)
    version = since_version(node.op_type, domain, context.opsets[domain])
    draft = Node(node.op_type, domain, version, tuple(operands_of(scope, node, 0, where)))
    draft.attrs = {a.name: attribute_from_proto(a, where, context.read_external) for a in attributes}
    draft.sources = (label,)
    outputs = result_names(node, 0)
    body = extension(draft, len(outputs), context.opsets.get("", 1), where)
    if body is not None:
        insert(scope, draft, outputs, context, bodies={"body": body})
    return body is not None


def _import_operator(scope: Scope, node: NodeProto, context: Context, label: str) -> None:
    where = _place(label, node)
    domain = normal_domain(node.domain)
    attributes = resolve(node.attribute, context.environment, where)
    signature = find_signature(node.op_type, domain, context.opsets, where)
    if signature is not None:
        signature.check_attributes(attributes, where)
    if node.op_type == "Constant" and not domain:
        for name in result_names(node, 1)[:1]:
            scope.define_constant(name, constant_array(attributes, context, where))
        return
    least = (0, 1) if signature is None else (signature.schema.min_input, signature.schema.min_output)
    if signature is not None and signature.counts_results:
        least = least[0], len(node.output)
    operands, outputs = operands_of(scope, node, least[0], where), result_names(node, least[1])
    if signature is not None:
        signature.check_operands(operands, len(outputs), where)
        version = signature.schema.since_version
    else:
        version = since_version(node.op_type, domain, context.opsets.get(domain))
    draft = Node(node.op_type, domain, version, tuple(operands))
    draft.sources = (label,)
    graphs = {a.name: a.g for a in attributes if a.HasField("g")}
    draft.attrs = {
        a.name: attribute_from_proto(a, where, context.read_external) for a in attributes if a.name not in graphs
    }
    bodies = _import_bodies(scope, draft, graphs, context, where) if graphs else None
    insert(scope, draft, outputs, context, bodies=bodies)


def _place(label: str, node: NodeProto) -> str:
    return f"node {label} ({node.op_type})"


def _import_bodies(
    scope: Scope, draft: Node, protos: dict[str, GraphProto], context: Context, where: str
) -> dict[str, Graph]:
    """Import the graphs that a node holds, and append what they capture to its operands."""
    record = record_of(draft)
    if record is None or "bodies" not in record.traits:
        raise UnsupportedError(
            "nothing is known about the graphs of this operator", where=where, found=draft.qualified_op
        )
    outside = dict.fromkeys(name for proto in protos.values() for name in free_names(proto))
    captured = {name: scope.lookup(name, where) for name in outside if scope.array(name) is None}
    passed = {name: value for name, value in captured.items() if value is not None}
    draft.inputs = (*draft.inputs, *passed.values())
    draft.captures = len(passed)
    formals = formal_types(draft)
    inner = context.deeper(where)
    draft.bodies = {key: Graph() for key in protos}
    possible = draft.possible_bodies
    bodies = {}
    for key, proto in protos.items():
        inner = replace(inner, is_taken=context.is_taken and key in possible)
        body = _open_body(proto, key, formals[: len(formals) - len(passed)], inner, f"{where}, {key}")
        for name, value in captured.items():
            if value is None or name in passed:
                type_ = UNKNOWN if value is None or not inner.is_taken else value.type
                formal = None if value is None else body.graph.add_input(body.free_name(name), type_)
                if name not in body.reserved:
                    body.define(name, formal)
        _bind_outer_constants(scope, body, proto)
        import_contents(body, proto, inner, f"{where}, {key}")
        body.graph.infer = infer_node_types
        bodies[key] = body.graph
    return bodies


def _open_body(proto: GraphProto, key: str, formals: Sequence[Type], context: Context, where: str) -> Scope:
    """Return the scope of a body with its own inputs, typed from the operands (declared types fill what is unknown)."""
    if len(proto.input) != len(formals):
        raise ModelError(
            "the body has the wrong number of inputs",
            where=where,
            expected=str(len(formals)),
            found=str(len(proto.input)),
        )
    check_text(proto.name, where)
    graph = Graph(proto.name or key, infer=context.infer, opsets=context.opsets)
    scope = Scope(graph, defined_names(proto, where), declared_types(proto, context.sizes))
    for entry, wanted in zip(proto.input, formals, strict=True):
        declared = type_from_proto(entry.type)
        if not entry.name:
            raise ModelError("an input of the body has no name", where=where)
        _check_formal(entry.name, declared, wanted, where)
        scope.define(entry.name, graph.add_input(entry.name, without_shape(declared) if wanted == UNKNOWN else wanted))
    return scope


def _check_formal(name: str, declared: Type, wanted: Type, where: str) -> None:
    kinds_differ = UNKNOWN not in (declared, wanted) and type(declared) is not type(wanted)
    dtypes_differ = getattr(declared, "dtype", "?") != getattr(wanted, "dtype", "?")
    if kinds_differ or (dtypes_differ and "?" not in (getattr(declared, "dtype", "?"), getattr(wanted, "dtype", "?"))):
        raise ModelError(
            "the declared type of a body's input contradicts the operand",
            where=f'{where}, input "{name}"',
            expected=str(wanted),
            found=str(declared),
        )


def _bind_outer_constants(outer: Scope, body: Scope, proto: GraphProto) -> None:
    for name in free_names(proto):
        array = outer.array(name)
        if array is not None:
            body.define_constant(name, array)


def _import_call(scope: Scope, node: NodeProto, function: LocalFunction, context: Context, label: str) -> None:
    """Import a call: a node whose body is the function, specialised for the types and attributes of this call."""
    proto, where = function.proto, _place(label, node)
    attributes = resolve(node.attribute, context.environment, where)
    operands = operands_of(scope, node, 0, where)
    if len(operands) > len(proto.input) or len(result_names(node, 0)) > len(proto.output):
        raise ModelError(
            f"the call does not fit {function.label}",
            where=where,
            expected=f"up to {len(proto.input)} inputs and {len(proto.output)} outputs",
            found=f"{len(operands)} and {len(node.output)}",
        )
    operands += [None] * (len(proto.input) - len(operands))
    outputs = [*node.output[: len(proto.output)], *[""] * (len(proto.output) - len(node.output))]
    draft = _call_draft(proto, operands)
    plain = [a for a in attributes if not a.HasField("g")]
    draft.attrs = {a.name: attribute_from_proto(a, where, context.read_external) for a in plain}
    inner = context.deeper(
        where,
        opsets=function.opsets,
        environment=function.environment(attributes, where),
        prefix=f"{label}/",
    )
    draft.sources = (label,)
    insert(scope, draft, outputs, context, bodies={"body": function_body(function, operands, inner)})


def _call_draft(proto: FunctionProto, operands: Sequence[Value | None]) -> Node:
    """Return the call node; a function that was a composite or region gets its name and target back."""
    domain = normal_domain(proto.domain)
    kept = {entry.key: entry.value for entry in proto.metadata_props} if domain in (COMPOSITE, REGION) else {}
    draft = Node(kept.get(OP_KEY, proto.name), domain, 1, tuple(operands))
    draft.target = kept.get(TARGET_KEY)
    return draft


def function_body(function: LocalFunction, operands: Sequence[Value | None], context: Context) -> Graph:
    """Return the body of a function for the types of these operands; a formal without operand is absent inside.

    Raises:
        ModelError: If the body is not valid.
        TypeInferenceError: If the operands do not fit it.
    """
    proto = function.proto
    graph = Graph(proto.name, infer=context.infer, opsets=function.opsets)
    scope = Scope(graph, produced_names(proto.node))
    for name, operand in zip(proto.input, operands, strict=True):
        formal = graph.add_input(name, UNKNOWN if operand is None else operand.type)
        scope.define(name, None if operand is None else formal)
    _import_nodes(scope, proto.node, context, function.label)
    _set_outputs(scope, list(proto.output), function.label)
    graph.infer = infer_node_types
    return graph
