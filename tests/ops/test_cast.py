from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from tests.ops.harness import INTS, allowed, check, dtype_of, run_ours, sample
from tinycomp.errors import ExecutionError
from tinycomp.ir.proto import NUMBER_BY_DTYPE
from tinycomp.ops.cast import cast_array, dtype_of_enum

ALL = [d for d in allowed("Cast", 28, "T1") if d != "string"]


@pytest.mark.parametrize("source", ALL)
@pytest.mark.parametrize("target", ALL)
def test_every_pair_keeps_what_both_can_hold(source, target):
    x = np.array([1, 0, 1], dtype_of(source)) if "e8m0" not in source + target else np.ones(3, dtype_of(source))
    got = run_ours("Cast", [x], {"to": NUMBER_BY_DTYPE[target]})[0]
    assert got.dtype == dtype_of(target)
    np.testing.assert_array_equal(got.astype(np.float32), x.astype(np.float32))


@pytest.mark.parametrize("target", INTS)
@pytest.mark.parametrize("source", ["float16", "float32", "float64", "bfloat16"])
def test_floats_become_integers(source, target):
    x = np.array([np.nan, 1.75, -0.5, 100, -0.0], dtype_of(source))
    assert cast_array(x, np.dtype(target)).tolist() == [0, 1, 0, 100, 0]
    x = np.array([300, -5, -300, 1000.5, -1], np.float32).astype(dtype_of(source))
    if source != "bfloat16":
        check("Cast", [x], {"to": NUMBER_BY_DTYPE[target]}, 13, against=("onnxruntime",))


@pytest.mark.parametrize("source", ["float32", "float64", "bfloat16"])
def test_wide_integers_saturate(source):
    x = np.array([np.inf, -np.inf, 1e30, -1e30], dtype_of(source))
    for target in ("int32", "int64"):
        info = np.iinfo(target)
        assert cast_array(x, np.dtype(target)).tolist() == [info.max, info.min] * 2
    for target in ("uint8", "uint16", "uint32", "uint64"):
        least = 2**63 if target == "uint64" else 0  # the low bits of the least wider integer
        assert cast_array(x, np.dtype(target)).tolist() == [np.iinfo(target).max, least] * 2
    edges = np.array([2.0**63, 2.0**64, 2.0**63 - 1024, 2.0**64 - 2048], np.float64)
    assert cast_array(edges, np.dtype(np.uint64)).tolist() == [2**63, 2**64 - 1, 2**63 - 1024, 2**64 - 2048]


def test_integers_wrap():
    x = np.array([200, -1, 2**40 + 3], np.int64)
    assert cast_array(x, np.dtype(np.int8)).tolist() == [-56, -1, 3]
    assert cast_array(x, dtype_of("int4")).tolist() == [-8, -1, 3]
    assert cast_array(x, dtype_of("uint4")).tolist() == [8, 15, 3]
    assert cast_array(x, dtype_of("int2")).tolist() == [0, -1, -1]


def test_nan_is_true():
    assert cast_array(np.array([np.nan, 0.0, -0.0, 0.1], "f"), np.dtype(bool)).tolist() == [True, False, False, True]


@pytest.mark.parametrize(
    ("target", "top", "beyond"),
    [
        ("float8_e4m3fn", 448, np.nan), ("float8_e4m3fnuz", 240, np.nan), ("float8_e5m2", 57344, np.inf),
        ("float8_e5m2fnuz", 57344, np.nan),
    ],
)  # fmt: skip
@pytest.mark.parametrize("source", ["float16", "float32", "float64", "bfloat16"])
def test_float8_saturation(target, top, beyond, source):
    x = np.array([60000, -60000, np.inf, -np.inf, np.nan, 1.0], dtype_of(source))
    if source != "float16":
        x[0], x[1] = 1e6, -1e6
    got = run_ours("Cast", [x], {"to": NUMBER_BY_DTYPE[target]}, 19)[0].astype(np.float32)
    np.testing.assert_array_equal(got, np.array([top, -top, top, -top, np.nan, 1.0], "f"))
    got = run_ours("Cast", [x], {"to": NUMBER_BY_DTYPE[target], "saturate": 0}, 19)[0].astype(np.float32)
    np.testing.assert_array_equal(got[2:], np.array([beyond, -beyond, np.nan, 1.0], "f"))


@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
@pytest.mark.parametrize("saturate", [0, 1])
def test_float8_e8m0(mode, saturate):
    x = np.array([1, 1.25, 1.5, 1.75, 3, 2.0**-126, 2.0**127, np.nan, 0.3, 6e37, 1e38], np.float32)
    attrs = {"to": TensorProto.FLOAT8E8M0, "saturate": saturate, "round_mode": mode}
    if saturate:
        check("Cast", [x], attrs, 24, against=("reference",))
    inside = x[:5]
    check("Cast", [inside], attrs, 24, against=("reference",))


def test_e8m0_special_values():
    small = np.array([2.0**-127, 1e-40], np.float32)  # the least power there is, and less
    assert run_ours("Cast", [small], {"to": TensorProto.FLOAT8E8M0}, 24)[0].view(np.uint8).tolist() == [0, 0]
    x = np.array([0, np.inf, np.nan], np.float32)
    attrs = {"to": TensorProto.FLOAT8E8M0}
    assert run_ours("Cast", [x], attrs, 24)[0].view(np.uint8).tolist() == [0, 254, 255]
    assert run_ours("Cast", [x], {**attrs, "saturate": 0, "round_mode": "nearest"}, 24)[0].view(np.uint8).tolist() == [
        255, 255, 255,
    ]  # fmt: skip


def test_text():
    string = {"to": TensorProto.STRING}
    assert run_ours("Cast", [np.array([1.5, np.nan, np.inf, -np.inf], "f")], string)[0].tolist() == [
        "1.5", "NaN", "INF", "-INF",
    ]  # fmt: skip
    assert run_ours("Cast", [np.array([[3, -4]])], string)[0].tolist() == [["3", "-4"]]
    texts = np.array(["1e-3", "+INF", "-inf", "NaN", "7"], object)
    got = run_ours("Cast", [texts], {"to": TensorProto.FLOAT})[0]
    np.testing.assert_array_equal(got, np.array([1e-3, np.inf, -np.inf, np.nan, 7], "f"))
    long = np.array(["9007199254740993", "-5", "100.5"], object)
    assert run_ours("Cast", [long], {"to": TensorProto.INT64})[0].tolist() == [9007199254740993, -5, 100]
    with pytest.raises(ExecutionError, match="Cast: cannot cast text to float32; expected a number; found 'Hello'"):
        run_ours("Cast", [np.array(["Hello"], object)], {"to": TensorProto.FLOAT})


def test_text_round_trip_is_exact():
    x = sample("float32", (50,), 3)
    text = run_ours("Cast", [x], {"to": TensorProto.STRING})[0]
    np.testing.assert_array_equal(run_ours("Cast", [text], {"to": TensorProto.FLOAT})[0], x)


def test_bit_cast():
    x = sample("float32", (2, 3))
    got = run_ours("BitCast", [x], {"to": TensorProto.INT32})[0]
    np.testing.assert_array_equal(got, x.view(np.int32))
    assert run_ours("BitCast", [np.array(1.0, "f")], {"to": TensorProto.UINT32})[0].item() == 0x3F800000
    narrow = run_ours("BitCast", [np.array([-1, 7], dtype_of("int4"))], {"to": TensorProto.UINT4})[0]
    assert narrow.astype(int).tolist() == [15, 7]
    with pytest.raises(ExecutionError, match=r"the widths differ; .*; found float32 and float64"):
        run_ours("BitCast", [x], {"to": TensorProto.DOUBLE})


def test_dtype_of_every_enum():
    for dtype in allowed("Cast", 28, "T2"):
        assert dtype_of_enum(NUMBER_BY_DTYPE[dtype]) == dtype_of(dtype)
