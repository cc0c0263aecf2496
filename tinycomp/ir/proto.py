"""The border to ONNX's protobuf classes: types, tensors and attributes, in both directions."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper

from tinycomp.errors import ModelError, UnsupportedError
from tinycomp.ir.proto_tensor import ReadExternal, sparse_from_proto, tensor_from_proto
from tinycomp.ir.types import (
    UNKNOWN,
    UNKNOWN_DTYPE,
    MapType,
    OptionalType,
    SequenceType,
    TensorType,
    Type,
    dtype_name,
)

_ELEMENT_NAMES = {
    number: name.lower() for name, number in onnx.TensorProto.DataType.items() if name not in ("UNDEFINED",)
}
_RENAMED = {
    "float": "float32",
    "double": "float64",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2",
    "float8e5m2fnuz": "float8_e5m2fnuz",
    "float8e8m0": "float8_e8m0fnu",
    "float4e2m1": "float4_e2m1fn",
    "float6e2m3": "float6_e2m3fn",
    "float6e3m2": "float6_e3m2fn",
}
DTYPE_BY_NUMBER: dict[int, str] = {number: _RENAMED.get(name, name) for number, name in _ELEMENT_NAMES.items()}
NUMBER_BY_DTYPE: dict[str, int] = {name: number for number, name in DTYPE_BY_NUMBER.items()}
MAX_RANK = 64
"""The most dimensions that a numpy array can have."""


def dtype_from_number(number: int, where: str = "") -> str:
    """Return the dtype name of an ONNX element type.

    Raises:
        ModelError: If ONNX has no such element type.
    """
    if number == 0:
        return UNKNOWN_DTYPE
    if number not in DTYPE_BY_NUMBER:
        raise ModelError(
            f"unknown element type {number}",
            where=where,
            expected=f"one of 1..{max(DTYPE_BY_NUMBER)}",
            found=str(number),
        )
    return DTYPE_BY_NUMBER[number]


def type_from_proto(proto: onnx.TypeProto) -> Type:
    """Return the type that a TypeProto describes; an empty one is :data:`UNKNOWN`."""
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        inner = proto.tensor_type
        rank = len(inner.shape.dim)
        if rank > MAX_RANK:
            raise UnsupportedError("too many dimensions", expected=f"up to {MAX_RANK}, as numpy has", found=str(rank))
        dims = [_dim(d) for d in inner.shape.dim[:]] if inner.HasField("shape") else None
        return TensorType(dtype_from_number(inner.elem_type), None if dims is None else tuple(dims))
    if kind == "sequence_type":
        return SequenceType(type_from_proto(proto.sequence_type.elem_type))
    if kind == "optional_type":
        return OptionalType(type_from_proto(proto.optional_type.elem_type))
    if kind == "map_type":
        return MapType(dtype_from_number(proto.map_type.key_type), type_from_proto(proto.map_type.value_type))
    if kind is None:
        return UNKNOWN
    raise UnsupportedError(f"values of kind {kind} are not supported", expected="tensor, sequence, optional or map")


def _dim(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    kind = dim.WhichOneof("value")
    if kind == "dim_value":
        return int(dim.dim_value) if dim.dim_value >= 0 else None
    if kind == "dim_param" and not isinstance(dim.dim_param, str):
        raise ModelError("the name of a dimension is not UTF-8", expected="UTF-8 text", found=repr(dim.dim_param)[:80])
    return (dim.dim_param or None) if kind == "dim_param" else None


def type_to_proto(type_: Type) -> onnx.TypeProto:
    """Return the TypeProto of a type; the layout is not part of ONNX and is left out."""
    if isinstance(type_, SequenceType):
        return helper.make_sequence_type_proto(type_to_proto(type_.element))
    if isinstance(type_, OptionalType):
        return helper.make_optional_type_proto(type_to_proto(type_.element))
    if isinstance(type_, MapType):
        return helper.make_map_type_proto(NUMBER_BY_DTYPE[type_.key], type_to_proto(type_.value))
    proto = onnx.TypeProto()
    if type_.dtype == UNKNOWN_DTYPE:
        return proto
    proto.tensor_type.elem_type = NUMBER_BY_DTYPE[type_.dtype]
    if type_.shape is not None:
        proto.tensor_type.shape.SetInParent()
        for size in type_.shape:
            dim = proto.tensor_type.shape.dim.add()
            if isinstance(size, int):
                dim.dim_value = size
            elif size is not None:
                dim.dim_param = size
    return proto


def tensor_to_proto(array: np.ndarray, name: str = "") -> onnx.TensorProto:
    """Return the TensorProto of an array; object arrays are string tensors."""
    if dtype_name(array.dtype) == "string":
        encoded: list[Any] = [str(s).encode() for s in array.reshape(-1)]
        return helper.make_tensor(name, onnx.TensorProto.STRING, array.shape, encoded)
    return numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)


def attribute_to_proto(name: str, value: Any, schema: defs.OpSchema | None = None) -> onnx.AttributeProto:
    """Return the AttributeProto of a plain Python value; ``schema`` decides what an empty list or a whole float is."""
    kind = schema.attributes[name].type if schema is not None and name in schema.attributes else None
    if isinstance(value, np.ndarray):
        return helper.make_attribute(name, tensor_to_proto(value))
    if isinstance(value, (TensorType, SequenceType, OptionalType, MapType)):
        return helper.make_attribute(name, type_to_proto(value))
    if isinstance(value, bool):
        value = int(value)
    if isinstance(value, (list, tuple)):
        value = [tensor_to_proto(v) if isinstance(v, np.ndarray) else v for v in value]
    attr_type = None if kind is None else int(kind.value)  # type: ignore[attr-defined]
    if attr_type == onnx.AttributeProto.FLOAT and isinstance(value, int):
        value = float(value)
    if attr_type == onnx.AttributeProto.FLOATS:
        value = [float(v) for v in value]
    if isinstance(value, list) and not value:
        return helper.make_attribute(name, value, attr_type=attr_type or onnx.AttributeProto.INTS)
    return helper.make_attribute(name, value)


def attribute_from_proto(proto: onnx.AttributeProto, where: str = "", read: ReadExternal | None = None) -> Any:
    """Return an attribute as a plain Python value; graphs are not values and are left to the importer.

    Args:
        proto: The attribute, without a reference to a function's attribute.
        where: The node, for messages.
        read: Fetches external data of tensors.

    Returns:
        int, float, str (bytes where it is not UTF-8), ndarray, :data:`Type`, or a list of one of these.

    Raises:
        ModelError: If the kind is unknown, or a tensor in it is malformed.
    """
    kind = attribute_kind(proto)
    if kind in _PLAIN_FIELDS:
        return getattr(proto, _PLAIN_FIELDS[kind])
    if kind in _LIST_FIELDS:
        return getattr(proto, _LIST_FIELDS[kind])[:]
    label = f'{where}, attribute "{proto.name}"'
    match kind:
        case onnx.AttributeProto.STRING:
            return _text(proto.s)
        case onnx.AttributeProto.STRINGS:
            return [_text(s) for s in proto.strings]
        case onnx.AttributeProto.TENSOR:
            return tensor_from_proto(proto.t, label, read)
        case onnx.AttributeProto.TENSORS:
            return [tensor_from_proto(t, label, read) for t in proto.tensors]
        case onnx.AttributeProto.SPARSE_TENSOR:
            return sparse_from_proto(proto.sparse_tensor, label)
        case onnx.AttributeProto.SPARSE_TENSORS:
            return [sparse_from_proto(t, label) for t in proto.sparse_tensors]
        case onnx.AttributeProto.TYPE_PROTO:
            return type_from_proto(proto.tp)
        case onnx.AttributeProto.TYPE_PROTOS:
            return [type_from_proto(t) for t in proto.type_protos]
    raise ModelError(f"unknown attribute kind {kind}", where=label, expected="a kind that ONNX defines")


def attribute_kind(proto: onnx.AttributeProto) -> int:
    """Return the kind of an attribute; files older than IR version 2 leave it out, and the filled field tells."""
    if proto.type:
        return int(proto.type)
    for field, kind in _KIND_BY_FIELD.items():
        if len(getattr(proto, field)) if field in _REPEATED else proto.HasField(field):
            return kind
    return 0


_PLAIN_FIELDS: dict[int, str] = {onnx.AttributeProto.FLOAT: "f", onnx.AttributeProto.INT: "i"}
_LIST_FIELDS: dict[int, str] = {onnx.AttributeProto.FLOATS: "floats", onnx.AttributeProto.INTS: "ints"}
_KIND_BY_FIELD = {
    "f": onnx.AttributeProto.FLOAT,
    "i": onnx.AttributeProto.INT,
    "s": onnx.AttributeProto.STRING,
    "t": onnx.AttributeProto.TENSOR,
    "g": onnx.AttributeProto.GRAPH,
    "floats": onnx.AttributeProto.FLOATS,
    "ints": onnx.AttributeProto.INTS,
    "strings": onnx.AttributeProto.STRINGS,
    "tensors": onnx.AttributeProto.TENSORS,
    "graphs": onnx.AttributeProto.GRAPHS,
}
_REPEATED = frozenset({"floats", "ints", "strings", "tensors", "graphs"})


def _text(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw
