"""Arithmetic, comparisons and logic on elements."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.harness import FLOATS, INTS, check, run_ours, sample
from tinycomp.errors import ExecutionError


@pytest.mark.parametrize("dtype", [d for d in INTS if d.startswith("i")])
def test_integer_division_truncates_and_never_traps(dtype):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    a = np.array([7, -7, 7, -7, 5, low, low, high, 0], dtype)
    b = np.array([2, 2, -2, -2, 0, -1, 0, -1, 0], dtype)
    assert run_ours("Div", [a, b])[0].tolist() == [3, -3, -3, 3, 0, low, 0, -high, 0]
    assert run_ours("Mod", [a, b])[0].tolist() == [1, 1, -1, -1, 0, 0, 0, 0, 0]
    assert run_ours("Mod", [a, b], {"fmod": 1})[0].tolist() == [1, -1, 1, -1, 0, 0, 0, 0, 0]
    safe = b[[0, 1, 2, 3]]
    check("Div", [a[:4], safe], version=14)


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_mod(dtype):
    a, b = sample(dtype, (50,), 1, -9, 9), sample(dtype, (50,), 2, 1, 3)
    check("Mod", [a, b], {"fmod": 1}, version=13)
    whole = run_ours("Mod", [np.array([-7.5, 7.5, 1.0], "float32"), np.array([2, -2, np.inf], "float32")], version=28)
    assert whole[0].tolist() == [0.5, -0.5, 1.0]


@pytest.mark.parametrize("exponent", [np.float32(0.5), np.full(3, 0.5, np.float32)])
def test_a_root_of_minus_infinity_is_infinite_as_a_power(exponent):
    (y,) = run_ours("Pow", [np.array([-np.inf, -0.0, 4], np.float32), np.asarray(exponent)])
    assert y.tolist() == [np.inf, 0, 2]
    assert not np.signbit(y).any()


def test_integer_pow_truncates_negative_powers():
    x = np.array([1, -1, -1, 2, 0, 3], np.int32)
    y = np.array([-3, -3, -2, -1, -1, 2], np.int32)
    assert run_ours("Pow", [x, y])[0].tolist() == [1, -1, 1, 0, 0, 9]
    wide = run_ours("Pow", [np.array([2], np.int32), np.array([1e3], np.float32)])[0]
    assert wide.tolist() == [np.iinfo(np.int32).max]


def test_sign_of_nan_and_default_limits_of_clip():
    x = np.array([np.nan, np.inf, -np.inf, -2, 0, 5], np.float32)
    check("Sign", [x], version=13, against=("onnxruntime",))
    for limits in ([], [np.array(0, "f")], [None, np.array(1, "f")]):
        check("Clip", [x, *limits], version=13, against=("onnxruntime",))
    half = run_ours("Clip", [x.astype(np.float16)], version=13)[0]
    assert half.tolist()[1:3] == [65504, -65504]


def test_erf_is_exact_to_float_precision():
    import math

    x = np.linspace(-6, 6, 20001).astype(np.float32)
    want = np.array([math.erf(v) for v in x.tolist()])
    assert np.abs(run_ours("Erf", [x])[0] - want).max() < 5e-7
    assert run_ours("Erf", [np.array([4, -4, np.inf, -np.inf], "f")])[0].tolist() == [1, -1, 1, -1]
    assert np.abs(run_ours("Erf", [x.astype(np.float64)])[0] - want).max() == 0


def test_bit_shift_by_the_width_or_more():
    x, y = np.array([255, 255, 1], np.uint8), np.array([8, 200, 7], np.uint8)
    assert run_ours("BitShift", [x, y], {"direction": "LEFT"}, 11)[0].tolist() == [0, 0, 128]
    assert run_ours("BitShift", [x, y], {"direction": "RIGHT"}, 11)[0].tolist() == [0, 0, 0]
    signed, amount = np.array([-1, -8, 8, -8], np.int8), np.array([8, 1, -1, -1], np.int8)
    assert run_ours("BitShift", [signed, amount], {"direction": "RIGHT"}, 28)[0].tolist() == [-1, -4, 0, -1]
    assert run_ours("BitShift", [signed, amount], {"direction": "LEFT"}, 28)[0].tolist() == [0, -16, 0, 0]


def test_bit_shift_rejects_an_unknown_direction():
    x = np.array([1], np.uint8)
    with pytest.raises(ExecutionError, match="unknown direction; expected one of LEFT, RIGHT; found 'UP'"):
        run_ours("BitShift", [x, x], {"direction": "UP"}, 11)


def test_legacy_broadcast_goes_one_way():
    a, b = np.ones((2, 1), np.float64), np.ones(3, np.float64)
    with pytest.raises(
        ExecutionError,
        match=r"second operand does not broadcast.*\[2, 1\] or one that broadcasts to it; found float64\[3\]",
    ):
        run_ours("Add", [a, b], {"broadcast": 1, "axis": 1}, version=6)


def test_legacy_broadcast_aligns_at_the_axis():
    a, b = sample("float32", (2, 3, 4), 1), sample("float32", (3,), 2, 1)
    for op in ("Add", "Sub", "Mul", "Div"):
        got = run_ours(op, [a, b], {"broadcast": 1, "axis": 1}, version=6)[0]
        want = run_ours(op, [a, b.reshape(3, 1)], version=7)[0]
        np.testing.assert_array_equal(got, want)


def test_legacy_broadcast():
    a, b = sample("float32", (2, 3, 4), 1), sample("float32", (3,), 2)
    for op in ("Less", "Greater"):
        got = run_ours(op, [a, b], {"broadcast": 1, "axis": 1}, version=1)[0]
        np.testing.assert_array_equal(got, run_ours(op, [a, b.reshape(3, 1)], version=7)[0])
