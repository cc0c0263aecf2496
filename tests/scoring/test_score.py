"""Rows of Parquet files are scored once each, whatever happens to the processes that do it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinycomp
from tests.scoring.processes import children, wait_for
from tinycomp.data import digits, digits_model
from tinycomp.errors import ExecutionError, FeedError, OptionError, UnsupportedError

pa = pytest.importorskip("pyarrow", reason="scoring needs pyarrow")
pq = pytest.importorskip("pyarrow.parquet", reason="scoring needs pyarrow")

from tinycomp.ir import Graph, TensorType  # noqa: E402
from tinycomp.runtime import child  # noqa: E402
from tinycomp.scoring import processes  # noqa: E402
from tinycomp.scoring.piece import Piece, Settings  # noqa: E402
from tinycomp.scoring.worker import Worker  # noqa: E402

IMAGES, LABELS = digits()
ROWS = 120


def write(path: Path, rows: slice = slice(0, ROWS), **more: Any) -> Path:
    images = IMAGES[rows].reshape(-1, 64)
    pq.write_table(
        pa.table({"id": np.arange(len(IMAGES))[rows], "image": list(images), **more}), path, row_group_size=25
    )
    return path


def embedding() -> Graph:
    """A table of three rows, and a sum over tokens: any number of tokens, but only 0 to 2."""
    graph = Graph("embedding", opsets={"": 17})
    tokens = graph.add_input("tokens", TensorType("int64", ("N", "T")))
    table = graph.add_const(np.float32([[1, 0], [0, 1], [5, 5]]))
    vectors = graph.add("Gather", [table, tokens]).output
    axes = graph.add_const(np.int64([1]))
    graph.set_outputs([graph.add("ReduceSum", [vectors, axes], {"keepdims": 0}).output], ["sum"])
    return graph


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*.parquet"))}


def test_results_are_those_of_the_module_row_by_row(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", slice(0, 60))
    write(tmp_path / "b.parquet", slice(60, ROWS))
    scored = tinycomp.score(digits_model(), tmp_path, tmp_path / "out", workers=2, batch=7)
    assert (scored.rows, scored.failed, scored.parts, scored.resumed) == (ROWS, 0, 6, 0)
    found = pq.read_table(tmp_path / "out")
    assert found.column("id").to_pylist() == [*range(ROWS)]
    expected = tinycomp.compile(digits_model())(IMAGES[:ROWS])
    np.testing.assert_array_equal(np.stack(found.column("probabilities").to_numpy()), expected)
    assert not scored.rejects.exists()
    assert not [*(tmp_path / "out").glob(".*")]

    before = contents(tmp_path / "out")
    (tmp_path / "out" / "part-00001-00001.parquet").unlink()
    (tmp_path / "out" / "part-00000-00000.parquet").write_bytes(b"PAR1 damaged")
    (tmp_path / "out" / ".tinycomp-0123.tmp").write_bytes(b"of a worker that was killed")
    again = tinycomp.score(digits_model(), tmp_path, tmp_path / "out", workers=1, batch=7)
    assert (again.rows, again.resumed) == (ROWS, 4)
    assert contents(tmp_path / "out") == before
    assert not [*(tmp_path / "out").glob(".*")]


def test_rows_that_fail_are_written_with_their_reasons(tmp_path: Path) -> None:
    tokens = [[0, 1], [2], [7], [0, 0, 2], None, [1], [], [0, None], [1, 1], [9, 9]]
    pq.write_table(pa.table({"ids": tokens, "key": list("abcdefghij")}), tmp_path / "t.parquet", row_group_size=6)
    scored = tinycomp.score(
        tinycomp.compile(embedding()), tmp_path / "t.parquet", tmp_path / "out", columns={"tokens": "ids"}, workers=1
    )
    assert (scored.rows, scored.failed) == (6, 4)
    found = pq.read_table(tmp_path / "out")
    assert found.to_pydict() == {
        "key": ["a", "b", "d", "f", "g", "i"],
        "sum": [[1, 1], [5, 5], [7, 5], [0, 1], [0, 0], [0, 2]],
    }
    rejects = pq.read_table(scored.rejects).to_pydict()
    assert rejects["file"] == [str(tmp_path / "t.parquet")] * 4
    assert [*zip(rejects["row_group"], rejects["row"], strict=True)] == [(0, 2), (0, 4), (1, 1), (1, 3)]
    assert "a value is missing" in rejects["reason"][1]
    assert "an index is out of range" in rejects["reason"][0]


def test_a_worker_that_is_killed_changes_nothing(tmp_path: Path) -> None:
    table = pa.table({"image": list(np.tile(IMAGES.reshape(-1, 64), (5, 1)))})
    pq.write_table(table, tmp_path / "d.parquet", row_group_size=500)
    module = tinycomp.compile(digits_model(), threads=1)
    tinycomp.score(module, tmp_path / "d.parquet", tmp_path / "whole", batch=1, workers=2)
    before, results = set(children(os.getpid())), []
    thread = threading.Thread(
        target=lambda: results.append(
            tinycomp.score(module, tmp_path / "d.parquet", tmp_path / "killed", batch=1, workers=2)
        )
    )
    thread.start()
    wait_for(lambda: [*(tmp_path / "killed").glob(".tinycomp-*.tmp")])
    victims = set(children(os.getpid())) - before
    assert len(victims) == 2
    for victim in victims:
        os.kill(victim, signal.SIGKILL)
    thread.join()
    assert results[0].rows == len(table)
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


def test_a_run_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    table = pa.table({"image": list(np.tile(IMAGES.reshape(-1, 64), (5, 1)))})
    pq.write_table(table, tmp_path / "d.parquet", row_group_size=125)
    command = [
        sys.executable,
        "-m",
        "tinycomp",
        "score",
        "digits",
        "d.parquet",
        "-o",
        "out",
        "--batch",
        "1",
        "--workers",
        "1",
    ]
    path = os.pathsep.join(filter(None, [str(Path(tinycomp.__file__).parents[1]), os.environ.get("PYTHONPATH")]))
    with subprocess.Popen(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.DEVNULL
    ) as run:
        wait_for(lambda: [*(tmp_path / "out").glob("part-*")])
        (worker,) = children(run.pid)
        run.kill()
    wait_for(lambda: not Path(f"/proc/{worker}").exists())
    written = len([*(tmp_path / "out").glob("part-*")])
    assert 1 <= written <= 8
    scored = tinycomp.score(digits_model(), tmp_path / "d.parquet", tmp_path / "out", workers=1)
    assert (scored.rows, scored.resumed) == (len(table), written)
    expected = tinycomp.compile(digits_model())(IMAGES)
    found = np.stack(pq.read_table(tmp_path / "out").column("probabilities").to_numpy())
    np.testing.assert_allclose(found, np.tile(expected, (5, 1)), atol=1e-6)


def test_a_row_group_that_ends_every_process_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child, "_START", "import sys; sys.exit(7)")
    settings = Settings("m.tcm", str(tmp_path), {}, (), None, 1)
    message = "f.parquet, row group 3: the process that scored this ended, 3 times; found exit code 7"
    with pytest.raises(ExecutionError, match=message):
        [*processes.score_in_processes(settings, [Piece(0, "f.parquet", 3, 1)], 1)]


def test_fixed_batches_are_filled_up(tmp_path: Path) -> None:
    path = write(tmp_path / "d.parquet", slice(0, 30))
    model = tmp_path / "m.tcm"
    tinycomp.compile(digits_model(), shapes={"image": (8, 1, 8, 8)}).save(model)
    worker = Worker(Settings(str(model), str(tmp_path), {"image": "image"}, ("id",), None, 1))
    done = [worker.score(Piece(0, str(path), group, rows)) for group, rows in enumerate((25, 5))]
    assert [(d.rows, d.failed) for d in done] == [(25, 0), (5, 0)]
    found = np.concatenate([np.stack(pq.read_table(tmp_path / d.name)["probabilities"].to_numpy()) for d in done])
    np.testing.assert_allclose(found, tinycomp.compile(digits_model())(IMAGES[:30]), atol=1e-6)


def test_memory_that_does_not_suffice_is_an_error_with_the_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a file whose name is no text has its rejects written down."""
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff.parquet"))
    with path.open("wb") as file:
        pq.write_table(pa.table({"tokens": [[0], [None]]}), file)
    scored = tinycomp.score(embedding(), path, tmp_path / "out", workers=1)
    assert pq.read_table(scored.rejects).to_pydict()["file"] == [f"{tmp_path}/\\xff.parquet"]
    worker = Worker(
        Settings(str(tmp_path / "out/_tinycomp/model.tcm"), str(tmp_path), {"tokens": "tokens"}, (), None, 1)
    )
    monkeypatch.setattr(worker, "_results", lambda batch: np.zeros(1 << 55))
    with pytest.raises(ExecutionError, match=r"parquet, row group 0: the memory does not suffice; found .* Use a sm"):
        worker.score(Piece(0, str(path), 0, 2))


def test_an_error_of_a_worker_is_that_of_the_run(tmp_path: Path) -> None:
    path = write(tmp_path / "d.parquet")
    (tmp_path / "m.tcm").write_bytes(b"no module")
    settings = Settings(str(tmp_path / "m.tcm"), str(tmp_path), {"image": "image"}, (), None, 1)
    with pytest.raises(tinycomp.TinycompError, match=r"m.tcm"):
        [*processes.score_in_processes(settings, [Piece(0, str(path), 0, 25)], 1)]


def refused(match: str, kind: type[Exception], path: Path, **options: Any) -> None:
    with pytest.raises(kind, match=match):
        tinycomp.score(options.pop("model", digits_model()), options.pop("files", path), path.parent / "new", **options)
    assert not (path.parent / "new").exists()


def test_what_cannot_be_scored_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    path = write(tmp_path / "d.parquet", probabilities=np.zeros(ROWS))
    refused("a column that is kept has the name of an output.*keep=", OptionError, path)
    refused(
        'there is no column "img" for the input "image".*Did you mean "image"',
        FeedError,
        path,
        columns={"image": "img"},
    )
    refused('columns, "imag": not an input.*Did you mean "image"', OptionError, path, columns={"imag": "image"})
    refused('there is no column "prob"; expected one of id, image, probabil', FeedError, path, keep=["prob"])
    refused(r'there is no column "\\ud800"; expected one of id', FeedError, path, keep=["\ud800"])
    refused("score: a path is empty", OptionError, path, files=[path, ""])
    refused('keep, "id": a column is kept twice', OptionError, path, keep=["id", "id"])
    refused("the file is given twice", FeedError, path, files=[path, tmp_path])
    refused('there is no such file.*Did you mean "d.parquet"', FeedError, path, files=tmp_path / "e.parquet")
    refused(
        "workers: the option does not take this value; expected int or None, 1 or more; found 0",
        OptionError,
        path,
        workers=0,
    )
    (tmp_path / "text").mkdir()
    refused("there are no Parquet files in this folder", FeedError, path, files=tmp_path / "text")
    (tmp_path / "text" / "t.parquet").write_text("text")
    refused("t.parquet: the file cannot be read; expected a Parquet file", FeedError, path, files=tmp_path / "text")
    two = pq.read_table(path)
    pq.write_table(two.append_column("image", two.column("image")), tmp_path / "text" / "t.parquet")
    refused('there are 2 columns "image"; ', FeedError, path, files=tmp_path / "text", keep=["id"])
    graph = embedding()
    graph.set_outputs([graph.add("Shape", [graph.inputs[0]]).output], ["shape"])
    pq.write_table(pa.table({"tokens": [[1]]}), tmp_path / "t.parquet")
    refused("the output does not have one entry per row", UnsupportedError, tmp_path / "t.parquet", model=graph)


def test_a_folder_holds_the_results_of_one_run(tmp_path: Path) -> None:
    path, out = write(tmp_path / "d.parquet", slice(0, 10)), tmp_path / "out"
    tinycomp.score(digits_model(), path, out, workers=1, batch=10**30)
    with pytest.raises(OptionError, match="out, keep: the folder holds results of another run"):
        tinycomp.score(digits_model(), path, out, keep=[])
    with pytest.raises(
        OptionError, match="expected the same model; found another model, or the same one compiled otherw"
    ):
        tinycomp.score(digits_model(quantized=True), path, out)
    more = write(tmp_path / "e.parquet", slice(10, 20))
    with pytest.raises(OptionError, match=r"of files that are not among those given; found .*d.parquet"):
        tinycomp.score(digits_model(), more, out)
    scored = tinycomp.score(digits_model(), [more, path], out, workers=1)
    assert (scored.rows, scored.parts, scored.resumed) == (20, 2, 1)
    write(path, slice(0, 11))
    with pytest.raises(OptionError, match=r"d.parquet: the file has changed since its first rows were scored"):
        tinycomp.score(digits_model(), [path, more], out)
    (out / "_tinycomp" / "manifest.json").write_text("{")
    expected = r"manifest.json: the file is damaged; expected the manifest of earlier results"
    with pytest.raises(OptionError, match=expected):
        tinycomp.score(digits_model(), path, out)
    with pytest.raises(OptionError, match="the folder holds other Parquet files"):
        tinycomp.score(digits_model(), path, tmp_path)
