"""Resize and Upsample against onnxruntime and onnx.reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import tinycomp
from tests.cases.case import make_model
from tests.ops.harness import check, run_ours, sample
from tinycomp.errors import ExecutionError, ModelError
from tinycomp.symbolic import evaluate, parse

SHAPE = (1, 2, 6, 5)
ORT = ("onnxruntime",)
TRANSFORMS = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
TARGETS = {
    "up": {"scales": (1, 1, 2, 3)},
    "up_by_sizes": {"sizes": (1, 2, 11, 7)},
    "down": {"scales": (1, 1, 0.5, 0.6)},
    "down_by_sizes": {"sizes": (1, 2, 3, 2)},
    "mixed": {"sizes": (1, 2, 13, 3)},
    "to_one": {"sizes": (1, 2, 1, 1)},
}


def operands(x, target, roi=None):
    """Return X, roi, scales, sizes."""
    scales, sizes = target.get("scales"), target.get("sizes")
    return [
        x,
        None if roi is None else np.array(roi, np.float32),
        None if scales is None else np.array(scales, np.float32),
        None if sizes is None else np.array(sizes, np.int64),
    ]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("transform", [*TRANSFORMS, "half_pixel_symmetric"])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("antialias", [0, 1])
def test_interpolation(target, transform, mode, antialias):
    attrs = {"mode": mode, "coordinate_transformation_mode": transform, "antialias": antialias}
    check("Resize", operands(sample("float32", SHAPE), TARGETS[target]), attrs, 19, against=ORT, atol=1e-4)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("target", ["up", "down", "mixed"])
@pytest.mark.parametrize("antialias", [0, 1])
def test_exclude_outside(mode, target, antialias):
    attrs = {"mode": mode, "exclude_outside": 1, "antialias": antialias}
    check("Resize", operands(sample("float32", SHAPE), TARGETS[target]), attrs, 18, against=("reference",), atol=1e-4)


def test_cubic_coefficient():
    attrs = {"mode": "cubic", "cubic_coeff_a": -0.5}
    check("Resize", operands(sample("float32", SHAPE), TARGETS["mixed"]), attrs, 13, atol=1e-4)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("roi", [(0, 0, 0.2, 0.1, 1, 1, 0.7, 0.9), (0, 0, -0.5, 0.3, 1, 1, 1.2, 0.8)])
@pytest.mark.parametrize("sizes", [(1, 2, 4, 3), (1, 2, 9, 1)])
def test_crop_and_resize(mode, roi, sizes):
    attrs = {
        "mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 9.5,
    }  # fmt: skip
    x = operands(sample("float32", SHAPE), {"sizes": sizes}, roi)
    check("Resize", x, attrs, 13, against=ORT, atol=1e-4)


@pytest.mark.parametrize("axes", [[2, 3], [3, 2], [-1], [3]])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_axes(axes, mode):
    scales = (2.0, 0.5)[: len(axes)]
    attrs = {"axes": axes, "mode": mode}
    check("Resize", operands(sample("float32", SHAPE), {"scales": scales}), attrs, 18, atol=1e-4)


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float64", "uint8", "int8", "int32", "int64", "bool", "string"]
)
def test_nearest_dtypes(dtype):
    x = sample(dtype, (1, 1, 3, 4))
    (y,) = run_ours("Resize", operands(x, {"scales": (1, 1, 2, 2)}))
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y, x.repeat(2, axis=2).repeat(2, axis=3))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_interpolation_dtypes(dtype, mode):
    x = sample(dtype, SHAPE)
    (got,) = run_ours("Resize", operands(x, TARGETS["mixed"]), {"mode": mode})
    (want,) = run_ours("Resize", operands(x.astype(np.float32), TARGETS["mixed"]), {"mode": mode})
    assert got.dtype == x.dtype
    np.testing.assert_allclose(got.astype(np.float32), want, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32"])
def test_linear_of_integers(dtype):
    x = sample(dtype, SHAPE, low=-100, high=100)
    check("Resize", operands(x, {"scales": (1, 1, 2, 2)}), {"mode": "linear"}, 13, against=("reference",))


def test_rounding_ignores_noise():
    x = np.array([[[[10, 20]]]], np.uint8)
    attrs = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    (y,) = run_ours("Resize", operands(x, {"sizes": (1, 1, 1, 11)}), attrs)
    assert y.ravel().tolist() == list(range(10, 21))


@pytest.mark.parametrize("antialias", [0, 1])
def test_cubic_overshoot_of_integers_saturates(antialias):
    x = np.array([[[[0, 0, 255, 255]]]], np.uint8)
    attrs = {"mode": "cubic", "antialias": antialias}
    (y,) = run_ours("Resize", operands(x, {"sizes": (1, 1, 1, 16)}), attrs)
    assert y[0, 0, 0].tolist() == sorted(y[0, 0, 0].tolist())


def test_empty_tensors_count_as_absent():
    x, empty = sample("float32", SHAPE), np.zeros(0, np.float32)
    (y,) = run_ours("Resize", [x, empty, empty, np.array((1, 2, 3, 3))], {}, 11)
    assert y.shape == (1, 2, 3, 3)


def test_zero_batch_and_identity():
    assert run_ours("Resize", operands(np.zeros((0, 2, 3, 4)), {"scales": (1, 1, 2, 2)}))[0].shape == (0, 2, 6, 8)
    x = sample("float32", SHAPE)
    (y,) = run_ours("Resize", operands(x, {"scales": (1, 1, 1, 1)}), {"mode": "linear"})
    np.testing.assert_array_equal(x, y)
    assert not np.shares_memory(x, y)


@pytest.mark.parametrize(
    ("target", "attrs", "text"),
    [
        ({}, {}, "the output size is not determined; expected either scales or sizes; found neither"),
        ({"scales": (1, 1, 2, 2), "sizes": (1, 2, 3, 3)}, {}, "not determined; .*; found both"),
        ({"scales": (1, 1, 2)}, {}, "scales has the wrong size; expected 4; found 3"),
        ({"scales": (1, 1, 0, 2)}, {}, "a scale is not positive"),
        ({"scales": (1, 1, -1, 2)}, {}, "a scale is not positive"),
        ({"scales": (1, 1, np.nan, 2)}, {}, "a scale is not positive"),
        ({"scales": (1, 1, 1e38, 2)}, {}, "the result is too large"),
        ({"sizes": (1, 2, 3)}, {}, "sizes has the wrong size; expected 4; found 3"),
        ({"sizes": (1, 2, 3, -3)}, {}, "a size is negative; expected at least 0; found -3"),
        ({"sizes": (1, 2, 3, 3)}, {"mode": "lanczos"}, "unknown mode; expected one of .*; found 'lanczos'"),
        ({"sizes": (1, 2, 3, 3)}, {"nearest_mode": "up"}, "unknown nearest_mode"),
        ({"sizes": (1, 2, 3, 3)}, {"coordinate_transformation_mode": "x"}, "unknown coordinate_transformation_mode"),
        ({"sizes": (3, 3)}, {"axes": [2, 2]}, "axes names an axis twice"),
    ],
)
def test_errors(target, attrs, text):
    with pytest.raises(ExecutionError, match=text):
        run_ours("Resize", operands(sample("float32", SHAPE), target), attrs)


def _scaled(sizes: tuple[Any, ...], scale: float) -> onnx.ModelProto:
    node = helper.make_node("Resize", ["x", "", "s"], ["y"], mode="nearest")
    scales = {"s": np.array([1, 1, scale], np.float32)}
    return make_model([node], {"x": np.zeros((), np.float32)}, scales, ["y"], 18, {"x": sizes})


@pytest.mark.parametrize("scale", [0.7, 1 / 3, 2.3, 0.5, 1.3, 0.71, 1.414, 0.4142, 3.14159, 1e-5, 1e-30, 100.3])
def test_an_open_size_times_a_scale_is_the_product_in_float32(scale: float) -> None:
    module = tinycomp.compile(_scaled((1, 1, "n"), scale), "c")
    length = parse(str((module.outputs[0].shape or ())[2]))
    for n in (*range(200), *range(997, 65537, 997), 65536):
        assert evaluate(length, {"n": n}) == int(np.float32(n) * np.float32(scale)), n


@pytest.mark.parametrize("transform", ["half_pixel", "asymmetric", "align_corners"])
@pytest.mark.parametrize("nearest", ["floor", "ceil", "round_prefer_ceil"])
def test_every_ratio_of_small_sizes_picks_the_cells_of_onnxruntime(transform, nearest):
    """Ties and whole numbers depend on the last bit of a coordinate."""
    attrs = {"coordinate_transformation_mode": transform, "nearest_mode": nearest}
    for size in range(2, 10):
        x = np.arange(size, dtype=np.float32).reshape(1, 1, 1, size)
        for output in (*range(1, 11), 14, 21):
            check("Resize", operands(x, {"sizes": (1, 1, 1, output)}), attrs, 19, against=ORT)


def test_strings_cannot_be_interpolated():
    with pytest.raises(ModelError, match="only numbers can be interpolated"):
        run_ours("Resize", operands(sample("string", SHAPE), TARGETS["up"]), {"mode": "linear"})
