"""Output types of nodes: onnx's own per-operator inference, and the rule for nodes with bodies.

Both import and every later insertion go through :func:`infer_types`, so a graph never holds a stale type.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from tinycomp.errors import TypeInferenceError
from tinycomp.ir.graph import Attr, Node, Value
from tinycomp.ir.proto import type_from_proto
from tinycomp.ir.schemas import OPTIONAL, Schema, schema
from tinycomp.ir.types import UNKNOWN, OptionalType, SequenceType, TensorType, Type, join

if TYPE_CHECKING:
    import onnx

_T = TypeVar("_T")
_A = TypeVar("_A")
_SMALL = 256
"""Constants up to this many elements take part in inference (shapes, axes, pads, …)."""
_FEW = 8
"""The same for floats, of which inference reads scales and limits only."""
_IR_VERSION = 10


Key = tuple[Any, ...]
"""What :func:`node_key` returns."""


def node_key(node: Node) -> Key:
    """Return all that onnx's inference reads of a node without bodies, hashable: nodes of one key have the same types.

    Of constants only the small ones are in it; of the others it has dtype and shape.
    """
    attrs = node.attrs
    return (
        node.op,
        node.domain,
        node.version,
        tuple([(name, frozen(attrs[name])) for name in sorted(attrs)]),
        tuple([_operand_key(v) for v in _own_operands(node)]),
        tuple([bool(v.name) for v in node.outputs]),
    )


def infer_types(node: Node) -> list[Type]:
    """Return the types of a node's results from its operands, attributes and bodies.

    Raises:
        TypeInferenceError: If the operands do not fit the operator.
    """
    if node.is_call:
        return [v.type for v in node.body.outputs]
    return _from_branches(node) if node.bodies else operator_types(node)


def operator_types(node: Node) -> list[Type]:
    """Return the types that onnx's inference for the operator gives, which sees operands and plain attributes only.

    Raises:
        TypeInferenceError: If the operands do not fit the operator.
    """
    if schema(node.op, node.domain, node.version) is None:
        return [UNKNOWN for _ in node.outputs]
    try:
        return list(Uncompared(node).ask(_infer_cached, node_key(node)))
    except _failures() as error:
        if any(v is not None and _is_vague(v.type) for v in node.inputs):
            return [UNKNOWN for _ in node.outputs]
        raise _failure(node, error) from error


def _failures() -> tuple[type[Exception], ...]:
    """Return what onnx's inference raises; the last ones where it reads past the end of a shape."""
    from onnx import checker, shape_inference

    own = (shape_inference.InferenceError, checker.ValidationError)
    return (*own, RuntimeError, ValueError, TypeError, IndexError, OverflowError)


def _own_operands(node: Node) -> Sequence[Value | None]:
    """Return the operands that the operator itself has, without what its bodies capture."""
    return node.inputs[: len(node.inputs) - node.captures]


def _from_branches(node: Node) -> list[Type]:
    """Return what both branches of an If agree on; other nodes with bodies need a rule (see ``tinycomp.ops``)."""
    branches = [[v.type for v in body.outputs] for body in node.bodies.values()]
    if len({len(types) for types in branches}) > 1:
        raise TypeInferenceError(
            "the bodies differ in their number of results",
            where=f"node {node.label} ({node.qualified_op})",
            found=", ".join(f"{name}: {len(body.outputs)}" for name, body in node.bodies.items()),
        )
    return [functools.reduce(join, types) for types in zip(*branches, strict=True)]


class Uncompared(Generic[_T]):
    """Carries something past the key of a cache: equal keys give equal answers whoever asks.

    The cache keeps this object with the key, so it lets go of what it holds once the answer is there.
    """

    def __init__(self, held: _T) -> None:
        self.held = held

    def ask(self, cached: Callable[[Uncompared[_T], Any], _A], key: Any) -> _A:
        """Return the answer of a cached function of this object and a key; only once per object."""
        try:
            return cached(self, key)
        finally:
            del self.held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Uncompared)

    def __hash__(self) -> int:
        return 0


def frozen(value: Any) -> Any:
    """Return an attribute or array as something hashable, equal only for what is of one type and value."""
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, (list, tuple)):
        return (type(value), tuple(value), tuple(map(type, value)))
    return (type(value), value)


def _operand_key(value: Value | None) -> Any:
    if value is None:
        return None
    type_ = value.type
    seen = (type_.dtype, type_.shape, type_.layout) if isinstance(type_, TensorType) else type_
    return (seen, frozen(value.const)) if informs(value) else seen


def informs(value: Value) -> bool:
    """Tell whether a value is a constant small enough to take part in inference."""
    if value.const is None:
        return False
    return value.const.size <= (_FEW if value.const.dtype.kind == "f" else _SMALL) and value.const.dtype.kind in "iubf"


@functools.lru_cache(maxsize=8192)
def _infer_cached(holder: Uncompared[Node], key: Key) -> Sequence[Type]:
    import onnx
    from onnx import defs, shape_inference

    from tinycomp.ir.to_proto import tensor_to_proto, type_to_proto

    node = holder.held
    known = schema(node.op, node.domain, node.version)
    assert known is not None
    found = defs.get_schema(node.op, max_inclusive_version=node.version, domain=node.domain)
    proto = node_proto(node, known)
    operands = [(name, v) for name, v in zip(proto.input, _own_operands(node), strict=True) if v is not None]
    types = {name: type_to_proto(v.type) for name, v in operands}
    data = {name: tensor_to_proto(v.const, name) for name, v in operands if v.const is not None and informs(v)}
    opset = onnx.OperatorSetIdProto(domain=node.domain, version=node.version)
    result = shape_inference.infer_node_outputs(
        found, proto, types, data, opset_imports=[opset], ir_version=_IR_VERSION
    )
    return tuple(_output_type(result.get(name)) for name in proto.output)


def node_proto(node: Node, found: Schema, attrs: Mapping[str, Attr] | None = None) -> onnx.NodeProto:
    """Return a node without its bodies as onnx's class, with operands ``i0``, ``i1``, … and results ``o0``, ….

    Results that are skipped have a name all the same, unless they are optional. ``found`` is the operator's schema,
    ``attrs`` stands for the attributes that the node has.
    """
    import onnx

    from tinycomp.ir.to_proto import attribute_to_proto

    proto = onnx.NodeProto(op_type=node.op, domain=node.domain)
    proto.input.extend("" if v is None else f"i{i}" for i, v in enumerate(_own_operands(node)))
    for i, value in enumerate(node.outputs):
        proto.output.append(f"o{i}" if value.name or not may_lack(found, i) else "")
    proto.attribute.extend(attribute_to_proto(k, v, found) for k, v in (node.attrs if attrs is None else attrs).items())
    return proto


def may_lack(found: Schema, place: int) -> bool:
    """Tell whether an operator has a result that ONNX lets a model skip."""
    return found.outputs[min(place, len(found.outputs) - 1)] == OPTIONAL


def _output_type(proto: onnx.TypeProto | None) -> Type:
    return UNKNOWN if proto is None else type_from_proto(proto)


def _is_vague(type_: Type) -> bool:
    """Tell whether the element type is unknown, which onnx's inference may take for an error."""
    while isinstance(type_, (SequenceType, OptionalType)):
        type_ = type_.element
    return type_ == UNKNOWN


def _failure(node: Node, error: Exception) -> TypeInferenceError:
    operands = ", ".join("absent" if v is None else str(v.type) for v in node.inputs)
    return TypeInferenceError(
        f"the operands do not fit the operator: {str(error).strip()}",
        where=f"node {node.label} ({node.qualified_op}, version {node.version})",
        found=f"operands ({operands})",
        hint="Check the shapes and attributes, for instance with onnx.checker.check_model(model, full_check=True).",
    )
