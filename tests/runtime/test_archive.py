"""The container of saved modules: which arrays share a key."""

from __future__ import annotations

import numpy as np

from tinycomp.runtime.archive import Archive


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
