"""The container of saved modules: which arrays share a key, and where they lie in a file."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from tinycomp.memory.constants import ALIGNMENT
from tinycomp.runtime.archive import Archive, read_archive


def test_arrays_share_a_key_by_what_is_in_them_wherever_they_lie() -> None:
    archive, numbers = Archive(), np.arange(6, dtype=np.int32)
    key = archive.store(numbers)
    assert archive.store(numbers) == archive.store(numbers.copy()) == archive.store(numbers[:]) == key
    others = [numbers.reshape(2, 3), numbers.view(np.float32), numbers[::-1], numbers[:5], numbers[::2]]
    assert len({key, *map(archive.store, others)}) == 6
    read = Archive.from_bytes(archive.to_bytes())
    for array in (numbers, *others):
        np.testing.assert_array_equal(read.array(archive.store(array)), array)


def test_an_array_that_takes_the_place_of_another_is_not_taken_for_it() -> None:
    archive = Archive()
    keys = {archive.store(np.full(1000, number)) for number in range(20)}  # each is freed by its maker at once
    assert len(keys) == 20


def test_arrays_of_a_mapped_file_are_aligned_whatever_lies_before_them(tmp_path: Path) -> None:
    path, texts = tmp_path / "m.tcm", np.array([["a", "ß"]], dtype=object)
    arrays = [np.arange(size, dtype=dtype) for size in (0, 1, 3, 65) for dtype in ("uint8", "int16", "float64")]
    for length in range(0, 2 * ALIGNMENT, 7):  # names of all lengths lie before the arrays
        archive = Archive({"name": "n" * length})
        keys = [archive.store(array) for array in (*arrays, texts)]
        path.write_bytes(archive.to_bytes())
        read = read_archive(path)
        for key, array in zip(keys, arrays, strict=False):
            assert read.array(key).ctypes.data % ALIGNMENT == 0
            np.testing.assert_array_equal(read.array(key), array)
        assert read.array(keys[-1]).tolist() == texts.tolist()
        assert zipfile.ZipFile(path).testzip() is None
