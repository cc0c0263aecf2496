"""Activations at their limits, and what they refuse; the rest is in ``cases``."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.harness import check, run_ours, sample
from tinycomp.errors import ExecutionError, ModelError


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


def test_shrink_of_integers():
    x = np.arange(-3, 4, dtype=np.int32)
    got = run_ours("Shrink", [x], {"lambd": 1.5, "bias": 1.5})[0]
    assert got.dtype == np.int32
    assert got.tolist() == [-1, 0, 0, 0, 0, 0, 1]


def test_prelu_of_old_aligns_its_slope_at_the_channels():
    x, slope = sample("float32", (2, 3, 4, 4)), sample("float32", (3,), 1)
    want = run_ours("PRelu", [x, slope.reshape(3, 1, 1)], version=9)[0]
    np.testing.assert_array_equal(run_ours("PRelu", [x, slope], version=6)[0], want)
    with pytest.raises(ExecutionError, match="the slope does not broadcast to its tensor"):
        run_ours("PRelu", [x[:, :1], slope], version=6)


def test_unknown_attribute_and_mode():
    x = np.zeros(3, np.float32)
    with pytest.raises(ModelError, match=r'operator LeakyRelu has no attribute "alhpa".*Did you mean "alpha"'):
        run_ours("LeakyRelu", [x], {"alhpa": 1.0})
    with pytest.raises(ExecutionError, match="unknown approximate; expected one of none, tanh; found 'fast'"):
        run_ours("Gelu", [x], {"approximate": "fast"})


OPERATORS = ["Softmax", "LogSoftmax", "Hardmax"]


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("version", [11, 13])
def test_axis_out_of_range(op, version):
    with pytest.raises(ExecutionError, match=r"axis is out of range; expected an axis in \[-2, 1\]; found 3"):
        run_ours(op, [sample("float32", (2, 3))], {"axis": 3}, version)
