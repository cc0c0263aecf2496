"""Read tensors, types and attributes from ONNX's messages, be they onnx's own or those of :mod:`tinycomp.ir.messages`.

Nothing in a file is trusted, and everything is checked before anything is allocated: dims may be negative or overflow,
the element type may be unknown, and the data may be longer or shorter than dtype and dims say. ``raw_data`` is viewed,
not copied; elements of less than eight bits are unpacked to one byte each, as ml_dtypes stores them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinycomp.errors import MemoryLimitError, ModelError, UnsupportedError
from tinycomp.ir.messages import AttributeProto, Dimension, SparseTensorProto, TensorProto, TypeProto
from tinycomp.ir.types import (
    UNKNOWN,
    UNKNOWN_DTYPE,
    MapType,
    OptionalType,
    SequenceType,
    TensorType,
    Type,
    bits,
    numpy_dtype,
    tensor_type,
)

ReadExternal = Callable[[TensorProto, int, str], "NDArray[np.uint8]"]
"""Fetches the bytes of an external tensor: (tensor, wanted number of bytes, where) -> bytes as uint8."""

_MAX_BYTES = 1 << 46
_MAX_SPARSE_BYTES = 1 << 31
_FIELD_BY_DTYPE = {
    "float32": "float_data",
    "complex64": "float_data",
    "float64": "double_data",
    "complex128": "double_data",
    "int64": "int64_data",
    "uint32": "uint64_data",
    "uint64": "uint64_data",
    "string": "string_data",
}
_WIDE = {"float_data": "float32", "double_data": "float64", "int64_data": "int64", "uint64_data": "uint64"}


def tensor_from_proto(
    tensor: TensorProto,
    where: str = "",
    read_external: ReadExternal | None = None,
) -> np.ndarray:
    """Return the array that a TensorProto holds; string tensors become object arrays of str.

    Args:
        tensor: The tensor; its ``raw_data`` is viewed, so the array is read-only.
        where: Name of the tensor for messages.
        read_external: Fetches the bytes of a tensor whose data lie in another file.

    Raises:
        ModelError: If dims, element type and data do not fit each other.
        UnsupportedError: If the tensor is a segment of a larger one.
    """
    where = where or f'tensor "{tensor.name}"'
    dtype, dims = _checked_header(tensor, where)
    if tensor.data_location == TensorProto.EXTERNAL:
        return _external(tensor, dtype, dims, where, read_external)
    if tensor.HasField("raw_data"):
        if dtype == "string":
            raise ModelError("a string tensor cannot have raw_data", where=where, expected="string_data")
        return array_from_bytes(np.frombuffer(tensor.raw_data, np.uint8), dtype, dims, where)
    return _from_fields(tensor, dtype, dims, where)


def array_from_bytes(data: NDArray[np.uint8], dtype: str, dims: Sequence[int], where: str) -> np.ndarray:
    """View little-endian ``data`` as an array, unpacking elements of less than eight bits.

    Raises:
        ModelError: If the number of bytes is not what dtype and dims ask for.
    """
    count, width = math.prod(dims), bits(dtype)
    wanted = byte_length(dtype, dims)
    if data.size != wanted:
        raise ModelError(
            f"the data are too {'short' if data.size < wanted else 'long'} for {dtype}{list(dims)}",
            where=where,
            expected=f"{wanted} bytes",
            found=f"{data.size} bytes",
            hint="The file may be damaged; export the model again.",
        )
    if width < 8:
        return _unpacked(data, dtype, width, count).reshape(dims)
    if dtype == "bool" and data.size and data.max() > 1:
        data = (data != 0).view(np.uint8)
    return data.view(numpy_dtype(dtype)).reshape(dims)


def byte_length(dtype: str, dims: Sequence[int]) -> int:
    """Return how many bytes the packed elements of a tensor take in a file."""
    return (math.prod(dims) * bits(dtype) + 7) // 8


def sparse_from_proto(sparse: SparseTensorProto, where: str = "") -> np.ndarray:
    """Return a sparse tensor as a dense array.

    Raises:
        ModelError: If indices and values do not fit each other or the dims.
        MemoryLimitError: If the dense form would take more than 2 GiB.
    """
    where = where or f'sparse tensor "{sparse.values.name}"'
    values = tensor_from_proto(sparse.values, where)
    indices = tensor_from_proto(sparse.indices, where)
    dims = _checked_dims(sparse.dims, values.dtype.itemsize, where)
    if math.prod(dims) * values.dtype.itemsize > _MAX_SPARSE_BYTES:
        raise MemoryLimitError(f"the dense form of {dims} would be too large", where=where, expected="up to 2 GiB")
    flat = _flat_indices(indices, values, dims, where)
    dense = np.zeros(math.prod(dims), values.dtype) if values.dtype != object else np.full(math.prod(dims), "", object)
    dense[flat] = values
    return dense.reshape(dims)


def _flat_indices(indices: np.ndarray, values: np.ndarray, dims: tuple[int, ...], where: str) -> np.ndarray:
    fits = indices.dtype == np.int64 and values.ndim == 1
    if fits and indices.shape == values.shape:
        flat, inside = indices, bool(np.all((indices >= 0) & (indices < math.prod(dims))))
    elif fits and indices.shape == (values.size, len(dims)):
        inside = bool(np.all((indices >= 0) & (indices < np.array(dims, np.int64))))
        flat = np.ravel_multi_index(tuple(indices.T), dims) if inside and values.size else indices[:, 0]
    else:
        raise ModelError(
            "indices do not fit the values of the sparse tensor",
            where=where,
            expected=f"int64[{values.size}] or int64[{values.size}, {len(dims)}]",
            found=f"{indices.dtype}{list(indices.shape)}",
        )
    if not inside:
        raise ModelError("an index of the sparse tensor lies outside", where=where, expected=f"within {list(dims)}")
    return flat


def _checked_header(tensor: TensorProto, where: str) -> tuple[str, tuple[int, ...]]:
    if tensor.HasField("segment"):
        raise UnsupportedError("segmented tensors are not supported", where=where)
    dtype = dtype_from_number(tensor.data_type, where)
    if dtype == UNKNOWN_DTYPE:
        raise ModelError("the tensor has no element type", where=where, expected="data_type of at least 1", found="0")
    return dtype, _checked_dims(tensor.dims[:], max(1, bits(dtype) // 8), where)


def _checked_dims(dims: Sequence[int], itemsize: int, where: str) -> tuple[int, ...]:
    sizes = tuple(dims)
    if min(sizes, default=0) < 0:
        raise ModelError("a dimension is negative", where=where, expected="dims of at least 0", found=str(list(sizes)))
    if math.prod([d or 1 for d in sizes]) * itemsize > _MAX_BYTES:
        raise ModelError(
            "the product of the dims is too large",
            where=where,
            expected=f"up to {_MAX_BYTES} bytes",
            found=f"dims {list(sizes)}",
        )
    if len(sizes) > 64:
        raise UnsupportedError("too many dimensions", where=where, expected="up to 64", found=str(len(sizes)))
    return sizes


def _external(
    tensor: TensorProto, dtype: str, dims: tuple[int, ...], where: str, read: ReadExternal | None
) -> np.ndarray:
    if dtype == "string":
        raise ModelError("a string tensor cannot have external data", where=where, expected="string_data")
    if read is None:
        raise ModelError(
            "the data is in another file, and the folder of the model is unknown",
            where=where,
            hint="Give the model by its path instead of as bytes or ModelProto.",
        )
    return array_from_bytes(read(tensor, byte_length(dtype, dims), where), dtype, dims, where)


def _from_fields(tensor: TensorProto, dtype: str, dims: tuple[int, ...], where: str) -> np.ndarray:
    name = _FIELD_BY_DTYPE.get(dtype, "int32_data")
    held = getattr(tensor, name)
    width, count = bits(dtype), math.prod(dims)
    wanted = 2 * count if dtype.startswith("complex") else byte_length(dtype, dims) if width < 6 else count
    if len(held) != wanted:
        raise ModelError(
            f"{name} has the wrong length for {dtype}{list(dims)}",
            where=where,
            expected=f"{wanted} elements",
            found=f"{len(held)} elements",
        )
    if dtype == "string":
        return _strings(held, where).reshape(dims)
    array = np.array(held, dtype=_WIDE.get(name, "int32"))
    return _narrowed(array, dtype, width, count).reshape(dims)


def _strings(held: Sequence[bytes], where: str) -> np.ndarray:
    array = np.empty(len(held), dtype=object)
    try:
        array[:] = [s.decode() for s in held]
    except UnicodeDecodeError as error:
        raise ModelError("a string of the tensor is not UTF-8", where=where) from error
    return array


def _narrowed(array: np.ndarray, dtype: str, width: int, count: int) -> np.ndarray:
    """Reinterpret what a typed field holds (int32_data carries the bit patterns of every small type)."""
    wanted = numpy_dtype(dtype)
    if dtype.startswith("complex"):
        return array.view(wanted)
    if width < 6:
        return _unpacked(array.astype(np.uint8), dtype, width, count)
    if width == 6:
        return (array.astype(np.uint8) & 0x3F).view(wanted)
    if dtype in ("float16", "bfloat16"):
        return array.astype(np.uint16).view(wanted)
    if dtype.startswith("float8"):
        return array.astype(np.uint8).view(wanted)
    return array.astype(wanted, copy=False)


def _unpacked(data: NDArray[np.uint8], dtype: str, width: int, count: int) -> np.ndarray:
    """Unpack ``count`` elements of ``width`` bits, lowest bits first."""
    if 8 % width:
        stream = np.unpackbits(data, count=count * width, bitorder="little").reshape(count, width)
        codes = np.packbits(stream, axis=1, bitorder="little").reshape(-1)
    else:
        shifts = np.arange(0, 8, width, dtype=np.uint8)
        codes = ((data[:, np.newaxis] >> shifts) & np.uint8((1 << width) - 1)).reshape(-1)[:count]
    return codes.view(numpy_dtype(dtype))


_NAMES = """
    float uint8 int8 uint16 int16 int32 int64 string bool float16 double uint32 uint64 complex64 complex128 bfloat16
    float8e4m3fn float8e4m3fnuz float8e5m2 float8e5m2fnuz uint4 int4 float4e2m1 float8e8m0 uint2 int2 float6e2m3
    float6e3m2
"""
ELEMENT_NAMES: Mapping[int, str] = {1 + place: name for place, name in enumerate(_NAMES.split())}
"""ONNX's names of element types by their numbers: those of TensorProto.DataType, in small letters."""
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
DTYPE_BY_NUMBER: dict[int, str] = {number: _RENAMED.get(name, name) for number, name in ELEMENT_NAMES.items()}
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


def type_from_proto(proto: TypeProto) -> Type:
    """Return the type that a TypeProto describes; an empty one is :data:`UNKNOWN`.

    Elements of a sequence that are declared without dimensions may have any: models, ONNX's own among them, write that
    for elements whose shapes differ.
    """
    kind = proto.WhichOneof("value")
    if kind == "tensor_type":
        inner = proto.tensor_type
        rank = len(inner.shape.dim)
        if rank > MAX_RANK:
            raise UnsupportedError("too many dimensions", expected=f"up to {MAX_RANK}, as numpy has", found=str(rank))
        dims = None
        if inner.HasField("shape"):
            dims = tuple([d.dim_value if d.dim_value > 0 else _dim(d) for d in inner.shape.dim[:]])
        return tensor_type(dtype_from_number(inner.elem_type), dims)
    if kind == "sequence_type":
        element = type_from_proto(proto.sequence_type.elem_type)
        if isinstance(element, TensorType) and element.shape == ():
            element = TensorType(element.dtype, None)
        return SequenceType(element)
    if kind == "optional_type":
        return OptionalType(type_from_proto(proto.optional_type.elem_type))
    if kind == "map_type":
        key = dtype_from_number(proto.map_type.key_type)
        if key == UNKNOWN_DTYPE:
            raise ModelError("the keys of a map have no type", expected="an integer type or string", found="undefined")
        return MapType(key, type_from_proto(proto.map_type.value_type))
    if kind is None:
        return UNKNOWN
    raise UnsupportedError(f"values of kind {kind} are not supported", expected="tensor, sequence, optional or map")


PLACEHOLDERS = frozenset({
    "", "?", "*", "none", "null", "nan", "unk", "unknown", "undefined", "unspecified", "dynamic", "any",
})  # fmt: skip
"""What exporters write, in small letters, in place of a name for a dimension of which they know nothing."""


def dimension_name(text: str) -> str | None:
    """Return the name of a dimension, or None for a placeholder or number, which says that the size is unknown.

    Dimensions of one name have one size. Those with a placeholder are unknown each on its own.

    >>> [dimension_name(text) for text in ("batch", "unk__12", "?", "None", "-1")]
    ['batch', 'unk__12', None, None, None]
    """
    plain = text.strip().lower()
    return None if plain in PLACEHOLDERS or plain.removeprefix("-").isdecimal() else text


def _dim(dim: Dimension) -> int | str | None:
    kind = dim.WhichOneof("value")
    if kind == "dim_value":
        return int(dim.dim_value) if dim.dim_value >= 0 else None
    if kind == "dim_param" and not isinstance(dim.dim_param, str):
        raise ModelError("the name of a dimension is not UTF-8", expected="UTF-8 text", found=repr(dim.dim_param)[:80])
    return dimension_name(dim.dim_param) if kind == "dim_param" else None


def attribute_from_proto(proto: AttributeProto, where: str = "", read: ReadExternal | None = None) -> Any:
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
    kind = proto.type or attribute_kind(proto)
    if kind in _PLAIN_FIELDS:
        return getattr(proto, _PLAIN_FIELDS[kind])
    if kind in _LIST_FIELDS:
        return _listed(getattr(proto, _LIST_FIELDS[kind]))
    label = f'{where}, attribute "{proto.name}"'
    match kind:
        case AttributeProto.STRING:
            return _text(proto.s)
        case AttributeProto.STRINGS:
            texts: dict[bytes, str | bytes] = {}
            return [texts[s] if s in texts else texts.setdefault(s, _text(s)) for s in proto.strings]
        case AttributeProto.TENSOR:
            return tensor_from_proto(proto.t, label, read)
        case AttributeProto.TENSORS:
            return [tensor_from_proto(t, label, read) for t in proto.tensors]
        case AttributeProto.SPARSE_TENSOR:
            return sparse_from_proto(proto.sparse_tensor, label)
        case AttributeProto.SPARSE_TENSORS:
            return [sparse_from_proto(t, label) for t in proto.sparse_tensors]
        case AttributeProto.TYPE_PROTO:
            return type_from_proto(proto.tp)
        case AttributeProto.TYPE_PROTOS:
            return [type_from_proto(t) for t in proto.type_protos]
    raise ModelError(f"unknown attribute kind {kind}", where=label, expected="a kind that ONNX defines")


def attribute_kind(proto: AttributeProto) -> int:
    """Return the kind of an attribute; files older than IR version 2 leave it out, and the filled field tells."""
    if proto.type:
        return int(proto.type)
    for field, kind in _KIND_BY_FIELD.items():
        if len(getattr(proto, field)) if field in _REPEATED else proto.HasField(field):
            return kind
    return 0


_PLAIN_FIELDS: dict[int, str] = {AttributeProto.FLOAT: "f", AttributeProto.INT: "i"}
_LIST_FIELDS: dict[int, str] = {AttributeProto.FLOATS: "floats", AttributeProto.INTS: "ints"}
_KIND_BY_FIELD = {
    "f": AttributeProto.FLOAT,
    "i": AttributeProto.INT,
    "s": AttributeProto.STRING,
    "t": AttributeProto.TENSOR,
    "g": AttributeProto.GRAPH,
    "floats": AttributeProto.FLOATS,
    "ints": AttributeProto.INTS,
    "strings": AttributeProto.STRINGS,
    "tensors": AttributeProto.TENSORS,
    "graphs": AttributeProto.GRAPHS,
}
_REPEATED = frozenset({"floats", "ints", "strings", "tensors", "graphs"})


_MANY = 4096
"""From how many numbers on a list shares equal ones."""


def _listed(numbers: Sequence[int] | Sequence[float]) -> list[Any]:
    """Return numbers as a list; in a long one, such as those of large forests, equal ones are one object if few differ.

    >>> numbers = _listed(memoryview(np.array([1000, 7, 1000] * _MANY)))
    >>> numbers[:3], numbers[0] is numbers[2]
    ([1000, 7, 1000], True)
    """
    if len(numbers) < _MANY or not isinstance(numbers, memoryview):
        return list(numbers)
    array = np.asarray(numbers)
    if (array == array[0]).all():
        return [numbers[0]] * len(array)
    low, high = array.min().item(), array.max().item()
    if array.dtype.kind == "i" and high - low < len(array):
        array = np.array(range(low, high + 1), object)[array - low]
    return [*array.tolist()]


def _text(raw: bytes) -> str | bytes:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw
