"""Softmax, LogSoftmax and Hardmax in both behaviours against onnxruntime and onnx.reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.harness import check, run_ours, sample
from tinycomp.errors import ExecutionError

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
    with pytest.raises(ExecutionError, match=rf"{op}: axis out of range; expected an axis in \[-2, 1\]; found 3"):
        run_ours(op, [sample("float32", (2, 3))], {"axis": 3}, version)
