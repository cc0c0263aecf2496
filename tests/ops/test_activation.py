"""Activations; Softmax, LogSoftmax and Hardmax in both behaviours against onnxruntime and onnx.reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.harness import FLOATS, allowed, check, run_ours, sample, versions
from tinycomp.errors import ExecutionError, ModelError

CASES = [
    ("Relu", {}), ("Sigmoid", {}), ("Softplus", {}), ("Softsign", {}), ("HardSwish", {}), ("Mish", {}),
    ("LeakyRelu", {}), ("LeakyRelu", {"alpha": 0.3}), ("Elu", {}), ("Elu", {"alpha": 0.7}),
    ("Selu", {}), ("Selu", {"alpha": 2.0, "gamma": 3.0}), ("Celu", {}), ("Celu", {"alpha": 2.0}),
    ("HardSigmoid", {}), ("HardSigmoid", {"alpha": 0.4, "beta": 0.1}), ("ThresholdedRelu", {}),
    ("ThresholdedRelu", {"alpha": 0.5}), ("Gelu", {}), ("Gelu", {"approximate": "tanh"}), ("Swish", {}),
    ("Swish", {"alpha": 0.5}), ("Shrink", {}), ("Shrink", {"lambd": 1.0, "bias": 0.5}),
]  # fmt: skip


@pytest.mark.parametrize(("op", "attrs"), CASES, ids=str)
def test_every_version_dtype_and_shape(op, attrs):
    for version in versions(op, 7):
        for dtype in allowed(op, version):
            if op == "Shrink" and dtype not in FLOATS:
                continue
            # onnx.reference computes the error function of float64 in float32.
            loose = {"atol": 1e-6} if op == "Gelu" and dtype == "float64" else {}
            check(op, [sample(dtype, (3, 4, 5), low=-4, high=4)], attrs, version, **loose)
        for shape in [(), (0, 2), (1,), (2, 1, 3, 1)]:
            check(op, [sample("float32", shape)], attrs, version)


@pytest.mark.parametrize("op", ["Relu", "Sigmoid", "LeakyRelu", "Elu", "HardSigmoid", "Softplus", "Softsign", "Selu"])
def test_special_values_are_those_of_onnxruntime(op):
    x = np.array([np.inf, -np.inf, 0, 1e-42, -1e-42, 3e38, -3e38, 100, -100, 88, -88], np.float32)
    if op == "Softsign":
        x = x[2:]  # onnxruntime gives NaN for infinity, where the limit is 1
    check(op, [x], version=16, against=("onnxruntime",))


def test_gelu_of_huge_values():
    x = np.array([3e38, -3e38, 100, -100, np.inf], np.float32)
    for mode in ("none", "tanh"):
        assert run_ours("Gelu", [x], {"approximate": mode})[0].tolist() == [x[0], 0, 100, 0, np.inf]


@pytest.mark.parametrize(("op", "attrs"), CASES, ids=str)
def test_nan_stays_nan(op, attrs):
    if op in ("ThresholdedRelu", "Shrink"):
        return  # a comparison with NaN is false, and the operators say 0 then
    got = run_ours(op, [np.array([np.nan, 1.0], np.float32)], attrs)[0]
    assert np.isnan(got).tolist() == [True, False]


def test_shrink_of_integers():
    x = np.arange(-3, 4, dtype=np.int32)
    got = run_ours("Shrink", [x], {"lambd": 1.5, "bias": 1.5})[0]
    assert got.dtype == np.int32
    assert got.tolist() == [-1, 0, 0, 0, 0, 0, 1]


def test_prelu():
    for version in versions("PRelu", 7):
        for dtype in allowed("PRelu", version):
            check("PRelu", [sample(dtype, (2, 3, 4)), sample(dtype, (3, 1), 1)], version=version)
    x, slope = sample("float32", (2, 3, 4, 4)), sample("float32", (3,), 1)
    want = run_ours("PRelu", [x, slope.reshape(3, 1, 1)], version=9)[0]
    np.testing.assert_array_equal(run_ours("PRelu", [x, slope], version=6)[0], want)
    with pytest.raises(ExecutionError, match="the slope does not broadcast to its tensor"):
        run_ours("PRelu", [x[:, :1], slope], version=6)


def test_swiglu():
    a, b = sample("float32", (4, 5), 1), sample("float32", (4, 5), 2)
    check("SwiGLU", [a, b], {"alpha": 1.5}, version=28)


def test_unknown_attribute_and_mode():
    x = np.zeros(3, np.float32)
    with pytest.raises(ModelError, match=r'operator LeakyRelu has no attribute "alhpa".*Did you mean "alpha"'):
        run_ours("LeakyRelu", [x], {"alhpa": 1.0})
    with pytest.raises(ExecutionError, match="unknown approximate; expected one of none, tanh; found 'fast'"):
        run_ours("Gelu", [x], {"approximate": "fast"})


OPERATORS = ["Softmax", "LogSoftmax", "Hardmax"]


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("axis", [None, -3, -2, -1, 0, 1, 2])
@pytest.mark.parametrize("version", [1, 11, 13])
def test_axes(op, axis, version):
    if version == 1 and axis is not None and axis < 0:
        axis += 3
    check(op, [sample("float32", (2, 3, 4))], {"axis": axis}, version, against=("onnxruntime",))


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_dtypes(op, dtype):
    check(op, [sample(dtype, (2, 5))], {}, 13)


@pytest.mark.parametrize("op", OPERATORS)
def test_old_and_new_differ_on_rank_3(op):
    x = sample("float32", (2, 3, 4))
    old, new = (run_ours(op, [x], {"axis": 1}, version)[0] for version in (11, 13))
    assert not np.allclose(old, new)


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 0, 3)])
@pytest.mark.parametrize("version", [11, 13])
def test_empty(op, shape, version):
    (y,) = run_ours(op, [np.zeros(shape, np.float32)], {}, version)
    assert y.shape == shape
    assert y.dtype == np.float32


def test_large_values_do_not_overflow():
    x = np.array([[1e4, 1e4 - 1, -1e4], [-3e38, 3e38, 0]], np.float32)
    check("Softmax", [x], {}, 13)
    check("LogSoftmax", [x], {}, 13, against=("onnxruntime",))


def test_hardmax_takes_the_first_maximum():
    assert run_ours("Hardmax", [np.array([[1, 3, 3, 2]], np.float32)])[0].tolist() == [[0, 1, 0, 0]]


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("version", [11, 13])
def test_axis_out_of_range(op, version):
    with pytest.raises(ExecutionError, match=r"axis is out of range; expected an axis in \[-2, 1\]; found 3"):
        run_ours(op, [sample("float32", (2, 3))], {"axis": 3}, version)
