"""Folders that several runs use, and files of others: an error of ours that names the place, or the right results."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tinycomp
from tests.scoring.processes import children, wait_for
from tinycomp.data import digits_model
from tinycomp.errors import FeedError, OptionError, TinycompError, WriteError
from tinycomp.runtime.child import Child

pa = pytest.importorskip("pyarrow", reason="scoring needs pyarrow")
pq = pytest.importorskip("pyarrow.parquet", reason="scoring needs pyarrow")

from tests.scoring import damage  # noqa: E402
from tests.scoring.test_score import contents, write  # noqa: E402
from tinycomp.memory.system import lock_file, unlock_file  # noqa: E402
from tinycomp.scoring import manifest  # noqa: E402
from tinycomp.scoring.parquet import found_files  # noqa: E402
from tinycomp.scoring.piece import Piece  # noqa: E402
from tinycomp.scoring.worker import counts  # noqa: E402

DEEP = 100_000
NESTED = b"[" * DEEP + b"]" * DEEP


# Damaged files --------------------------------------------------------------------------------------------------------


def damaged(count: int, folder: str) -> Counter[str]:
    return sum((damage.check(damage.case(seed), folder) for seed in range(count)), Counter[str]())


def test_damaged_files_are_refused_or_scored(tmp_path: Path) -> None:
    """In a process of their own, so that a crash would be one of these files' and not of all tests."""
    child = Child()
    try:
        found = child.call(damaged, 350, str(tmp_path))
    finally:
        child.stop()
    assert found.total() == 350
    assert found["refused"] > 200 < found.total() - found["scored"]


@pytest.mark.parametrize("form", range(7))
def test_files_that_are_cut_off_are_refused(form: int, tmp_path: Path) -> None:
    data, folder = damage.whole(form), str(tmp_path)
    assert damage.check(data, folder) == {"scored": 1}
    for length in range(0, len(data), 1 + len(data) // 15):
        assert damage.check(data[:length], folder) == {"refused": 1}


def test_a_run_ends_with_the_path_of_a_damaged_file(tmp_path: Path) -> None:
    path = write(tmp_path / "d.parquet", slice(0, 60))
    data = bytearray(path.read_bytes())
    data[60:400] = b"\xff" * 340  # in the first pages
    path.write_bytes(data)
    with pytest.raises(FeedError, match=r"d\.parquet, row group 0: the file cannot be read; expected a Parquet file"):
        tinycomp.score(digits_model(), path, tmp_path / "out", workers=1)
    assert not [*(tmp_path / "out").glob(".*")]


def test_a_file_that_changes_meanwhile_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "d.parquet", slice(0, 10))
    file, _ = manifest.read_file(path)
    (piece,) = file.pieces(0)
    worker = damage.worker(str(tmp_path))
    write(path, slice(0, 11))
    with pytest.raises(FeedError, match=r"d\.parquet, row group 0: the file has changed since the run began"):
        worker.score(piece)
    path.unlink()
    with pytest.raises(FeedError, match=r"row group 0: the file is gone; found No such file"):
        worker.score(piece)


# What lies in place of a file -----------------------------------------------------------------------------------------


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(path.parent)  # the addresses of sockets are short
        server.bind(path.name)
        os.chdir(here)


def a_loop(path: Path) -> None:
    path.symlink_to(path.name)


IN_PLACE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a pipe": (os.mkfifo, "cannot be read: not a regular file, but a pipe; expected a Parquet file"),
    "a socket": (a_socket, "cannot be read: not a regular file, but a socket; expected a Parquet file"),
    "a device": (lambda path: path.symlink_to("/dev/zero"), "cannot be read: not a regular file, but a device"),
    "nothing to read": (lambda path: path.symlink_to("/dev/null"), "cannot be read: not a regular file, but a device"),
    "a link to a pipe": (
        lambda path: (os.mkfifo(path.with_name("pipe")), path.symlink_to("pipe")),
        "cannot be read: not a regular file, but a pipe",
    ),
    "a link to nothing": (lambda path: path.symlink_to("nothing"), "there is no such file"),
    "a link in a circle": (a_loop, "cannot be read: Too many"),
    "an empty file": (lambda path: path.touch(), "the file cannot be read"),
    "a text": (lambda path: path.write_text("text"), "the file cannot be read"),
    "the ends alone": (lambda path: path.write_bytes(b"PAR1PAR1"), "the file cannot be read"),
    "a footer beyond the file": (
        lambda path: path.write_bytes(b"PAR1" + b"\xff\xff\xff\x7fPAR1"), "the file cannot be read",
    ),
    "zeros": (lambda path: path.write_bytes(bytes(1 << 16)), "the file cannot be read"),
    "an encrypted footer": (lambda path: path.write_bytes(b"PARE" + bytes(8) + b"PARE"), "the file cannot be read"),
    "an Arrow file": (lambda path: path.write_bytes(b"ARROW1\0\0" + bytes(20) + b"ARROW1"), "the file cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize("in_a_folder", [False, True])
@pytest.mark.parametrize("kind", IN_PLACE)
def test_what_is_no_file_is_refused_by_name_and_not_waited_for(kind: str, in_a_folder: bool, tmp_path: Path) -> None:
    make, message = IN_PLACE[kind]
    (tmp_path / "data").mkdir()
    make(tmp_path / "data" / "x.parquet")
    given = tmp_path / "data" if in_a_folder else tmp_path / "data" / "x.parquet"
    with pytest.raises(FeedError, match=f"x.parquet: ({message})"):
        tinycomp.score(digits_model(), given, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_folders_with_names_of_files_are_looked_into(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").mkdir()
    inside = write(tmp_path / "a.parquet" / "part-0.parquet", slice(0, 5))
    (tmp_path / "_hidden").mkdir()
    shutil.copy(inside, tmp_path / "_hidden" / "x.parquet")
    shutil.copy(inside, tmp_path / "_x.parquet")
    (tmp_path / "out" / "below").mkdir(parents=True)
    shutil.copy(inside, tmp_path / "out" / "below" / "x.parquet")
    os.mkfifo(tmp_path / "pipe")  # of another name
    assert found_files([tmp_path], tmp_path / "out") == [inside]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_folder_that_may_not_be_read_is_an_error() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)  # others may look into it, unlike into those that pytest makes
        folder.chmod(0o755)
        write(folder / "a.parquet", slice(0, 5))
        (folder / "closed").mkdir(mode=0o700)
        os.seteuid(65534)
        try:
            with pytest.raises(FeedError, match="closed: the folder cannot be read; found Permission denied"):
                found_files([folder], folder / "out")
        finally:
            os.seteuid(0)


# What lies in the folder of results -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and results, of which every test takes a copy."""
    folder = tmp_path_factory.mktemp("scored")
    write(folder / "d.parquet", slice(0, 50))
    tinycomp.score(digits_model(), folder / "d.parquet", folder / "out", workers=1)
    return folder


@pytest.fixture
def folder(scored: Path, tmp_path: Path) -> Iterator[Path]:
    """The results under the same path as before, since they name their files by it."""
    shutil.copytree(scored / "out", tmp_path / "kept")
    yield scored
    shutil.rmtree(scored / "out")
    shutil.copytree(tmp_path / "kept", scored / "out")


def again(folder: Path) -> Any:
    return tinycomp.score(digits_model(), folder / "d.parquet", folder / "out", workers=1)


def entry(**other: Any) -> dict[str, Any]:
    return {"path": "/x", "size": 1, "modified": 1, "row_groups": [1], **other}


def whole(**other: Any) -> dict[str, Any]:
    return {"version": 1, "model": "m", "columns": {"image": "image"}, "keep": ["id"], "files": [], **other}


VALUES: dict[str, Any] = {
    "nothing": None, "a text": "x", "a number": 7, "a fraction": 1.5, "true": True, "lists": [[]], "texts": ["x"],
    "an object": {"x": [1]}, "huge": 1 << 70,
}  # fmt: skip
MANIFESTS: dict[str, bytes] = {
    "empty": b"", "cut off": b'{"version": 1, "files": [', "not JSON": b"manifest", "not UTF-8": b'{"\xff": 1}',
    "zeros": bytes(9), "a list": b"[]", "a text": b'"x"', "null": b"null", "NaN": b"NaN", "twice": b"{}{}",
    "no files": b"{}", "deep": NESTED,
    "deep and open": b"[" * DEEP, "deep objects": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "deep files": b'{"columns": {}, "keep": [], "model": "", "files": ' + NESTED + b"}",
    "deep columns": b'{"files": [], "columns": ' + NESTED + b"}", "many digits": b'{"files": ' + b"9" * 5000 + b"}",
    **{f"files: {name}": json.dumps(whole(files=value)).encode() for name, value in VALUES.items()},
    **{f"a file: {name}": json.dumps(whole(files=[value])).encode() for name, value in VALUES.items()},
    **{
        f"{key} of a file: {name}": json.dumps(whole(files=[entry(**{key: value})])).encode()
        for key in ("path", "size", "modified", "row_groups") for name, value in VALUES.items()
        if (key, name) not in {("path", "a text"), ("size", "a number"), ("modified", "a number")}
    },
    **{
        f"{key}: {name}": json.dumps(whole(**{key: value})).encode()
        for key in ("columns", "keep", "model") for name, value in VALUES.items()
        if (key, name) not in {("keep", "texts"), ("model", "a text")}
    },
}  # fmt: skip


@pytest.mark.parametrize("case", MANIFESTS)
def test_a_manifest_that_is_none_is_an_error(case: str, tmp_path: Path) -> None:
    place = tmp_path / "out" / "_tinycomp" / "manifest.json"
    place.parent.mkdir(parents=True)
    place.write_bytes(MANIFESTS[case])
    with pytest.raises(
        OptionError,
        match=r"manifest.json: the file is damaged; expected the manifest of earlier results; found .* Name another",
    ) as caught:
        manifest.prepare(tmp_path / "out", b"model", {"columns": {}, "keep": []}, [])
    assert len(str(caught.value)) < 600 + len(str(place))


@pytest.mark.parametrize("kind", ["a pipe", "a socket", "a device", "a link to nothing", "a link in a circle"])
def test_what_is_no_manifest_is_not_waited_for(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "out" / "_tinycomp" / "manifest.json"
    place.parent.mkdir(parents=True)
    IN_PLACE[kind][0](place)
    with pytest.raises(OptionError, match=r"manifest\.json: .*; expected the manifest of earlier results"):
        manifest.prepare(tmp_path / "out", b"model", {"columns": {}, "keep": []}, [])


@pytest.mark.parametrize(
    "harm",
    [
        lambda model: model.unlink(),
        lambda model: model.write_bytes(b""),
        lambda model: model.write_bytes(model.read_bytes()[:-100]),
        lambda model: model.write_bytes(model.read_bytes() + b"x"),
        lambda model: model.write_bytes(bytes(model.stat().st_size)),
    ],
)
def test_a_model_that_is_missing_or_damaged_is_written_anew(folder: Path, harm: Callable[[Path], Any]) -> None:
    model = folder / "out" / "_tinycomp" / "model.tcm"
    before, data = contents(folder / "out"), model.read_bytes()
    harm(model)
    (folder / "out" / "part-00000-00001.parquet").unlink()
    assert again(folder).resumed == 1
    assert contents(folder / "out") == before
    assert model.read_bytes() == data


def with_counts(rows: int, failed: int) -> Callable[[Path], Any]:
    def harm(part: Path) -> None:
        table = pq.read_table(part).replace_schema_metadata({b"tinycomp": f"{rows},{failed}".encode()})
        pq.write_table(table, part)

    return harm


PARTS: dict[str, Callable[[Path], Any]] = {
    **{
        name: lambda part, make=make: (part.unlink(), make(part)) for name, (make, _) in IN_PLACE.items()
        if name not in {"a socket", "a device", "nothing to read", "a link to a pipe"}
    },
    "a folder": lambda part: (part.unlink(), part.mkdir()),
    "cut off": lambda part: part.write_bytes(part.read_bytes()[:-1]),
    "without its beginning": lambda part: part.write_bytes(part.read_bytes()[100:]),
    "with more in front": lambda part: part.write_bytes(b"PAR1" + part.read_bytes()),
    "with a hole": lambda part: part.write_bytes(part.read_bytes()[:50] + part.read_bytes()[60:]),
    "of others": lambda part: pq.write_table(pa.table({"x": [1]}), part),
    "of too few rows": with_counts(24, 0),
    "of too many rows": with_counts(26, 0),
    "of failed rows that are not there": with_counts(25, 3),
    "with failed rows whose reasons are not there": with_counts(24, 1),
    "with a number below 0": with_counts(26, -1),
    "with words for numbers": lambda part: pq.write_table(
        pq.read_table(part).replace_schema_metadata({b"tinycomp": b"many,none"}), part
    ),
    "with one number": lambda part: pq.write_table(
        pq.read_table(part).replace_schema_metadata({b"tinycomp": b"25"}), part
    ),
    "with a huge number": lambda part: pq.write_table(
        pq.read_table(part).replace_schema_metadata({b"tinycomp": b"9" * 9999 + b",0"}), part
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PARTS)
def test_results_that_are_not_whole_are_not_taken_for_done(case: str, scored: Path, tmp_path: Path) -> None:
    part = tmp_path / "part-00000-00001.parquet"
    shutil.copy(scored / "out" / part.name, part)
    piece = Piece(0, "x", 1, 25)
    assert counts(piece, str(tmp_path)) == (25, 0)
    PARTS[case](part)
    assert counts(piece, str(tmp_path)) is None


def test_a_part_that_is_a_pipe_is_scored_again(folder: Path) -> None:
    before = contents(folder / "out")
    part = folder / "out" / "part-00000-00001.parquet"
    part.unlink()
    os.mkfifo(part)
    assert again(folder).resumed == 1
    assert contents(folder / "out") == before


def test_a_folder_of_results_that_is_none_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "d.parquet", slice(0, 5))
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "locked" / "_tinycomp").mkdir(parents=True)
    os.mkfifo(tmp_path / "locked" / "_tinycomp" / "lock")
    (tmp_path / "linked" / "_tinycomp").mkdir(parents=True)
    (tmp_path / "linked" / "_tinycomp" / "lock").symlink_to(tmp_path / "file")
    for name, message in (
        ("file", "the folder cannot be made"), ("pipe", "the folder cannot be made"),
        ("locked", "lock: the folder cannot be locked: not a regular file"),
        ("linked", "lock: the folder cannot be locked: "),
        ("n\udc80", "the folder cannot be made; expected a name in UTF-8"),
        ("n" * 300, "cannot be read: File name too long"),
    ):  # fmt: skip
        with pytest.raises(WriteError, match=message):
            tinycomp.score(digits_model(), path, tmp_path / name, workers=1)
    assert not (tmp_path / "file").read_bytes()


# Several runs ---------------------------------------------------------------------------------------------------------


def test_a_second_run_is_refused_and_leaves_the_first_ones_files_alone(folder: Path) -> None:
    partial = folder / "out" / ".tinycomp-of-the-first.tmp"
    (folder / "out" / "part-00000-00001.parquet").unlink()
    with manifest.locked(folder / "out"):
        partial.touch()
        with pytest.raises(
            OptionError, match=rf"out: another run writes into the folder; found process {os.getpid()} on .* Wait until"
        ):
            again(folder)
        assert partial.exists()
        assert not (folder / "out" / "part-00000-00001.parquet").exists()
    assert again(folder).resumed == 1
    assert not partial.exists()  # nobody is left who could write to it


def test_two_runs_at_once_do_the_work_once(folder: Path) -> None:
    before = contents(folder / "out")
    shutil.rmtree(folder / "out")
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(again(folder))
        except TinycompError as error:
            results.append(error)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    errors = [result for result in results if isinstance(result, Exception)]
    assert all("another run writes into the folder" in str(error) for error in errors)
    assert len(errors) < 3
    assert contents(folder / "out") == before


def test_partial_files_of_other_runs_stay_where_there_are_no_locks(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "lock_file", lambda place: None)
    partial = folder / "out" / ".tinycomp-of-another.tmp"
    partial.touch()
    (folder / "out" / "part-00000-00001.parquet").unlink()
    assert again(folder).resumed == 1
    assert [path.name for path in (folder / "out").glob(".*")] == [partial.name]
    partial.unlink()


SLOW = """
import sys, time
import tinycomp.scoring.worker as worker
worker.Worker.score = lambda self, piece: time.sleep(600)
"""


def test_workers_end_with_their_run_and_give_the_folder_free(folder: Path, tmp_path: Path) -> None:
    """The run is killed while its worker is busy, for ten minutes if it is let."""
    before = contents(folder / "out")
    (folder / "out" / "part-00000-00001.parquet").unlink()
    (tmp_path / "sitecustomize.py").write_text(SLOW)
    path = os.pathsep.join([str(tmp_path), str(Path(tinycomp.__file__).parents[1]), *sys.path])
    command = [sys.executable, "-m", "tinycomp", "score", "digits", "d.parquet", "-o", "out", "--workers", "1"]
    with subprocess.Popen(command, cwd=folder, env=os.environ | {"PYTHONPATH": path}) as run:
        (worker,) = wait_for(lambda: children(run.pid))
        with pytest.raises(BlockingIOError):
            lock_file(folder / "out" / "_tinycomp" / "lock")
        run.send_signal(signal.SIGKILL)
    wait_for(lambda: not Path(f"/proc/{worker}").exists())
    assert again(folder).resumed == 1
    assert contents(folder / "out") == before


def test_a_lock_lasts_as_long_as_a_process_that_has_it(tmp_path: Path) -> None:
    place = tmp_path / "lock"
    descriptor = lock_file(place)
    assert descriptor is not None
    child = Child([descriptor])
    assert child.call(abs, -1) == 1
    os.close(descriptor)
    with pytest.raises(BlockingIOError):
        lock_file(place)
    child.end()
    descriptor = lock_file(place)
    assert descriptor is not None
    forked = os.fork()
    if not forked:
        time.sleep(60)
        os._exit(0)
    unlock_file(descriptor)  # whatever children have inherited
    again = lock_file(place)
    assert again is not None
    unlock_file(again)
    os.kill(forked, signal.SIGKILL)
    os.waitpid(forked, 0)
    assert stat.S_ISREG(place.stat().st_mode)
    with contextlib.suppress(FileNotFoundError):
        place.unlink()
