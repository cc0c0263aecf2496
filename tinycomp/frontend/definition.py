"""Operators that ONNX defines by others: the function body of a node, for its types and attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from onnx import defs

from tinycomp.frontend.definition_body import Definition, defined
from tinycomp.frontend.functions import FunctionTable, LocalFunction
from tinycomp.frontend.loading import opset_imports
from tinycomp.frontend.onnx_import import Context, function_body
from tinycomp.index import DEFINITIONS
from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.infer import node_proto
from tinycomp.ir.proto import schema, type_to_proto
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
    operator: Any = schema(node.op, node.domain, node.version)  # onnx's stubs lack what concerns functions
    return operator is not None and not node.bodies and bool(operator.all_function_opset_versions)


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
    function = _function(node, operator)
    if function is None:
        return None
    wanted = {name for name, value in zip(function.output, node.outputs, strict=False) if value.name}
    kept = [name for name in function.output if name in wanted]
    del function.output[:]
    function.output.extend(kept)
    operands = [*node.inputs, *[None] * (len(function.input) - len(node.inputs))]
    # A function outside ONNX's own domain may use ONNX's operators without an import of them.
    opsets = {"": defs.onnx_opset_version(), **opset_imports(function, node.label, _IR_VERSION)}
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


def _function(node: Node, operator: Any) -> onnx.FunctionProto | None:
    """Return the newest function of the operator; one that depends on the node is asked for with its types."""
    version = operator.all_function_opset_versions[-1]
    if operator.has_function:
        text = operator.get_function_with_opset_version(version)
    else:
        types = [onnx.TypeProto() if v is None else type_to_proto(v.type) for v in node.inputs]
        text = operator.get_context_dependent_function_with_opset_version(
            version, node_proto(node, operator).SerializeToString(), [t.SerializeToString() for t in types]
        )
    function = onnx.FunctionProto()
    function.ParseFromString(text)
    return function if function.node else None


def _attributes(node: Node, operator: defs.OpSchema) -> Mapping[str, onnx.AttributeProto]:
    """Return the node's attributes, and the default values of those that it leaves out."""
    defaults = {name: a.default_value for name, a in operator.attributes.items() if a.default_value.name}
    return {**defaults, **{a.name: a for a in node_proto(node, operator).attribute}}
