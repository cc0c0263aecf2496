"""The same on Ray, also where one of its actors is killed. Skipped where Ray is not installed."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest

import tinycomp
from tests.scoring.processes import children, wait_for
from tinycomp.data import digits, digits_model
from tinycomp.errors import ArtifactError

pa = pytest.importorskip("pyarrow", reason="scoring needs pyarrow")
pq = pytest.importorskip("pyarrow.parquet", reason="scoring needs pyarrow")
pytest.importorskip("ray.data", reason="Ray is not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 400 images in 4 row groups, and a saved module with the results of processes."""
    place = tmp_path_factory.mktemp("ray")
    images = np.tile(digits()[0].reshape(-1, 64), (2, 1))
    pq.write_table(pa.table({"image": list(images)}), place / "d.parquet", row_group_size=100)
    tinycomp.compile(digits_model(), threads=1).save(place / "m.tcm")
    tinycomp.score(place / "m.tcm", place / "d.parquet", place / "processes", workers=1)
    return place


def same(one: Path, other: Path) -> None:
    """The files of results of both folders are the same."""
    parts = [path.name for path in sorted(other.glob("*.parquet"))]
    assert [path.name for path in sorted(one.glob("*.parquet"))] == parts
    assert all((one / name).read_bytes() == (other / name).read_bytes() for name in parts)


def actors(pid: int) -> list[int]:
    """The actors that have scored something, among all processes below one."""
    waiting = [pid]
    for each in waiting:
        waiting += children(each)
    return [each for each in waiting if b"_Actor" in Path(f"/proc/{each}/cmdline").read_bytes()]


@pytest.mark.filterwarnings("default")
def test_ray_gives_what_processes_give(folder: Path) -> None:
    scored = tinycomp.score(folder / "m.tcm", folder / "d.parquet", folder / "ray", workers=2, ray="local")
    assert (scored.rows, scored.failed, scored.parts) == (400, 0, 4)
    same(folder / "ray", folder / "processes")


@pytest.mark.filterwarnings("default")
def test_an_actor_that_is_killed_changes_nothing(folder: Path) -> None:
    results = []
    options = {"workers": 1, "batch": 1, "ray": "local"}
    thread = threading.Thread(
        target=lambda: results.append(
            tinycomp.score(folder / "m.tcm", folder / "d.parquet", folder / "killed", **options)
        )
    )
    thread.start()
    wait_for(lambda: [*(folder / "killed").glob("*.*")])
    (actor,) = actors(os.getpid())
    os.kill(actor, signal.SIGKILL)
    thread.join()
    assert (results[0].rows, results[0].parts) == (400, 4)
    same(folder / "killed", folder / "processes")


@pytest.mark.filterwarnings("default")
def test_an_error_on_ray_is_that_of_the_worker(folder: Path) -> None:
    from tinycomp.scoring.on_ray import score_on_ray
    from tinycomp.scoring.piece import Piece, Settings

    (folder / "bad.tcm").write_bytes(b"no module")
    settings = Settings(str(folder / "bad.tcm"), str(folder), {"image": "image"}, (), None, 1)
    with pytest.raises(ArtifactError, match=r"bad.tcm"):
        [*score_on_ray(settings, [Piece(0, str(folder / "d.parquet"), 0, 100)], 1, "local")]
