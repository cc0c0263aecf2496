"""Files mapped for reading: views of them, and what happens when somebody writes to one."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tinycomp.errors import ModelError
from tinycomp.memory.mapped import Mapping, is_foreign, map_file, mapping_of, mappings_of


def mapped(path: Path) -> np.ndarray:
    with path.open("rb") as file:
        return map_file(file, path)


def owner(array: np.ndarray) -> Mapping:
    found = mapping_of(array)
    assert found is not None
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "weights"
    path.write_bytes(np.arange(4096, dtype=np.float32).tobytes())
    return path


def test_views_of_views_know_their_file(path: Path) -> None:
    data = mapped(path)
    view = data[4:4004].view(np.float32).reshape(10, 100)[::2].T
    assert view[0, 1] == 201
    assert mapping_of(view) is mapping_of(data)
    assert mappings_of([view, data, np.zeros(3)]) == [mapping_of(data)]
    assert is_foreign(view)
    assert not view.flags.writeable


def test_other_arrays_have_no_mapping(path: Path) -> None:
    assert mapping_of(np.zeros(3)) is None
    assert mapping_of(np.frombuffer(b"1234", np.uint8)) is None
    assert mapping_of(mapped(path).copy()) is None


def test_nothing_to_map(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert mapped(tmp_path / "empty").size == 0


def test_pages_given_back_are_read_again(path: Path) -> None:
    data = mapped(path)
    before = data.copy()
    owner(data).give_back()
    np.testing.assert_array_equal(data, before)


def test_a_file_written_to_is_refused(path: Path) -> None:
    mapping = owner(mapped(path))
    mapping.check()
    with path.open("r+b") as file:
        file.truncate(64)
    with pytest.raises(ModelError, match=r"has changed.*16384 bytes.*64 bytes.*Compile the model again"):
        mapping.check()


def test_the_same_size_written_anew_is_refused(path: Path) -> None:
    mapping = owner(mapped(path))
    data = path.read_bytes()
    path.write_bytes(data)
    os.utime(path, ns=(1, 1))
    with pytest.raises(ModelError, match="has changed"):
        mapping.check()


@pytest.mark.parametrize("exchange", [lambda p, q: q.replace(p), lambda p, q: p.unlink()], ids=["replaced", "removed"])
def test_a_file_replaced_as_a_whole_lives_on(path: Path, exchange) -> None:
    data = mapped(path)
    other = path.with_name("other")
    other.write_bytes(b"other")
    exchange(path, other)
    owner(data).check()
    assert data.view(np.float32)[4095] == 4095
