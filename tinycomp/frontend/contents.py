"""The contents of a graph: constants, operators, control flow, and calls of model-local functions.

Bodies become closed graphs. What the bodies of a node read from outside, they all receive as trailing inputs, in one
order, and the node as trailing operands; outside constants are copied into each body that reads them instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import onnx
from numpy.typing import NDArray

from tinycomp.errors import ModelError, UnsupportedError
from tinycomp.frontend.extension import extension, is_extension
from tinycomp.frontend.functions import LocalFunction, resolve
from tinycomp.frontend.insertion import constant_array, insert, operands_of, result_names
from tinycomp.frontend.loading import check_text, normal_domain
from tinycomp.frontend.naming import defined_names, free_names, produced_names, sorted_nodes
from tinycomp.frontend.scope import Context, Scope
from tinycomp.frontend.signature import find_signature
from tinycomp.ir.graph import COMPOSITE, REGION, Graph, Node, Value
from tinycomp.ir.infer import since_version
from tinycomp.ir.proto import attribute_from_proto, type_from_proto
from tinycomp.ir.proto_tensor import sparse_from_proto, tensor_from_proto
from tinycomp.ir.types import UNKNOWN, Type, compatible, substitute
from tinycomp.ops.typing import formal_types, infer_node_types, record_of

OP_KEY, TARGET_KEY = "tinycomp.op", "tinycomp.target"
"""Where a function's metadata keeps the name and target of the composite or region that it was."""


def import_contents(
    scope: Scope,
    proto: onnx.GraphProto,
    context: Context,
    where: str,
    weights: Mapping[int, NDArray[np.uint8]] = MappingProxyType({}),
) -> None:
    """Import the constants, nodes and results of a graph whose inputs stand already.

    Args:
        scope: The scope.
        proto: The graph.
        context: The context.
        where: The graph, for messages.
        weights: The bytes of initializers that have been read apart, by position.

    Raises:
        ModelError: If anything in the graph is not valid.
    """
    _import_constants(scope, proto, context, weights)
    _import_nodes(scope, proto.node, context, where)
    _set_outputs(scope, [o.name for o in proto.output], where)


def declared_types(proto: onnx.GraphProto, context: Context) -> dict[str, Type]:
    """Return the types that a graph states for inner values and results, with fixed symbols filled in."""
    types = {entry.name: type_from_proto(entry.type) for entry in (*proto.value_info, *proto.output)}
    return {name: substitute(type_, context.sizes) for name, type_ in types.items() if type_ != UNKNOWN}


def _import_constants(
    scope: Scope, proto: onnx.GraphProto, context: Context, weights: Mapping[int, NDArray[np.uint8]]
) -> None:
    """Bind initializers; one that repeats an input of the main graph is that input's default value."""
    arrays = [
        (t.name, tensor_from_proto(t, f'initializer "{t.name}"', context.read_external, weights.get(index)))
        for index, t in enumerate(proto.initializer)
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


def _import_nodes(scope: Scope, nodes: Sequence[onnx.NodeProto], context: Context, where: str) -> None:
    for node in sorted_nodes(nodes, scope.known(), where):
        for text in (node.name, node.op_type, node.domain, *[a.name for a in node.attribute[:]]):
            check_text(text, where)
        label = context.label(node)
        function = context.functions.find(node) or _extension(scope, node, context, label)
        if function is not None:
            _import_call(scope, node, function, context, label)
        else:
            _import_operator(scope, node, context, label)


def _extension(scope: Scope, node: onnx.NodeProto, context: Context, label: str) -> LocalFunction | None:
    """Return the definition of an operator outside ONNX's own domains, if tinycomp has one for the node."""
    if not is_extension(node) or normal_domain(node.domain) not in context.opsets:
        return None
    where = _place(label, node)
    attributes = resolve(node.attribute, context.environment, where)
    return extension(node, attributes, operands_of(scope, node, 0, where), context.opsets.get("", 1))


def _import_operator(scope: Scope, node: onnx.NodeProto, context: Context, label: str) -> None:
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
    least = (0, 1) if signature is None else (signature.inputs[0], signature.outputs[0])
    operands, outputs = operands_of(scope, node, least[0], where), result_names(node, least[1])
    if signature is not None:
        signature.check_operands(operands, len(outputs), where)
        version = signature.version
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


def _place(label: str, node: onnx.NodeProto) -> str:
    return f"node {label} ({node.op_type})"


def _import_bodies(
    scope: Scope, draft: Node, protos: dict[str, onnx.GraphProto], context: Context, where: str
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
    bodies = {}
    for key, proto in protos.items():
        body = _open_body(proto, key, formals[: len(formals) - len(passed)], inner, f"{where}, {key}")
        for name, value in captured.items():
            if value is None or name in passed:
                formal = None if value is None else body.graph.add_input(body.free_name(name), value.type)
                if name not in body.reserved:
                    body.define(name, formal)
        _bind_outer_constants(scope, body, proto)
        import_contents(body, proto, inner, f"{where}, {key}")
        bodies[key] = body.graph
    return bodies


def _open_body(proto: onnx.GraphProto, key: str, formals: Sequence[Type], context: Context, where: str) -> Scope:
    """Return the scope of a body with its own inputs, typed from the operands (declared types fill what is unknown)."""
    if len(proto.input) != len(formals):
        raise ModelError(
            "the body has the wrong number of inputs",
            where=where,
            expected=str(len(formals)),
            found=str(len(proto.input)),
        )
    check_text(proto.name, where)
    graph = Graph(proto.name or key, infer=infer_node_types, opsets=context.opsets)
    scope = Scope(graph, defined_names(proto, where), declared_types(proto, context))
    for entry, wanted in zip(proto.input, formals, strict=True):
        declared = type_from_proto(entry.type)
        if not entry.name:
            raise ModelError("an input of the body has no name", where=where)
        _check_formal(entry.name, declared, wanted, where)
        scope.define(entry.name, graph.add_input(entry.name, declared if wanted == UNKNOWN else wanted))
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


def _bind_outer_constants(outer: Scope, body: Scope, proto: onnx.GraphProto) -> None:
    for name in free_names(proto):
        array = outer.array(name)
        if array is not None:
            body.define_constant(name, array)


def _import_call(scope: Scope, node: onnx.NodeProto, function: LocalFunction, context: Context, label: str) -> None:
    """Import a call: a node whose body is the function, specialised for the types and attributes of this call."""
    proto, where = function.proto, _place(label, node)
    attributes = resolve(node.attribute, context.environment, where)
    call = onnx.NodeProto(attribute=attributes)
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
        environment=function.environment(call, where),
        prefix=f"{label}/",
    )
    draft.sources = (label,)
    insert(scope, draft, outputs, context, bodies={"body": function_body(function, operands, inner)})


def _call_draft(proto: onnx.FunctionProto, operands: Sequence[Value | None]) -> Node:
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
    graph = Graph(proto.name, infer=infer_node_types, opsets=function.opsets)
    scope = Scope(graph, produced_names(proto.node))
    for name, operand in zip(proto.input, operands, strict=True):
        formal = graph.add_input(name, UNKNOWN if operand is None else operand.type)
        scope.define(name, None if operand is None else formal)
    _import_nodes(scope, proto.node, context, function.label)
    _set_outputs(scope, list(proto.output), function.label)
    return graph


def check_default(name: str, type_: Type, found: Type) -> None:
    """Refuse an initializer that does not fit the input of the same name.

    Raises:
        ModelError: If dtype or shape contradict each other.
    """
    if not compatible(type_, found):
        raise ModelError(
            "the initializer does not fit the input of the same name",
            where=f'input "{name}"',
            expected=str(type_),
            found=str(found),
        )
