"""Classes 1 to 20: the file, its frame, and the data beside it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.bad_input.case import Case, doing, rejected, right
from tests.bad_input.models import graph, info, one, relu, text
from tinycomp.driver.compile import compile as compile_model
from tinycomp.errors import ModelError, UnsupportedError
from tinycomp.frontend.loading import MAX_PROTOBUF


def file_with(data: bytes, name: str = "m.onnx") -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / name
        path.write_bytes(data)
        return path

    return make


def changed(change: Callable[[onnx.ModelProto], object], model: onnx.ModelProto | None = None) -> onnx.ModelProto:
    """Return a valid model after a change."""
    model = model or relu()
    change(model)
    return model


def with_opset(*imports: tuple[str, int]) -> onnx.ModelProto:
    model = relu()
    del model.opset_import[:]
    model.opset_import.extend(helper.make_opsetid(domain, version) for domain, version in imports)
    return model


def truncated(count: int) -> Callable[[Path], Path]:
    return file_with(relu().SerializeToString()[:count])


def larger_than_a_protobuf(folder: Path) -> Path:
    path = folder / "huge.onnx"
    with path.open("wb") as file:
        file.truncate(MAX_PROTOBUF + 1)  # sparse: takes no space
    return path


def external(**entries: str) -> Callable[[Path], Path]:
    """A model whose weight w, float[4], lies in ``weights.bin`` of 32 bytes, with these entries changed."""

    def make(folder: Path) -> Path:
        (folder / "model").mkdir()
        weights = np.arange(8, dtype=np.float32)
        (folder / "model" / "weights.bin").write_bytes(weights.tobytes())
        (folder / "secret.bin").write_bytes(weights.tobytes())
        tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
        for key, value in ({"location": "weights.bin"} | entries).items():
            tensor.external_data.add(key=key, value=value.format(folder=folder))
        node = helper.make_node("Add", ["x", "w"], ["y"], "n")
        path = folder / "model" / "m.onnx"
        path.write_bytes(graph([node], [info("x", "f[4]")], [info("y", "f[4]")], [tensor]).SerializeToString())
        return path

    return make


def then(make: Callable[[Path], Path], change: Callable[[Path], object]) -> Callable[[Path], Path]:
    """Make a model and change something in its folder."""

    def both(folder: Path) -> Path:
        path = make(folder)
        change(path.parent)
        return path

    return both


def replace_by_symlink(folder: Path) -> None:
    (folder / "weights.bin").unlink()
    (folder / "weights.bin").symlink_to("../secret.bin")


def replace_by_hardlink(folder: Path) -> None:
    (folder / "weights.bin").unlink()
    os.link(folder.parent / "secret.bin", folder / "weights.bin")


def link_the_folder(folder: Path) -> None:
    (folder / "data").symlink_to(folder.parent)


def replace_by_pipe(folder: Path) -> None:
    (folder / "weights.bin").unlink()
    os.mkfifo(folder / "weights.bin")


def flip_bytes(folder: Path) -> None:
    """Every byte of a small model in turn: refused with a typed error, or compiled and run."""
    from tinycomp.errors import TinycompError

    data = relu().SerializeToString()
    for place in range(len(data)):
        for mask in (0x01, 0x80, 0xFF):
            broken = bytearray(data)
            broken[place] ^= mask
            try:
                module = compile_model(bytes(broken), "host")
                shapes = [[d if isinstance(d, int) else 1 for d in s.shape or ()] for s in module.inputs]
                if max((np.prod(shape) for shape in shapes), default=0) < 1e6:
                    module(*(np.zeros(shape, s.numpy_dtype) for s, shape in zip(module.inputs, shapes, strict=True)))
            except TinycompError:
                continue


DATA = {"x": np.zeros(4, np.float32)}
FIRST = np.arange(4, dtype=np.float32)

CASES = [
    # 1 empty
    rejected("1-empty-file", file_with(b""), "the file is empty; expected an ONNX model; found 0 bytes"),
    rejected("1-empty-bytes", b"", "model bytes: the file is empty"),
    rejected("1-no-file", lambda folder: folder / "none.onnx", "there is no such file"),
    rejected("1-misspelt-file",
        lambda folder: file_with(relu().SerializeToString(), "model.onnx")(folder).with_name("modle.onnx"),
        "there is no such file", 'Did you mean "model.onnx"?'),
    rejected("1-folder", lambda folder: folder, "not a regular file, but a folder; expected an .onnx file"),
    rejected("1-device", lambda folder: Path("/dev/null"), "not a regular file"),
    rejected("1-not-a-model", 7, "not a model; expected a path, bytes or onnx.ModelProto; found", "int"),
    rejected("1-none", lambda folder: None, "NoneType"),
    # 2 truncated
    *(rejected(f"2-truncated-{n}", truncated(n), "m.onnx: ") for n in (1, 5, 20, 40, 60)),
    # 3 byte flips
    doing("3-every-byte-flipped", flip_bytes),
    # 4 something else
    rejected("4-html", file_with(b"<!DOCTYPE html><html></html>"), "found HTML or XML text"),
    rejected("4-lfs", file_with(b"version https://git-lfs.github.com/spec/v1\n"), "a Git LFS pointer",
        'Fetch the real file with "git lfs pull".'),
    rejected("4-zip", file_with(b"PK\x03\x04" + bytes(60)), "a zip archive", "Export the model to ONNX"),
    rejected("4-hdf5", file_with(b"\x89HDF\r\n\x1a\n" + bytes(60)), "an HDF5 file"),
    rejected("4-tflite", file_with(b"\x1c\0\0\0TFL3" + bytes(60)), "a TensorFlow Lite model"),
    rejected("4-ort", file_with(b"\x1c\0\0\0ORTM" + bytes(60)), "an ONNX Runtime flatbuffer"),
    rejected("4-pickle", file_with(b"\x80\x02}q\0." + bytes(60)), "a Python pickle"),
    rejected("4-json", file_with(b'{"graph": {}}'), "JSON"),
    rejected("4-noise", file_with(bytes(range(255, 0, -1))), "expected an ONNX model"),
    rejected("4-zeros", file_with(bytes(64)), "expected an ONNX model"),
    # 5 size
    rejected("5-larger-than-2-gb", larger_than_a_protobuf, "too large for a protobuf",
        f"found {MAX_PROTOBUF + 1} bytes", "save_as_external_data=True"),
    rejected("5-external-without-folder", lambda folder: external()(folder).read_bytes(), '"w"', "is in another file",
        "Give the model by its path"),
    right("5-external-weights", external(), DATA, FIRST),
    right("5-external-offset", external(offset="16", length="16"), DATA, FIRST + 4),
    # 6 graph and outputs
    rejected("6-no-graph", onnx.ModelProto(ir_version=8, opset_import=[helper.make_opsetid("", 17)]), "graph"),
    rejected("6-no-outputs", changed(lambda m: m.graph.ClearField("output")), "output"),
    right("6-no-inputs", text("g () => (float[2] y) <float[2] w = {-1, 2}> { y = Relu(w) }"), [], np.float32([0, 2])),
    right("6-no-nodes", text("g (float[2] x) => (float[2] x) { }"), [np.float32([1, 2])], np.float32([1, 2])),
    # 7 IR version
    *(
        rejected(
            f"7-ir-version-{v}",
            changed(lambda m, v=v: setattr(m, "ir_version", v)),
            "unknown IR version",
            f"expected 1 to {onnx.IR_VERSION}; found {v}",
            error=error,
        )
        for v, error in ((0, ModelError), (-1, ModelError), (999, UnsupportedError), (1 << 62, UnsupportedError))
    ),
    # 8 opset version
    *(
        rejected(f"8-opset-{v}", with_opset(("", v)), 'domain "ai.onnx"', "expected 1 to", f"found {v}", error=error)
        for v, error in ((0, ModelError), (-3, ModelError), (9999, UnsupportedError), (1 << 62, UnsupportedError))
    ),
    rejected("8-opset-of-ml", with_opset(("", 17), ("ai.onnx.ml", 99)), '"ai.onnx.ml"', "found 99",
        error=UnsupportedError),
    # 9 opset_import
    rejected("9-missing", with_opset(), 'opset_import is missing; expected an entry for "ai.onnx"'),
    rejected("9-doubled", with_opset(("", 17), ("", 13)), 'names the domain "ai.onnx" twice',
        "found versions 17 and 13"),
    rejected("9-doubled-alias", with_opset(("ai.onnx", 17), ("", 13)), 'names the domain "ai.onnx" twice'),
    rejected("9-only-other", with_opset(("ai.onnx.ml", 3)), 'domain "ai.onnx" is not imported'),
    right("9-doubled-equal", with_opset(("", 17), ("ai.onnx", 17)), {"x": np.full((2, 3), -1, np.float32)},
        np.zeros((2, 3), np.float32)),
    # 10 unknown operators
    *(
        rejected(f"10-{wrong}", one(wrong, "f[2]"), f"n ({wrong})", f"unknown operator {wrong}", hint)
        for wrong, hint in (
            ("Rleu", 'Did you mean "Relu"?'),
            ("relu", 'Did you mean "Relu"?'),
            ("Sofmax", 'Did you mean "Softmax"?'),
            ("MatMull", 'Did you mean "MatMul"?'),
            ("Qwxyz", "expected an operator of opset 21"),
        )
    ),
    rejected("10-too-new", one("Gelu", "f[2]", opset=19), "operator Gelu came with opset 20"),
    rejected("10-withdrawn", one("Upsample", "f[2]", opset=17), "operator Upsample was withdrawn in"),
    rejected("10-empty", one("", "f[2]"), "unknown operator"),
    rejected("10-scatter-withdrawn", one("Scatter", "f[2]", "i[1]", "f[1]"), "withdrawn in opset 11"),
    # 11 unknown domains
    rejected("11-vendor", one("Magic", "f[2]", domain="com.vendor", opset=1),
        'operator Magic belongs to the unknown domain "com.vendor"', "function body", error=UnsupportedError),
    rejected("11-misspelt", one("Scaler", "f[2]", domain="ai.onnx.m", opset=1), 'Did you mean "ai.onnx.ml"?',
        error=UnsupportedError),
    rejected("11-not-imported",
        changed(lambda m: m.opset_import.pop(), one("Scaler", "f[2]", domain="ai.onnx.ml", opset=3)),
        'domain "ai.onnx.ml" is not imported'),
    # 12 to 15 locations
    *(
        rejected(f"12-{i}", external(location=place), '"w"', 'leads out of the folder with ".."', place)
        for i, place in enumerate(("../secret.bin", "a/../../secret.bin", "./../secret.bin"))
    ),
    rejected("12-windows", external(location="..\\secret.bin"), 'leads out of the folder with ".."'),
    rejected("13-absolute", external(location="{folder}/secret.bin"), "is an absolute path", "secret.bin"),
    rejected("13-device", external(location="/dev/zero"), "is an absolute path", "/dev/zero"),
    rejected("13-drive", external(location="C:\\secret.bin"), "is an absolute path"),
    rejected("13-network", external(location="\\\\host\\share"), "is an absolute path"),
    rejected("13-empty", external(location=""), "is empty or malformed"),
    rejected("13-nul", external(location="weights.bin\0x"), "is empty or malformed"),
    rejected("13-pipe", then(external(), replace_by_pipe), "is not a regular file"),
    rejected("13-folder", external(location="."), "found '.'"),
    rejected("14-symlink", then(external(), replace_by_symlink), "passes through a symbolic link",
        "Put a copy of the file beside the model."),
    rejected("14-parent", then(external(location="data/secret.bin"), link_the_folder),
        "passes through a symbolic link"),
    rejected("15-hardlink", then(external(), replace_by_hardlink), "is a hard link"),
    # 16 to 19 file and range
    rejected("16-missing", external(location="nothing.bin"), "cannot be opened", "'nothing.bin'",
        "Keep the model and its data files in one folder."),
    rejected("16-empty-file", then(external(), lambda f: (f / "weights.bin").write_bytes(b"")), "at most 0 bytes"),
    *(
        rejected(
            f"17-{key}-{i}",
            external(**{key: value}),
            f"the {key} of the external data is not valid",
            "expected a number of bytes, at least 0",
            value.strip() or "' '",
        )
        for key in ("offset", "length")
        for i, value in enumerate(("-1", "0x10", "1.5", "many"))
    ),
    rejected("18-past-the-end", external(offset="24", length="16"), "lies outside the external file",
        "at most 32 bytes; found offset 24 + length 16"),
    rejected("18-offset-2-60", external(offset=str(1 << 60)), "lies outside", str(1 << 60)),
    rejected("18-offset-2-200", external(offset=str(1 << 200)), "lies outside"),
    rejected("18-length-2-60", external(length=str(1 << 60)), "expected 16 bytes", str(1 << 60)),
    rejected("19-length-short", external(length="12"), "does not fit dtype and shape",
        "expected 16 bytes; found 12 bytes"),
    rejected("19-length-long", external(length="20"), "expected 16 bytes; found 20 bytes"),
    # 20 unknown keys
    right("20-unknown-key", external(colour="blue"), DATA, FIRST,
        warns="unknown external_data key 'colour' is ignored"),
    right("20-dunder", external(__class__="os.system"), DATA, FIRST, warns="key '__class__' is ignored"),
    right("20-dict", external(__dict__="{{}}"), DATA, FIRST, warns="key '__dict__' is ignored"),
]  # fmt: skip
assert all(isinstance(c, Case) for c in CASES)
