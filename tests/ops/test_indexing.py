"""Operators that read or write elements at indices."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.harness import allowed, check, run_ours, sample, versions
from tinycomp.errors import ExecutionError


def test_gather():
    x = sample("float32", (3, 4, 5))
    for indices in (np.array([0, 2, -1]), np.array([[1, -3], [0, 2]], np.int32), np.array(1), np.zeros((2, 0), int)):
        for axis in (0, 1, -1):
            check("Gather", [x, indices], {"axis": axis}, 13)
    for version in versions("Gather", 7):
        for dtype in allowed("Gather", version):
            # onnxruntime 1.31 loses all but the first string of each slice.
            against = ("reference",) if dtype == "string" else ("reference", "onnxruntime")
            check("Gather", [sample(dtype, (4, 3)), np.array([1, 0, 3])], {"axis": 0}, version, against=against)


def test_gather_elements_of_a_long_axis():
    x = sample("float32", (100, 3))
    indices = np.random.default_rng(0).integers(-100, 100, (150, 2))
    check("GatherElements", [x, indices], {"axis": 0}, 13, against=("onnxruntime",))


def test_gather_elements():
    rng = np.random.default_rng(1)
    for axis in (0, 1, 2, -1):
        indices = rng.integers(-2, 2, (2, 3, 2))
        check("GatherElements", [sample("float32", (2, 3, 4)), indices], {"axis": axis}, 13)
    for dtype in allowed("GatherElements", 13):
        check("GatherElements", [sample(dtype, (3, 3)), np.array([[0, 2, 1]])], {"axis": 0}, 13)


@pytest.mark.parametrize(
    ("shape", "indices", "batch_dims"),
    [
        ((2, 3, 4), [[0, 1], [1, -1]], 0), ((2, 3, 4), [[[0], [1]], [[1], [-2]]], 0), ((2, 3, 4), [[1], [0]], 1),
        ((2, 3, 4), [[[0, 1]], [[2, -1]]], 1), ((2, 2, 3), [[[0], [1]], [[2], [0]]], 2), ((4,), [[3], [0]], 0),
    ],
)  # fmt: skip
def test_gather_nd(shape, indices, batch_dims):
    attrs = {"batch_dims": batch_dims} if batch_dims else {}
    for version in (12, 13) if batch_dims else (11, 12, 13):
        check("GatherND", [sample("float32", shape), np.array(indices)], attrs, version)
    for dtype in allowed("GatherND", 13):
        check("GatherND", [sample(dtype, (2, 3)), np.array([[0, 1], [1, 2]])], {}, 13)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scatter_elements(reduction, axis):
    indices = np.array([[1, 0, 2], [0, 2, 1]]) if reduction == "none" else np.array([[1, 0, 1], [0, 1, -1]])
    for dtype in ("float32", "float64", "int32", "int64", "float16"):
        x, updates = sample(dtype, (3, 4), 1), sample(dtype, (2, 3), 2)
        against = ("reference", "onnxruntime") if dtype != "float16" else ("reference",)
        check("ScatterElements", [x, indices, updates], {"axis": axis, "reduction": reduction}, 18, against=against)


def test_scatter_in_every_version_and_dtype():
    indices = np.array([[0, 2, 1]])
    for op, first in (("ScatterElements", 11), ("Scatter", 9)):
        for version in [9] if op == "Scatter" else versions(op, first):
            for dtype in allowed(op, version):
                operands = [sample(dtype, (4, 3), 1), indices, sample(dtype, (1, 3), 2)]
                check(op, operands, {"axis": 0}, version)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatter_nd(reduction):
    for indices, shape in (([[1], [0]], (2, 3, 4)), ([[[0, 1]], [[2, -1]]], (2, 1, 4)), ([[0, 1, 2]], (1,))):
        x, updates = sample("float32", (4, 3, 4), 1), sample("float32", shape, 2)
        check("ScatterND", [x, np.array(indices), updates], {"reduction": reduction}, 18)
    for dtype in allowed("ScatterND", 18):
        check("ScatterND", [sample(dtype, (3, 2)), np.array([[2], [0]]), sample(dtype, (2, 2), 1)], {}, 18)


def test_scatter_accumulates_duplicates():
    x = np.zeros(3, np.float32)
    got = run_ours("ScatterND", [x, np.array([[1], [1], [1]]), np.ones(3, "f")], {"reduction": "add"})[0]
    assert got.tolist() == [0, 3, 0]


def test_tensor_scatter():
    past, update = sample("float32", (2, 3, 5, 4), 1), sample("float32", (2, 3, 2, 4), 2)
    check("TensorScatter", [past, update, np.array([3, 0])], {}, 24)
    check("TensorScatter", [past, update], {"axis": -2}, 24)
    check("TensorScatter", [past, update, np.array([4, 1])], {"mode": "circular"}, 24)
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
        (
            "GatherElements",
            [F, np.zeros((1, 5), int)],
            "beyond axis 1 of the data; expected up to 4; found 5",
        ),
        ("GatherND", [F, np.array([[0, 4]])], "GatherND: index out of bounds; expected indices in [-4, 3]; found 4"),
        ("GatherND", [F, np.array([[0, 0, 0]])], "tuples of indices have a wrong length; expected 1 to 2"),
        ("ScatterElements", [F, np.array([[3]]), np.ones((1, 1), "f")], "ScatterElements: index out of bounds"),
        ("ScatterElements", [F, np.array([[0]]), np.ones((1, 2), "f")], "axis 1 of updates does not fit the indices"),
        ("ScatterND", [F, np.array([[3]]), np.ones((1, 4), "f")], "ScatterND: index out of bounds"),
        ("ScatterND", [F, np.array([[0]]), np.ones((1, 3), "f")], "axis 1 of updates does not fit the indices"),
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
    with pytest.raises(ExecutionError, match="the depth is negative or no number; expected 0 or more; found -1"):
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
