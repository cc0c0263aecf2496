from __future__ import annotations

import math

import numpy as np
import pytest

from tests.runtime_c.helpers import run_single
from tinycomp.errors import TargetError


def log_sum_exp(x, axis):
    most = x.max(axis=axis, keepdims=True, initial=-np.inf)
    return np.log(np.exp(x - np.where(np.isfinite(most), most, 0)).sum(axis=axis)) + most.squeeze(axis)


OPERATIONS = {
    0: np.sum,
    1: np.mean,
    2: lambda x, axis: np.max(x, axis=axis, initial=-np.inf),
    3: lambda x, axis: np.min(x, axis=axis, initial=np.inf),
    4: np.prod,
    5: lambda x, axis: np.abs(x).sum(axis=axis),
    6: lambda x, axis: np.sqrt((x * x).sum(axis=axis)),
    7: lambda x, axis: (x * x).sum(axis=axis),
    8: lambda x, axis: np.log(x.sum(axis=axis)),
    9: log_sum_exp,
}
SHAPES = [
    (1, 1, 1, 1, 1),
    (5, 1, 1, 37, 1),
    (3, 1, 1, 9000, 1),
    (2, 1, 1, 33, 70),
    (2, 1, 1, 700, 3),
    (2, 70, 3, 49, 1),
    (1, 1, 1, 70, 200),
    (70, 1, 1, 21, 1),
    (1, 20, 6, 30, 1),
    (2, 3, 5, 7, 65),
    (3, 40, 35, 1, 1),
    (2, 6, 1, 7, 1),
    (2, 1, 1, 5, 0),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("op", OPERATIONS)
def test_reduce_equals_numpy(shape, op, isa, pool, rng):
    x = rng.standard_normal(shape, np.float32)
    if op in (4, 8):
        x = 1 + np.abs(x) / 1000
    params = {"op": op} | dict(zip(("outer", "axis0", "middle", "axis1", "inner"), shape, strict=True))
    y = run_single("reduce_f32", [x], params, ("float32", (shape[0], shape[2], shape[4])), isa, pool)
    expected = OPERATIONS[op](x.astype(np.float64), (1, 3))
    np.testing.assert_allclose(y, expected, rtol=2e-6 * (10 if op == 4 else 1), atol=1e-5)


TYPED = {
    "float64": 1,
    "int8": 4,
    "uint8": 5,
    "int16": 6,
    "uint16": 7,
    "int32": 8,
    "uint32": 9,
    "int64": 10,
    "uint64": 11,
}
BOOL = 12
IRRATIONAL = (6, 8, 9)


def integer_mean(x, axis):
    total, count = x.sum(axis=axis), math.prod(x.shape[a] for a in axis)
    return (total - np.fmod(total, count)) // count


def typed_operation(op, dtype):
    """What numpy computes, wrapping around as sums and products of the type do."""
    if np.dtype(dtype).kind == "f":
        return OPERATIONS[op]
    if op in IRRATIONAL:
        return lambda x, axis: OPERATIONS[op](x.astype(np.float64), axis)
    return {
        0: lambda x, axis: x.sum(axis=axis, dtype=dtype),
        1: integer_mean,
        2: np.max,
        3: np.min,
        4: lambda x, axis: x.prod(axis=axis, dtype=dtype),
        5: lambda x, axis: np.abs(x).sum(axis=axis, dtype=dtype),
        7: lambda x, axis: (x * x).sum(axis=axis, dtype=dtype),
    }[op]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", TYPED)
def test_typed_reductions_equal_numpy(dtype, shape, isa, pool, rng):
    x = rng.integers(1 if dtype.startswith("u") else -7, 100, shape).astype(dtype)
    for op in OPERATIONS:
        values = np.abs(x) if op == 8 else x / 50 if op == 4 and dtype == "float64" else x
        params = {"type": TYPED[dtype], "op": op}
        params |= dict(zip(("outer", "axis0", "middle", "axis1", "inner"), shape, strict=True))
        y = run_single("reduce", [values], params, (dtype, (shape[0], shape[2], shape[4])), isa, pool)
        expected = typed_operation(op, dtype)(values, (1, 3)).astype(dtype)
        if dtype == "float64" or op in IRRATIONAL:
            # A root that numpy forms a hair below a whole number may be cut off to the next one.
            np.testing.assert_allclose(y, expected, rtol=1e-12, atol=0 if dtype == "float64" else 1, err_msg=str(op))
        else:
            np.testing.assert_array_equal(y, expected, str(op))


@pytest.mark.parametrize("inner", [1, 5])
def test_truth_values_have_a_largest_and_a_least(inner, isa):
    x = np.zeros((3, 70, inner), bool)
    x[0, 69], x[1] = True, True
    for op, expected in ((2, [1, 1, 0]), (3, [0, 1, 0])):
        params = {"type": BOOL, "op": op, "outer": 3, "axis0": 1, "middle": 1, "axis1": 70, "inner": inner}
        y = run_single("reduce", [x], params, ("bool", (3, inner)), isa)
        np.testing.assert_array_equal(y, np.broadcast_to(np.array(expected, bool)[:, None], (3, inner)))


@pytest.mark.parametrize("inner", [1, 5])
@pytest.mark.parametrize(
    ("dtype", "least", "greatest"),
    [("float64", -np.inf, np.inf), ("int8", -128, 127), ("uint64", 0, 2**64 - 1), ("bool", False, True)],
)
def test_extremes_of_nothing(dtype, least, greatest, inner, isa):
    params = {"type": {**TYPED, "bool": BOOL}[dtype], "outer": 3, "axis0": 1, "middle": 1, "axis1": 0, "inner": inner}
    for op, expected in ((2, least), (3, greatest)):
        y = run_single("reduce", [np.empty((3, 0, inner), dtype)], params | {"op": op}, (dtype, (3, inner)), isa)
        np.testing.assert_array_equal(y, np.full((3, inner), expected, dtype))


@pytest.mark.parametrize("inner", [1, 5])
def test_extremes_of_doubles_keep_nan(inner, isa):
    x = np.zeros((2, 40, inner))
    x[0, 7], x[1, 3] = np.nan, 5
    for op, expected in ((2, [np.nan, 5]), (3, [np.nan, 0])):
        params = {"type": 1, "op": op, "outer": 2, "axis0": 1, "middle": 1, "axis1": 40, "inner": inner}
        y = run_single("reduce", [x], params, ("float64", (2, inner)), isa)
        np.testing.assert_array_equal(y, np.array(expected)[:, None] * np.ones(inner))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"type": 0, "op": 0}, "numbers of type 0 cannot be reduced"),
        ({"type": 1, "op": 10}, "there is no reduction 10"),
        ({"type": BOOL, "op": 0}, "reduction 0 is not one of truth values"),
    ],
)
def test_typed_reductions_are_checked(params, message, isa):
    sizes = dict.fromkeys(("outer", "axis0", "middle", "axis1", "inner"), 1)
    with pytest.raises(TargetError, match=message):
        run_single("reduce", [np.zeros(1)], params | sizes, ("float64", (1,)), isa)


@pytest.mark.parametrize("inner", [1, 5])
@pytest.mark.parametrize(
    ("op", "result"), [(0, 0), (1, np.nan), (2, -np.inf), (3, np.inf), (4, 1), (6, 0), (8, -np.inf), (9, -np.inf)]
)
def test_reduce_nothing(op, result, inner, isa):
    params = {"op": op, "outer": 3, "axis0": 1, "middle": 1, "axis1": 0, "inner": inner}
    y = run_single("reduce_f32", [np.empty((3, 0, inner), np.float32)], params, ("float32", (3, inner)), isa)
    np.testing.assert_array_equal(y, np.full((3, inner), result, np.float32))


@pytest.mark.parametrize("inner", [1, 5])
def test_reduce_special_values(inner, isa):
    x = np.zeros((4, 40, inner), np.float32)
    x[0, 7], x[1, 38], x[2, 3], x[3, :] = np.nan, np.inf, 500, -np.inf
    params = {"outer": 4, "axis0": 1, "middle": 1, "axis1": 40, "inner": inner}
    for op in (2, 9):
        y = run_single("reduce_f32", [x], params | {"op": op}, ("float32", (4, inner)), isa)
        np.testing.assert_array_equal(y, np.array([[np.nan], [np.inf], [500], [-np.inf]] * 1) * np.ones(inner))


def test_long_sums_stay_exact_enough(isa, pool, rng):
    x = rng.random((1_000_000,), np.float32)
    for outer, axis, inner in ((1, 1_000_000, 1), (1, 250_000, 4)):
        params = {"op": 0, "outer": outer, "axis0": 1, "middle": 1, "axis1": axis, "inner": inner}
        y = run_single("reduce_f32", [x], params, ("float32", (inner,)), isa, pool)
        np.testing.assert_allclose(y, x.reshape(axis, inner).sum(axis=0, dtype=np.float64), rtol=2e-5)


@pytest.mark.parametrize(
    "shape", [(7, 10, 1), (37, 21, 1), (3, 1000, 1), (200, 128, 1), (2, 21, 35), (3, 5, 3), (4, 1, 1), (0, 3, 1)]
)
@pytest.mark.parametrize("logarithm", [0, 1])
def test_softmax_equals_numpy(shape, logarithm, isa, pool, rng):
    x = rng.standard_normal(shape, np.float32) * 5
    params = {"outer": shape[0], "axis": shape[1], "inner": shape[2], "logarithm": logarithm}
    y = run_single("softmax_f32", [x], params, ("float32", shape), isa, pool)
    wide = x.astype(np.float64)
    shifted = wide - (wide.max(axis=1, keepdims=True) if wide.size else 0)
    expected = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    exact = 5e-6 if isa == "scalar" else 3e-6  # without fused multiply-adds, what is left of an exponent is rounded
    np.testing.assert_allclose(y, expected if logarithm else np.exp(expected), rtol=exact, atol=exact * logarithm)


def test_softmax_of_masked_and_large_values(isa):
    x = np.array([[-np.inf] * 20 + [3.0, 3.0], [1e30] + [0.0] * 21], np.float32)
    params = {"outer": 2, "axis": 22, "inner": 1, "logarithm": 0}
    y = run_single("softmax_f32", [x], params, ("float32", (2, 22)), isa)
    np.testing.assert_array_equal(y, np.array([[0] * 20 + [0.5, 0.5], [1] + [0] * 21], np.float32))


@pytest.mark.parametrize("count", [5, 40])
def test_softmax_keeps_nan(count, isa):
    x = np.zeros((2, count), np.float32)
    x[0, 2] = np.nan
    params = {"outer": 2, "axis": count, "inner": 1, "logarithm": 0}
    y = run_single("softmax_f32", [x], params, ("float32", x.shape), isa)
    assert np.isnan(y[0]).all()
    np.testing.assert_allclose(y[1], 1 / count)
