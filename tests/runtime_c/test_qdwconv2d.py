from __future__ import annotations

import numpy as np
import pytest

from tests.runtime_c.helpers import run_single
from tests.runtime_c.quantized import RESULTS, activations, constants, conv2d
from tests.runtime_c.windows import window_params

# x (NHWC), kernel, strides, dilations, pads (top, left, bottom, right)
CASES = {
    "3x3": ((1, 9, 17, 20), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    "3x3 batch 2, few pixels": ((2, 5, 3, 16), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    "3x3 width 6": ((1, 4, 6, 33), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    "3x3 stride 2, asymmetric": ((1, 14, 15, 40), (3, 3), (2, 2), (1, 1), (0, 0, 1, 1)),
    "5x5": ((1, 11, 19, 9), (5, 5), (1, 1), (1, 1), (2, 2, 2, 2)),
    "5x5 stride 2": ((1, 14, 23, 24), (5, 5), (2, 2), (1, 1), (1, 1, 2, 2)),
    "one channel": ((1, 12, 12, 1), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    "1x3": ((1, 6, 21, 12), (1, 3), (1, 2), (1, 1), (0, 1, 0, 1)),
    "4x2 dilated": ((1, 13, 12, 18), (4, 2), (1, 1), (2, 3), (3, 1, 3, 1)),
    "stride beyond the window": ((1, 13, 12, 8), (2, 2), (3, 3), (1, 1), (0, 0, 0, 0)),
    "window larger than image": ((1, 2, 2, 10), (5, 5), (1, 1), (1, 1), (2, 2, 2, 2)),
    "no pixels": ((0, 5, 5, 3), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
    "no channels": ((1, 5, 5, 0), (3, 3), (1, 1), (1, 1), (1, 1, 1, 1)),
}
SOME = ["3x3", "5x5 stride 2", "4x2 dilated"]


def depthwise(case, result, rng):
    """Operands of a depthwise convolution, its exact sums, its parameters."""
    x_shape, kernel, strides, dilations, pads = CASES[case]
    channels = x_shape[-1]
    x, w = activations(rng, *x_shape), result.weights(rng, channels, 1, *kernel)
    bias = rng.integers(-5000, 5000, channels, np.int32)
    wide = x.astype(np.int64) - result.x_zero_point
    sums = conv2d(wide, w, strides, dilations, pads, channels) + bias if channels else np.zeros((1, 5, 5, 0), np.int64)
    params = window_params(x, kernel, strides, dilations, pads) | {"y_pixel_stride": channels} | result.params()
    for name in ("activation", "activation_a", "activation_b", "block_rows"):
        del params[name]
    return x, w, bias, sums, params


@pytest.mark.parametrize(
    ("case", "result"),
    [(case, "uint8") for case in CASES] + [(case, result) for case in SOME for result in RESULTS],
)
def test_depthwise_is_exact(case, result, isa, pool, rng):
    result = RESULTS[result]
    x, w, bias, sums, params = depthwise(case, result, rng)
    factors = result.factors(rng, sums)
    operands = [x, *constants(result, w, bias, factors)]
    y = run_single("qdwconv2d", operands, params, (result.type, sums.shape), isa, pool)
    np.testing.assert_array_equal(y, result.expected(sums, factors))


@pytest.mark.parametrize("result", RESULTS)
def test_depthwise_reads_and_writes_slices_of_channels(result, isa, pool, rng):
    result = RESULTS[result]
    x, w, bias, sums, params = depthwise("3x3", result, rng)
    factors = result.factors(rng, sums - bias)
    more = np.concatenate([x, activations(rng, *x.shape)], axis=-1)
    params |= {"x_pixel_stride": more.shape[-1], "y_pixel_stride": w.shape[0] + 7}
    shape = (*sums.shape[:-1], w.shape[0] + 7)
    operands = [more, *constants(result, w, None, factors)]
    y = run_single("qdwconv2d", operands, params, (result.type, shape), isa, pool)
    np.testing.assert_array_equal(y[..., : w.shape[0]], result.expected(sums - bias, factors))
    np.testing.assert_array_equal(y[..., w.shape[0] :], 77)
