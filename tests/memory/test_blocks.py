"""Arrays in blocks: neighbours that do not touch, and blocks that go with the last of them."""

from __future__ import annotations

import gc
import weakref

import numpy as np

from tinycomp.memory.blocks import _BLOCK, _SMALL, empty


def test_arrays_in_a_block_are_as_asked_for_and_do_not_overlap() -> None:
    shapes = [(33, 1000), (7, 5000), (40_000,), (3, 7, 2999)] * 20
    arrays = [empty(shape, np.float32) for shape in shapes]
    for number, array in enumerate(arrays):
        array[...] = number
    assert [array.shape for array in arrays] == shapes
    assert all(array.ctypes.data % 64 == 0 and array.flags.c_contiguous for array in arrays)
    assert all((array == number).all() for number, array in enumerate(arrays))
    assert len({id(array.base) for array in arrays}) < len(arrays)


def test_a_block_goes_with_the_last_array_in_it() -> None:
    first, second = empty((_SMALL,), np.uint8), empty((_SMALL,), np.float32)
    block = weakref.ref(first.base)
    assert second.base is first.base
    del first
    gc.collect()
    assert block() is not None
    del second
    gc.collect()
    assert block() is None


def test_small_and_huge_arrays_have_memory_of_their_own() -> None:
    assert empty((_SMALL - 1,), np.uint8).base is None
    assert empty((_BLOCK,), np.uint8).base is None
