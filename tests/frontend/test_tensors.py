from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tinycomp.errors import MemoryLimitError, ModelError, UnsupportedError
from tinycomp.ir.proto import NUMBER_BY_DTYPE, attribute_from_proto, sparse_from_proto, tensor_from_proto
from tinycomp.ir.to_proto import attribute_to_proto, tensor_to_proto
from tinycomp.ir.types import SequenceType, TensorType, numpy_dtype

DTYPES = sorted(set(NUMBER_BY_DTYPE) - {"string"})


def sample(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(0)
    low, high = (0, 2) if dtype == "bool" else (0, 4) if dtype.startswith("uint") or "e8m0" in dtype else (-2, 2)
    return rng.integers(low, high, shape).astype(numpy_dtype(dtype))


@pytest.mark.parametrize("shape", [(3, 5), (1,), (), (0, 2), (4, 4)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_raw_data_of_every_dtype(dtype: str, shape: tuple[int, ...]) -> None:
    array = sample(dtype, shape)
    proto = numpy_helper.from_array(array, "t")
    found = tensor_from_proto(proto)
    assert (found.dtype, found.shape) == (array.dtype, shape)
    assert found.tobytes() == array.tobytes() == numpy_helper.to_array(proto).tobytes()
    assert tensor_to_proto(found, "t") == proto


@pytest.mark.parametrize("dtype", DTYPES)
def test_typed_fields_of_every_dtype(dtype: str) -> None:
    array = sample(dtype, (3, 5))
    proto = helper.make_tensor("t", NUMBER_BY_DTYPE[dtype], array.shape, array.reshape(-1).tolist())
    assert not proto.HasField("raw_data")
    found = tensor_from_proto(proto)
    assert found.dtype == array.dtype
    assert found.tobytes() == array.tobytes()


def test_strings() -> None:
    array = np.array([["a", "é"], ["", "🦊"]], object)
    assert tensor_from_proto(tensor_to_proto(array)).tolist() == array.tolist()


def float_tensor(**fields: object) -> TensorProto:
    return TensorProto(**{"name": "t", "data_type": TensorProto.FLOAT, "dims": [2, 2], "raw_data": bytes(16)} | fields)


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ({"raw_data": bytes(15)}, ModelError, "the data are too short for float32[2, 2]; expected 16 bytes; found 15"),
        ({"raw_data": bytes(17)}, ModelError, "the data are too long for float32[2, 2]; expected 16 bytes; found 17"),
        ({"raw_data": b""}, ModelError, "expected 16 bytes; found 0 bytes"),
        ({"raw_data": None, "float_data": [1.0]}, ModelError,
         "float_data has the wrong length for float32[2, 2]; expected 4 elements; found 1 elements"),
        ({"raw_data": None}, ModelError, "expected 4 elements; found 0 elements"),
        ({"dims": [-1, 2]}, ModelError, "a dimension is negative; expected dims of at least 0; found [-1, 2]"),
        ({"dims": [1 << 40, 1 << 40]}, ModelError, "the product of the dims is too large"),
        ({"dims": [0, 1 << 62, 1 << 62], "raw_data": b""}, ModelError, "the product of the dims is too large"),
        ({"data_type": 99}, ModelError, "unknown element type 99; expected one of 1.."),
        ({"data_type": 0}, ModelError, "the tensor has no element type; expected data_type of at least 1; found 0"),
        ({"data_type": TensorProto.INT4, "dims": [3], "raw_data": b"\0"}, ModelError, "expected 2 bytes; found 1"),
        ({"data_type": TensorProto.UINT2, "dims": [5], "raw_data": bytes(3)}, ModelError, "expected 2 bytes; found 3"),
        ({"data_type": TensorProto.INT4, "dims": [3], "raw_data": None, "int32_data": [1, 2, 3]}, ModelError,
         "int32_data has the wrong length for int4[3]; expected 2 elements; found 3 elements"),
        ({"data_type": TensorProto.STRING}, ModelError, "a string tensor cannot have raw_data; expected string_data"),
        ({"data_type": TensorProto.STRING, "raw_data": None, "string_data": [b"\xff"] * 4}, ModelError,
         "a string of the tensor is not UTF-8"),
        ({"segment": TensorProto.Segment(begin=0, end=1)}, UnsupportedError, "segmented tensors are not supported"),
        ({"dims": [1] * 65, "raw_data": bytes(4)}, UnsupportedError, "too many dimensions; expected up to 64"),
    ],
)  # fmt: skip
def test_malformed_tensors(fields: dict, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)) as caught:
        tensor_from_proto(float_tensor(**fields))
    assert str(caught.value).startswith('tensor "t": ')


def sparse(values: list[float], indices: np.ndarray, dims: list[int]) -> onnx.SparseTensorProto:
    return onnx.SparseTensorProto(
        values=numpy_helper.from_array(np.array(values, np.float32), "s"),
        indices=numpy_helper.from_array(indices, "i"),
        dims=dims,
    )


def test_sparse_tensors_with_flat_and_with_row_indices() -> None:
    flat = sparse_from_proto(sparse([1, 2], np.array([0, 4]), [2, 3]))
    rows = sparse_from_proto(sparse([1, 2], np.array([[0, 0], [1, 1]]), [2, 3]))
    assert flat.tolist() == rows.tolist() == [[1, 0, 0], [0, 2, 0]]


@pytest.mark.parametrize(
    ("indices", "dims", "error", "text"),
    [
        (np.array([0]), [2, 3], ModelError, "indices do not fit the values of the sparse tensor; expected int64[2] or"),
        (np.array([0, 6]), [2, 3], ModelError, "an index of the sparse tensor lies outside; expected within [2, 3]"),
        (np.array([0, -1]), [2, 3], ModelError, "an index of the sparse tensor lies outside"),
        (np.array([[0, 0], [2, 0]]), [2, 3], ModelError, "an index of the sparse tensor lies outside"),
        (np.array([0, 1]), [1 << 20, 1 << 20], MemoryLimitError, "the dense form of (1048576, 1048576) would be too"),
    ],
)
def test_malformed_sparse_tensors(indices: np.ndarray, dims: list[int], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        sparse_from_proto(sparse([1, 2], indices, dims))


@pytest.mark.parametrize(
    "value",
    [1, 1.5, "é", b"\xff", [1, 2], [1.5, 2.5], ["a", "b"], TensorType("int8", (1, "N")),
     SequenceType(TensorType("float32", None))],
)  # fmt: skip
def test_attributes_there_and_back(value: object) -> None:
    assert attribute_from_proto(attribute_to_proto("a", value)) == value


def test_tensor_attributes_there_and_back() -> None:
    array = np.arange(3, dtype=np.int16)
    assert np.array_equal(attribute_from_proto(attribute_to_proto("a", array)), array)
    (found,) = attribute_from_proto(attribute_to_proto("a", [array]))
    assert np.array_equal(found, array)


def test_an_attribute_without_a_kind_is_read_by_its_field() -> None:
    attribute = helper.make_attribute("a", [1, 2])
    attribute.ClearField("type")
    assert attribute_from_proto(attribute) == [1, 2]
