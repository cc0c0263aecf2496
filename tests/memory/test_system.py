from __future__ import annotations

import errno
import os
from pathlib import Path

import platformdirs
import pytest

from tinycomp.memory import system
from tinycomp.memory.system import (
    HAS_FOLDER_DESCRIPTORS,
    available_memory,
    opened_beneath,
    usable_processors,
    user_cache_folder,
)


@pytest.fixture(params=["folders with descriptors", "folders without"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to open a file beneath a folder; the second is the one that Windows takes."""
    if request.param == "folders without":
        monkeypatch.setattr(system, "HAS_FOLDER_DESCRIPTORS", False)
    elif not HAS_FOLDER_DESCRIPTORS:
        pytest.skip("folders have no descriptors here")


def link(path: Path, target: Path) -> None:
    try:
        path.symlink_to(target)
    except (OSError, NotImplementedError):
        pytest.skip("no symbolic links here")


@pytest.mark.usefixtures("either")
def test_a_file_beneath_a_folder_is_opened(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "data").write_bytes(b"weights")
    with opened_beneath(tmp_path, ["a", "b", "data"]) as descriptor:
        assert os.read(descriptor, 100) == b"weights"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


@pytest.mark.usefixtures("either")
@pytest.mark.parametrize("names", [["way", "data"], ["a", "link"]])
def test_no_link_is_followed(tmp_path: Path, names: list[str]) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "data").write_bytes(b"weights")
    link(tmp_path / "way", tmp_path / "a")
    link(tmp_path / "a" / "link", tmp_path / "a" / "data")
    with pytest.raises(OSError, match=r"link|directory") as caught, opened_beneath(tmp_path, names):
        pass
    assert caught.value.errno in {errno.ELOOP, errno.ENOTDIR}


@pytest.mark.usefixtures("either")
def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(OSError, match=r"not a regular file|denied"), opened_beneath(tmp_path, ["a"]):
        pass


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "data").write_bytes(b"weights")
    link(tmp_path / "way", tmp_path / "a")
    with opened_beneath(tmp_path / "way", ["data"]) as descriptor:
        assert os.read(descriptor, 100) == b"weights"


def test_what_the_system_says_of_the_machine() -> None:
    assert 1 <= usable_processors() <= (os.cpu_count() or 1)
    memory = available_memory()
    assert memory is None or memory > 1 << 20


@pytest.mark.parametrize("home", ["", "  ", "caches"])
def test_the_folder_for_caches_is_the_one_of_platformdirs(
    home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / home) if home.strip() else home)
    assert user_cache_folder("program") == platformdirs.user_cache_path("program")
