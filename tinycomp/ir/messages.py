"""ONNX's messages of Protocol Buffers, read without onnx and protobuf, whose import takes longer than most compiles.

The classes have the names, fields and constants of onnx's, those that an import reads, and are read as protobuf's are:
a field that is not set has its default, :meth:`Message.HasField` tells it apart. So either serve the importer: a model
that the caller has parsed already, and one that is read here. They are for reading: defaults are shared, and long
``raw_data`` may be views. See ``onnx/onnx.proto`` in ONNX's repository for what the fields mean.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, TypeVar

_wire: Any = importlib.import_module("tinycomp.ir._wire")

_M = TypeVar("_M", bound="Message")

_INT64, _INT32, _UINT64, _ENUM, _FLOAT, _DOUBLE, _TEXT, _BYTES, _MESSAGE = range(9)
"""Kinds of fields, as runtime_c/python/wire.c numbers them."""
_DEFAULTS: Sequence[Any] = (0, 0, 0, 0, 0.0, 0.0, "", b"")


class _Field(NamedTuple):
    number: int
    kind: int
    message: str = ""
    values: int = 0
    repeated: bool = False
    one_of: bool = False


def _one(number: int, kind: int | str, *, values: Sequence[int] = (), one_of: bool = False) -> Any:
    """Declare a field; the kind may be the name of a message, and ``values`` those of an enumeration."""
    allowed = sum(1 << value for value in values)
    if isinstance(kind, str):
        return _Field(number, _MESSAGE, kind, allowed, one_of=one_of)
    return _Field(number, kind, "", allowed, one_of=one_of)


def _many(number: int, kind: int | str) -> Any:
    """Declare a repeated field."""
    return _one(number, kind)._replace(repeated=True)


class Message:
    """What messages have in common; the fields that are set are the attributes of the object itself."""

    FIELDS: ClassVar[Mapping[str, _Field]] = {}
    TABLE: ClassVar[object]

    def __init_subclass__(cls) -> None:
        """Take the fields from the declarations."""
        cls.FIELDS = {name: field for name, field in vars(cls).items() if isinstance(field, _Field)}
        for name, field in cls.FIELDS.items():
            if field.repeated:
                setattr(cls, name, ())
            elif field.kind != _MESSAGE:
                setattr(cls, name, _DEFAULTS[field.kind])

    def HasField(self, name: str) -> bool:  # noqa: N802 - as protobuf's messages have it
        """Tell whether a field is set."""
        return name in self.__dict__

    def WhichOneof(self, group: str) -> str | None:  # noqa: N802 - as protobuf's messages have it
        """Return the name of the field that is set, of those that exclude each other; a message has one such group."""
        del group
        return next((name for name in self.__dict__ if self.FIELDS[name].one_of), None)

    def CopyFrom(self, other: Message) -> None:  # noqa: N802 - as protobuf's messages have it
        """Take the fields of another message; both share what these hold."""
        self.__dict__.clear()
        self.__dict__.update(other.__dict__)


class StringStringEntryProto(Message):
    """A text by a text."""

    key: str = _one(1, _TEXT)
    value: str = _one(2, _TEXT)


class OperatorSetIdProto(Message):
    """The version of a domain."""

    domain: str = _one(1, _TEXT)
    version: int = _one(2, _INT64)


class Segment(Message):
    """The part of a tensor that is stored; see TensorProto.Segment."""


class TensorProto(Message):
    """A tensor."""

    DEFAULT, EXTERNAL = range(2)

    dims: Sequence[int] = _many(1, _INT64)
    data_type: int = _one(2, _INT32)
    segment: Segment = _one(3, "Segment")
    float_data: Sequence[float] = _many(4, _FLOAT)
    int32_data: Sequence[int] = _many(5, _INT32)
    string_data: Sequence[bytes] = _many(6, _BYTES)
    int64_data: Sequence[int] = _many(7, _INT64)
    name: str = _one(8, _TEXT)
    raw_data: bytes | memoryview = _one(9, _BYTES)
    double_data: Sequence[float] = _many(10, _DOUBLE)
    uint64_data: Sequence[int] = _many(11, _UINT64)
    external_data: Sequence[StringStringEntryProto] = _many(13, "StringStringEntryProto")
    data_location: int = _one(14, _ENUM, values=(DEFAULT, EXTERNAL))


class SparseTensorProto(Message):
    """A tensor of which only some elements are stored."""

    values: TensorProto = _one(1, "TensorProto")
    indices: TensorProto = _one(2, "TensorProto")
    dims: Sequence[int] = _many(3, _INT64)


class Dimension(Message):
    """A size; see TensorShapeProto.Dimension."""

    dim_value: int = _one(1, _INT64, one_of=True)
    dim_param: str = _one(2, _TEXT, one_of=True)


class TensorShapeProto(Message):
    """A shape."""

    dim: Sequence[Dimension] = _many(1, "Dimension")


class TensorTypeProto(Message):
    """The type of a tensor, sparse or not; see TypeProto.Tensor."""

    elem_type: int = _one(1, _INT32)
    shape: TensorShapeProto = _one(2, "TensorShapeProto")


class ElementTypeProto(Message):
    """The type of a sequence or of what may be absent; see TypeProto.Sequence and TypeProto.Optional."""

    elem_type: TypeProto = _one(1, "TypeProto")


class MapTypeProto(Message):
    """The type of a map; see TypeProto.Map."""

    key_type: int = _one(1, _INT32)
    value_type: TypeProto = _one(2, "TypeProto")


class OpaqueTypeProto(Message):
    """A type that nobody else knows; see TypeProto.Opaque."""


class TypeProto(Message):
    """A type."""

    tensor_type: TensorTypeProto = _one(1, "TensorTypeProto", one_of=True)
    sequence_type: ElementTypeProto = _one(4, "ElementTypeProto", one_of=True)
    map_type: MapTypeProto = _one(5, "MapTypeProto", one_of=True)
    opaque_type: OpaqueTypeProto = _one(7, "OpaqueTypeProto", one_of=True)
    sparse_tensor_type: TensorTypeProto = _one(8, "TensorTypeProto", one_of=True)
    optional_type: ElementTypeProto = _one(9, "ElementTypeProto", one_of=True)


class ValueInfoProto(Message):
    """A value with its type."""

    name: str = _one(1, _TEXT)
    type: TypeProto = _one(2, "TypeProto")


class AttributeProto(Message):
    """An attribute of a node."""

    UNDEFINED, FLOAT, INT, STRING, TENSOR, GRAPH, FLOATS, INTS, STRINGS, TENSORS, GRAPHS = range(11)
    SPARSE_TENSOR, SPARSE_TENSORS, TYPE_PROTO, TYPE_PROTOS = range(11, 15)

    name: str = _one(1, _TEXT)
    f: float = _one(2, _FLOAT)
    i: int = _one(3, _INT64)
    s: bytes = _one(4, _BYTES)
    t: TensorProto = _one(5, "TensorProto")
    g: GraphProto = _one(6, "GraphProto")
    floats: Sequence[float] = _many(7, _FLOAT)
    ints: Sequence[int] = _many(8, _INT64)
    strings: Sequence[bytes] = _many(9, _BYTES)
    tensors: Sequence[TensorProto] = _many(10, "TensorProto")
    graphs: Sequence[GraphProto] = _many(11, "GraphProto")
    tp: TypeProto = _one(14, "TypeProto")
    type_protos: Sequence[TypeProto] = _many(15, "TypeProto")
    type: int = _one(20, _ENUM, values=range(15))
    ref_attr_name: str = _one(21, _TEXT)
    sparse_tensor: SparseTensorProto = _one(22, "SparseTensorProto")
    sparse_tensors: Sequence[SparseTensorProto] = _many(23, "SparseTensorProto")


class NodeProto(Message):
    """A node."""

    input: Sequence[str] = _many(1, _TEXT)
    output: Sequence[str] = _many(2, _TEXT)
    name: str = _one(3, _TEXT)
    op_type: str = _one(4, _TEXT)
    attribute: Sequence[AttributeProto] = _many(5, "AttributeProto")
    domain: str = _one(7, _TEXT)
    overload: str = _one(8, _TEXT)


class GraphProto(Message):
    """A graph."""

    node: Sequence[NodeProto] = _many(1, "NodeProto")
    name: str = _one(2, _TEXT)
    initializer: Sequence[TensorProto] = _many(5, "TensorProto")
    input: Sequence[ValueInfoProto] = _many(11, "ValueInfoProto")
    output: Sequence[ValueInfoProto] = _many(12, "ValueInfoProto")
    value_info: Sequence[ValueInfoProto] = _many(13, "ValueInfoProto")
    sparse_initializer: Sequence[SparseTensorProto] = _many(15, "SparseTensorProto")


class FunctionProto(Message):
    """A function of a model."""

    name: str = _one(1, _TEXT)
    input: Sequence[str] = _many(4, _TEXT)
    output: Sequence[str] = _many(5, _TEXT)
    attribute: Sequence[str] = _many(6, _TEXT)
    node: Sequence[NodeProto] = _many(7, "NodeProto")
    opset_import: Sequence[OperatorSetIdProto] = _many(9, "OperatorSetIdProto")
    domain: str = _one(10, _TEXT)
    attribute_proto: Sequence[AttributeProto] = _many(11, "AttributeProto")
    overload: str = _one(13, _TEXT)
    metadata_props: Sequence[StringStringEntryProto] = _many(14, "StringStringEntryProto")


class ModelProto(Message):
    """A model."""

    ir_version: int = _one(1, _INT64)
    graph: GraphProto = _one(7, "GraphProto")
    opset_import: Sequence[OperatorSetIdProto] = _many(8, "OperatorSetIdProto")
    metadata_props: Sequence[StringStringEntryProto] = _many(14, "StringStringEntryProto")
    functions: Sequence[FunctionProto] = _many(25, "FunctionProto")


CLASSES: Mapping[str, type[Message]] = {each.__name__: each for each in Message.__subclasses__()}
"""The messages by name."""


def _settle(cls: type[Message]) -> None:
    """Give a class its table, and the messages in it what stands for them where they are not set."""
    rows = {}
    for name, field in cls.FIELDS.items():
        message = CLASSES.get(field.message)
        rows[field.number] = (name, field.kind, message, field.values, field.repeated, field.one_of)
        if message is not None and not field.repeated:
            setattr(cls, name, message())
    cls.TABLE = _wire.table(rows)


for _class in CLASSES.values():
    _settle(_class)


def read_message(cls: type[_M], data: memoryview, *, shares: bool = False) -> _M | None:
    """Return the message that bytes hold; None where they are damaged or unusual, which protobuf's parser is to judge.

    Args:
        cls: The class of the message.
        data: Its bytes.
        shares: Whether long ``raw_data`` may be views of ``data`` instead of copies.
    """
    found: _M | None = _wire.message(cls, data, shares)
    return found
