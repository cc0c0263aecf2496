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
        ("GatherElements", [F, np.zeros((1, 5), int)], "GatherElements: indices do not fit the data"),
        ("GatherND", [F, np.array([[0, 4]])], "GatherND: index out of bounds; expected indices in [-4, 3]; found 4"),
        ("GatherND", [F, np.array([[0, 0, 0]])], "bad width of the index tuples; expected last dimension in [1, 2]"),
        ("ScatterElements", [F, np.array([[3]]), np.ones((1, 1), "f")], "ScatterElements: index out of bounds"),
        ("ScatterElements", [F, np.array([[0]]), np.ones((1, 2), "f")], "updates do not fit the indices"),
        ("ScatterND", [F, np.array([[3]]), np.ones((1, 4), "f")], "ScatterND: index out of bounds"),
        ("ScatterND", [F, np.array([[0]]), np.ones((1, 3), "f")], "expected (1, 4); found (1, 3)"),
        ("ScatterND", [F, np.array([[2**62]]), np.ones((1, 4), "f")], "found 4611686018427387904"),
    ],
)
def test_out_of_bounds(op, operands, text):
    with pytest.raises(ExecutionError) as caught:
        run_ours(op, operands)
    assert text in str(caught.value)


def test_unknown_reduction():
    with pytest.raises(ExecutionError, match="ScatterND: unknown reduction; expected none or one of"):
        run_ours("ScatterND", [F, np.array([[0]]), np.ones((1, 4), "f")], {"reduction": "sub"})
