"""Quantisation against onnxruntime and onnx.reference."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.ops.harness import check, dtype_of, run_ours, sample
from tinycomp.errors import ExecutionError
from tinycomp.ops.numeric import integer_range

INTEGERS = ["int8", "uint8", "int16", "uint16", "int4", "uint4", "int2", "uint2"]
FLOAT8 = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]


def f32(*values):
    return np.array(values if len(values) > 1 else values[0], dtype=np.float32)


def version_of(dtype):
    return 25 if "int2" in dtype else 21 if dtype in INTEGERS[2:] else 19 if dtype in FLOAT8 else 10


VERSIONS = [10, 13, 19, 21, 23, 24, 25]


@pytest.mark.parametrize(("dtype", "version"), [(d, v) for d in INTEGERS for v in VERSIONS if v >= version_of(d)])
def test_quantize_per_tensor(dtype, version):
    x = np.concatenate([np.linspace(-40, 40, 161, dtype=np.float32), f32(1e30, -1e30, np.inf, -np.inf)])
    point = np.array(1, dtype=dtype_of(dtype))
    (y,) = run_ours("QuantizeLinear", [x, f32(0.5), point], {}, version)
    low, high = integer_range(point.dtype)
    assert y.dtype == point.dtype
    np.testing.assert_array_equal(y.astype(np.float32), np.clip(np.rint(x / 0.5) + 1, low, high))
    if "int8" in dtype or "int16" in dtype:
        check("QuantizeLinear", [x, f32(0.5), point], {}, version, against=("onnxruntime",))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_rounding_is_half_to_even(dtype):
    x = f32(0.5, 1.5, 2.5, 3.5, 4.5)
    assert run_ours("QuantizeLinear", [x, f32(1), np.array(0, dtype)])[0].tolist() == [0, 2, 2, 4, 4]


@pytest.mark.parametrize("dtype", ["int8", "uint4", "int4", "int16"])
@pytest.mark.parametrize(("axis", "block"), [(1, 2), (0, 3), (-1, 4)])
def test_blocks(dtype, axis, block):
    x = sample("float32", (6, 8, 4), low=-8, high=8)
    shape = list(x.shape)
    shape[axis] //= block
    scale = np.abs(sample("float32", shape, 1)) + f32(0.5)
    point = np.ones(shape, dtype_of(dtype))
    attrs = {"axis": axis, "block_size": block}
    (y,), _ = check("QuantizeLinear", [x, scale, point], attrs, 21)
    check("DequantizeLinear", [y, scale, point], attrs, 21)


def test_last_block_may_be_short():
    x, scale = np.arange(10, dtype=np.float32).reshape(2, 5), f32(1, 2, 4, 1, 2, 4).reshape(2, 3)
    (y,) = run_ours("QuantizeLinear", [x, scale], {"axis": 1, "block_size": 2})
    np.testing.assert_array_equal(y, np.rint(x / np.repeat(scale, 2, axis=1)[:, :5]))


@pytest.mark.parametrize("dtype", FLOAT8)
@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("version", [19, 23])
def test_quantize_to_float8(dtype, saturate, version):
    x = np.concatenate([sample("float32", (50,), low=-500, high=500), f32(1e6, -1e6, 447, 465, 1e-9, np.nan)])
    point = np.zeros((), dtype_of(dtype))
    check("QuantizeLinear", [x, f32(0.9), point], {"saturate": saturate}, version, against=("reference",))


@pytest.mark.parametrize("dtype", [*FLOAT8, "int8", "uint8", "int32"])
@pytest.mark.parametrize("scale", ["float32", "float16", "bfloat16"])
def test_dequantize(dtype, scale):
    x = sample(dtype, (4, 5), low=-100, high=100)
    point = np.zeros((), x.dtype)
    check("DequantizeLinear", [x, np.asarray(0.37, dtype_of(scale)), point], {}, 19)


def test_dequantize_without_zero_point_and_to_another_type():
    x = sample("int8", (4, 5), low=-100, high=100)
    check("DequantizeLinear", [x, f32(0.37)], {}, 10)
    (y,) = run_ours("DequantizeLinear", [x, f32(0.37)], {"output_dtype": 10}, 23)
    assert y.dtype == np.float16


@pytest.mark.parametrize("source", ["float16", "bfloat16", "int32"])
def test_other_sources(source):
    x = sample(source, (40,), low=-90, high=90)
    scale = np.asarray(0.7, np.float32 if source == "int32" else dtype_of(source))
    (y,) = run_ours("QuantizeLinear", [x, scale, np.array(3, np.int8)], {}, 19)
    exact = np.rint(x.astype(np.float32) / scale.astype(np.float32)) + 3
    np.testing.assert_array_equal(y, np.clip(exact, -128, 127).astype(np.int8))


def test_precision_of_the_division():
    x, scale = np.array([1001], np.float16), np.array(2, np.float16)
    # 500.5 is a tie in float32; float16 has no 500.5 near 512, so the quotient of 1001 stays exact there.
    assert run_ours("QuantizeLinear", [x, scale, np.array(0, np.int16)], {}, 23)[0].tolist() == [500]
    x = np.array([2049], np.float32)
    half = run_ours("QuantizeLinear", [x, f32(1), np.array(0, np.int16)], {"precision": 10}, 23)[0]
    single = run_ours("QuantizeLinear", [x, f32(1), np.array(0, np.int16)], {}, 23)[0]
    assert (half.tolist(), single.tolist()) == ([2048], [2049])


def test_output_types():
    x = sample("float32", (6,))
    assert run_ours("QuantizeLinear", [x, f32(1)])[0].dtype == np.uint8
    assert run_ours("QuantizeLinear", [x, f32(1)], {"output_dtype": 3})[0].dtype == np.int8
    assert run_ours("QuantizeLinear", [x, f32(1)], {"output_dtype": 22})[0].dtype == ml_dtypes.int4
    with pytest.raises(ExecutionError, match="output_dtype contradicts the zero point; expected uint8; found int8"):
        run_ours("QuantizeLinear", [x, f32(1), np.array(0, np.uint8)], {"output_dtype": 3})


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_quantize_nan_is_the_least_value(dtype):
    x = np.full(40, np.nan, np.float32)
    assert set(run_ours("QuantizeLinear", [x, f32(1), np.array(0, dtype)])[0].tolist()) == {np.iinfo(dtype).min}


def test_a_scale_of_a_run_is_used_as_it_is():
    """Constant ones are refused when a model is read."""
    x = f32(1, -1, 0)
    assert run_ours("QuantizeLinear", [x, f32(0), np.array(3, np.uint8)])[0].tolist() == [255, 0, 0]
    np.testing.assert_array_equal(run_ours("DequantizeLinear", [np.array([2], np.int8), f32(np.nan)])[0], [np.nan])


def test_parameters_must_fit():
    x = sample("float32", (3, 4))
    with pytest.raises(ExecutionError, match="the scale has the wrong size; expected 4; found 3"):
        run_ours("QuantizeLinear", [x, np.ones(3, np.float32)])
    with pytest.raises(ExecutionError, match="scale and zero point differ in shape; expected 4; found 3"):
        run_ours("QuantizeLinear", [x, np.ones(4, np.float32), np.zeros(3, np.int8)])
    with pytest.raises(ExecutionError, match="axis 1 of the scale does not fit blocks of 2; expected 2; found 4"):
        run_ours("QuantizeLinear", [x, np.ones((3, 4), np.float32)], {"block_size": 2})
    with pytest.raises(ExecutionError, match="axis is out of range"):
        run_ours("QuantizeLinear", [x, np.ones(4, np.float32)], {"axis": 2})


def test_dynamic_quantize_of_nothing():
    y, scale, point = run_ours("DynamicQuantizeLinear", [np.zeros((0, 3), np.float32)], {}, 11, 3)
    assert (y.shape, float(scale), int(point)) == ((0, 3), 1.0, 0)


def test_matmul_integer_with_a_zero_point_per_row():
    a, b = sample("uint8", (3, 4), 0, 0, 99), sample("uint8", (4, 5), 1, 0, 99)
    (got,) = run_ours("MatMulInteger", [a, b, np.array([1, 2, 3], np.uint8)], {}, 10)
    np.testing.assert_array_equal(got, (a.astype(int) - np.array([[1], [2], [3]])) @ b.astype(int))


def test_matmul_integer_error():
    with pytest.raises(ExecutionError, match="differ in the size that is summed over; expected 3; found 4"):
        run_ours("MatMulInteger", [np.zeros((3, 4), np.uint8), np.zeros((3, 5), np.uint8)])
