"""Operators that ONNX defines by others: the function body of a node, for its types and attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tinycomp.frontend.definition_body import Definition, defined
from tinycomp.frontend.functions import FunctionTable, LocalFunction
from tinycomp.frontend.loading import opset_imports
from tinycomp.frontend.onnx_import import Context, function_body
from tinycomp.index import DEFINITIONS
from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.infer import node_proto
from tinycomp.ir.messages import AttributeProto, FunctionProto, NodeProto, read_message
from tinycomp.ir.schemas import Schema, known_opsets, schema
from tinycomp.ir.types import compatible
from tinycomp.lazy import LazyTable

_IR_VERSION = 10
_OWN = LazyTable[str, Definition](
    __package__, {file: names.split() for file, names in DEFINITIONS.items()}, lambda module: module.DEFINITIONS
)
"""Definitions of operators that ONNX gives no function, or none that is exact, by name with the domain."""
_MENDED = {("", "Attention", 23): 24}
"""Versions whose function ONNX has mended in a later one: that of Attention 23 takes no mask shorter than all keys."""


def defines(node: Node) -> bool:
    """Tell whether tinycomp itself defines what the node computes; it does so where the node may need it."""
    name = node.qualified_op
    return name in _OWN and _OWN[name].needed(node)


def is_defined_by_others(node: Node) -> bool:
    """Tell whether ONNX or tinycomp defines the node's operator by others, and the node holds no graphs."""
    if defines(node):
        return True
    operator = schema(node.op, node.domain, node.version)
    return operator is not None and not node.bodies and operator.has_function


def definition(node: Node) -> Graph | None:
    """Return what ONNX defines a node to compute, as a graph of its own; None where nobody says it.

    The inputs of the graph are the distinct operands that are not constant, its outputs the results that have a
    name; the constants are in it. Its operators are those of the opset that ONNX wrote the function for.

    Args:
        node: A node; its graph stays as it is.

    Raises:
        TinycompError: If the function does not work for the node's operands.
    """
    if defines(node):
        body = defined(node, _OWN[node.qualified_op])
        if body is not None:
            _bind(body, [v for v in node.inputs if v is not None])
        return body
    version = _MENDED.get((node.domain, node.op, node.version), node.version)
    operator = schema(node.op, node.domain, version)
    if operator is None or not is_defined_by_others(node):
        return None
    function = _function(node, operator, version)
    if function is None:
        return None
    wanted = {name for name, value in zip(function.output, node.outputs, strict=False) if value.name}
    function.output = [name for name in function.output if name in wanted]
    operands = [*node.inputs, *[None] * (len(function.input) - len(node.inputs))]
    # A function outside ONNX's own domain may use ONNX's operators without an import of them.
    opsets = {"": known_opsets()[""], **opset_imports(function, node.label, _IR_VERSION)}
    local = LocalFunction(function, opsets, {})
    context = Context(
        ir_version=_IR_VERSION,
        opsets=local.opsets,
        functions=FunctionTable([], _IR_VERSION),
        environment=_attributes(node, operator),
        prefix=f"{node.label}/",
    )
    body = function_body(local, operands, context)
    _bind(body, operands)
    # ONNX's function of a Celu gives a scalar one dimension.
    fits = all(compatible(inner.type, v.type) for inner, v in zip(body.outputs, node.used_outputs(), strict=True))
    return body if fits else None


def _bind(body: Graph, operands: Sequence[Value | None]) -> None:
    """Give the body its constants, and leave it one input for each of the other operands."""
    standing: dict[Value, Value] = {}
    for formal, operand in zip(list(body.inputs), operands, strict=True):
        if operand is not None:
            if operand not in standing:
                standing[operand] = formal if operand.const is None else body.add_const(operand.const, formal.name)
            body.replace_uses(formal, standing[operand])
        if operand is None or standing[operand] is not formal:
            body.remove_input(formal)


def _function(node: Node, operator: Schema, version: int) -> FunctionProto | None:
    """Return the newest function of the operator; one that depends on the node is asked for with its types."""
    import onnx

    from tinycomp.ir.to_proto import type_to_proto

    known: Any = onnx.defs.get_schema(node.op, max_inclusive_version=version, domain=node.domain)
    newest = known.all_function_opset_versions[-1]
    if known.has_function:
        text = known.get_function_with_opset_version(newest)
    else:
        types = [onnx.TypeProto() if v is None else type_to_proto(v.type) for v in node.inputs]
        text = known.get_context_dependent_function_with_opset_version(
            newest, node_proto(node, operator).SerializeToString(), [t.SerializeToString() for t in types]
        )
    function = read_message(FunctionProto, memoryview(text))
    assert function is not None, "onnx writes what is read here"
    return function if function.node else None


def _attributes(node: Node, operator: Schema) -> Mapping[str, AttributeProto]:
    """Return the node's attributes, and the default values of those that it leaves out."""
    whole = {name: a.default for name, a in operator.attributes.items() if a.default is not None} | node.attrs
    proto = node_proto(node, operator, whole).SerializeToString()
    written = read_message(NodeProto, memoryview(proto))
    assert written is not None, "onnx writes what is read here"
    return {a.name: a for a in written.attribute}
