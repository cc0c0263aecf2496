"""Arithmetic, comparisons and logic on elements."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.harness import FLOATS, INTS, allowed, check, run_ours, sample, versions
from tinycomp.errors import ExecutionError
from tinycomp.ops import OPS

UNARY = {
    "Neg": (-3, 3), "Abs": (-3, 3), "Sign": (-3, 3), "Reciprocal": (0.5, 3), "Floor": (-3, 3), "Ceil": (-3, 3),
    "Round": (-3, 3), "Sqrt": (0, 9), "Exp": (-5, 5), "Log": (0.1, 9), "Sin": (-9, 9), "Cos": (-9, 9), "Tan": (-1, 1),
    "Asin": (-1, 1), "Acos": (-1, 1), "Atan": (-9, 9), "Sinh": (-3, 3), "Cosh": (-3, 3), "Tanh": (-3, 3),
    "Asinh": (-3, 3), "Acosh": (1, 9), "Atanh": (-0.9, 0.9), "Erf": (-5, 5),
}  # fmt: skip


@pytest.mark.parametrize("op", UNARY)
def test_unary_in_every_version_and_dtype(op):
    for version in versions(op, 6):
        for dtype in allowed(op, version):
            low, high = UNARY[op]
            if dtype.startswith("uint") and low < 0:
                low = 0
            check(op, [sample(dtype, (3, 5), low=low, high=high)], version=version)


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div", "Pow", "Sum", "Max", "Min"])
def test_binary_in_every_version_and_dtype(op):
    for version in versions(op, 8):
        for dtype in allowed(op, version):
            low = 1 if op == "Pow" else -3
            a, b = sample(dtype, (2, 3, 4), 1, low), sample(dtype, (3, 1), 2, low)
            if op == "Div":
                b = np.where(b == 0, np.ones((), b.dtype), b)
            check(op, [a, b], version=version, rtol=1e-4)


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


@pytest.mark.parametrize("dtype", INTS)
def test_integer_mod_follows_the_divisor(dtype):
    a, b = sample(dtype, (50,), 1, -90, 90), sample(dtype, (50,), 2, 1, 9)
    check("Mod", [a, b], version=13)


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_mod(dtype):
    a, b = sample(dtype, (50,), 1, -9, 9), sample(dtype, (50,), 2, 1, 3)
    check("Mod", [a, b], {"fmod": 1}, version=13)
    whole = run_ours("Mod", [np.array([-7.5, 7.5, 1.0], "float32"), np.array([2, -2, np.inf], "float32")], version=28)
    assert whole[0].tolist() == [0.5, -0.5, 1.0]


def test_integer_arithmetic_wraps():
    a = np.array([127, -128], np.int8)
    for op, want in {"Add": [-2, 0], "Mul": [1, 0]}.items():
        assert run_ours(op, [a, a])[0].tolist() == want
    assert run_ours("Neg", [a])[0].tolist() == [-127, -128]
    assert run_ours("Abs", [a])[0].tolist() == [127, -128]


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


@pytest.mark.parametrize("version", [7, 8, 12, 13])
def test_nan_and_infinity_pass_through_max_and_min(version):
    a = np.array([np.nan, 1, np.inf, -np.inf, 0], np.float32)
    b = np.array([1, np.nan, 0, 0, -0.0], np.float32)
    for op in ("Max", "Min"):
        check(op, [a, b], version=version)


def test_special_values():
    x = np.array([np.nan, np.inf, -np.inf, 0, -0.0, 1e-42, -1e-42, 3e38, -3e38], np.float32)
    for op in ("Exp", "Tanh", "Sqrt", "Log", "Floor", "Round", "Abs", "Neg", "Reciprocal", "Erf", "Atan", "Ceil"):
        check(op, [x], version=13, against=("onnxruntime",))


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


def test_round_is_half_to_even():
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 2.4999], np.float32)
    assert check("Round", [x], version=22)[0][0].tolist() == [0, 2, 2, 0, -2, 2]


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


def test_traits():
    assert {"elementwise", "commutative", "cheap"} <= OPS.find("Add").traits
    assert "commutative" not in OPS.find("Sub").traits
    assert "cheap" not in OPS.find("Exp").traits


OPS_BY_PARAMETER = ["Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"]


@pytest.mark.parametrize("op", OPS_BY_PARAMETER)
def test_comparisons_in_every_version_and_dtype(op):
    for version in versions(op, 7):
        for dtype in allowed(op, version):
            a, b = sample(dtype, (2, 3, 4), 1), sample(dtype, (3, 1), 2)
            (got,), _ = check(op, [a, b], version=version)
            assert got.dtype == np.bool_


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
