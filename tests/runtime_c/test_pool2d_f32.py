from __future__ import annotations

import numpy as np
import pytest

from tests.runtime_c.helpers import run_single, single
from tests.runtime_c.windows import window_params
from tinycomp.errors import TargetError
from tinycomp.runtime.native.executor import NativeProgram

# x (NHWC), kernel, strides, dilations, pads (top, left, bottom, right), more output lines and columns (ceil mode)
CASES = {
    "3x3 stride 2": ((1, 15, 16, 64), (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), 0),
    "2x2, odd channels, batch": ((2, 8, 7, 37), (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), 0),
    "few channels": ((1, 9, 8, 3), (3, 2), (1, 2), (1, 1), (1, 0, 0, 1), 0),
    "many channels": ((1, 5, 6, 150), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 0),
    "dilated": ((1, 13, 14, 20), (3, 3), (1, 1), (2, 3), (2, 3, 2, 3), 0),
    "ceil mode": ((1, 8, 8, 17), (3, 3), (2, 2), (1, 1), (0, 0, 0, 0), 1),
    "ceil mode with pads": ((1, 8, 8, 17), (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), 1),
    "whole image": ((2, 7, 9, 200), (7, 9), (1, 1), (1, 1), (0, 0, 0, 0), 0),
    "whole image, long": ((1, 60, 61, 5), (60, 61), (1, 1), (1, 1), (0, 0, 0, 0), 0),
    "planes": ((3, 15, 70, 1), (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), 0),
    "planes, pairs": ((3, 14, 77, 1), (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), 0),
    "planes, ceil mode": ((2, 8, 36, 1), (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), 1),
    "planes, dilated, uneven pads": ((2, 9, 20, 1), (2, 4), (1, 3), (2, 2), (0, 5, 1, 2), 0),
    "planes of one line": ((3, 1, 40, 1), (2, 2), (1, 1), (1, 1), (1, 1, 1, 1), 0),
    "one window per plane": ((3, 7, 21, 1), (7, 21), (1, 1), (1, 1), (0, 0, 0, 0), 0),
    "empty": ((1, 7, 9, 0), (2, 2), (1, 1), (1, 1), (0, 0, 0, 0), 0),
}


def pool_params(case, mode):
    shape, kernel, strides, dilations, pads, more = CASES[case]
    params = window_params(np.empty(shape, np.float32), kernel, strides, dilations, pads)
    params = {name: value for name, value in params.items() if "activation" not in name}
    params["out_height"] += more
    params["out_width"] += more
    return params | {"mode": mode, "pad_bottom": pads[2], "pad_right": pads[3], "y_pixel_stride": shape[3]}


def windows(x, p):
    """Yield every output position with its window: NaN marks the padding, what is beyond it is left out."""
    pads = ((0, 0), (p["pad_top"], p["pad_bottom"]), (p["pad_left"], p["pad_right"]), (0, 0))
    padded = np.pad(x.astype(np.float64), pads, constant_values=np.nan)
    for i in range(p["out_height"]):
        for j in range(p["out_width"]):
            top, left = i * p["stride_height"], j * p["stride_width"]
            rows = slice(top, top + (p["kernel_height"] - 1) * p["dilation_height"] + 1, p["dilation_height"])
            columns = slice(left, left + (p["kernel_width"] - 1) * p["dilation_width"] + 1, p["dilation_width"])
            window = padded[:, rows, columns]
            yield i, j, window.reshape(x.shape[0], window.shape[1] * window.shape[2], x.shape[3])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("mode", [0, 1, 2], ids=["max", "average", "with pads"])
def test_pool_equals_numpy(case, mode, isa, pool, rng):
    x, p = rng.standard_normal(CASES[case][0], np.float32), pool_params(case, mode)
    shape = (x.shape[0], p["out_height"], p["out_width"], x.shape[3])
    expected = np.empty(shape)
    for i, j, window in windows(x, p):
        count = window.shape[1] if mode == 2 else np.isfinite(window).sum(axis=1)
        expected[:, i, j] = np.nanmax(window, axis=1) if mode == 0 else np.nansum(window, axis=1) / count
    y = run_single("pool2d_f32", [x], p, ("float32", shape), isa, pool)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6)


def test_maximum_keeps_nan(isa):
    x = np.arange(4 * 4 * 19, dtype=np.float32).reshape(1, 4, 4, 19)
    x[0, 0, 1, ::2] = np.nan
    p = pool_params("whole image", 0) | {"batch": 1, "height": 4, "width": 4, "channels": 19, "y_pixel_stride": 19}
    p |= {"kernel_height": 4, "kernel_width": 4, "x_pixel_stride": 19}
    y = run_single("pool2d_f32", [x], p, ("float32", (1, 1, 1, 19)), isa)
    np.testing.assert_array_equal(y[0, 0, 0], x.max(axis=(0, 1, 2)))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"mode": 3}, "there is no pooling mode 3"),
        ({"kernel_height": 0}, "a kernel size, stride or dilation of 0"),
        ({"pad_bottom": -1}, "a pad is out of range"),
        ({"x_pixel_stride": 3}, "a pixel stride is smaller"),
    ],
)
def test_bad_parameters(changes, text):
    p = pool_params("2x2, odd channels, batch", 0) | changes
    program, _ = single("pool2d_f32", [np.zeros((2, 8, 7, 37), np.float32)], p, ("float32", (2, 4, 3, 37)))
    with pytest.raises(TargetError, match=text):
        NativeProgram(program)
