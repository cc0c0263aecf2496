"""Arithmetic, comparisons, logic and choice with broadcasting."""

from __future__ import annotations

import numpy as np
import pytest

from tests.runtime_c.element import BINARY, COMPARE, LOGICAL, WHERE, run_steps, step
from tinycomp.errors import TargetError

SHAPES = {
    "same": ((3, 5, 7), (3, 5, 7)),
    "one element": ((1,), (1,)),
    "large": ((9000,), (9000,)),
    "scalar right": ((3, 50), (1, 1)),
    "scalar left": ((1, 1), (3, 50)),
    "bias": ((4, 6, 33), (33,)),
    "column": ((4, 6, 33), (4, 6, 1)),
    "both": ((4, 1, 33), (1, 6, 1)),
    "empty": ((4, 0, 3), (1, 1, 3)),
    "long row": ((2, 5000), (2, 1)),
}


INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
FLOAT = {
    0: np.add,
    1: np.subtract,
    2: np.multiply,
    3: np.divide,
    4: lambda x, y: np.power(np.abs(x), y),
    5: np.minimum,
    6: np.maximum,
    7: np.mod,
    8: np.fmod,
    9: lambda x, y: np.where(x < 0, x * y, x),
}
INTEGER = {
    0: np.add,
    1: np.subtract,
    2: np.multiply,
    3: lambda x, y: np.where(y == 0, 0, np.trunc(x / np.where(y == 0, 1, y)).astype(x.dtype)),
    4: lambda x, y: np.power(x, np.abs(y)),
    5: np.minimum,
    6: np.maximum,
    7: lambda x, y: np.where(y == 0, 0, np.mod(x, np.where(y == 0, 1, y))),
    8: lambda x, y: np.where(y == 0, 0, np.fmod(x, np.where(y == 0, 1, y))),
    10: np.bitwise_and,
    11: np.bitwise_or,
    12: np.bitwise_xor,
    13: lambda x, y: np.where((y >= 0) & (y < 8 * x.itemsize), x << (y & 7), 0),
    14: lambda x, y: np.where((y >= 0) & (y < 8 * x.itemsize), x >> (y & 7), -(x < 0).astype(x.dtype)),
}
COMPARISONS = [np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal]
LOGIC = [np.logical_and, np.logical_or, np.logical_xor, lambda x, y: x == y]


def run_binary(kind, op, a, b, dtype, isa, pool):
    """Run one step of two operands that broadcast."""
    return run_steps([a, b], [step(kind, op, a.dtype, 0, 1)], dtype, isa, pool)


@pytest.mark.parametrize("case", SHAPES)
@pytest.mark.parametrize("op", FLOAT)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_float(case, op, dtype, isa, pool, rng):
    a, b = (rng.standard_normal(shape).astype(dtype) for shape in SHAPES[case])
    a = np.abs(a) if op == 4 else a
    y = run_binary(BINARY, op, a, b, dtype, isa, pool)
    np.testing.assert_allclose(y, FLOAT[op](a, b), rtol=1e-6 if op == 4 else 0)


@pytest.mark.parametrize("case", SHAPES)
@pytest.mark.parametrize("op", INTEGER)
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer(case, op, dtype, isa, pool, rng):
    low = 0 if dtype.startswith("u") else -9
    a, b = (rng.integers(low, 9, shape).astype(dtype) for shape in SHAPES[case])
    b = np.abs(b) if op == 4 else b % 8 if op in (13, 14) else b
    y = run_binary(BINARY, op, a, b, dtype, isa, pool)
    np.testing.assert_array_equal(y, INTEGER[op](a, b))


@pytest.mark.parametrize("case", SHAPES)
@pytest.mark.parametrize("op", range(6))
@pytest.mark.parametrize("dtype", ["float32", "float64", *INTEGERS])
def test_compare(case, op, dtype, isa, pool, rng):
    a, b = (rng.integers(-2, 3, shape).astype(dtype) for shape in SHAPES[case])
    np.testing.assert_array_equal(run_binary(COMPARE, op, a, b, "bool", isa, pool), COMPARISONS[op](a, b))


@pytest.mark.parametrize("case", SHAPES)
@pytest.mark.parametrize("op", range(4))
def test_logical(case, op, isa, pool, rng):
    a, b = (rng.integers(0, 2, shape).astype(bool) for shape in SHAPES[case])
    np.testing.assert_array_equal(run_binary(LOGICAL, op, a, b, "bool", isa, pool), LOGIC[op](a, b))


def test_transposed_and_reversed_operands(isa, pool, rng):
    a, b = rng.standard_normal((33, 7, 70), np.float32).T, rng.standard_normal((70, 7, 33), np.float32)[:, ::-1]
    y = run_binary(BINARY, 1, a, b, "float32", isa, pool)
    np.testing.assert_array_equal(y, a - b)
    a, b = np.arange(5000)[::-1], np.arange(15_000)[::3]
    np.testing.assert_array_equal(run_binary(BINARY, 0, a, b, "int64", isa, pool), a + b)


@pytest.mark.parametrize("op", [7, 8])
def test_remainders_are_exact(op, isa, pool, rng):
    """Quotients of every size, most of them too large for vectors in the second half, with what has no remainder."""
    a = np.ldexp(rng.standard_normal(4000), rng.integers(-20, 25, 4000)).astype(np.float32)
    a[2000:] = np.ldexp(a[2000:], rng.integers(0, 90, 2000))
    b = np.ldexp(rng.standard_normal(4000), rng.integers(-20, 20, 4000)).astype(np.float32)
    a[:14] = [6, -6, np.inf, 5, np.nan, 1, -1, 0, -0.0, 1e-44, -7, 7, 3, -3]
    b[:14] = [3, 3, 2, np.inf, 1, np.nan, -np.inf, 2, 2, 3e-45, 0, -0.0, -np.inf, np.inf]
    y = run_binary(BINARY, op, a, b, "float32", isa, pool)
    with np.errstate(invalid="ignore"):
        rest = np.fmod(a, b)
        floored = np.where(rest == 0, np.copysign(0, b), np.where((rest < 0) != (b < 0), rest + b, rest))
    expected = rest if op == 8 else floored.astype(np.float32)
    np.testing.assert_array_equal(y, expected)
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(y[numbers]), np.signbit(expected[numbers]))
    small = run_binary(BINARY, op, a[:7], b[0], "float32", isa, pool)
    np.testing.assert_array_equal(small[[0, 1, 3]], [0, 0, 2])


def test_integer_extremes(isa):
    for dtype in ("int8", "int16", "int32", "int64"):
        low = np.iinfo(dtype).min
        a, b = np.array([low, low, 7, -7, 7, -7, low], dtype), np.array([-1, 0, 3, 3, -3, -3, 1], dtype)
        results = {op: run_binary(BINARY, op, a, b, dtype, isa, None).tolist() for op in (3, 7, 8)}
        assert results == {
            3: [low, 0, 2, -2, -2, 2, low],
            7: [0, 0, 1, 2, -2, -1, 0],
            8: [0, 0, 1, -1, 1, -1, 0],
        }
        assert run_binary(BINARY, 4, b, np.full(7, -3, dtype), dtype, isa, None).tolist() == [-1, 0, 0, 0, 0, 0, 1]


def test_special_floats(isa):
    nan, inf = np.nan, np.inf
    a = np.array([nan, 1, nan, inf, -inf] * 5, np.float32)
    b = np.array([1, nan, nan, -inf, 2] * 5, np.float32)
    for op in (5, 6):
        y = run_binary(BINARY, op, a, b, "float32", isa, None)
        np.testing.assert_array_equal(y, FLOAT[op](a, b))
    for op in range(6):
        np.testing.assert_array_equal(run_binary(COMPARE, op, a, b, "bool", isa, None), COMPARISONS[op](a, b))
    base = np.array([-inf, -2, -0.0, 0, 2, inf, nan], np.float32)
    for exponent in (0.5, 2, 3, -1, 0):
        y = run_binary(BINARY, 4, base, np.array([exponent], np.float32), "float32", isa, None)
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(y, np.power(base, np.full(7, exponent, np.float32)))


WHERE_SHAPES = [
    ((5, 70), (5, 70), (5, 70)),
    ((5, 70), (1,), (5, 70)),
    ((5, 70), (5, 70), (1,)),
    ((5, 1), (5, 70), (70,)),
    ((1, 70), (5, 1), (1,)),
    ((3, 5, 1), (1, 1, 9000), (3, 1, 1)),
    ((0, 3), (1,), (1,)),
]


@pytest.mark.parametrize("shapes", WHERE_SHAPES, ids=str)
@pytest.mark.parametrize("dtype", ["bool", "int16", "float32", "int64"])
def test_where(shapes, dtype, isa, pool, rng):
    condition = rng.integers(0, 2, shapes[0]).astype(bool)
    a, b = (rng.integers(0, 100, shape).astype(dtype) for shape in shapes[1:])
    y = run_steps([condition, a, b], [step(WHERE, 0, dtype, 0, 1, 2)], dtype, isa, pool)
    np.testing.assert_array_equal(y, np.where(condition, a, b))


def test_no_such_operation(isa):
    x = np.zeros((4, 5), np.int32)
    for kind, op in ((BINARY, 15), (COMPARE, 6), (COMPARE, -1), (LOGICAL, 0), (6, 0)):
        with pytest.raises(TargetError, match=f"there is no operation {op} of kind {kind} on type 8"):
            run_binary(kind, op, x, x, "int32", isa, None)
