"""Files that change, vanish, or are no files while they are read: an error, and the process lives on."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import tinycomp
from tests.cases.case import make_model
from tinycomp.cli.entry import main
from tinycomp.driver.compiler import Compiler
from tinycomp.errors import ArtifactError, ModelError, TinycompError, WriteError
from tinycomp.memory import mapped
from tinycomp.memory.mapped import map_file, mapping_of
from tinycomp.memory.system import open_regular
from tinycomp.runtime.archive import Archive
from tinycomp.runtime.cache import Cache
from tinycomp.runtime.files import write_file

PAGE = 4096
WEIGHTS = np.arange(64 * 1024, dtype=np.float32).reshape(64, 1024)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model whose weights lie in a file of their own, in a folder of its own."""
    (tmp_path / "model" / "parts").mkdir(parents=True)
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="product")
    x = np.ones((1, 64), np.float32)
    proto = make_model([node], {"x": x}, {"w": WEIGHTS}, ["y"], symbolic={"x": ["n", 64]})
    path = tmp_path / "model" / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="parts/weights.bin", size_threshold=0)
    return path


def weights_of(model: Path) -> Path:
    return model.parent / "parts" / "weights.bin"


def before(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, act: Callable[[], object]) -> None:
    """Let something happen just before a function is called."""
    function = getattr(owner, name)

    def acting(*args: Any, **options: Any) -> Any:
        act()
        return function(*args, **options)

    monkeypatch.setattr(owner, name, acting)


# Files that are cut off -----------------------------------------------------------------------------------------------


def test_what_a_mapped_file_loses_reads_as_zeros(tmp_path: Path):
    path = tmp_path / "data"
    path.write_bytes(b"x" * 4 * PAGE)
    with path.open("rb") as file:
        data = map_file(file, path)
    os.truncate(path, PAGE)
    assert data[:PAGE].tolist() == [ord("x")] * PAGE
    assert not data[PAGE:].any()
    mapping = mapping_of(data)
    assert mapping is not None
    os.truncate(path, 4 * PAGE)
    with pytest.raises(ModelError, match=r"the file has changed .* cut off or written to meanwhile"):
        mapping.check()


def test_what_cannot_be_guarded_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "data"
    path.write_bytes(b"x" * 2 * PAGE)
    monkeypatch.setattr(mapped.GUARD, "add", lambda address, length: -1)
    with path.open("rb") as file:
        data = map_file(file, path)
    os.truncate(path, 0)
    assert mapping_of(data) is None
    assert data.tobytes() == b"x" * 2 * PAGE


def test_guards_are_given_back(tmp_path: Path):
    path = tmp_path / "data"
    path.write_bytes(b"x" * PAGE)
    for _ in range(5000):  # more than there are at a time
        with path.open("rb") as file:
            data = map_file(file, path)
    mapping = mapping_of(data)
    assert mapping is not None
    assert mapping.guard >= 0


OTHER_FAULT = """
import mmap, os, sys
from tinycomp.memory.mapped import map_file
path = sys.argv[1]
with open(path, "rb") as file:
    guarded = map_file(file, path)
    foreign = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
os.truncate(path, 0)
print(guarded[5000], flush=True)
foreign[5000]
"""


def test_faults_of_others_still_end_the_process(tmp_path: Path):
    path = tmp_path / "data"
    path.write_bytes(b"x" * 4 * PAGE)
    ended = subprocess.run([sys.executable, "-c", OTHER_FAULT, str(path)], capture_output=True, text=True, check=False)
    assert ended.stdout.split() == ["0"]
    assert ended.returncode == -signal.SIGBUS


def test_weights_cut_off_while_compiling(model: Path, monkeypatch: pytest.MonkeyPatch):
    before(monkeypatch, Compiler, "partition_in_place", lambda: os.truncate(weights_of(model), 100))
    with pytest.raises(ModelError, match="the file has changed since the model was compiled"):
        tinycomp.compile(model)


def test_a_module_cut_off_while_it_is_loaded(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "module.tcm"
    tinycomp.compile(model).save(path)
    whole = path.read_bytes()
    before(monkeypatch, Archive, "array", lambda: os.truncate(path, 100))
    before(monkeypatch, Archive, "from_bytes", lambda: os.truncate(path, len(whole) // 2))
    with pytest.raises(ArtifactError):
        tinycomp.load(path)


def test_a_module_cut_off_after_its_checksums(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "module.tcm"
    tinycomp.compile(model).save(path)
    monkeypatch.setattr(Archive, "from_bytes", cut_after(Archive.from_bytes, path))
    with pytest.raises(ArtifactError, match="the file has changed while it was read"):
        tinycomp.load(path)


def cut_after(function: Callable[..., Any], path: Path) -> Any:
    def cutting(*args: Any) -> Any:
        result = function(*args)
        os.truncate(path, 100)
        return result

    return cutting


# Links ----------------------------------------------------------------------------------------------------------------


def test_a_folder_that_becomes_a_link_is_not_followed(model: Path, tmp_path: Path):
    """Whoever may write beside the model gets no other file read: 300 tries, while a thread swaps folder and link."""
    outside, parts = tmp_path / "outside", model.parent / "parts"
    outside.mkdir()
    (outside / "weights.bin").write_bytes(np.full_like(WEIGHTS, 7).tobytes())
    aside, done = model.parent / "aside", threading.Event()

    def swap() -> None:
        for turn in itertools.count():
            if done.is_set():
                break
            if turn % 2 == 0:
                parts.rename(aside)
                parts.symlink_to(outside)
            else:
                parts.unlink()
                aside.rename(parts)

    thread = threading.Thread(target=swap)
    thread.start()
    read = 0
    try:
        for _ in range(300):
            try:
                graph = tinycomp.from_onnx(model)
            except TinycompError:
                continue
            read += 1
            (constant,) = graph.constants
            np.testing.assert_array_equal(constant.const, WEIGHTS)
    finally:
        done.set()
        thread.join()


def test_numbers_of_bytes_are_read_to_the_last_digit(model: Path):
    proto = onnx.load(model, load_external_data=False)
    for offset, is_right in (("0" * 40, True), ("0" * 40 + "4", False), ("1" + "0" * 40, False), ("0" * 101, False)):
        for entry in proto.graph.initializer[0].external_data:
            if entry.key == "offset":
                entry.value = offset
        model.write_bytes(proto.SerializeToString())
        if is_right:
            np.testing.assert_array_equal(tinycomp.from_onnx(model).constants[0].const, WEIGHTS)
        else:
            with pytest.raises(ModelError, match=r"outside the external file|the offset of the external data"):
                tinycomp.from_onnx(model)


# Pipes in place of files ----------------------------------------------------------------------------------------------


def test_a_pipe_is_not_waited_for(model: Path, tmp_path: Path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="not a regular file"):
        open_regular(pipe)
    with pytest.raises(ModelError, match="not a regular file"):
        tinycomp.from_onnx(pipe)
    with pytest.raises(ArtifactError, match="not a regular file"):
        tinycomp.load(pipe)
    with pytest.raises(WriteError, match="Nobody reads from this pipe"):
        write_file(pipe, b"data")
    weights_of(model).unlink()
    os.mkfifo(weights_of(model))
    with pytest.raises(ModelError, match="is not a regular file"):
        tinycomp.from_onnx(model)


@pytest.mark.parametrize("name", ["model.tir", "model.tcm", "model.onnx"])
def test_commands_do_not_wait_for_pipes(name: str, tmp_path: Path):
    os.mkfifo(tmp_path / name)
    assert main(["report", str(tmp_path / name)]) != 0


def test_inputs_are_no_pipes(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    os.mkfifo(tmp_path / "x.npy")
    assert main(["run", str(model), "--input", str(tmp_path / "x.npy")]) != 0
    assert "not a regular file" in " ".join(capsys.readouterr().err.split())


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs /dev/zero")
def test_devices_are_not_read(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(ModelError, match="not a regular file"):
        tinycomp.from_onnx("/dev/zero")
    with pytest.raises(ArtifactError, match="not a regular file"):
        tinycomp.load("/dev/zero")
    for name in ("model.tir", "model.tcm", "model.onnx", "x.npy"):
        (tmp_path / name).symlink_to("/dev/zero")
        is_input = name == "x.npy"
        arguments = ["run", "digits", "--input"] if is_input else ["report"]
        assert main([*arguments, str(tmp_path / name)]) == 2
        assert "not a regular file" in " ".join(capsys.readouterr().err.split())


@contextlib.contextmanager
def without(path: Path) -> Iterator[None]:
    """Take all permissions from a file or folder, and from root the right to pass over that."""
    mode, is_root = path.stat().st_mode, os.geteuid() == 0
    path.chmod(0)
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)
        path.chmod(mode)


@pytest.fixture
def reachable() -> Iterator[Path]:
    """A folder that every user may look into, unlike those that pytest makes."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def test_files_and_folders_that_may_not_be_read(model: Path, reachable: Path):
    model = shutil.copytree(model.parent, reachable / "model") / model.name
    saved = model.parent / "module.tcm"
    tinycomp.compile(model).save(saved)
    for path in (model, weights_of(model), model.parent, weights_of(model).parent):
        with without(path), pytest.raises(ModelError, match="Permission denied"):
            tinycomp.from_onnx(model)
    for path in (saved, saved.parent):
        with without(path), pytest.raises(ArtifactError, match="cannot be read: Permission denied"):
            tinycomp.load(saved)
    with without(saved.parent), pytest.raises(WriteError, match="Permission denied"):
        write_file(saved, b"data")


def test_a_pipe_in_the_cache_is_no_entry(tmp_path: Path):
    cache = Cache(tmp_path / "cache", ".so", "something")
    cache.prepare()
    cache.store("key", b"data", "target", "region")
    place = cache.place("key", b"data")
    place.unlink()
    os.mkfifo(place)
    assert cache.find("key") is None
    (tmp_path / "cache" / "key.json").unlink()
    os.mkfifo(tmp_path / "cache" / "key.json")
    assert cache.find("key") is None
    assert cache.entries() == []
