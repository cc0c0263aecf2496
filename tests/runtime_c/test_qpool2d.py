from __future__ import annotations

import numpy as np
import pytest

from tests.runtime_c.helpers import run_single
from tests.runtime_c.quantised import FIXED_POINT, FLOAT, activations, by_fixed_point
from tests.runtime_c.windows import window_params
from tinycomp.errors import TargetError

MAX, AVERAGE, WITH_PADS = 0, 1, 2
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
X_ZERO, Y_ZERO, LOW, HIGH = 9, 120, 20, 230


def windows(x, kernel, strides, dilations, pads):
    """The windows of an array padded with -1 (int64): [batch, out_height, out_width, channels, positions]."""
    top, left, bottom, right = pads
    padded = np.pad(x.astype(np.int64), ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=-1)
    reach = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]
    view = np.lib.stride_tricks.sliding_window_view(padded, reach, (1, 2))[:, :: strides[0], :: strides[1]]
    view = view[..., :: dilations[0], :: dilations[1]]
    return view.reshape(*view.shape[:4], kernel[0] * kernel[1])


def pool_params(x, geometry, mode, **own):
    given = window_params(x, *geometry)
    for name in ("activation", "activation_a", "activation_b"):
        del given[name]
    given |= {"pad_bottom": geometry[3][2], "pad_right": geometry[3][3], "mode": mode, "y_pixel_stride": x.shape[3]}
    given |= {"x_zero_point": X_ZERO, "y_zero_point": Y_ZERO, "low": LOW, "high": HIGH}
    return given | {"rule": FLOAT, "multiplier": 0, "shift": 0, "divide": 0, "factor": 1.0} | own


@pytest.mark.parametrize("case", CASES)
def test_maximum(case, isa, pool, rng):
    shape, *geometry = CASES[case]
    x = activations(rng, *shape)
    expected = np.clip(windows(x, *geometry).max(-1, initial=-1), LOW, HIGH)
    y = run_single("qpool2d", [x], pool_params(x, geometry, MAX), ("uint8", expected.shape), isa, pool)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("divide", [0, 1])
@pytest.mark.parametrize("mode", [AVERAGE, WITH_PADS])
@pytest.mark.parametrize("case", CASES)
def test_average(case, mode, divide, isa, pool, rng):
    shape, *geometry = CASES[case]
    x = activations(rng, *shape)
    seen = windows(x, *geometry)
    inside = seen >= 0
    sums = np.where(inside, seen - X_ZERO, 0).sum(-1)
    count = np.full(sums.shape, seen.shape[-1]) if mode == WITH_PADS else inside.sum(-1)
    factor = np.float32(1.0 if divide else 1.7 / seen.shape[-1])
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled = sums.astype(np.float32) * (factor / count.astype(np.float32) if divide else factor)
    expected = np.clip(np.rint(scaled) + Y_ZERO, LOW, HIGH)
    expected[np.isnan(scaled)] = LOW
    params = pool_params(x, geometry, mode, divide=divide, factor=float(factor))
    y = run_single("qpool2d", [x], params, ("uint8", sums.shape), isa, pool)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("shift", [-5, 1])
def test_average_in_fixed_point(shift, isa, pool, rng):
    shape, *geometry = CASES["global"]
    x = activations(rng, *shape)
    sums = (x.astype(np.int64) - X_ZERO).sum((1, 2), keepdims=True)
    multiplier = 1_403_000_000 if shift < 0 else 20_000_000
    scaled = by_fixed_point(sums, np.array(multiplier), np.array(shift))
    params = pool_params(x, geometry, AVERAGE, rule=FIXED_POINT, multiplier=multiplier, shift=shift)
    y = run_single("qpool2d", [x], params, ("uint8", sums.shape), isa, pool)
    np.testing.assert_array_equal(y, np.clip(scaled + Y_ZERO, LOW, HIGH))


@pytest.mark.parametrize("mode", [MAX, AVERAGE])
def test_slices_of_channels(mode, isa, pool, rng):
    shape, *geometry = CASES["2x2"]
    more = activations(rng, *shape[:3], 90)
    x = more[..., :70]
    whole = run_single("qpool2d", [x], pool_params(x, geometry, mode, factor=0.25), ("uint8", (2, 4, 5, 70)), isa, pool)
    params = pool_params(x, geometry, mode, factor=0.25) | {"x_pixel_stride": 90, "y_pixel_stride": 75}
    y = run_single("qpool2d", [more], params, ("uint8", (2, 4, 5, 75)), isa, pool)
    np.testing.assert_array_equal(y[..., :70], whole)
    np.testing.assert_array_equal(y[..., 70:], 77)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"mode": 3}, "there is no pooling mode 3"),
        ({"divide": 1, "rule": 1}, "divide must be 0, or 1 with the float rule"),
        ({"multiplier": -1}, "a fixed-point factor is out of range"),
        ({"kernel_height": 1 << 12, "kernel_width": 1 << 12}, "do not fit 32 bits"),
        ({"low": 10, "high": 9}, "the bounds 10 and 9 are out of range"),
    ],
    ids=str,
)
def test_impossible_parameters_are_refused(wrong, message, rng):
    shape, *geometry = CASES["2x2"]
    x = activations(rng, *shape)
    with pytest.raises(TargetError, match=message):
        run_single("qpool2d", [x], pool_params(x, geometry, AVERAGE) | wrong, ("uint8", (2, 4, 5, 70)), "scalar")
