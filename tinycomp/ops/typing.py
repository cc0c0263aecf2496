"""Types of any node: an operator's own rule, the rules for nodes with bodies, else onnx's inference."""

from __future__ import annotations

from tinycomp.ir.graph import Graph, Node
from tinycomp.ir.infer import infer_types
from tinycomp.ir.types import TensorType, Type, map_tensors, without_shape
from tinycomp.ops import OPS, OpRecord, contents
from tinycomp.ops.body_types import types_by_bodies
from tinycomp.ops.rule import ruled
from tinycomp.symbolic import UndecidedError


def infer_node_types(node: Node) -> list[Type]:
    """Return the types of a node's results; formals of its bodies are typed from the operands on the way.

    Raises:
        TypeInferenceError: If the operands do not fit the operator, or a body does not fit its node.
    """
    operator = OPS.of(node.op, node.domain)
    rule = None if operator is None else operator.infer
    typed = types_by_bodies(node) if rule is None or node.bodies else None
    if typed is not None:
        return typed
    if operator is None or rule is None:
        return infer_types(node)
    try:
        types = list(ruled(node, rule).types)
    except UndecidedError:  # what a rule cannot say of expressions, a run shows
        return [map_tensors(type_, without_shape) for type_ in infer_types(node)]
    first = types[0] if types else None
    if operator.contents is None or not isinstance(first, TensorType) or first.dtype not in contents.INTEGERS:
        return types
    known = contents.contents_by(operator.contents, node, types, record_of(node))
    return [
        t if held is None or not isinstance(t, TensorType) else TensorType(t.dtype, t.shape, t.layout, held)
        for t, held in zip(types, known, strict=False)
    ]


def has_contents(node: Node) -> bool:
    """Tell whether the results of a node may have contents."""
    known = OPS.of(node.op, node.domain)
    return known is not None and known.contents is not None


def use_records(graph: Graph) -> None:
    """Let nodes that are added from now on be typed by the operators' records, tinycomp's own operators among them."""
    graph.infer = infer_node_types
    for _, node in graph.walk():
        for body in node.bodies.values():
            body.infer = infer_node_types


def record_of(node: Node) -> OpRecord | None:
    """Return the record in force for a node, or None."""
    return OPS.find(node.op, node.domain, node.version)
