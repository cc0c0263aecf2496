from __future__ import annotations

import numpy as np
import pytest

from tests.ops.harness import allowed, check, run_ours, sample, versions

OPS_BY_PARAMETER = ["Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"]


@pytest.mark.parametrize("op", OPS_BY_PARAMETER)
def test_comparisons_in_every_version_and_dtype(op):
    for version in versions(op, 7):
        for dtype in allowed(op, version):
            a, b = sample(dtype, (2, 3, 4), 1), sample(dtype, (3, 1), 2)
            (got,), _ = check(op, [a, b], version=version)
            assert got.dtype == np.bool_


@pytest.mark.parametrize("op", ["And", "Or", "Xor"])
def test_logic(op):
    for shapes in [((2, 3), (3,)), ((), (2,)), ((0,), (1,)), ((4,), (4,))]:
        check(op, [sample("bool", s, i) for i, s in enumerate(shapes)], version=7)
    check("Not", [sample("bool", (5,))], version=7)


@pytest.mark.parametrize("op", OPS_BY_PARAMETER)
def test_nan_compares_false(op):
    x = np.array([np.nan, 1.0, np.nan], np.float32)
    y = np.array([np.nan, np.nan, 0.0], np.float32)
    (got,), agreed = check(op, [x, y], version=16)
    assert not got.any()
    assert "onnxruntime" in agreed


def test_is_nan_and_is_inf():
    x = np.array([np.nan, np.inf, -np.inf, 1, 0], np.float32)
    for version in versions("IsNaN", 9):
        for dtype in allowed("IsNaN", version, "T1"):
            check("IsNaN", [x.astype(sample(dtype, ()).dtype)], version=version)
    for attrs in ({}, {"detect_negative": 0}, {"detect_positive": 0}, {"detect_negative": 0, "detect_positive": 0}):
        for dtype in ("float32", "float64"):
            check("IsInf", [x.astype(dtype)], attrs, version=10)
        for dtype in allowed("IsInf", 20, "T1"):
            check("IsInf", [x.astype(sample(dtype, ()).dtype)], attrs, version=20)


def test_where_in_every_dtype():
    condition = sample("bool", (3, 1), 3)
    for version in versions("Where", 9):
        for dtype in allowed("Where", version):
            check("Where", [condition, sample(dtype, (2, 1, 4), 1), sample(dtype, (1,), 2)], version=version)


def test_legacy_broadcast():
    a, b = sample("float32", (2, 3, 4), 1), sample("float32", (3,), 2)
    for op in ("Less", "Greater"):
        got = run_ours(op, [a, b], {"broadcast": 1, "axis": 1}, version=1)[0]
        np.testing.assert_array_equal(got, run_ours(op, [a, b.reshape(3, 1)], version=7)[0])
