from __future__ import annotations

import numpy as np
import pytest

from tests.runtime_c.helpers import run_single
from tests.runtime_c.quantized import RESULTS, Result, activations, constants, conv2d
from tests.runtime_c.test_conv2d_f32 import CASES
from tests.runtime_c.windows import window_params
from tinycomp.errors import TargetError

MORE_CASES = {
    **CASES,
    "1x7 stride 2, few channels": ((2, 5, 20, 3), (16, 3, 1, 7), (1, 2), (1, 1), (0, 3, 0, 3), 1),
    "long lines": ((1, 5, 130, 6), (20, 6, 3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 1),
    "long lines, stride 2": ((1, 9, 131, 4), (20, 4, 3, 3), (2, 2), (1, 1), (1, 1, 1, 1), 1),
    "stride beyond the window": ((2, 9, 11, 5), (7, 5, 2, 2), (3, 3), (1, 1), (0, 0, 0, 0), 1),
    "keyword": ((1, 49, 10, 1), (64, 1, 10, 4), (2, 2), (1, 1), (4, 1, 5, 1), 1),
}
WINOGRAD_CASES = {
    "3x3": CASES["3x3"],
    "3x3 batch 3": CASES["3x3 batch 3"],
    "odd image": ((1, 7, 9, 20), (13, 20, 3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 1),
    "no padding": ((2, 8, 5, 3), (40, 3, 3, 3), (1, 1), (1, 1), (0, 0, 0, 0), 1),
    "one pixel": ((1, 1, 1, 35), (9, 35, 3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 1),
    "padding of two": ((1, 6, 6, 16), (16, 16, 3, 3), (1, 1), (1, 1), (2, 2, 2, 2), 1),
    "several blocks": ((2, 15, 20, 33), (17, 33, 3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 1),
}
SOME = ["3x3", "groups", "stem", "dilated"]


def conv_params(x, w, geometry, result):
    strides, dilations, pads, groups = geometry
    shared = window_params(x, w.shape[2:], strides, dilations, pads)
    own = {"out_channels": w.shape[0], "groups": groups, "y_pixel_stride": w.shape[0], "algorithm": 0}
    own |= result.params()
    activation = {"activation", "activation_a", "activation_b"}
    return {name: value for name, value in (shared | own).items() if name not in activation}


def convolution(case, result, rng):
    """Operands of a convolution, its exact sums, its parameters."""
    x_shape, w_shape, *geometry = {**MORE_CASES, **WINOGRAD_CASES}[case]
    x, w = activations(rng, *x_shape), result.weights(rng, *w_shape)
    bias = rng.integers(-5000, 5000, w_shape[0], np.int32)
    sums = conv2d(x.astype(np.int64) - result.x_zero_point, w, *geometry) + bias
    return x, w, bias, sums, conv_params(x, w, geometry, result)


def check_exact(kernel, case, result, isa, pool, rng):
    x, w, bias, sums, params = convolution(case, result, rng)
    factors = result.factors(rng, sums)
    operands = [x, *constants(result, w, bias, factors)]
    y = run_single(kernel, operands, params, (result.type, sums.shape), isa, pool)
    np.testing.assert_array_equal(y, result.expected(sums, factors))


@pytest.mark.parametrize(
    ("case", "result"),
    [(case, "uint8") for case in MORE_CASES] + [(case, result) for case in SOME for result in RESULTS],
)
def test_conv_is_exact(case, result, isa, pool, rng):
    check_exact("qconv2d", case, RESULTS[result], isa, pool, rng)


@pytest.mark.parametrize(
    ("kernel", "case", "result"),
    [*(("qconv2d", "3x3", result) for result in RESULTS), ("qconv2d_winograd", "odd image", "uint8")],
)
def test_conv_reads_and_writes_slices_of_channels(kernel, case, result, isa, pool, rng):
    result = RESULTS[result]
    x, w, bias, sums, params = convolution(case, result, rng)
    factors = result.factors(rng, sums)
    more = np.concatenate([x, activations(rng, *x.shape)], axis=-1)
    params |= {"x_pixel_stride": more.shape[-1], "y_pixel_stride": w.shape[0] + 7}
    shape = (*sums.shape[:-1], w.shape[0] + 7)
    operands = [more, *constants(result, w, bias, factors)]
    y = run_single(kernel, operands, params, (result.type, shape), isa, pool)
    np.testing.assert_array_equal(y[..., : w.shape[0]], result.expected(sums, factors))
    np.testing.assert_array_equal(y[..., w.shape[0] :], 77)


@pytest.mark.parametrize("block_rows", [1, 7, 96, 4096])
@pytest.mark.parametrize("case", ["1x1", "3x3 batch 3", "stem", "groups", "long lines", "dilated"])
def test_blocks_never_change_a_bit(case, block_rows, isa, pool, rng):
    result = RESULTS["uint8"]
    x, w, bias, sums, params = convolution(case, result, rng)
    factors = result.factors(rng, sums)
    operands = [x, *constants(result, w, bias, factors)]
    y = run_single("qconv2d", operands, params | {"block_rows": block_rows}, ("uint8", sums.shape), isa, pool)
    np.testing.assert_array_equal(y, result.expected(sums, factors))


@pytest.mark.parametrize(
    ("case", "result"),
    [(case, "uint8") for case in WINOGRAD_CASES]
    + [("odd image", result) for result in RESULTS if RESULTS[result].weight_type == "int8"],
)
def test_winograd_is_exact(case, result, isa, pool, rng):
    check_exact("qconv2d_winograd", case, RESULTS[result], isa, pool, rng)


@pytest.mark.parametrize("sign", [-1, 1])
def test_winograd_is_exact_at_the_extremes(sign, isa, pool):
    """The greatest sums that any data bring about, with as many channels as the kernel takes."""
    result = Result(type="int32", x_zero_point=0)
    x = np.full((1, 3, 3, 1827), 255, np.uint8)
    w = np.full((2, 1827, 3, 3), -128 if sign < 0 else 127, np.int8)
    geometry = (1, 1), (1, 1), (1, 1, 1, 1), 1
    bias = np.zeros(2, np.int32)
    sums = conv2d(x.astype(np.int64), w, *geometry)
    operands = [x, *constants(result, w, bias, result.factors(np.random.default_rng(0), sums))]
    params = conv_params(x, w, geometry, result)
    y = run_single("qconv2d_winograd", operands, params, ("int32", sums.shape), isa, pool)
    np.testing.assert_array_equal(y, sums)


@pytest.mark.parametrize("block_rows", [1, 7, 4096])
def test_winograd_blocks_never_change_a_bit(block_rows, isa, pool, rng):
    result = RESULTS["uint8"]
    x, w, bias, sums, params = convolution("several blocks", result, rng)
    factors = result.factors(rng, sums)
    operands = [x, *constants(result, w, bias, factors)]
    params |= {"block_rows": block_rows}
    y = run_single("qconv2d_winograd", operands, params, ("uint8", sums.shape), isa, pool)
    np.testing.assert_array_equal(y, result.expected(sums, factors))


@pytest.mark.parametrize(
    ("kernel", "wrong", "message"),
    [
        ("qconv2d", {"algorithm": 3}, "there is no algorithm 3 here"),
        ("qconv2d_winograd", {"algorithm": 1}, "there is no algorithm 1 here"),
        ("qconv2d_winograd", {"stride_width": 2}, "only 3x3 windows of stride and dilation 1 in one group"),
        ("qconv2d_winograd", {"dilation_height": 2}, "only 3x3 windows of stride and dilation 1 in one group"),
        ("qconv2d_winograd", {"weight_type": 6}, "only int8 weights and up to 1827 channels"),
    ],
)
def test_what_an_algorithm_cannot_compute_is_refused(kernel, wrong, message, rng):
    result = RESULTS["uint8"]
    x, w, bias, sums, params = convolution("3x3", result, rng)
    operands = [x, *constants(result, w, bias, result.factors(rng, sums))]
    with pytest.raises(TargetError, match=message):
        run_single(kernel, operands, params | wrong, (result.type, sums.shape), "scalar")
