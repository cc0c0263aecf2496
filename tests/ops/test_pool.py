"""Pooling against onnxruntime and onnx.reference, and that inferred sizes are those that the kernels give."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import tinycomp
from tests.cases.case import make_model
from tests.cases.pool import POOLS
from tests.ops.harness import check, run_ours, sample
from tinycomp.errors import ExecutionError


@pytest.mark.parametrize(("shape", "attrs"), POOLS, ids=str)
@pytest.mark.parametrize("storage_order", [0, 1])
def test_places_of_maxima(shape, attrs, storage_order):
    attrs = {**attrs, "storage_order": storage_order}
    check("MaxPool", [sample("float32", shape)], attrs, 12, 2, against=("onnxruntime",))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "uint8"])
@pytest.mark.parametrize("outputs", [1, 2])
def test_max_pool_dtypes(dtype, outputs):
    x = sample(dtype, (2, 3, 7, 7), low=-100, high=-1 if "uint" not in dtype else 100)
    attrs = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}
    check("MaxPool", [x], attrs, 22, outputs)


def test_max_pool_takes_the_first_of_equal_maxima():
    x = np.zeros((1, 1, 6, 6), np.float32)
    check("MaxPool", [x], {"kernel_shape": [3, 3], "strides": [2, 2]}, 12, 2, against=("onnxruntime",))


@pytest.mark.parametrize("count_include_pad", [0, 1])
@pytest.mark.parametrize(
    ("size", "kernel", "stride", "pads", "want"),
    [
        # One window over everything, more kernel than input: only real cells (and asked-for pads) count.
        (2, 3, 2, [0, 0], ([1.5], [1.5])),
        (2, 5, 4, [1, 1], ([1.5], [3 / 4])),
        (3, 4, 2, [0, 0], ([2.0], [2.0])),
        (4, 3, 3, [0, 0], ([2.0, 4.0], [2.0, 4.0])),
        (4, 3, 3, [0, 1], ([2.0, 4.0], [2.0, 2.0])),
    ],
)
def test_average_pool_with_ceil_mode_counts_by_the_specification(count_include_pad, size, kernel, stride, pads, want):
    x = np.arange(1, size + 1, dtype=np.float32).reshape(1, 1, size)
    attrs = {
        "kernel_shape": [kernel], "strides": [stride], "pads": pads, "ceil_mode": 1,
        "count_include_pad": count_include_pad,
    }  # fmt: skip
    (got,) = run_ours("AveragePool", [x], attrs, 22)
    np.testing.assert_allclose(got[0, 0], want[count_include_pad], rtol=1e-6)


def test_a_dilated_window_between_the_cells_has_mean_zero():
    attrs = {"kernel_shape": [2], "dilations": [3], "pads": [1, 1]}
    check("AveragePool", [np.ones((1, 1, 2), np.float32)], attrs, 19, against=("onnxruntime",))


@pytest.mark.parametrize("outputs", [1, 2])
def test_max_pool_keeps_nan(outputs):
    x = np.array([[[1, np.nan, 3, np.nan, np.nan]]], np.float32)
    got = run_ours("MaxPool", [x], {"kernel_shape": [2]}, 12, outputs)
    np.testing.assert_array_equal(got[0], [[[np.nan, np.nan, np.nan, np.nan]]])
    if outputs == 2:
        assert got[1].tolist() == [[[1, 1, 3, 3]]]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("op", ["AveragePool", "LpPool"])
def test_float_pool_dtypes(op, dtype):
    attrs = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [2, 2]}
    check(op, [sample(dtype, (2, 3, 7, 7))], attrs, 22)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool"])
def test_global_pools(op, dtype):
    check(op, [sample(dtype, (2, 3, 4, 5))], {}, 22)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER"])
def test_same_padding_with_a_stride_above_the_kernel_pads_nothing(op, auto_pad):
    x = np.arange(9, dtype=np.float32).reshape(1, 1, 9)
    (got,) = run_ours(op, [x], {"kernel_shape": [2], "strides": [3], "auto_pad": auto_pad})
    assert got.ravel().tolist() == ([1, 4, 7] if op == "MaxPool" else [0.5, 3.5, 6.5])


@pytest.mark.parametrize("attrs", [{"strides": [1, 1]}, {"strides": [2, 2]}])
def test_max_unpool_inverts_max_pool(attrs):
    attrs = {"kernel_shape": [2, 2], **attrs}
    x = np.random.default_rng(0).permutation(2 * 3 * 6 * 6).reshape(2, 3, 6, 6).astype(np.float32) + 1
    y, indices = run_ours("MaxPool", [x], attrs, 12, 2)
    (back,) = run_ours("MaxUnpool", [y, indices, np.array(x.shape)], attrs, 11)
    assert back.shape == x.shape
    np.testing.assert_array_equal(back.reshape(-1)[indices], y)
    assert np.count_nonzero(back) == len(np.unique(indices))


def test_max_unpool_against_onnxruntime():
    x, indices = np.array([[[[1, 2], [3, 4]]]], np.float32), np.array([[[[5, 7], [13, 15]]]])
    attrs = {"kernel_shape": [2, 2], "strides": [2, 2]}
    check("MaxUnpool", [x, indices], attrs, 11, against=("onnxruntime",))
    with pytest.raises(ExecutionError, match=r"MaxUnpool: index out of bounds; expected indices in \[0, 15\]"):
        run_ours("MaxUnpool", [x, indices + 1], attrs, 11)
    with pytest.raises(ExecutionError, match="output_shape is too small"):
        run_ours("MaxUnpool", [x, indices, np.array([1, 1, 2, 2])], attrs, 11)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 20])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_lrn(size, dtype):
    # onnx.reference takes the batch for the channels, so both have one size here.
    x = sample(dtype, (7, 7, 3, 4))
    attrs = {"size": size, "alpha": 0.05, "beta": 0.6, "bias": 1.5}
    check("LRN", [x], attrs, 13, against=("reference", "onnxruntime") if size % 2 else ("reference",))


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize(
    ("attrs", "text"),
    [
        ({"kernel_shape": [3, 3], "strides": [0, 1]}, "attribute strides is out of range; expected entries >= 1"),
        ({"kernel_shape": [3]}, "attribute kernel_shape has the wrong length; expected 2 entries"),
        ({"kernel_shape": [0, 3]}, "attribute kernel_shape is out of range"),
        ({"kernel_shape": [7, 3]}, "the output would be empty"),
        ({"kernel_shape": [3, 3], "auto_pad": "SAME"}, "unknown auto_pad"),
        (
            {"kernel_shape": [2, 2], "pads": [0, 2, 0, 0]},
            r"a window would see only padding; .*\[2, 2\]; found \[0, 2, 0, 0\]",
        ),
    ],
)
def test_errors(op, attrs, text):
    with pytest.raises(ExecutionError, match=text):
        run_ours(op, [sample("float32", (1, 2, 5, 5))], attrs)
    with pytest.raises(ExecutionError, match="the input has too few dimensions; expected at least 3"):
        run_ours(op, [sample("float32", (2, 5))], {"kernel_shape": []})


def pool_model(op: str, shape: tuple[Any, ...], **attrs: object) -> onnx.ModelProto:
    node = helper.make_node(op, ["x"], ["y"], **attrs)
    return make_model([node], {"x": np.zeros((), np.float32)}, {}, ["y"], 19, {"x": shape})


def test_no_count_of_an_open_size_is_negative() -> None:
    module = tinycomp.compile(pool_model("AveragePool", (1, 1, "l"), kernel_shape=[4], strides=[2]))
    assert "-" not in str(module.report().regions)
