"""Reading weights apart gives what protobuf's parser gives, and leaves to it whatever is damaged or unusual."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from tinycomp.errors import ModelError
from tinycomp.frontend import import_model
from tinycomp.frontend.wire import split

LARGE, SMALL = np.arange(3000, dtype=np.float32).reshape(2, 1500), np.ones(1500, np.float32)


def model(*initializers: onnx.TensorProto) -> onnx.ModelProto:
    """``y = x * large + small``, with initializers of these names or others."""
    nodes = [helper.make_node("Mul", ["x", "large"], ["p"]), helper.make_node("Add", ["p", "small"], ["y"])]
    types = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 1500]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", types[:1], types[1:], list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def usual() -> onnx.ModelProto:
    small = helper.make_tensor(
        "small", TensorProto.FLOAT, SMALL.shape, SMALL
    )  # as float_data, which stays in the frame
    return model(small, numpy_helper.from_array(LARGE, "large"))


def test_large_raw_data_is_read_apart() -> None:
    proto = usual()
    frame, weights = split(memoryview(proto.SerializeToString()))
    assert {index: data.tobytes() for index, data in weights.items()} == {1: LARGE.tobytes()}
    proto.graph.initializer[1].ClearField("raw_data")
    assert onnx.ModelProto.FromString(frame) == proto


def test_the_graph_is_that_of_the_parsed_model(tmp_path: Path) -> None:
    onnx.save(usual(), tmp_path / "model.onnx")
    for graph in (import_model(tmp_path / "model.onnx"), import_model(usual().SerializeToString())):
        assert str(graph) == str(import_model(usual()))
        held = graph.values["large"].const
        assert held.tobytes() == LARGE.tobytes()
        assert not held.flags.writeable
        assert held.ctypes.data % held.itemsize == 0


def test_a_file_may_change_after_the_import(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(usual(), path)
    graph = import_model(path)
    path.write_bytes(b"")
    assert graph.values["large"].const.tobytes() == LARGE.tobytes()


def test_raw_data_of_the_wrong_length_is_refused_by_name() -> None:
    proto = usual()
    proto.graph.initializer[1].raw_data += b"\0" * 4
    with pytest.raises(ModelError, match=r'initializer "large": the data are too long for float32\[2, 1500\]'):
        import_model(proto.SerializeToString())


def test_a_string_tensor_with_raw_data_is_refused() -> None:
    proto = usual()
    proto.graph.initializer[1].data_type = TensorProto.STRING
    with pytest.raises(ModelError, match="a string tensor cannot have raw_data"):
        import_model(proto.SerializeToString())


def test_repeated_fields_are_left_to_the_parser() -> None:
    """Protobuf merges messages that come twice, and of a value that comes twice it takes the last."""
    first, second = usual().SerializeToString(), model().SerializeToString()
    assert split(memoryview(first + second)) == (first + second, {})
    tensor = usual().graph.initializer[1]
    twice = tensor.SerializeToString() + onnx.TensorProto(raw_data=LARGE[::-1].tobytes()).SerializeToString()
    graph = model().graph.SerializeToString() + _field(5, twice)
    data = model().SerializeToString().replace(_field(7, model().graph.SerializeToString()), _field(7, graph))
    assert onnx.ModelProto.FromString(data).graph.initializer[0].raw_data == LARGE[::-1].tobytes()
    assert split(memoryview(data)).weights == {}


def _field(number: int, content: bytes) -> bytes:
    """A field that holds bytes."""
    size, header = len(content), [number << 3 | 2]
    while size > 0x7F:
        header.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*header, size]) + content


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_bytes_are_judged_by_the_parser(data: st.DataObject) -> None:
    """Whatever the bytes, frame and weights together hold what the parser finds, or it fails on the frame as well."""
    intact = bytearray(usual().SerializeToString())
    at = data.draw(st.integers(0, len(intact) - 1))
    intact[at] = data.draw(st.integers(0, 255))
    damaged = bytes(intact[: data.draw(st.integers(1, len(intact)))])
    frame, weights = split(memoryview(damaged))
    try:
        whole = onnx.ModelProto.FromString(damaged)
    except DecodeError:
        with pytest.raises(DecodeError):
            _joined(frame, weights)
        return
    assert _joined(frame, weights) == whole


def _joined(frame: bytes, weights: dict[int, np.ndarray]) -> onnx.ModelProto:
    proto = onnx.ModelProto.FromString(frame)
    for index, raw in weights.items():
        proto.graph.initializer[index].raw_data = raw.tobytes()
    return proto


def test_nothing_is_copied() -> None:
    data = np.frombuffer(usual().SerializeToString(), np.uint8)
    assert np.shares_memory(split(data.data).weights[1], data)
