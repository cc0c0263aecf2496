from __future__ import annotations

import numpy as np
import pytest

from tests.runtime_c.helpers import Weight, run_single
from tests.runtime_c.windows import conv2d, window_params

# x (NHWC), kernel, strides, dilations, pads (top, left, bottom, right)
CASES = {
    "3x3": ((1, 11, 13, 32), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    "3x3 odd channels, batch": ((2, 7, 8, 37), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    "3x3 few channels": ((1, 7, 8, 3), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    "3x3 stride 2": ((1, 15, 16, 24), (3, 3), (2, 2), (1, 1), (1, 1, 1, 1)),
    "3x3 stride 2, asymmetric": ((1, 14, 14, 20), (3, 3), (2, 2), (1, 1), (0, 0, 1, 1)),
    "3x3 without pads": ((1, 9, 10, 16), (3, 3), (1, 1), (1, 1), (0, 0, 0, 0)),
    "5x5": ((1, 12, 12, 19), (5, 5), (1, 1), (1, 1), (2, 2, 2, 2)),
    "7x7 on a small image": ((1, 4, 3, 16), (7, 7), (1, 1), (1, 1), (3, 3, 3, 3)),
    "dilated": ((1, 13, 14, 16), (3, 3), (1, 1), (2, 4), (2, 4, 2, 4)),
    "1x5": ((1, 3, 20, 8), (1, 5), (1, 2), (1, 1), (0, 2, 0, 2)),
    "window in the padding alone": ((1, 2, 2, 10), (2, 2), (3, 3), (1, 1), (4, 4, 4, 4)),
    "empty": ((1, 5, 5, 0), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
}


@pytest.mark.parametrize("case", CASES)
def test_dwconv_equals_numpy(case, isa, pool, rng):
    shape, kernel, *geometry = CASES[case]
    channels = shape[3]
    x, w = rng.standard_normal(shape, np.float32), rng.standard_normal((channels, 1, *kernel), np.float32)
    bias = rng.standard_normal(channels, np.float32)
    params = window_params(x, kernel, *geometry)
    out_shape = (shape[0], params["out_height"], params["out_width"], channels)
    expected = conv2d(x, w, *geometry, groups=channels) if channels else np.zeros(out_shape)
    residual = rng.standard_normal(out_shape, np.float32)
    params |= {"y_pixel_stride": channels, "residual_pixel_stride": channels}
    params |= {"planar": 0, "activation": 2, "activation_a": -1.0, "activation_b": 2.0}
    operands = [x, Weight(w), Weight(bias), residual]
    y = run_single("dwconv2d_f32", operands, params, ("float32", out_shape), isa, pool)
    np.testing.assert_allclose(y, np.clip(expected + bias + residual, -1, 2), rtol=1e-5, atol=2e-5)


PLANAR = {
    "3x3": ((2, 30, 70, 5), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    "narrow": ((1, 7, 9, 18), (3, 3), (2, 1), (1, 1), (1, 0, 1, 2)),
    "dilated": ((1, 13, 40, 3), (3, 2), (1, 1), (2, 5), (2, 4, 2, 4)),
    "long lines": ((1, 1, 5000, 3), (1, 31), (1, 1), (1, 1), (0, 15, 0, 15)),
    "window in the padding alone": ((1, 2, 2, 3), (2, 2), (3, 1), (1, 1), (4, 4, 4, 4)),
    "empty": ((1, 5, 5, 0), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
}


@pytest.mark.parametrize("case", PLANAR)
@pytest.mark.parametrize("activation", [0, 4])
def test_planar_images(case, activation, isa, pool, rng):
    shape, kernel, *geometry = PLANAR[case]
    channels = shape[3]
    x, w = rng.standard_normal(shape, np.float32), rng.standard_normal((channels, 1, *kernel), np.float32)
    params = window_params(x, kernel, *geometry)
    out_shape = (shape[0], channels, params["out_height"], params["out_width"])
    strides = dict.fromkeys(("y_pixel_stride", "residual_pixel_stride"), channels)
    params |= {**strides, "planar": 1, "activation": activation}
    residual = rng.standard_normal(out_shape, np.float32)
    operands = [np.ascontiguousarray(x.transpose(0, 3, 1, 2)), Weight(w), None, residual]
    y = run_single("dwconv2d_f32", operands, params, ("float32", out_shape), isa, pool)
    expected = residual
    if channels:
        expected = conv2d(x, w, *geometry, groups=channels).transpose(0, 3, 1, 2) + residual
    expected = expected if activation == 0 else 1 / (1 + np.exp(-expected))
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=2e-5)
