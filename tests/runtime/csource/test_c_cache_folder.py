"""The folder of the cache: who may write to it, what happens when nobody can, and clearing it up."""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import tinycomp
from tests.runtime.csource.c_sources import X, builds, cache, doubling, files, times
from tinycomp.errors import TinycompWarning
from tinycomp.runtime.cache import CCache, UnsafeFolderError, check_folder, default_folder

__all__ = ["builds", "cache"]


# Bad folders ---------------------------------------------------------------------------------------------------------


def compiles_with(warning: str) -> None:
    with pytest.warns(TinycompWarning, match=f"^compiled C source is not kept: .*{warning}"):
        module = tinycomp.compile(doubling(), times())
    np.testing.assert_array_equal(module(X), 2 * X)


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_a_folder_that_others_may_write_to_is_not_used(mode: int, cache: CCache, builds: list[str]) -> None:
    tinycomp.compile(doubling(), times())
    before = files(cache)
    cache.folder.chmod(mode)
    compiles_with("others may write to .*chmod go-w")
    assert len(builds) == 2
    assert files(cache) == before
    with pytest.raises(UnsafeFolderError, match="others may write to"):
        cache.entries()


def test_a_folder_in_a_folder_that_others_may_write_to(cache: CCache) -> None:
    cache.prepare()
    cache.folder.parent.chmod(0o777)
    compiles_with("others may write to .*kept, and so replace")
    assert files(cache) == []
    cache.folder.parent.chmod(0o1777)  # as /tmp: nobody may rename what belongs to others
    check_folder(cache.folder)


def test_a_group_may_not_write_above_either(cache: CCache) -> None:
    cache.prepare()
    cache.folder.parent.chmod(0o775)
    compiles_with("others may write to .*kept, and so replace")
    assert files(cache) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_folder_below_that_of_someone_else(cache: CCache) -> None:
    """As with sudo and the HOME of the user who called it."""
    cache.prepare()
    os.chown(cache.folder.parent, 12345, -1)
    compiles_with("kept belongs to user 12345")
    os.chown(cache.folder.parent, 0, -1)
    check_folder(cache.folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_entries_of_someone_else_are_made_anew(cache: CCache, builds: list[str]) -> None:
    tinycomp.compile(doubling(), times())
    for path in cache.folder.iterdir():
        os.chown(path, 12345, -1)
    assert cache.entries() == []
    tinycomp.compile(doubling(), times())
    assert len(builds) == 2


@pytest.mark.parametrize("spoil", [lambda path: path.chmod(0o622), lambda path: link(path)], ids=["writable", "link"])
def test_entries_that_others_may_change_are_made_anew(spoil, cache: CCache, builds: list[str]) -> None:
    tinycomp.compile(doubling(), times())
    for path in list(cache.folder.iterdir()):
        spoil(path)
    tinycomp.compile(doubling(), times())
    assert len(builds) == 2


def link(path: Path) -> None:
    """Let another file, outside of the folder, stand in for one."""
    path.symlink_to(path.rename(path.parent.parent / f"moved-{path.name}"))


def test_a_folder_of_someone_else(cache: CCache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.prepare()
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    compiles_with(f"belongs to user {mine}; set TINYCOMP_CACHE to a folder of your own")


def test_a_link_to_a_bad_folder(cache: CCache, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.mkdir()
    bad.chmod(0o777)
    cache.folder.parent.mkdir()
    cache.folder.symlink_to(bad)
    compiles_with("others may write to .*bad")


def test_a_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TINYCOMP_CACHE", str(tmp_path / "file"))
    compiles_with("Not a directory")


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is unwritable for root")
def test_a_folder_that_cannot_be_written(cache: CCache) -> None:
    cache.prepare()
    cache.folder.chmod(0o500)
    compiles_with("Permission denied")


@pytest.mark.parametrize("moment", ["os.open", "os.fsync", "Path.replace"])
def test_a_full_disk(moment: str, cache: CCache, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    cache.prepare()
    with monkeypatch.context() as patch:
        patch.setattr(f"tinycomp.runtime.files.{moment}", full)
        store_fails(cache)
    assert files(cache) == []


def store_fails(cache: CCache) -> None:
    with pytest.raises(OSError, match="No space left"):
        cache.store("key", b"data", "gen", "gen_0")


def test_a_store_that_fails_does_not_keep_a_region_from_running(cache: CCache, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(CCache, "store", full)
    compiles_with("No space left on device")


def test_the_folder_is_private_and_where_it_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINYCOMP_CACHE", str(tmp_path / "a" / "b"))
    before = os.umask(0)
    try:
        tinycomp.compile(doubling(), times())
    finally:
        os.umask(before)
    assert default_folder() == tmp_path / "a" / "b" / "c"
    made = [tmp_path / "a", *(tmp_path / "a").rglob("*")]
    assert len(made) == 5
    assert all(stat.S_IMODE(path.stat().st_mode) & 0o077 == 0 for path in made)
    monkeypatch.delenv("TINYCOMP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    if sys.platform == "linux":
        assert default_folder() == tmp_path / "home" / "tinycomp" / "c"


# Pruning -------------------------------------------------------------------------------------------------------------


def test_pruning_goes_by_the_last_use(cache: CCache) -> None:
    cache.prepare()
    month = 30 * 86_400
    for key in ("used", "unused"):
        cache.store(key, key.encode(), "gen", "gen_0")
        os.utime(cache.folder / f"{key}.json", (time.time() - month,) * 2)
    assert cache.find("used") == b"used"
    assert [entry.key for entry in cache.prune(older_than=month / 2)] == ["unused"]
    assert [entry.key for entry in cache.entries()] == ["used"]
    assert len(files(cache)) == 2


def test_pruning_removes_what_no_entry_needs(cache: CCache) -> None:
    tinycomp.compile(doubling(), times())
    leftovers = [cache.folder / name for name in ("a.tmp", "b-0.so", "c.json")]
    foreign = cache.folder / "README"
    for path in (*leftovers, foreign):
        path.write_text("x")
    cache.prune(older_than=60)
    assert all(path.exists() for path in leftovers)  # they may just be being written
    for path in leftovers:
        os.utime(path, (time.time() - 7200,) * 2)
    cache.prune(older_than=60)
    assert not any(path.exists() for path in leftovers)
    assert foreign.exists()
    assert len(cache.entries()) == 1


def test_there_may_be_no_folder(cache: CCache) -> None:
    assert cache.entries() == []
    assert cache.prune() == []
    assert not cache.folder.exists()
