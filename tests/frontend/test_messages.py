"""Models read without protobuf are what its parser makes of them, and to it is left whatever is damaged or unusual."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from tinycomp.errors import ModelError
from tinycomp.frontend import import_model
from tinycomp.ir.messages import CLASSES, FunctionProto, Message, ModelProto, read_message

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


def _field(number: int, content: bytes) -> bytes:
    """A field that holds bytes."""
    size, header = len(content), [number << 3 | 2]
    while size > 0x7F:
        header.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*header, size]) + content


NESTED = {
    "Dimension": "TensorShapeProto.Dimension",
    "Segment": "TensorProto.Segment",
    "TensorTypeProto": "TypeProto.Tensor",
    "ElementTypeProto": "TypeProto.Sequence",
    "MapTypeProto": "TypeProto.Map",
    "OpaqueTypeProto": "TypeProto.Opaque",
}
"""What onnx calls the messages that lie in others."""


def differences(ours: Message, theirs: Any, where: str = "model") -> Iterator[str]:
    """Where a message differs from the one that protobuf has read."""
    for name, field in ours.FIELDS.items():
        mine, other = getattr(ours, name), getattr(theirs, name)
        if not field.repeated and ours.HasField(name) != theirs.HasField(name):
            yield f"{where}.{name}: {theirs.HasField(name)}"
        elif field.message and field.repeated:
            if len(mine) != len(other):
                yield f"{where}.{name}: {len(mine)}, {len(other)}"
            for place, pair in enumerate(zip(mine, other, strict=False)):
                yield from differences(*pair, f"{where}.{name}[{place}]")
        elif field.message:
            if ours.HasField(name):
                yield from differences(mine, other, f"{where}.{name}")
        else:
            mine = list(mine) if field.repeated else bytes(mine) if name == "raw_data" else mine
            other = list(other) if field.repeated else other
            if repr(mine) != repr(other):
                yield f"{where}.{name}: {mine!r}, {other!r}"
    if any(field.one_of for field in ours.FIELDS.values()) and ours.WhichOneof("value") != theirs.WhichOneof("value"):
        yield f"{where}: {ours.WhichOneof('value')}"


def both(data: bytes) -> tuple[ModelProto | None, onnx.ModelProto]:
    return read_message(ModelProto, memoryview(data)), onnx.ModelProto.FromString(data)


def every_kind() -> onnx.ModelProto:
    """A model with every field that is read, some of them long."""
    numbers = {
        "float_data": [0.5, -2.25] * 1024, "double_data": [1e300] * 1024, "int32_data": [-5, 70000] * 2048,
        "int64_data": [-(1 << 63), 3] * 1024, "uint64_data": [(1 << 64) - 1] * 1024, "string_data": [b"a", b"\xff"],
    }  # fmt: skip
    tensors = [TensorProto(name=name, dims=[2, 3], data_type=7, **{name: held}) for name, held in numbers.items()]
    tensors += [TensorProto(name=name, **{name: held[:2]}) for name, held in numbers.items()]
    outside = TensorProto(name="e", data_location=TensorProto.EXTERNAL, segment=TensorProto.Segment(begin=1))
    outside.external_data.add(key="location", value="w.bin")
    sparse = onnx.SparseTensorProto(values=tensors[6], indices=tensors[9], dims=[4, 5])
    dims = [onnx.TensorShapeProto.Dimension(**held) for held in ({"dim_value": -1}, {"dim_param": "n"}, {})]
    plain = onnx.TypeProto(tensor_type={"elem_type": 1, "shape": {"dim": dims}})
    types = [
        plain, onnx.TypeProto(sequence_type={"elem_type": plain}), onnx.TypeProto(optional_type={"elem_type": plain}),
        onnx.TypeProto(map_type={"key_type": 7, "value_type": plain}), onnx.TypeProto(opaque_type={"name": "o"}),
        onnx.TypeProto(sparse_tensor_type={"elem_type": 1}), onnx.TypeProto(denotation="d"),
    ]  # fmt: skip
    values = [onnx.ValueInfoProto(name=f"v{place}", type=each) for place, each in enumerate(types)]
    inner = onnx.GraphProto(name="inner", input=values, sparse_initializer=[sparse])
    held: list[Any] = [1.5, -3, b"\xfe", tensors[0], inner, plain, [0.25, 2.0], [1, -1], [b"x", "é"]]
    held += [[0.5] * 600, [1 << 40, -1] * 300, [b"x", b"y", b"x", b"x", b"xy"]]
    attributes = [helper.make_attribute(f"a{place}", each) for place, each in enumerate(held)]
    kinds = onnx.AttributeProto
    attributes += [
        kinds(name="t", type=kinds.TENSORS, tensors=tensors[:2]), kinds(name="g", type=kinds.GRAPHS, graphs=[inner]),
        kinds(name="s", type=kinds.SPARSE_TENSOR, sparse_tensor=sparse), kinds(name="p", type_protos=[plain]),
        kinds(name="ss", sparse_tensors=[sparse]), kinds(name="r", ref_attr_name="other", type=kinds.INT),
    ]  # fmt: skip
    node = onnx.NodeProto(op_type="Op", name="n", domain="d", overload="o", input=["x", ""], output=["é"])
    node.attribute.extend(attributes)
    function = onnx.FunctionProto(name="f", domain="d", overload="o", input=["x"], output=["y"], attribute=["a"])
    function.node.append(node)
    function.attribute_proto.extend(attributes)
    function.opset_import.append(helper.make_opsetid("", 18))
    function.metadata_props.add(key="k", value="v")
    graph = onnx.GraphProto(name="g", node=[node], initializer=[*tensors, outside], output=values, value_info=values)
    graph.initializer.append(numpy_helper.from_array(LARGE, "large"))
    proto = onnx.ModelProto(graph=graph, ir_version=9, functions=[function], doc_string="not read")
    proto.opset_import.append(helper.make_opsetid("", -1))
    proto.metadata_props.add(key="k", value="v" * 300)
    return proto


def test_every_field_is_what_protobuf_reads() -> None:
    ours, theirs = both(every_kind().SerializeToString())
    assert ours is not None
    assert list(differences(ours, theirs)) == []
    unset = [name for name, cls in CLASSES.items() for field in cls.FIELDS if not _is_set(ours, cls, field)]
    assert not unset, "every field should be in the model"


def _is_set(message: Message, cls: type[Message], name: str) -> bool:
    """Tell whether a field of a class is set somewhere in a message."""
    pending = [message]
    while pending:
        each = pending.pop()
        if isinstance(each, cls) and each.HasField(name):
            return True
        for held in vars(each).values():
            pending += [part for part in (held if isinstance(held, list) else [held]) if isinstance(part, Message)]
    return False


def test_fields_have_onnx_s_numbers_and_defaults() -> None:
    for name, cls in CLASSES.items():
        descriptor: Any = onnx
        for part in NESTED.get(name, name).split("."):
            descriptor = getattr(descriptor, part)
        known = {field.name: field for field in descriptor.DESCRIPTOR.fields}
        for field, row in cls.FIELDS.items():
            assert row.number == known[field].number
            assert bool(row.one_of) == (known[field].containing_oneof is not None)
            assert row.message or getattr(cls(), field) == (() if row.repeated else known[field].default_value)
    constants = {name: value for name, value in vars(CLASSES["AttributeProto"]).items() if name.isupper()}
    assert constants.items() >= dict(onnx.AttributeProto.AttributeType.items()).items()


@pytest.mark.parametrize(
    ("change", "is_read"),
    [
        (lambda data: data + _field(12, b"of a later version"), True),
        (lambda data: data + bytes([8, 5]), True),  # the last of two numbers counts
        (lambda data: data + _field(7, b""), False),  # protobuf merges messages
        (lambda data: data + _field(1, b"xyz"), False),  # of another wire type
        (lambda data: data + bytes([8 << 3 | 3, 8 << 3 | 4]), False),  # a group
        (lambda data: data + bytes([8, *[0x80] * 9, 1]), True),
        (lambda data: data + bytes([8, *[0x80] * 9, 2]), False),  # a number of more than 64 bits
        (lambda data: data + bytes([0, 0]), False),
        (lambda data: data + _field(7, b"")[:1], False),
    ],
)
def test_the_unusual_is_left_to_protobuf(change: Any, is_read: bool) -> None:
    data = change(usual().SerializeToString())
    ours = read_message(ModelProto, memoryview(data))
    assert (ours is not None) == is_read
    if ours is not None:
        assert list(differences(ours, onnx.ModelProto.FromString(data))) == []


def test_an_alternative_that_comes_after_another_is_left_to_protobuf() -> None:
    """Protobuf keeps the last."""
    function = onnx.FunctionProto(name="f").SerializeToString()
    entry = onnx.ValueInfoProto(name="x").SerializeToString()
    type_ = onnx.TypeProto(map_type={}).SerializeToString() + onnx.TypeProto(opaque_type={}).SerializeToString()
    graph = _field(11, entry + _field(2, type_))
    assert read_message(ModelProto, memoryview(_field(7, graph))) is None
    assert read_message(FunctionProto, memoryview(function)) is not None


def test_messages_within_messages_end_somewhere() -> None:
    type_ = b""
    for _ in range(300):
        type_ = _field(4, _field(1, type_))
    assert read_message(ModelProto, memoryview(_field(7, _field(11, _field(2, type_))))) is None


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


@settings(max_examples=600, deadline=None)
@given(st.data())
def test_damaged_bytes_are_read_as_protobuf_reads_them(data: st.DataObject) -> None:
    intact = bytearray(data.draw(st.sampled_from([usual(), every_kind()])).SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        intact[data.draw(st.integers(0, len(intact) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(intact[: data.draw(st.integers(1, len(intact)))])
    ours = read_message(ModelProto, memoryview(damaged), shares=data.draw(st.booleans()))
    if ours is not None:
        assert list(differences(ours, onnx.ModelProto.FromString(damaged))) == []


def test_long_data_are_views_where_that_is_allowed() -> None:
    data = np.frombuffer(usual().SerializeToString(), np.uint8)
    for shares in (False, True):
        read = read_message(ModelProto, data.data, shares=shares)
        assert read is not None
        assert np.shares_memory(np.frombuffer(read.graph.initializer[1].raw_data, np.uint8), data) == shares
