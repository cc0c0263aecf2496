"""Normalisations against onnxruntime and onnx.reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.harness import check, run_ours, sample
from tinycomp.errors import ExecutionError

FLOATS = ["float16", "bfloat16", "float32", "float64"]
NARROW = {"float16": 1e-3, "bfloat16": 1e-2}


def check_any_dtype(op, inputs, attrs, version, **options):
    """Compare with the witnesses; for narrow types, which onnx.reference computes badly, with our float64 result."""
    dtype = inputs[0].dtype
    if dtype.name not in NARROW:
        check(op, inputs, attrs, version, **options)
        return
    (got,) = run_ours(op, inputs, attrs, version)
    (exact,) = run_ours(op, [x.astype(np.float64) for x in inputs], attrs, version)
    assert got.dtype == dtype
    tolerance = NARROW[dtype.name]
    np.testing.assert_allclose(got.astype(np.float64), exact, rtol=tolerance, atol=tolerance)


def batch_norm_inputs(shape, dtype="float32"):
    channels = shape[1] if len(shape) > 1 else 1
    scale, bias, mean = (sample(dtype, (channels,), seed) for seed in (1, 2, 3))
    return [sample(dtype, shape), scale, bias, mean, np.abs(sample(dtype, (channels,), 4)) + np.asarray(0.1, dtype)]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_batch_norm_dtypes(dtype):
    check("BatchNormalization", batch_norm_inputs((2, 3, 4), dtype), {}, 15)


def test_batch_norm_with_wider_statistics():
    x, scale, bias, mean, var = batch_norm_inputs((2, 3, 4))
    (got,) = run_ours("BatchNormalization", [x.astype(np.float16), scale, bias, mean, var])
    (want,) = run_ours("BatchNormalization", [x.astype(np.float16).astype(np.float32), scale, bias, mean, var])
    assert got.dtype == np.float16
    np.testing.assert_array_equal(got, want.astype(np.float16))


def test_batch_norm_modes_of_old_opsets():
    inputs = batch_norm_inputs((4, 3, 5))
    inference = run_ours("BatchNormalization", inputs, {}, 9)[0]
    training = run_ours("BatchNormalization", inputs, {"training_mode": 1}, 15, 3)
    for version, attrs in ((6, {}), (1, {"consumed_inputs": [0, 0, 0, 1, 1]}), (7, {})):
        got = run_ours("BatchNormalization", inputs, attrs, version, 5)
        for g, w in zip(got[:3], training, strict=True):
            np.testing.assert_array_equal(g, w)
        np.testing.assert_allclose(got[3], inputs[0].mean(axis=(0, 2)), rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(got[4], inputs[0].var(axis=(0, 2)), rtol=1e-5)
    np.testing.assert_array_equal(run_ours("BatchNormalization", inputs, {"is_test": 1}, 6)[0], inference)


def test_batch_norm_per_activation():
    x = sample("float32", (2, 3, 4))
    parameters = [sample("float32", (3, 4), seed) for seed in (1, 2, 3)] + [np.ones((3, 4), np.float32) * 2]
    check("BatchNormalization", [x, *parameters], {"spatial": 0}, 7, against=("onnxruntime",))
    with pytest.raises(ExecutionError, match="training per activation is not possible"):
        run_ours("BatchNormalization", [x, *parameters], {"spatial": 0}, 7, 5)


def test_batch_norm_error():
    inputs = batch_norm_inputs((2, 3, 4))
    inputs[3] = inputs[3][:2]
    with pytest.raises(ExecutionError, match="the mean has the wrong size; expected 3; found 2"):
        run_ours("BatchNormalization", inputs)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 3, 4, 5), (0, 3, 4)])
def test_instance_norm(dtype, shape):
    inputs = [sample(dtype, shape), sample(dtype, (3,), 1), sample(dtype, (3,), 2)]
    check_any_dtype("InstanceNormalization", inputs, {"epsilon": 1e-3}, 6, atol=1e-4)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("axis", [-1, 1, 0, -2])
@pytest.mark.parametrize("with_bias", [False, True])
def test_layer_norm(dtype, axis, with_bias):
    shape = (2, 3, 5)
    inputs = [sample(dtype, shape), sample(dtype, shape[axis:], 1)]
    inputs += [sample(dtype, shape[axis:], 2)] if with_bias else []
    check_any_dtype("LayerNormalization", inputs, {"axis": axis}, 17, atol=1e-5)


@pytest.mark.parametrize("dtype", FLOATS)
def test_layer_norm_statistics(dtype):
    inputs = [sample(dtype, (4, 6)), sample(dtype, (6,), 1)]
    y, mean, inverse = run_ours("LayerNormalization", inputs, {}, 17, 3)
    assert [y.dtype, mean.dtype, inverse.dtype] == [inputs[0].dtype, np.float32, np.float32]
    assert mean.shape == inverse.shape == (4, 1)
    exact = inputs[0].astype(np.float64)
    np.testing.assert_allclose(mean, exact.mean(axis=1, keepdims=True), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(inverse, 1 / np.sqrt(exact.var(axis=1, keepdims=True) + 1e-5), rtol=1e-5)
    assert run_ours("LayerNormalization", inputs, {"stash_type": 16}, 17, 2)[1].dtype.name == "bfloat16"


def test_layer_norm_errors():
    with pytest.raises(ExecutionError, match="the scale does not broadcast to its tensor"):
        run_ours("LayerNormalization", [sample("float32", (1, 6)), sample("float32", (4, 6))])
    with pytest.raises(ExecutionError, match="axis is out of range"):
        run_ours("LayerNormalization", [sample("float32", (4, 6)), sample("float32", (6,))], {"axis": 2})


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("version", "parameters"), [(18, 2), (21, 6)])
@pytest.mark.parametrize("shape", [(2, 6, 5), (2, 6, 3, 4), (0, 6, 3)])
def test_group_norm(dtype, version, parameters, shape):
    inputs = [sample(dtype, shape), sample(dtype, (parameters,), 1), sample(dtype, (parameters,), 2)]
    (got,) = run_ours("GroupNormalization", inputs, {"num_groups": 2}, version)
    x, scale, bias = (a.astype(np.float64) for a in inputs)
    groups = x.reshape(shape[0], 2, int(np.prod(shape[1:])) // 2)
    y = (groups - groups.mean(2, keepdims=True)) / np.sqrt(groups.var(2, keepdims=True) + 1e-5)
    scale, bias = (p.repeat(6 // parameters).reshape(-1, *[1] * (len(shape) - 2)) for p in (scale, bias))
    assert got.dtype == inputs[0].dtype
    tolerance = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 1e-5, "float64": 1e-12}[dtype]
    np.testing.assert_allclose(got.astype(np.float64), y.reshape(shape) * scale + bias, tolerance, tolerance)


@pytest.mark.parametrize("groups", [0, -1, 4])
def test_group_norm_error(groups):
    inputs = [sample("float32", (2, 6, 5)), sample("float32", (6,), 1), sample("float32", (6,), 2)]
    with pytest.raises(ExecutionError, match=f"num_groups .*; found {groups}"):
        run_ours("GroupNormalization", inputs, {"num_groups": groups}, 21)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("axis", [-1, 1, 0])
def test_rms_norm(dtype, axis):
    inputs = [sample(dtype, (2, 3, 5)), sample(dtype, (2, 3, 5)[axis:], 1)]
    check_any_dtype("RMSNormalization", inputs, {"axis": axis}, 23, against=("reference",), atol=1e-5)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [0, -1])
def test_lp_norm(dtype, p, axis):
    x = sample(dtype, (3, 4))
    # onnx.reference sums signed values for p = 1; onnxruntime knows no narrow types.
    against = ("onnxruntime",) if p == 1 else ("reference", "onnxruntime")
    check_any_dtype("LpNormalization", [x], {"p": p, "axis": axis}, 1, against=against)


def test_lp_norm_of_zero_is_zero():
    assert run_ours("LpNormalization", [np.zeros((2, 3), np.float32)])[0].tolist() == [[0, 0, 0], [0, 0, 0]]


def test_lp_norm_error():
    with pytest.raises(ExecutionError, match="unknown p; expected one of 1, 2; found 3"):
        run_ours("LpNormalization", [sample("float32", (3, 4))], {"p": 3})
