"""Types of any node: an operator's own rule, the rules for nodes with bodies, else onnx's inference."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from tinycomp import symbolic
from tinycomp.ir.graph import Graph, Node
from tinycomp.ir.infer import infer_types
from tinycomp.ir.proto import schema
from tinycomp.ir.types import UNKNOWN_DTYPE, TensorType, Type
from tinycomp.ops import OPS, OpRecord, contents
from tinycomp.ops.body_types import types_by_bodies
from tinycomp.ops.facts import Facts as CheckFacts
from tinycomp.ops.facts import Operand, Shape
from tinycomp.ops.rule import Facts
from tinycomp.symbolic import Size, UndecidedError


def infer_node_types(node: Node) -> list[Type]:
    """Return the types of a node's results; formals of its bodies are typed from the operands on the way.

    Raises:
        TypeInferenceError: If the operands do not fit the operator, or a body does not fit its node.
    """
    return _with_sizes(node, _infer(node))


def _with_sizes(node: Node, types: list[Type]) -> list[Type]:
    """Return types with what follows from sizes: dimensions that inference lost, and the contents of shapes."""
    operator = OPS.of(node.op, node.domain)
    if operator is not None and operator.infer is not None:
        if operator.contents is None:
            return types
        return _with_contents(types, contents.contents_by(operator.contents, node, types, record_of(node)))
    shapes = [t.static_shape if isinstance(t, TensorType) else None for t in types]
    return _sized(node, types) if None in shapes else types


def _with_contents(types: Sequence[Type], known: Sequence[contents.Contents | None]) -> list[Type]:
    return [
        t if held is None or not isinstance(t, TensorType) else TensorType(t.dtype, t.shape, t.layout, held)
        for t, held in zip(types, known, strict=False)
    ]


def _sized(node: Node, types: list[Type]) -> list[Type]:
    operator = OPS.of(node.op, node.domain)
    rule = None if operator is None else operator.sizes
    if rule is None:
        return types
    operands = [None if v is None or v.shape is None else _sizes_of(v.shape) for v in node.inputs]
    try:
        shapes = rule(node, operands)
    except (UndecidedError, ZeroDivisionError, IndexError, ValueError):
        return types
    return [_with_shape(t, shape) for t, shape in zip(types, [*shapes, *[None] * len(types)], strict=False)]


def _sizes_of(shape: Shape) -> tuple[Size | None, ...]:
    return tuple([None if dim is None else symbolic.size(dim) for dim in shape])


def _with_shape(type_: Type, sizes: tuple[Size | None, ...] | None) -> Type:
    """Return a type with better dimensions where it has no numbers."""
    if not isinstance(type_, TensorType) or sizes is None:
        return type_
    if type_.shape is not None and len(type_.shape) != len(sizes):
        return type_
    dims = [
        old if isinstance(old, int) or new is None else symbolic.dimension(new)
        for old, new in zip(type_.shape or (None,) * len(sizes), sizes, strict=True)
    ]
    return TensorType(type_.dtype, tuple(dims), type_.layout)


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


def check_node(node: Node) -> None:
    """Refuse a node that can never run.

    Nodes that have passed are not remembered: to find out whether one has been seen takes longer than to look again.

    Raises:
        TypeInferenceError: If one of its attributes, constants or shapes contradicts its operator or another of them.
    """
    operator = OPS.of(node.op, node.domain)
    if operator is not None and operator.checks:
        facts = CheckFacts(node)
        for check in operator.checks:
            check(facts)


def plain_types(node: Node) -> Sequence[TensorType] | None:
    """Return the type of the only result of a node, or None for a node that onnx's inference has to judge.

    Args:
        node: A node that has passed the checks of its operator.
    """
    operator = OPS.of(node.op, node.domain)
    rule = None if operator is None else operator.plain_type
    if rule is None or node.version < rule.since or len(node.outputs) != 1:
        return None
    if node.attrs and not node.attrs.keys() <= _attributes(node.op, node.version):
        return None
    if not rule.least <= len(node.inputs) <= rule.most or None in node.inputs[: rule.least]:
        return None
    operands: list[Operand] = []
    for value in node.inputs:
        if value is not None:
            type_ = value.type
            if not isinstance(type_, TensorType) or type_.layout or type_.dtype == UNKNOWN_DTYPE or type_.shape is None:
                return None
            operands.append((type_.dtype, type_.shape))
    if rule.dtypes is not None and (operands[0][0] not in rule.dtypes or len({dtype for dtype, _ in operands}) > 1):
        return None
    result = rule.type_of_result(node, operands)
    return None if result is None else [TensorType(*result)]


@functools.cache
def _attributes(op: str, version: int) -> frozenset[str]:
    """Return the names of the attributes that onnx knows."""
    definition = schema(op, "", version)
    return frozenset() if definition is None else frozenset(definition.attributes)


def _infer(node: Node) -> list[Type]:
    operator = OPS.of(node.op, node.domain)
    if operator is not None and operator.infer is not None:
        return list(operator.infer(Facts(node)))[: len(node.outputs)]
    check_node(node)
    plain = plain_types(node)
    if plain is not None:
        return list(plain)
    record = record_of(node)
    if record is not None and record.type_rule is not None:
        return record.type_rule(node)
    typed = types_by_bodies(node)
    return infer_types(node) if typed is None else typed
