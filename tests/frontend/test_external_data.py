from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tinycomp.errors import ModelError, TinycompWarning
from tinycomp.frontend import import_model
from tinycomp.memory.mapped import mapping_of

WEIGHT = np.arange(8, dtype=np.float32).reshape(2, 4)


def save(folder: Path, **entries: str | int) -> Path:
    """Save a model that adds an external weight of 32 bytes; ``entries`` replace its external_data."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2, 4], data_location=TensorProto.EXTERNAL)
    for key, value in ({"location": "w.bin"} | entries).items():
        tensor.external_data.add(key=key, value=str(value))
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])
    outputs = [helper.make_empty_tensor_value_info("y")]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "main", [info], outputs, [tensor])
    path = folder / "m.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "model"
    inside.mkdir()
    (inside / "w.bin").write_bytes(WEIGHT.tobytes())
    return inside


def test_weights_are_mapped_not_read(folder: Path) -> None:
    (constant,) = import_model(save(folder)).constants
    assert np.array_equal(constant.const, WEIGHT)
    assert not constant.const.flags.writeable
    assert not constant.const.flags.owndata


@pytest.mark.parametrize("offset", [4096, 64, 3])
def test_data_stay_in_the_file_at_any_offset(folder: Path, offset: int) -> None:
    (folder / "w.bin").write_bytes(b"\xff" * offset + WEIGHT.tobytes() + b"\xff" * 5)
    (constant,) = import_model(save(folder, offset=offset, length=32)).constants
    assert np.array_equal(constant.const, WEIGHT)
    assert mapping_of(constant.const) is not None


def test_files_of_one_model_are_shared(folder: Path) -> None:
    path = folder / "m.onnx"
    model = onnx.load(save(folder))
    onnx.save(model, path, save_as_external_data=True, location="all.bin", size_threshold=0)
    assert np.array_equal(import_model(path).constants[0].const, WEIGHT)


def test_sub_folders_are_allowed(folder: Path) -> None:
    (folder / "weights").mkdir()
    (folder / "w.bin").rename(folder / "weights" / "w.bin")
    assert np.array_equal(import_model(save(folder, location="weights/w.bin")).constants[0].const, WEIGHT)


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ({"location": "../w.bin"}, 'leads out of the folder with ".."'),
        ({"location": "a/../../w.bin"}, 'leads out of the folder with ".."'),
        ({"location": "..\\w.bin"}, 'leads out of the folder with ".."'),
        ({"location": "/etc/passwd"}, "is an absolute path"),
        ({"location": "/dev/zero"}, "is an absolute path"),
        ({"location": "C:\\w.bin"}, "is an absolute path"),
        ({"location": ""}, "is empty or malformed"),
        ({"location": "w\0.bin"}, "is empty or malformed"),
        ({"location": "none.bin"}, "the external data cannot be opened: No such file or directory"),
        ({"location": "."}, "the external file is not a regular file"),
        ({"offset": -1},
            "the offset of the external data is not valid; expected a number of bytes, at least 0; found '-1'"),
        ({"offset": "x"}, "the offset of the external data is not valid"),
        ({"length": -32}, "the length of the external data is not valid"),
        ({"offset": 8}, 'the range lies outside the external file "w.bin"; expected an end of at most 32 bytes'),
        ({"offset": 1 << 60}, "found offset 1152921504606846976 + length 32"),
        ({"length": 1 << 60}, "the length of the external data does not fit dtype and shape; expected 32 bytes"),
        ({"length": 31},
            "the length of the external data does not fit dtype and shape; expected 32 bytes; found 31 bytes"),
    ],
)  # fmt: skip
def test_unsafe_locations_and_wrong_ranges(folder: Path, entries: dict, text: str) -> None:
    (folder.parent / "w.bin").write_bytes(WEIGHT.tobytes())
    with pytest.raises(ModelError, match=re.escape(text)) as caught:
        import_model(save(folder, **entries))
    assert str(caught.value).startswith('initializer "w": ')


def test_symbolic_links_are_refused(folder: Path) -> None:
    (folder / "link.bin").symlink_to(folder / "w.bin")
    (folder / "elsewhere").symlink_to(folder)
    for location in ("link.bin", "elsewhere/w.bin"):
        with pytest.raises(ModelError, match="passes through a symbolic link"):
            import_model(save(folder, location=location))


def test_hard_links_are_refused(folder: Path) -> None:
    secret = folder.parent / "secret"
    secret.write_bytes(WEIGHT.tobytes())
    (folder / "hard.bin").hardlink_to(secret)
    with pytest.raises(ModelError, match="the external file is a hard link"):
        import_model(save(folder, location="hard.bin"))


def test_pipes_and_folders_are_refused(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "sub").mkdir()
    for location in ("pipe", "sub"):
        with pytest.raises(ModelError, match="the external file is not a regular file"):
            import_model(save(folder, location=location))


def test_unknown_keys_are_ignored_with_a_warning(folder: Path) -> None:
    path = save(folder, __class__="x")
    with pytest.warns(TinycompWarning, match="unknown external_data key '__class__' is ignored"):
        assert len(import_model(path)) == 1


def test_a_model_without_a_path_has_no_folder(folder: Path) -> None:
    data = save(folder).read_bytes()
    text = "the data is in another file, and the folder of the model is unknown. Give the model by its path"
    for model in (data, onnx.ModelProto.FromString(data)):
        with pytest.raises(ModelError, match=text):
            import_model(model)
