"""Operators that read or write elements at indices: what they refuse, and what is in no row of ``cases``."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.harness import allowed, run_ours, sample
from tinycomp.errors import ExecutionError


def test_tensor_scatter_beyond_the_cache():
    past, update = np.ones((2, 3, 5, 4), np.float32), np.ones((2, 3, 2, 4), np.float32)
    with pytest.raises(ExecutionError, match=r"passes the end of the cache; expected write_indices in \[0, 3\]"):
        run_ours("TensorScatter", [past, update, np.array([4, 0])])


F = np.zeros((3, 4), np.float32)


@pytest.mark.parametrize(
    ("op", "operands", "text"),
    [
        ("Gather", [F, np.array([0, 3])], "Gather: index out of bounds; expected indices in [-3, 2]; found 3"),
        ("Gather", [F, np.array(-4)], "expected indices in [-3, 2]; found -4"),
        ("Gather", [F[:0], np.array(0)], "expected no index, since the axis is empty"),
        ("GatherElements", [F, np.array([[5]])], "GatherElements: index out of bounds"),
        ("GatherElements", [F, np.zeros((1, 5), int)], "beyond axis 1 of the data; expected up to 4; found 5"),
        ("GatherND", [F, np.array([[0, 4]])], "GatherND: index out of bounds; expected indices in [-4, 3]; found 4"),
        ("GatherND", [F, np.array([[0, 0, 0]])], "tuples of indices have a wrong length; expected 1 to 2"),
        ("ScatterElements", [F, np.array([[3]]), np.ones((1, 1), "f")], "ScatterElements: index out of bounds"),
        ("ScatterElements", [F, np.array([[0]]), np.ones((1, 2), "f")], "axis 1 of updates does not fit the indices"),
        ("ScatterND", [F, np.array([[3]]), np.ones((1, 4), "f")], "ScatterND: index out of bounds"),
        ("ScatterND", [F, np.array([[0]]), np.ones((1, 3), "f")], "axis 1 of updates does not fit the indices"),
        ("Compress", [F.T[0], np.ones(4, bool)], "Compress: index out of bounds; expected no more than 3 conditions"),
        ("ScatterND", [F, np.array([[2**62]]), np.ones((1, 4), "f")], "found 4611686018427387904"),
    ],
)
def test_out_of_bounds(op, operands, text):
    with pytest.raises(ExecutionError) as caught:
        run_ours(op, operands)
    assert text in str(caught.value)


def test_unknown_reduction():
    with pytest.raises(ExecutionError, match="unknown reduction; expected one of none, add, mul, max, min"):
        run_ours("ScatterND", [F, np.array([[0]]), np.ones((1, 4), "f")], {"reduction": "sub"})


def test_one_hot_forms():
    for index_type in ("int32", "int64", "float32", "uint8"):
        operands = [np.array([0, 2, 7], index_type), np.array([4], "int64"), np.array([0, 1], "int32")]
        got = run_ours("OneHot", operands)[0]
        assert got.tolist() == [[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
        assert got.dtype == np.int32
    for dtype in allowed("OneHot", 28, "T3"):
        run_ours("OneHot", [np.array([1]), np.array(2), sample(dtype, (2,), 0, 0, 1)])
    assert run_ours("OneHot", [np.array(1), np.array(0), np.array([0, 1])])[0].shape == (0,)
    with pytest.raises(ExecutionError, match="the depth is negative or no number; expected 0 or more; found -1"):
        run_ours("OneHot", [np.array([1]), np.array(-1), np.array([0, 1])])


def test_places_in_texts_and_in_a_single_number():
    assert run_ours("NonZero", [np.array(["", "a"], object)])[0].tolist() == [[1]]
    assert run_ours("NonZero", [np.array(3.0, "f")])[0].shape == (0, 1)
    assert run_ours("NonZero", [np.zeros((0, 2), "f")])[0].shape == (2, 0)


def test_unique_takes_nan_for_one_value_as_the_c_target_does():
    x = np.array([np.nan, 1, np.nan, 0, 1], np.float32)
    for axis in (None, 0):
        values, first, inverse, counts = run_ours("Unique", [x], {"axis": axis} if axis is not None else {}, outputs=4)
        np.testing.assert_array_equal(values, [0, 1, np.nan])
        assert (first.tolist(), inverse.tolist(), counts.tolist()) == ([3, 1, 0], [2, 1, 2, 0, 1], [1, 2, 2])


def test_unique_of_nothing_takes_no_time():
    for shape, axis, count in (((2, 0, 10**6), 1, 0), ((3, 0), 0, 1), ((0,), None, 0)):
        attrs = {} if axis is None else {"axis": axis}
        values, *others = run_ours("Unique", [np.zeros(shape, np.float32)], attrs, outputs=4)
        assert values.shape == tuple(count if i == (axis or 0) else n for i, n in enumerate(shape))
        assert [len(others[0]), len(others[2])] == [count, count]


def test_unique_in_every_dtype():
    for dtype in allowed("Unique", 28):
        x = sample(dtype, (9,), 1, 0, 3)
        values, first, inverse, counts = run_ours("Unique", [x], outputs=4)
        assert values.dtype == x.dtype
        np.testing.assert_array_equal(values[inverse], x)
        np.testing.assert_array_equal(x[first], values)
        assert counts.sum() == 9
        assert len(set(values.tolist())) == len(values) == len(set(x.tolist()))
