from __future__ import annotations

import numpy as np
import pytest

from tests.runtime_c.helpers import run_single
from tests.runtime_c.quantized import activations
from tests.runtime_c.windows import window_params
from tinycomp.errors import TargetError

# x (NHWC), kernel, strides, dilations, pads (top, left, bottom, right)
CASES = {
    "3x3 stride 2": ((1, 15, 16, 64), (3, 3), (2, 2), (1, 1), (1, 1, 1, 1)),
    "2x2": ((2, 8, 9, 70), (2, 2), (2, 2), (1, 1), (0, 0, 0, 1)),
    "global": ((2, 7, 7, 150), (7, 7), (1, 1), (1, 1), (0, 0, 0, 0)),
    "5x5, few channels": ((1, 12, 12, 3), (5, 5), (1, 1), (1, 1), (2, 2, 2, 2)),
    "dilated": ((1, 13, 14, 16), (3, 3), (1, 1), (2, 4), (2, 4, 2, 4)),
    "window in the padding alone": ((1, 2, 2, 10), (2, 2), (3, 3), (1, 1), (4, 4, 4, 4)),
    "empty": ((0, 5, 5, 8), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
}


def windows(x, kernel, strides, dilations, pads):
    """The windows of an array padded with -1 (int64): [batch, out_height, out_width, channels, positions]."""
    top, left, bottom, right = pads
    padded = np.pad(x.astype(np.int64), ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=-1)
    reach = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]
    view = np.lib.stride_tricks.sliding_window_view(padded, reach, (1, 2))[:, :: strides[0], :: strides[1]]
    view = view[..., :: dilations[0], :: dilations[1]]
    return view.reshape(*view.shape[:4], kernel[0] * kernel[1])


def pool_params(x, geometry):
    given = window_params(x, *geometry)
    for name in ("activation", "activation_a", "activation_b"):
        del given[name]
    return given | {"y_pixel_stride": x.shape[3]}


@pytest.mark.parametrize("case", CASES)
def test_maximum(case, isa, pool, rng):
    shape, *geometry = CASES[case]
    x = activations(rng, *shape)
    expected = windows(x, *geometry).max(-1, initial=0)
    y = run_single("qmaxpool2d", [x], pool_params(x, geometry), ("uint8", expected.shape), isa, pool)
    np.testing.assert_array_equal(y, expected)


def test_slices_of_channels(isa, pool, rng):
    shape, *geometry = CASES["2x2"]
    more = activations(rng, *shape[:3], 90)
    x = more[..., :70]
    whole = run_single("qmaxpool2d", [x], pool_params(x, geometry), ("uint8", (2, 4, 5, 70)), isa, pool)
    params = pool_params(x, geometry) | {"x_pixel_stride": 90, "y_pixel_stride": 75}
    y = run_single("qmaxpool2d", [more], params, ("uint8", (2, 4, 5, 75)), isa, pool)
    np.testing.assert_array_equal(y[..., :70], whole)
    np.testing.assert_array_equal(y[..., 70:], 77)


@pytest.mark.parametrize("stride", ["x_pixel_stride", "y_pixel_stride"])
def test_pixels_that_overlap_are_refused(stride, rng):
    shape, *geometry = CASES["2x2"]
    x = activations(rng, *shape)
    with pytest.raises(TargetError, match="a pixel stride is smaller than the number of channels"):
        run_single("qmaxpool2d", [x], pool_params(x, geometry) | {stride: 69}, ("uint8", (2, 4, 5, 70)), "scalar")
