from __future__ import annotations

import numpy as np
import pytest

from tests.ops.harness import FLOATS, allowed, check, run_ours, sample, versions
from tinycomp.errors import ExecutionError

REDUCTIONS = ["ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceL2",
              "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"]  # fmt: skip


def by_input(op, version):
    return version >= (13 if op == "ReduceSum" else 18)


def reduce_and_check(op, x, axes, version, against=("reference", "onnxruntime"), **attrs):
    if not by_input(op, version):
        return check(op, [x], {**attrs, "axes": axes}, version, against=against, rtol=1e-4)
    operands = [x] if axes is None else [x, np.array(axes, np.int64)]
    return check(op, operands, attrs, version, against=against, rtol=1e-4)


@pytest.mark.parametrize("op", REDUCTIONS)
def test_every_dtype(op):
    for version in versions(op, 7):
        for dtype in allowed(op, version):
            if dtype in FLOATS:
                reduce_and_check(op, sample(dtype, (3, 4), 1, 1, 3), [1], version)


FORMULAS = {
    "ReduceSum": lambda v: v.sum(), "ReduceMean": lambda v: v.mean(), "ReduceProd": lambda v: v.prod(),
    "ReduceMax": lambda v: v.max(), "ReduceMin": lambda v: v.min(), "ReduceL1": lambda v: np.abs(v).sum(),
    "ReduceL2": lambda v: np.sqrt((v * v).sum()), "ReduceSumSquare": lambda v: (v * v).sum(),
    "ReduceLogSum": lambda v: np.log(v.sum()), "ReduceLogSumExp": lambda v: np.log(np.exp(v).sum()),
}  # fmt: skip


@pytest.mark.parametrize("op", REDUCTIONS)
def test_every_integer_dtype(op):
    for version in versions(op, 7):
        for dtype in allowed(op, version):
            if dtype in FLOATS or dtype == "bool":
                continue
            x = sample(dtype, (3, 4), 1, 1, 4)
            operands, attrs = ([x, np.array([1])], {}) if by_input(op, version) else ([x], {"axes": [1]})
            got = run_ours(op, operands, {**attrs, "keepdims": 0}, version)[0]
            want = [int(FORMULAS[op](row.astype(np.float64))) for row in x]  # truncated, as a conversion in C is
            assert got.dtype == x.dtype
            assert got.tolist() == want, (op, version, dtype)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integer_mean_truncates_toward_zero(dtype):
    x = np.array([[1, 2], [-1, -2], [3, 4]], dtype)
    (got,), _ = check("ReduceMean", [x, np.array([1])], {"keepdims": 0}, 18, against=("onnxruntime",))
    assert got.tolist() == [1, -1, 3]


@pytest.mark.parametrize("op", [*REDUCTIONS, "ArgMax", "ArgMin"])
def test_axes_are_kept_by_the_value_one_alone(op):
    """So says onnx's inference; other values are not in the specification."""
    assert run_ours(op, [sample("float32", (2, 3))], {"keepdims": 2})[0].ndim == (op.startswith("Arg"))


@pytest.mark.parametrize("op", [r for r in REDUCTIONS if r != "ReduceMean"])
def test_empty_set(op):
    x = np.zeros((2, 0, 4), np.float32)
    for keepdims in (0, 1):
        check(op, [x, np.array([1])], {"keepdims": keepdims}, 20 if op in ("ReduceMax", "ReduceMin") else 18)


def test_empty_set_of_integers_gives_the_limits():
    x = np.zeros((2, 0), np.int8)
    assert run_ours("ReduceMax", [x, np.array([1])], {"keepdims": 0})[0].tolist() == [-128, -128]
    assert run_ours("ReduceMin", [x, np.array([1])], {"keepdims": 0})[0].tolist() == [127, 127]


def test_log_sum_exp_does_not_overflow():
    x = np.array([[1000, 1000.5], [-1000, -2000], [-np.inf, -np.inf], [np.inf, 1]], np.float32)
    got = run_ours("ReduceLogSumExp", [x, np.array([1])], {"keepdims": 0})[0]
    np.testing.assert_allclose(got, [1000.974, -1000, -np.inf, np.inf], rtol=1e-6)


def test_axis_errors():
    x = np.zeros((2, 3), np.float32)
    with pytest.raises(ExecutionError, match=r"of axes is out of range; expected an axis in \[-2, 1\]; found 2"):
        run_ours("ReduceSum", [x, np.array([2])])
    with pytest.raises(ExecutionError, match="axes names an axis twice"):
        run_ours("ReduceSum", [x, np.array([0, -2])])


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_arg_of_nothing(op):
    with pytest.raises(ExecutionError, match="the reduced axis is empty"):
        run_ours(op, [np.zeros((0, 2), np.float32)])


@pytest.mark.parametrize("dtype", ["float32", "int8", "float16"])
def test_top_k_of_a_long_axis_keeps_the_order_of_equals(dtype):
    x = sample(dtype, (3, 200), 5, -4, 4)
    if dtype == "float16":
        x = np.rint(x)
    for k in (1, 7, 49):
        got = run_ours("TopK", [x, np.array([k])], {}, outputs=2)
        order = np.argsort(-x.astype(np.float64), axis=-1, kind="stable")[:, :k]
        np.testing.assert_array_equal(got[1], order)
        np.testing.assert_array_equal(got[0], np.take_along_axis(x, order, -1))


def test_top_k_puts_nan_last():
    x = np.full(40, np.nan, np.float32)
    x[[3, 30]] = 1, 2
    assert run_ours("TopK", [x, np.array([2])], outputs=2)[1].tolist() == [30, 3]
    assert run_ours("TopK", [x, np.array([3])], outputs=2)[1].tolist() == [30, 3, 0]


def test_top_k_extremes():
    x = np.array([0, 255, 1], np.uint8)
    assert run_ours("TopK", [x, np.array([2])], {"largest": 0}, outputs=2)[0].tolist() == [0, 1]
    x = np.array([-(2**63), 2**63 - 1, 0], np.int64)
    assert run_ours("TopK", [x, np.array([3])], outputs=2)[1].tolist() == [1, 2, 0]


def test_top_k_rejects_k_beyond_the_axis():
    x = np.zeros((2, 3), np.float32)
    for k, text in ((-1, "k is negative; .*found -1"), (4, "k is larger than the axis: 4 of 3")):
        with pytest.raises(ExecutionError, match=text):
            run_ours("TopK", [x, np.array([k])], outputs=2)
