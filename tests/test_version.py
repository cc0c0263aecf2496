"""What tells one state of the package's files from another."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import tinycomp
from tests.test_layering import COMPILING
from tinycomp import version
from tinycomp.version import APART, STARTED, own_stamp, stamp_of


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package with a module, a library, and a folder with another module."""
    folder = tmp_path / "package"
    for name in (
        "version.py",
        "_native.abi3.so",
        "inner/more.py",
        "cli/entry.py",
        "__pycache__/version.pyc",
        "notes.md",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x = 1\n")
    return folder


def keep_times(path: Path, text: str) -> None:
    """Write a file in place, and give it the time of the last change that it has had."""
    before = path.stat()
    path.write_text(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "inner/more.py").write_text("x = 11\n"),
        lambda folder: keep_times(folder / "version.py", "x = 2\n"),
        lambda folder: keep_times(folder / "_native.abi3.so", "x = 2\n"),
        lambda folder: (folder / "inner/new.py").touch(),
        lambda folder: (folder / "inner/more.py").unlink(),
        lambda folder: (folder / "inner/more.py").rename(folder / "inner/other.py"),
        lambda folder: folder.rename(folder.with_name("elsewhere")).rename(folder) and os.utime(folder / "version.py"),
    ],
)
def test_every_change_of_code_shows(change: Callable[[Path], object], package: Path) -> None:
    before = stamp_of(package)
    change(package)
    assert stamp_of(package).digest != before.digest


@pytest.mark.parametrize("name", ["__pycache__/version.pyc", "notes.md"])
def test_what_is_no_code_does_not_count(name: str, package: Path) -> None:
    before = stamp_of(package)
    (package / name).write_text("something else")
    assert stamp_of(package) == before


def test_a_part_that_is_left_out(package: Path) -> None:
    before = stamp_of(package, frozenset({"cli"}))
    (package / "cli/entry.py").write_text("something else")
    assert stamp_of(package, frozenset({"cli"})) == before
    assert stamp_of(package) != before


def test_the_newest_file_counts(package: Path) -> None:
    os.utime(package / "version.py", (4e9, 4e9))
    assert stamp_of(package).newest == 4e9
    assert stamp_of(package / "inner/more.py").newest < 4e9


def test_the_compiler_imports_no_part_that_is_left_out() -> None:
    assert not APART & COMPILING
    assert all((Path(tinycomp.__file__).parent / name).is_dir() for name in APART)


def test_what_runs_was_there_before() -> None:
    assert own_stamp().newest < STARTED


def test_a_list_of_what_was_installed_stands_for_it(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = package.parent / "tinycomp-1.2.dist-info" / "RECORD"
    monkeypatch.setattr(version, "__file__", str(package / "version.py"))
    monkeypatch.setattr(version, "own_stamp", own_stamp.__wrapped__)
    assert version.own_stamp() == stamp_of(package, APART)
    record.parent.mkdir()
    record.write_text("package/version.py,,\n")
    assert version.own_stamp() == stamp_of(record)
    shutil.rmtree(record.parent)
    assert version.own_stamp() == stamp_of(package, APART)
