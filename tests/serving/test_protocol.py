"""Bodies of requests become the arrays that were sent, or errors that say what is wrong; results become bodies."""

from __future__ import annotations

import contextlib
import json
import math
import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinycomp.errors import UnsupportedError
from tinycomp.runtime.spec import TensorSpec

pytest.importorskip("orjson", reason='serving needs the extra "serve"')
pytest.importorskip("starlette", reason='serving needs the extra "serve"')

from tinycomp.serving.protocol import (
    DATATYPES,
    RequestError,
    Wanted,
    check_tensor,
    describe,
    read_request,
    write_response,
)

SAMPLES = {
    **{
        name: np.array([[0, 1, 2], [3, 4, 5]], np.dtype(name)) for name in DATATYPES if name.startswith(("int", "uint"))
    },
    **{name: np.array([[0, 1.5, -2], [3, 4, 0.25]], name) for name in ("float16", "float32", "float64")},
    "bfloat16": np.array([[0, 1.5, -2], [3, 4, 0.25]], ml_dtypes.bfloat16),
    "bool": np.array([[True, False, True], [False, False, True]]),
    "string": np.array([["", "a", "ü"], ["x\0y", "12345", "…"]], object),
}


def spec(dtype: str, name: str = "x") -> TensorSpec:
    return TensorSpec(name, dtype, ("N", 3))


def tensor(dtype: str = "float32", **other: Any) -> dict[str, Any]:
    return {"name": "x", "shape": [2, 3], "datatype": DATATYPES[dtype], "data": [1, 2, 3, 4, 5, 6], **other}


def read(body: Any, dtype: str = "float32", json_length: str | None = None) -> Any:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_request(data, json_length, [spec(dtype)], [spec(dtype, "y"), spec(dtype, "z")])


@pytest.mark.parametrize("dtype", DATATYPES)
def test_every_datatype_there_and_back_as_json(dtype: str) -> None:
    array = SAMPLES[dtype]
    for data in (array.tolist(), array.reshape(-1).tolist()):
        found = read({"inputs": [tensor(dtype, data=data)]}, dtype).inputs["x"]
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)
    body, length = write_response({"model_name": "m"}, [Wanted("y", False)], {"y": array}, [spec(dtype, "y")])
    (output,) = json.loads(body)["outputs"]
    assert length is None
    assert output == {
        "name": "y", "shape": [2, 3], "datatype": DATATYPES[dtype], "data": array.reshape(-1).tolist(),
    }  # fmt: skip


@pytest.mark.parametrize("dtype", DATATYPES)
def test_every_datatype_there_and_back_as_bytes(dtype: str) -> None:
    array = SAMPLES[dtype]
    body, length = write_response({}, [Wanted("x", True)], {"x": array}, [spec(dtype)])
    assert length is not None
    head = json.loads(body[:length])["outputs"]
    assert "data" not in head[0]
    for pad in range(3):  # bytes that begin anywhere
        request = json.dumps({"inputs": head, "id": "-" * pad}).encode()
        found = read(request + body[length:], dtype, str(len(request))).inputs["x"]
        assert found.dtype == array.dtype
        assert found.flags.aligned
        np.testing.assert_array_equal(found, array)


def test_texts_have_their_lengths_in_front() -> None:
    body, length = write_response({}, [Wanted("x", True)], {"x": np.array(["ab", ""], object)}, [spec("string")])
    assert body[length:] == struct.pack("<I", 2) + b"ab" + struct.pack("<I", 0)


def test_what_a_request_asks_for() -> None:
    asked = read({"id": "7", "inputs": [tensor()]})
    assert asked.id == "7"
    assert asked.outputs == (Wanted("y", False), Wanted("z", False))
    assert read({"inputs": [tensor()], "parameters": {"binary_data_output": True}}).outputs[1] == Wanted("z", True)
    outputs = [{"name": "z", "parameters": {"binary_data": True}}]
    assert read({"inputs": [tensor()], "outputs": outputs}).outputs == (Wanted("z", True),)
    assert read({"inputs": [tensor()], "outputs": []}).outputs == asked.outputs
    nothing = {"id": None, "outputs": None, "model_name": None, "parameters": {"priority": 0, "timeout": 0}}
    assert read({"inputs": [tensor(parameters=None)], **nothing}).outputs == asked.outputs
    assert asked.seconds == math.inf
    assert read({"inputs": [tensor()], "parameters": {"timeout": 2500, "priority": 3}}).seconds == 0.0025


def test_scalars_and_nothing() -> None:
    assert read({"inputs": [tensor(shape=[], data=[1.5])]}).inputs["x"].shape == ()
    assert read({"inputs": [tensor(shape=[0, 3], data=[])]}).inputs["x"].shape == (0, 3)
    assert read({"inputs": [tensor(shape=[2, 0], data=[[], []])]}).inputs["x"].shape == (2, 0)


BIG = 10**18
HOSTILE = {
    "nothing": (b"", "the body is not JSON"),
    "no JSON": (b"\xff\xfe", "the body is not JSON"),
    "NaN": (b'{"inputs": [{"name": "x", "data": [NaN]}]}', "NaN and infinity have no form in JSON"),
    "deep": (b"[" * 1_000_000, "the body is not JSON"),
    "deep and closed": (b"[" * 100_000 + b"]" * 100_000, "the body is not JSON"),
    "a list": ([], "the body is not an object of JSON; found a list"),
    "no inputs": ({}, "inputs: not a list of objects; found nothing"),
    "inputs of texts": ({"inputs": ["x"]}, "inputs: not a list of objects"),
    "an id that is a number": ({"id": 7, "inputs": []}, "id: not a text; found a number"),
    "no name": ({"inputs": [{}]}, r"inputs\[0\].name: not an input of the model; expected one of x; found nothing"),
    "another name": ({"inputs": [tensor(name="X")]}, 'found X. Did you mean "x"'),
    "twice": ({"inputs": [tensor(), tensor()]}, 'input "x": the input is given twice'),
    "another datatype": ({"inputs": [tensor(datatype="FP64")]}, 'input "x": wrong datatype; expected FP32; found FP64'),
    "no datatype": ({"inputs": [tensor(datatype=[1])]}, "wrong datatype; expected FP32; found a list"),
    "a negative dimension": ({"inputs": [tensor(shape=[-1, 3])]}, "not a shape; expected a list of whole numbers"),
    "a dimension with a fraction": ({"inputs": [tensor(shape=[2.0, 3])]}, "not a shape"),
    "a dimension that is true": ({"inputs": [tensor(shape=[True, 6])]}, "not a shape"),
    "no shape": ({"inputs": [tensor(shape=None)]}, "not a shape"),
    "many dimensions": ({"inputs": [tensor(shape=[1] * 100)]}, "too many dimensions; expected up to 32; found 100"),
    "huge": ({"inputs": [tensor(shape=[BIG, BIG, BIG])]}, "too large; expected sizes whose product is up to 2147"),
    "huge and empty": ({"inputs": [tensor(shape=[0, 2**63], data=[])]}, "too large; .* found .0, 9223372036854775808"),
    "beyond 64 bits": ({"inputs": [tensor(shape=[0, 2**64], data=[])]}, "not a shape"),
    "huge, nested": ({"inputs": [tensor(shape=[10**8, 3], data=[[1, 2, 3]])]}, "another shape than they say"),
    "too few": ({"inputs": [tensor(data=[1, 2])]}, r"wrong number of elements; expected 6, for shape \[2, 3\]; found"),
    "ragged": ({"inputs": [tensor(data=[[1, 2, 3], [4, 5]])]}, "the data have another shape than they say"),
    "too deep for the shape": ({"inputs": [tensor(data=[[[1], 2, 3], [4, 5, 6]])]}, "element 0: .* found a list"),
    "no data": ({"inputs": [{"name": "x", "shape": [1], "datatype": "FP32"}]}, "there are no data"),
    "data that are a text": ({"inputs": [tensor(data="123456")]}, "data: not a list; found a text"),
    "a text among numbers": ({"inputs": [tensor(data=[1, 2, 3, "4", 5, 6])]}, "element 3: wrong kind of .* a text"),
    "null": ({"inputs": [tensor(data=[1, 2, 3, None, 5, 6])]}, "element 3: wrong kind .* FP32; found null"),
    "true": ({"inputs": [tensor(data=[1, 2, 3, True, 5, 6])]}, "element 3: wrong kind of element"),
    "too large": ({"inputs": [tensor(data=[1e300] * 6)]}, "number is out of range; expected FP32"),
    "parameters": ({"inputs": [tensor(parameters=3)]}, "parameters: not an object of JSON; found a number"),
    "both": ({"inputs": [tensor(parameters={"binary_data_size": 0})]}, "data and binary_data_size do not go together"),
    "another output": ({"inputs": [tensor()], "outputs": [{"name": "w"}]}, r"outputs\[0\].name: not an output"),
    "an output twice": ({"inputs": [tensor()], "outputs": [{"name": "y"}] * 2}, 'output "y": .* asked for twice'),
    "outputs of no list": ({"inputs": [tensor()], "outputs": {}}, "outputs: not a list of objects; found an object"),
    "a field": ({"inputs": [], "output": []}, 'request: this server has no field "output" here; .* inputs, outputs'),
    "a field of an input": ({"inputs": [tensor(dType=1)]}, r'inputs\[0\]: .* no field "dType" .* datatype'),
    "fields of outputs": ({"inputs": [], "outputs": [{"name": "y", "data": 1}]}, r'outputs\[0\]: .* no field'),
    "a parameter": ({"inputs": [], "parameters": {"top_k": 1}}, 'no parameter "top_k" .* binary_data_output, priority'),
    "a session": ({"inputs": [], "parameters": {"sequence_id": 1}}, "keeps nothing from request to request"),
    "bytes of the request": ({"inputs": [], "parameters": {"binary_data": True}}, "an output binary_data"),
    "bytes of an input": ({"inputs": [tensor(parameters={"binary_data": True})]}, "no parameter .* binary_data_size"),
    "shared memory": ({"inputs": [tensor(parameters={"shared_memory_region": "r"})]}, "does not offer shared memory"),
    "its offset": ({"inputs": [tensor(parameters={"shared_memory_offset": 0})]}, r"inputs?.*\.parameters: .*_offset"),
    **{
        f"{name} of an output": (
            {"inputs": [], "outputs": [{"name": "y", "parameters": {name: 1}}]},
            rf'outputs\[0\]\.parameters: this server has no parameter "{name}" here; expected binary_data\..*{instead}',
        )
        for name, instead in (
            ("classification", "ask for the output itself"), ("shared_memory_region", "does not offer shared memory"),
            ("shared_memory_byte_size", "not offer shared"), ("binary_data_size", "has binary_data_output"),
            ("compression", "Leave it out"),
        )
    },
    **{
        f"{name}, {value}": ({"inputs": [], "parameters": {name: value}}, rf"\.{name}: not a whole number from 0 on")
        for name in ("priority", "timeout") for value in (-1, 0.5, True, "1", [1], 2**70)
    },
    "a flag": ({"inputs": [], "parameters": {"binary_data_output": 1}}, "not true or false; found a number"),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_wrong_is_said(case: str) -> None:
    body, message = HOSTILE[case]
    with pytest.raises(RequestError, match=message) as caught:
        read(body)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("dtype", "data", "message"),
    [
        ("int64", [1.0] * 6, "expected INT64; found a fraction"),
        ("int64", [2**63] * 6, "a number is out of range; expected INT64"),
        ("uint8", [256] * 6, "a number is out of range; expected UINT8"),
        ("uint8", [-1] * 6, "a number is out of range; expected UINT8"),
        ("int8", [True] * 6, "expected INT8; found true or false"),
        ("float16", [65520.0] * 6, "a number is out of range; expected FP16"),
        ("bool", [1] * 6, "expected BOOL; found a number"),
        ("string", [1] * 6, "expected BYTES; found a number"),
    ],
)
def test_elements_must_be_of_the_datatype(dtype: str, data: list[Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        read({"inputs": [tensor(dtype, data=data)]}, dtype)


def behind(size: Any, data: bytes, dtype: str = "float32", shift: int = 0) -> Any:
    given = tensor(dtype, parameters={"binary_data_size": size})
    del given["data"]
    head = json.dumps({"inputs": [given]}).encode()
    return read(head + data, dtype, str(len(head) + shift))


@pytest.mark.parametrize(
    ("size", "data", "dtype", "message"),
    [
        (24, b"1" * 20, "float32",
            "not a number of bytes that are there; expected up to 20 bytes after the JSON; found 24"),
        (-1, b"", "float32", "not a number of bytes that are there"),
        ("24", b"1" * 24, "float32", "not a number of bytes that are there; .* found a text"),
        (20, b"1" * 20, "float32", "wrong number of bytes; expected 6 elements of 4; found 20"),
        (24, b"1" * 25, "float32", "the body has bytes that no input takes; .* found 1 more"),
        (6, b"\0\1\0\1\2\1", "bool", "not booleans; expected bytes of 0 and 1; found 2"),
        (8, b"\0" * 8, "string", "wrong number of bytes; expected 6 texts; found 8 bytes"),
        (24, b"\xff" * 24, "string", "element 0: a text ends after the data"),
        (25, b"\0" * 25, "string", "wrong number of bytes; expected 6 texts of 24 bytes; found 25"),
        (25, b"\1\0\0\0\xff" + b"\0" * 20, "string", "element 0: not a text; expected UTF-8"),
    ],
)  # fmt: skip
def test_bytes_must_be_as_many_as_they_say(size: Any, data: bytes, dtype: str, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        behind(size, data, dtype)


@pytest.mark.parametrize("length", ["", "x", "-1", "1e3", "²", "9" * 30, "100000"])
def test_the_length_of_the_json_must_be_one(length: str) -> None:
    with pytest.raises(RequestError, match="Inference-Header-Content-Length: not the length of the JSON"):
        read({"inputs": [tensor()]}, json_length=length)


def test_numbers_that_json_does_not_have_need_bytes() -> None:
    results, kinds = {"y": np.float32([[np.nan, 1, 2]])}, [spec("float32", "y")]
    with pytest.raises(
        RequestError, match=r'output "y": JSON has no number for this result.*binary_data_output'
    ) as caught:
        write_response({}, [Wanted("y", False)], results, kinds)
    assert caught.value.status == 422
    assert write_response({}, [Wanted("y", True)], results, kinds)[1] is not None


def test_metadata_of_tensors() -> None:
    assert describe(TensorSpec("x", "float32", ("N", 3, None))) == {
        "name": "x",
        "datatype": "FP32",
        "shape": [-1, 3, -1],
    }
    with pytest.raises(UnsupportedError, match=r'output "y": the protocol has no form for this output'):
        check_tensor(TensorSpec("y", "seq<float32[]>", None), "output")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)
KEYS = ("name", "shape", "datatype", "data", "parameters")


@settings(max_examples=50, deadline=None)
@given(key=st.sampled_from(KEYS), value=VALUES, size=VALUES, tail=st.binary(max_size=30), length=st.integers(0, 200))
def test_whatever_is_sent_is_read_or_refused(key: str, value: Any, size: Any, tail: bytes, length: int) -> None:
    for dtype in ("float32", "string"):
        for more in ({key: value}, {key: [value], "parameters": {"binary_data_size": size}}):
            body = json.dumps({"inputs": [tensor(dtype) | more]}).encode() + tail
            for header in (None, str(len(body) - len(tail)), str(length)):
                with contextlib.suppress(RequestError):
                    assert read(body, dtype, header).inputs["x"].dtype == SAMPLES[dtype].dtype
