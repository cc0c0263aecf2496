"""ONNX models as graphs.

Nothing in a model is trusted: whatever does not fit ONNX's rules is refused with the name of the node, before any of
it reaches a pass or a kernel. Types are inferred as the nodes are inserted, initializers and Constant nodes become
constant values, and the bodies of control flow and of function calls become closed graphs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import onnx

from tinycomp.errors import ModelError
from tinycomp.frontend.contents import check_default, declared_types, import_contents
from tinycomp.frontend.external_data import ExternalData
from tinycomp.frontend.functions import FunctionTable
from tinycomp.frontend.loading import LoadedModel, check_text, load_model, opset_imports
from tinycomp.frontend.naming import check_nesting, defined_names
from tinycomp.frontend.scope import Context, Scope
from tinycomp.frontend.shapes import Shapes, checked_shapes, fixed_symbols
from tinycomp.ir.graph import Graph
from tinycomp.ir.proto import type_from_proto
from tinycomp.ir.types import UNKNOWN, TensorType, substitute, type_of
from tinycomp.ops.typing import infer_node_types

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
            read them after the file was written to (:meth:`tinycomp.mapped.Mapping.check` tells).

    Returns:
        The graph. An input that has an initializer (IR version 4 and later) keeps it in ``graph.defaults``.

    Raises:
        ModelError: If the model is not valid ONNX, or ``shapes`` does not fit it.
        UnsupportedError: If the model is valid but newer or more deeply nested than tinycomp can take.
        TypeInferenceError: If operands do not fit their operator.
    """
    loaded = load_model(model, mapped=mapped)
    proto = loaded.proto
    declared = {entry.name: type_from_proto(entry.type) for entry in proto.graph.input}
    overrides = checked_shapes(declared, shapes or {}, loaded.where)
    context = Context(
        ir_version=proto.ir_version,
        opsets=opset_imports(proto, loaded.where, proto.ir_version),
        functions=FunctionTable(proto.functions, proto.ir_version),
        read_external=None if loaded.folder is None else ExternalData(loaded.folder).read,
        sizes=fixed_symbols(declared, overrides),
        reshaped=bool(overrides),
    )
    return _import_main(loaded, context, overrides)


def _import_main(loaded: LoadedModel, context: Context, overrides: Mapping[str, TensorType]) -> Graph:
    proto = loaded.proto.graph
    for text in (proto.name, *(t for entry in loaded.proto.metadata_props for t in (entry.key, entry.value))):
        check_text(text, loaded.where)
    check_nesting(proto.node, loaded.where)
    context.functions.check_expansion(proto.node, loaded.where)
    graph = Graph(proto.name or "main", infer=infer_node_types, opsets=context.opsets)
    graph.metadata = {entry.key: entry.value for entry in loaded.proto.metadata_props}
    scope = Scope(graph, defined_names(proto, loaded.where), declared_types(proto, context))
    _import_inputs(scope, proto, context, overrides, loaded.where)
    import_contents(scope, proto, context, loaded.where, loaded.weights)
    for value in graph.inputs:
        if value.name in graph.defaults:
            check_default(value.name, value.type, type_of(graph.defaults[value.name]))
    return graph


def _import_inputs(
    scope: Scope, proto: onnx.GraphProto, context: Context, overrides: Mapping[str, TensorType], where: str
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
        scope.define(entry.name, scope.graph.add_input(entry.name, type_))
