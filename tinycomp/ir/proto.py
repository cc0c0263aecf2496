"""The border to ONNX's protobuf classes: types, tensors and attributes, in both directions."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper

from tinycomp.errors import ModelError, UnsupportedError
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
}
DTYPE_BY_NUMBER: dict[int, str] = {number: _RENAMED.get(name, name) for number, name in _ELEMENT_NAMES.items()}
NUMBER_BY_DTYPE: dict[str, int] = {name: number for number, name in DTYPE_BY_NUMBER.items()}


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
        dims = [_dim(d) for d in inner.shape.dim] if inner.HasField("shape") else None
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
