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
    with pytest.raises(ExecutionError, match=r"slope is larger.*\[2, 1, 4, 4\].*\[3, 1, 1\]"):
        run_ours("PRelu", [x[:, :1], slope], version=6)


def test_swiglu():
    a, b = sample("float32", (4, 5), 1), sample("float32", (4, 5), 2)
    check("SwiGLU", [a, b], {"alpha": 1.5}, version=28)


def test_unknown_attribute_and_mode():
    x = np.zeros(3, np.float32)
    with pytest.raises(ModelError, match=r'operator LeakyRelu has no attribute "alhpa".*Did you mean "alpha"'):
        run_ours("LeakyRelu", [x], {"alhpa": 1.0})
    with pytest.raises(ExecutionError, match="Gelu: unknown mode; expected none or tanh; found 'fast'"):
        run_ours("Gelu", [x], {"approximate": "fast"})
