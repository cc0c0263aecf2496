from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.frontend.samples import BRANCHES, FUNCTIONS, LOOP, RELU, parse
from tinycomp.data import digits_model
from tinycomp.errors import ModelError, TinycompError, UnsupportedError
from tinycomp.frontend import import_model
from tinycomp.frontend.loading import MAX_PROTOBUF


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "the file is empty; expected an ONNX model; found 0 bytes"),
        (b"<!DOCTYPE html><html></html>", "not an ONNX model; expected a binary ONNX protobuf; found HTML or XML text"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "found a Git LFS pointer. Fetch the real file"),
        (b"PK\x03\x04rest", "found a zip archive, such as a PyTorch checkpoint. Export the model to ONNX first"),
        (b"\x1c\x00\x00\x00TFL3rest", "found a TensorFlow Lite model"),
        (b"\x1c\x00\x00\x00ORTMrest", "found an ONNX Runtime flatbuffer"),
        (b"\x89HDF\r\n\x1a\n", "found an HDF5 file, such as a Keras model"),
        (b"\x80\x02}q\x00.", "found a Python pickle"),
        (b'{"irVersion": 8}', "found JSON"),
        (b"\xff" * 64, "not a complete ONNX protobuf; expected an ONNX model; found 64 bytes that cannot be decoded"),
    ],
)
def test_what_is_not_a_model_is_named(tmp_path: Path, data: bytes, text: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    for model, where in ((path, str(path)), (data, "model bytes")):
        with pytest.raises(ModelError, match=re.escape(text)) as caught:
            import_model(model)
        assert str(caught.value).startswith(where)


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").touch()
    with pytest.raises(ModelError, match=r'there is no such file; expected an .onnx file. Did you mean "model.onnx"\?'):
        import_model(tmp_path / "modle.onnx")
    with pytest.raises(ModelError, match=r"not a regular file, but a folder; expected an \.onnx file"):
        import_model(tmp_path)


def test_other_objects() -> None:
    with pytest.raises(
        ModelError, match=r"not a model; expected a path, bytes or onnx\.ModelProto; found an object of type int"
    ):
        import_model(3)  # type: ignore[arg-type]


def test_a_file_above_the_limit_of_protobuf(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.touch()
    os.truncate(path, MAX_PROTOBUF + 1)
    text = "the file is too large for a protobuf; expected up to 2147483647 bytes; found 2147483648 bytes. Save the"
    with pytest.raises(ModelError, match=text):
        import_model(path)


def test_every_truncation_is_refused() -> None:
    data = parse(RELU).SerializeToString()
    whole = [repr(n) for n in import_model(data).nodes]
    for length in range(len(data)):
        try:
            nodes = [repr(n) for n in import_model(data[:length]).nodes]
        except TinycompError:
            continue
        assert nodes == whole, length


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::tinycomp.errors.TinycompWarning")
def test_flipped_bytes_are_refused_or_make_another_valid_model() -> None:
    data = digits_model().read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(400):
        damaged = bytearray(data)
        for position in rng.integers(0, len(data), 3):
            damaged[position] ^= 1 << rng.integers(8)
        try:
            import_model(bytes(damaged))
        except TinycompError:
            refused += 1
    assert refused > 10


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::tinycomp.errors.TinycompWarning")
@pytest.mark.parametrize("text", [RELU, BRANCHES, LOOP, FUNCTIONS], ids=["relu", "branches", "loop", "functions"])
def test_flipped_bytes_in_the_frame(text: str) -> None:
    data = parse(text).SerializeToString()
    refused = 0
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            try:
                import_model(bytes(damaged))
            except TinycompError:
                refused += 1
    assert refused > len(data)


@pytest.mark.parametrize(
    ("field", "value", "error", "text"),
    [
        ("ir_version", 0, ModelError, "unknown IR version; expected 1 to {ir}; found 0"),
        ("ir_version", 99, UnsupportedError, "unknown IR version; expected 1 to {ir}; found 99. Install a newer onnx"),
        ("opset", 0, ModelError, 'impossible opset version for domain "ai.onnx"; expected 1 to {opset}; found 0'),
        ("opset", -3, ModelError, 'impossible opset version for domain "ai.onnx"; expected 1 to {opset}; found -3'),
        ("opset", 999, UnsupportedError,
            'opset 999 of domain "ai.onnx" is not known; expected 1 to {opset}; found 999'),
    ],
)  # fmt: skip
def test_versions_out_of_range(field: str, value: int, error: type[Exception], text: str) -> None:
    model = parse(RELU)
    if field == "opset":
        model.opset_import[0].version = value
    else:
        model.ir_version = value
    wanted = text.format(ir=onnx.IR_VERSION, opset=onnx.defs.onnx_opset_version())
    with pytest.raises(error, match=wanted):
        import_model(model)


def test_version_of_another_domain_that_no_operator_can_have() -> None:
    model = parse(RELU)
    model.opset_import.append(onnx.helper.make_opsetid("vendor", 1 << 40))
    with pytest.raises(ModelError, match=r'version for domain "vendor"; expected 1 to 2147483647; found 1099511627776'):
        import_model(model)


def test_missing_and_double_opset_imports() -> None:
    model = parse(RELU)
    model.opset_import.append(onnx.helper.make_opsetid("ai.onnx", 13))
    text = 'opset_import names the domain "ai.onnx" twice; expected one version per domain; found versions 17 and 13'
    with pytest.raises(ModelError, match=text):
        import_model(model)
    del model.opset_import[:]
    with pytest.raises(ModelError, match=r'opset_import is missing; expected an entry for "ai\.onnx"; found none'):
        import_model(model)
    model.opset_import.append(onnx.helper.make_opsetid("ai.onnx.ml", 3))
    with pytest.raises(ModelError, match=r'node y \(Relu\): the opset of domain "ai.onnx" is not imported'):
        import_model(model)


def test_no_graph_and_no_outputs() -> None:
    model = parse(RELU)
    del model.graph.output[:]
    with pytest.raises(ModelError, match="the graph has no outputs; expected at least one output"):
        import_model(model)
    model.ClearField("graph")
    with pytest.raises(ModelError, match="the model has no graph"):
        import_model(model)
