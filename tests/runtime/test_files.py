"""Files are there as a whole or not at all: what is written when the disk is full, and what is left behind."""

from __future__ import annotations

import errno
import os
import pickle
import resource
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinycomp
from tests.runtime.csource.c_sources import X, doubling, times
from tinycomp.checking.reproduce import Reproducer
from tinycomp.cli import main
from tinycomp.data import digits, digits_model
from tinycomp.driver import load as load_module
from tinycomp.driver.dump import read_dump, write_graph
from tinycomp.driver.load import load
from tinycomp.errors import ArtifactError, ModelError, OptionError, TargetError, TinycompWarning, WriteError
from tinycomp.runtime.archive import map_path
from tinycomp.runtime.files import PARTIAL, make_folder, remove_partial, staged, write_file, write_files

FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
needs_limit = pytest.mark.skipif(sys.platform == "win32", reason="needs limits on the size of files")


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Let no file grow beyond so many bytes, as if the disk were full from there on."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    assert signal.getsignal(signal.SIGXFSZ) == signal.SIG_IGN  # or this process would end
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def save(path: Path) -> None:
    tinycomp.compile(digits_model()).save(path)


def save_report(path: Path) -> None:
    tinycomp.compile(digits_model()).report().save_html(path)


def save_dumps(path: Path) -> None:
    tinycomp.compile(digits_model(), dump=path.parent)


def save_graph(path: Path) -> None:
    write_graph(path, tinycomp.from_onnx(digits_model()))


def save_reproducer(path: Path) -> None:
    graph = tinycomp.from_onnx(digits_model())
    Reproducer(graph, {graph.inputs[0].name: digits()[0][:1]}).write(path.parent, path.stem)


def command(*arguments: str) -> Callable[[Path], None]:
    """A command line that writes to ``{}`` and says that it cannot."""

    def run(path: Path) -> None:
        if main([a.format(path) for a in arguments]):
            raise WriteError("the command failed", where=str(path))

    return run


WRITERS: dict[str, tuple[Callable[[Path], None], str]] = {
    "module.save": (save, "kept.tcm"),
    "report.save_html": (save_report, "kept.html"),
    "compile(dump=)": (save_dumps, "00-input.tir"),
    "dump-constants": (save_dumps, "constants.tca"),
    "write_graph": (save_graph, "kept.tir"),
    "write_graph-constants": (save_graph, "kept.tca"),
    "reproducer": (save_reproducer, "kept.onnx"),
    "compile": (command("compile", "digits", "-o", "{}"), "kept.tcm"),
    "compile-emit-tir": (command("compile", "digits", "--emit", "tir", "-o", "{}"), "kept.tir"),
    "compile-emit-onnx": (command("compile", "digits", "--emit", "onnx", "-o", "{}"), "kept.onnx"),
    "opt-tir": (command("opt", "digits", "-o", "{}"), "kept.tir"),
    "opt-onnx": (command("opt", "digits", "-o", "{}"), "kept.onnx"),
    "run": (command("run", "digits", "--random", "0", "-o", "{}"), "kept.npz"),
    "report": (command("report", "digits", "--html", "{}"), "kept.html"),
}


@needs_limit
@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("old", [None, b"what was there before"])
def test_a_full_disk_leaves_everything_as_it_was(name, old, tmp_path, capsys):
    write, file = WRITERS[name]
    path = tmp_path / file
    asked = path.with_suffix(".tir") if name == "write_graph-constants" else path
    if old is not None:
        path.write_bytes(old)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    with largest_file(100), pytest.raises(WriteError):
        write(asked)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
    write(asked)
    assert path.stat().st_size > 100
    assert not [p.name for p in tmp_path.iterdir() if p.suffix == PARTIAL]


@needs_full
@pytest.mark.parametrize("device", [FULL, Path("/dev/null")])
@pytest.mark.parametrize("name", [n for n, (_, file) in WRITERS.items() if file.startswith("kept") and "-" not in n])
def test_a_device_is_written_to_and_never_replaced(name, device, tmp_path, capsys):
    write, file = WRITERS[name]
    path = tmp_path / file
    path.symlink_to(device)
    with pytest.raises(WriteError) if device == FULL else nullcontext():
        write(path)
    assert path.readlink() == device
    assert stat.S_ISCHR(device.stat().st_mode)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_that_nobody_reads_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(WriteError, match=r"pipe: the file cannot be written: .*\. Nobody reads from this pipe\."):
        write_file(tmp_path / "pipe", b"data")


@pytest.mark.parametrize("path", ["\ud800", "a\0b", Path("\ud800")])
def test_what_no_system_takes_for_a_path_is_refused(path):
    module = tinycomp.compile(digits_model())
    with pytest.raises(ModelError, match=r"not the path of a file; expected an \.onnx file"):
        tinycomp.compile(path)
    for call in (module.save, module.report().save_html, tinycomp.load):
        with pytest.raises(
            OptionError, match=r"the option does not take this value; expected (str or|str, PathLike or)"
        ):
            call(path)


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are texts there")
def test_names_of_files_need_not_be_utf8(tmp_path):
    path = tmp_path / os.fsdecode(b"\xff.tcm")
    tinycomp.compile(digits_model()).save(str(path))
    tinycomp.load(str(path))
    model = path.with_suffix(".onnx")
    model.write_bytes(Path(digits_model()).read_bytes())
    tinycomp.compile(str(model))


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="the system has no names for descriptors")
def test_a_pipe_without_a_name_is_written_to():
    reader, writer = os.pipe()
    write_file(Path(f"/dev/fd/{writer}"), b"data")
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert pipe.read() == b"data"


@needs_full
def test_the_error_says_what_and_where(tmp_path):
    with pytest.raises(WriteError, match=r"^/dev/full: the file cannot be written: No space left on device\. Free"):
        write_file(FULL, b"data")
    with pytest.raises(OSError, match=r"none/y: .*No such file or directory\. Make the folder first") as failure:
        write_file(tmp_path / "none" / "y", b"")
    assert failure.value.errno == errno.ENOENT
    assert str(pickle.loads(pickle.dumps(failure.value))) == str(failure.value)
    with pytest.raises(WriteError, match="the file cannot be written: Is a directory"):
        write_file(tmp_path, b"")
    (tmp_path / "file").touch()
    with pytest.raises(WriteError, match="file/x: the folder cannot be made: Not a directory"):
        make_folder(tmp_path / "file" / "x")
    with pytest.raises(
        WriteError, match=r"file/x: the file cannot be written: Not a directory\. A part of the path is"
    ):
        write_file(tmp_path / "file" / "x", b"")


def test_files_that_belong_together_change_together(tmp_path):
    first, second = tmp_path / "first", tmp_path / "none" / "second"
    first.write_bytes(b"old")
    with pytest.raises(WriteError, match="second"):
        write_files({first: b"new", second: b"new"})
    assert first.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [first]


@pytest.mark.parametrize("name", ["os.open", "os.fsync", "Path.chmod", "Path.replace"])
@pytest.mark.parametrize("failure", [KeyboardInterrupt(), PermissionError(errno.EACCES, "Permission denied")])
def test_an_interrupt_at_every_step(name, failure, tmp_path, monkeypatch):
    path = tmp_path / "kept.tcm"
    path.write_bytes(b"old")

    def fail(*args: object, **named: object) -> None:
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr(f"tinycomp.runtime.files.{name}", fail)
        with pytest.raises((KeyboardInterrupt, WriteError)):
            write_file(path, b"new")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("kept.tcm", b"old")]


def test_links_and_permissions_stay(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"old")
    real.chmod(0o640)
    link.symlink_to("real")
    write_file(link, b"new")
    assert link.readlink() == Path("real")
    assert real.read_bytes() == b"new"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    mask = os.umask(0o027)
    try:
        write_file(tmp_path / "fresh", b"")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "fresh").stat().st_mode) == 0o640


@needs_limit
def test_a_cache_on_a_full_disk_keeps_nothing_and_compiles_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("TINYCOMP_CACHE", str(tmp_path))

    def full(*arguments: Any) -> None:
        with largest_file(100):  # for the cache alone: the compiler needs room
            write_file(*arguments)

    monkeypatch.setattr("tinycomp.runtime.cache.write_file", full)
    with pytest.warns(TinycompWarning, match="compiled C source is not kept: .*File too large"):
        module = tinycomp.compile(doubling(), times())
    np.testing.assert_array_equal(module(X), 2 * X)
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


@needs_limit
def test_no_space_for_the_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("TINYCOMP_CACHE", str(tmp_path))
    with largest_file(100), pytest.raises(TargetError, match=r"File too large|file size|File size"):
        tinycomp.compile(doubling(), times(3))
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]
    np.testing.assert_array_equal(tinycomp.compile(doubling(), times(3))(X), 3 * X)


def test_a_file_that_goes_away_while_it_is_loaded(tmp_path, monkeypatch):
    path = tmp_path / "module.tcm"
    save(path)

    def map_and_remove(wanted: Path) -> np.ndarray:
        data = map_path(wanted)
        wanted.unlink()
        return data

    with monkeypatch.context() as patch:
        patch.setattr(load_module, "map_path", map_and_remove)
        module = load(path)
    assert not path.exists()
    module.save(path)  # from what was read
    np.testing.assert_array_equal(load(path)(digits()[0][:2]), module(digits()[0][:2]))
    path.unlink()
    with pytest.raises(ArtifactError, match="there is no such file"):
        load(path)


def test_a_dump_that_was_cut_short(tmp_path):
    save_dumps(tmp_path / "00-input.tir")
    store = tmp_path / "constants.tca"
    store.write_bytes(store.read_bytes()[:-100])
    with pytest.raises(ArtifactError, match=r"constants\.tca"):
        read_dump(tmp_path / "00-input.tir")


def test_a_staged_file_takes_its_place_when_it_is_whole(tmp_path: Path) -> None:
    place = tmp_path / "part"
    with staged(place) as partial:
        partial.write_bytes(b"new")
        assert not place.exists()
    assert place.read_bytes() == b"new"
    with pytest.raises(KeyError):
        fail_with(place, KeyError())
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("part", b"new")]


def fail_with(place: Path, error: Exception) -> None:
    """Raise an error while a file is being written."""
    with staged(place) as partial:
        partial.write_bytes(b"newer")
        raise error


def test_a_staged_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match=r"missing/part: the file cannot be written.*Make the folder first"):
        fail_with(tmp_path / "missing" / "part", KeyError())
    with pytest.raises(WriteError, match=r"the file cannot be written: no space.*Free some space"):
        fail_with(tmp_path / "part", OSError(errno.ENOSPC, "no space"))
    with pytest.raises(FileNotFoundError):
        fail_with(tmp_path / "part", FileNotFoundError(errno.ENOENT, "not there", "another file"))


def test_what_killed_processes_were_writing_is_removed(tmp_path: Path) -> None:
    (tmp_path / "part").touch()
    (tmp_path / f".tinycomp-0123{PARTIAL}").touch()
    remove_partial(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["part"]


@pytest.mark.parametrize(
    "use",
    [
        lambda path: tinycomp.compile(digits_model(), dump=path),
        lambda path: tinycomp.compile(digits_model()).report().save_model_explorer(path),
        lambda path: tinycomp.to_c(tinycomp.compile(digits_model(), shapes={"image": (1, 1, 8, 8)})).write(path),
    ],
    ids=["dump", "save_model_explorer", "write"],
)
def test_an_empty_path_is_no_folder(use, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OptionError, match="an empty path is no folder"):
        use("")
    assert not list(tmp_path.iterdir())
