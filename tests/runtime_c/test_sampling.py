"""The kernels that sample images, against the numpy kernels of the operators."""

from __future__ import annotations

import numpy as np
import pytest

from tests.runtime_c.helpers import run_single, single
from tinycomp.errors import TargetError
from tinycomp.ops.detection import roi_align
from tinycomp.ops.sampling import grid_sample
from tinycomp.runtime.native.executor import NativeProgram
from tinycomp.runtime.native.library import lib

MODES = {"nearest": lib.TC_RESIZE_NEAREST, "linear": lib.TC_RESIZE_LINEAR, "cubic": lib.TC_RESIZE_CUBIC}
PADDINGS = {"zeros": lib.TC_GRID_ZEROS, "border": lib.TC_GRID_BORDER, "reflection": lib.TC_GRID_REFLECTION}


def grid_params(shape, points, mode="linear", padding="zeros", aligned=0):
    batch, *spatial, channels = shape
    depth, height, width = [*[1] * (3 - len(spatial)), *spatial]
    return {
        "batch": batch, "depth": depth, "height": height, "width": width, "channels": channels, "axes": len(spatial),
        "points": points, "mode": MODES[mode], "padding": PADDINGS[padding], "aligned": aligned,
        "x_pixel_stride": channels, "y_pixel_stride": channels,
    }  # fmt: skip


@pytest.mark.parametrize("padding", list(PADDINGS))
@pytest.mark.parametrize("mode", list(MODES))
@pytest.mark.parametrize("shape", [(2, 9, 3), (1, 5, 7, 37), (2, 6, 4, 1), (1, 3, 4, 5, 18)], ids=str)
def test_grid_sample(shape, mode, padding, isa, pool, rng):
    x, axes, points = rng.standard_normal(shape, np.float32), len(shape) - 2, 75
    places = rng.uniform(-1.3, 1.3, (shape[0], points, axes)).astype(np.float32)
    whole = places.reshape(shape[0], *[1] * (axes - 1), points, axes)
    expected = grid_sample(np.moveaxis(x, -1, 1), whole, mode=mode, padding_mode=padding)
    expected = np.moveaxis(expected, 1, -1).reshape(shape[0], points, shape[-1])
    params = grid_params(shape, points, mode, padding)
    y = run_single("grid_sample_f32", [x, places], params, ("float32", expected.shape), isa, pool)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("channels", [1, 20, 64])
def test_roi_align(channels, ratio, largest, isa, pool, rng):
    x = rng.standard_normal((2, 8, 9, channels), np.float32)
    corners = rng.uniform(-2, 20, (5, 2, 2)).astype(np.float32)
    rois = np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)
    images = np.array([0, 1, 1, 0, 1])
    expected = roi_align(
        np.moveaxis(x, -1, 1), rois, images, mode="max" if largest else "avg", output_height=3, output_width=4,
        sampling_ratio=ratio, spatial_scale=0.5,
    )  # fmt: skip
    expected = np.ascontiguousarray(np.moveaxis(expected, 1, -1))
    params = {
        "batch": 2, "height": 8, "width": 9, "channels": channels, "rois": 5, "out_height": 3, "out_width": 4,
        "ratio": ratio, "scale": 0.5, "half_pixel": 1, "largest": largest,
        "x_pixel_stride": channels, "y_pixel_stride": channels,
    }  # fmt: skip
    y = run_single("roi_align_f32", [x, rois, images], params, ("float32", expected.shape), isa, pool)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"axes": 4}, "images of 4 axes"),
        ({"axes": 1}, "a size is given of an axis that is not there"),
        ({"mode": 3}, "an unknown mode of sampling"),
        ({"padding": -1}, "an unknown padding"),
        ({"y_pixel_stride": 2}, "a pixel stride is smaller than the number of channels"),
        ({"height": 0}, "an image without pixels is sampled"),
    ],
)
def test_bad_parameters(wrong, text):
    shape = (1, 5, 7, 3)
    operands = [np.zeros(shape, np.float32), np.zeros((1, 4, 2), np.float32)]
    program, _ = single("grid_sample_f32", operands, grid_params(shape, 4) | wrong, ("float32", (1, 4, 3)))
    with pytest.raises(TargetError, match=text):
        NativeProgram(program)
