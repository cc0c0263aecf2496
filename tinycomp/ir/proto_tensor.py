"""TensorProto and SparseTensorProto as numpy arrays, checked before anything is allocated.

Nothing in a file is trusted: dims may be negative or overflow, the element type may be unknown, and the data may be
longer or shorter than dtype and dims say. ``raw_data`` is viewed, not copied; elements of less than eight bits are
unpacked to one byte each, as ml_dtypes stores them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx
from numpy.typing import NDArray

from tinycomp.errors import MemoryLimitError, ModelError, UnsupportedError
from tinycomp.ir.types import UNKNOWN_DTYPE, bits, numpy_dtype

ReadExternal = Callable[[onnx.TensorProto, int, str], "NDArray[np.uint8]"]
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
    tensor: onnx.TensorProto,
    where: str = "",
    read_external: ReadExternal | None = None,
    raw_data: NDArray[np.uint8] | None = None,
) -> np.ndarray:
    """Return the array that a TensorProto holds; string tensors become object arrays of str.

    Args:
        tensor: The tensor; its ``raw_data`` is viewed, so the array is read-only.
        where: Name of the tensor for messages.
        read_external: Fetches the bytes of a tensor whose data lie in another file.
        raw_data: What the tensor's field of this name held, where it has been read apart; it is viewed as well.

    Raises:
        ModelError: If dims, element type and data do not fit each other.
        UnsupportedError: If the tensor is a segment of a larger one.
    """
    where = where or f'tensor "{tensor.name}"'
    dtype, dims = _checked_header(tensor, where)
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        return _external(tensor, dtype, dims, where, read_external)
    if raw_data is None and tensor.HasField("raw_data"):
        raw_data = np.frombuffer(tensor.raw_data, np.uint8)
    if raw_data is not None:
        if dtype == "string":
            raise ModelError("a string tensor cannot have raw_data", where=where, expected="string_data")
        return array_from_bytes(raw_data, dtype, dims, where)
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


def sparse_from_proto(sparse: onnx.SparseTensorProto, where: str = "") -> np.ndarray:
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


def _checked_header(tensor: onnx.TensorProto, where: str) -> tuple[str, tuple[int, ...]]:
    from tinycomp.ir.proto import dtype_from_number

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
    tensor: onnx.TensorProto, dtype: str, dims: tuple[int, ...], where: str, read: ReadExternal | None
) -> np.ndarray:
    if dtype == "string":
        raise ModelError("a string tensor cannot have external data", where=where, expected="string_data")
    if read is None:
        raise ModelError(
            "the data lie in another file, and the folder of the model is unknown",
            where=where,
            hint="Give the model by its path instead of as bytes or ModelProto.",
        )
    return array_from_bytes(read(tensor, byte_length(dtype, dims), where), dtype, dims, where)


def _from_fields(tensor: onnx.TensorProto, dtype: str, dims: tuple[int, ...], where: str) -> np.ndarray:
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
