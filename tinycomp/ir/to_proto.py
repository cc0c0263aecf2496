"""Write tensors, types and attributes as onnx's messages; :mod:`tinycomp.ir.proto` reads them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tinycomp.errors import ModelError
from tinycomp.ir.proto import NUMBER_BY_DTYPE
from tinycomp.ir.schemas import Schema
from tinycomp.ir.text.literals import AbsentArray
from tinycomp.ir.types import UNKNOWN_DTYPE, MapType, OptionalType, SequenceType, TensorType, Type, dtype_name


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
    """Return the TensorProto of an array; object arrays are string tensors.

    Raises:
        ModelError: If the elements of the array are not there.
    """
    if isinstance(array, AbsentArray):
        raise ModelError(
            "the elements of a constant are missing", where=f'constant "{name}"',
            hint="The graph of a loaded module may hold only types and hashes: use the graph from before saving.",
        )  # fmt: skip
    if dtype_name(array.dtype) == "string":
        encoded: list[Any] = [str(s).encode() for s in array.reshape(-1)]
        return helper.make_tensor(name, onnx.TensorProto.STRING, array.shape, encoded)
    return numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)


def attribute_to_proto(name: str, value: Any, schema: Schema | None = None) -> onnx.AttributeProto:
    """Return the AttributeProto of a plain Python value; ``schema`` decides what an empty list or a whole float is."""
    kind = schema.attributes[name].kind if schema is not None and name in schema.attributes else None
    if isinstance(value, np.ndarray):
        return helper.make_attribute(name, tensor_to_proto(value))
    if isinstance(value, (TensorType, SequenceType, OptionalType, MapType)):
        return helper.make_attribute(name, type_to_proto(value))
    if isinstance(value, bool):
        value = int(value)
    if isinstance(value, (list, tuple)):
        value = [tensor_to_proto(v) if isinstance(v, np.ndarray) else v for v in value]
    if kind == onnx.AttributeProto.FLOAT and isinstance(value, int):
        value = float(value)
    if kind == onnx.AttributeProto.FLOATS:
        value = [float(v) for v in value]
    if isinstance(value, list) and not value:
        return helper.make_attribute(name, value, attr_type=kind or onnx.AttributeProto.INTS)
    return helper.make_attribute(name, value)
