from __future__ import annotations

import numpy as np
import pytest

from tests.ops.harness import allowed, check, run_ours, sample
from tinycomp.errors import ExecutionError


@pytest.mark.parametrize("axis", [-1, 0, 1, 2, -2, -3])
def test_one_hot(axis):
    indices = np.array([[0, 3, -1], [2, -4, 1]])
    check("OneHot", [indices, np.array(4), np.array([0.5, 2], "f")], {"axis": axis}, 11)


def test_one_hot_forms():
    for index_type in ("int32", "int64", "float32", "uint8"):
        operands = [np.array([0, 2, 7], index_type), np.array([4], "int64"), np.array([0, 1], "int32")]
        got = run_ours("OneHot", operands)[0]
        assert got.tolist() == [[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
        assert got.dtype == np.int32
    for dtype in allowed("OneHot", 28, "T3"):
        run_ours("OneHot", [np.array([1]), np.array(2), sample(dtype, (2,), 0, 0, 1)])
    assert run_ours("OneHot", [np.array(1), np.array(0), np.array([0, 1])])[0].shape == (0,)
    with pytest.raises(ExecutionError, match="OneHot: negative depth; expected 0 or more; found -1"):
        run_ours("OneHot", [np.array([1]), np.array(-1), np.array([0, 1])])


def test_compress():
    x = sample("float32", (3, 4))
    for axis, condition in ((None, [0, 1, 0, 1, 1]), (0, [0, 1, 1]), (1, [1, 0]), (-1, [0, 0, 0, 1]), (0, [0, 0])):
        check("Compress", [x, np.array(condition, bool)], {"axis": axis}, 11)
    for dtype in allowed("Compress", 28):
        check("Compress", [sample(dtype, (4,)), np.array([1, 0, 1], bool)], {}, 28)
    with pytest.raises(ExecutionError, match="Compress: index out of bounds; expected no more than 3 conditions"):
        run_ours("Compress", [x, np.ones(4, bool)], {"axis": 0})


def test_non_zero():
    for dtype in allowed("NonZero", 13):
        if dtype != "string":
            check("NonZero", [sample(dtype, (3, 4))], {}, 13)
    assert run_ours("NonZero", [np.array([0.0, np.nan, -0.0], "f")])[0].tolist() == [[1]]
    assert run_ours("NonZero", [np.array(["", "a"], object)])[0].tolist() == [[1]]
    assert run_ours("NonZero", [np.array(3.0, "f")])[0].shape == (0, 1)
    assert run_ours("NonZero", [np.zeros((0, 2), "f")])[0].shape == (2, 0)


@pytest.mark.parametrize("sorted_", [0, 1])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
def test_unique(sorted_, axis):
    x = np.array([[2, 1, 1], [3, 1, 1], [2, 1, 1]], np.float32)
    # onnx.reference puts unsorted slices along the wrong axis.
    against = ("onnxruntime",) if axis in (1, -1) else ("reference", "onnxruntime")
    check("Unique", [x], {"sorted": sorted_, "axis": axis}, 11, outputs=4, against=against)


def test_unique_in_every_dtype():
    for dtype in allowed("Unique", 28):
        x = sample(dtype, (9,), 1, 0, 3)
        values, first, inverse, counts = run_ours("Unique", [x], outputs=4)
        assert values.dtype == x.dtype
        np.testing.assert_array_equal(values[inverse], x)
        np.testing.assert_array_equal(x[first], values)
        assert counts.sum() == 9
        assert len(set(values.tolist())) == len(values) == len(set(x.tolist()))
