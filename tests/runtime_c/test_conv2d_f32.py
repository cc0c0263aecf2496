from __future__ import annotations

import numpy as np
import pytest

from tests.runtime_c.helpers import OWN_BLOCKS, Weight, run_single
from tests.runtime_c.test_gemm_bf16_f32 import rounded
from tests.runtime_c.windows import conv2d, window_params
from tinycomp.errors import TargetError

# x (NHWC), w (OIHW), strides, dilations, pads (top, left, bottom, right), groups
CASES = {
    "1x1": ((1, 7, 9, 20), (33, 20, 1, 1), (1, 1), (1, 1), (0, 0, 0, 0), 1),
    "1x1 stride 2": ((2, 8, 7, 5), (64, 5, 1, 1), (2, 2), (1, 1), (0, 0, 0, 0), 1),
    "1x1 padded": ((1, 3, 4, 9), (3, 9, 1, 1), (1, 1), (1, 1), (1, 2, 0, 1), 1),
    "3x3": ((1, 12, 13, 24), (70, 24, 3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 1),
    "3x3 batch 3": ((3, 5, 6, 16), (16, 16, 3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 1),
    "3x3 stride 2, asymmetric": ((1, 14, 15, 17), (19, 17, 3, 3), (2, 2), (1, 1), (0, 0, 1, 1), 1),
    "deep 3x3": ((1, 7, 7, 300), (40, 300, 3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 1),
    "stem": ((2, 23, 25, 3), (64, 3, 7, 7), (2, 2), (1, 1), (3, 3, 3, 3), 1),
    "one channel": ((1, 28, 28, 1), (8, 1, 5, 5), (1, 1), (1, 1), (2, 2, 2, 2), 1),
    "dilated": ((1, 16, 17, 12), (10, 12, 3, 3), (1, 1), (2, 3), (2, 3, 2, 3), 1),
    "dilated stem": ((1, 16, 17, 3), (10, 3, 3, 3), (1, 1), (2, 3), (2, 3, 2, 3), 1),
    "groups": ((1, 9, 9, 32), (48, 8, 3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 4),
    "many small groups": ((1, 6, 6, 24), (48, 2, 3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 12),
    "groups of eight": ((1, 9, 10, 40), (40, 8, 3, 3), (2, 2), (1, 1), (1, 1, 1, 1), 5),
    "groups of eleven to six": ((2, 7, 8, 22), (12, 11, 3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 2),
    "1x7": ((1, 5, 20, 16), (16, 16, 1, 7), (1, 1), (1, 1), (0, 3, 0, 3), 1),
    "window larger than image": ((1, 2, 2, 4), (5, 4, 5, 5), (1, 1), (1, 1), (2, 2, 2, 2), 1),
    "window in the padding alone": ((1, 2, 2, 10), (5, 10, 2, 2), (3, 3), (1, 1), (4, 4, 4, 4), 1),
    "several blocks and panels": ((1, 20, 21, 40), (140, 40, 3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 1),
    "dilated beyond the image": ((1, 9, 11, 40), (24, 40, 3, 3), (1, 1), (6, 6), (6, 6, 6, 6), 1),
    "deep, dilated beyond the image": ((2, 7, 9, 700), (20, 700, 3, 3), (1, 1), (5, 8), (5, 8, 5, 8), 1),
    "few pixels, dilated beyond the image": ((1, 2, 2, 40), (140, 40, 3, 3), (1, 1), (3, 3), (3, 3, 3, 3), 1),
    "few filters": ((2, 9, 150, 6), (4, 6, 3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 1),
    "two filters, dilated lines": ((1, 1, 1500, 33), (2, 33, 1, 7), (1, 1), (1, 3), (0, 9, 0, 9), 1),
    "eight filters, lines apart": ((1, 12, 70, 3), (8, 3, 4, 5), (2, 1), (1, 1), (1, 2, 2, 2), 1),
    "few filters in the padding": ((1, 2, 2, 3), (2, 3, 3, 3), (1, 1), (1, 1), (40, 60, 40, 60), 1),
    "no pixels": ((0, 5, 5, 3), (4, 3, 3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 1),
    "no channels": ((1, 5, 5, 0), (4, 0, 3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 1),
}


def conv_params(x, w, strides, dilations, pads, groups):
    return {
        **window_params(x, w.shape[2:], strides, dilations, pads),
        "out_channels": w.shape[0],
        "groups": groups,
        "y_pixel_stride": w.shape[0],
        "residual_pixel_stride": w.shape[0],
        "algorithm": 0,
        "group_channels": 0,
        **OWN_BLOCKS,
    }


FACTORS = {"conv2d_f32": lambda x: x, "conv2d_bf16_f32": rounded}


@pytest.mark.parametrize("algorithm", [0, 1, 2])
@pytest.mark.parametrize(
    ("case", "kernel"),
    [(case, kernel) for kernel in FACTORS for case in CASES if kernel == "conv2d_f32" or CASES[case][-1] == 1],
)
def test_conv_equals_numpy(case, kernel, algorithm, isa, pool, rng):
    x_shape, w_shape, *geometry = CASES[case]
    x, w = rng.standard_normal(x_shape, np.float32), rng.standard_normal(w_shape, np.float32)
    bias = rng.standard_normal(w_shape[0], np.float32)
    expected = conv2d(FACTORS[kernel](x), FACTORS[kernel](w), *geometry)
    residual = rng.standard_normal(expected.shape, np.float32)
    params = {**conv_params(x, w, *geometry), "algorithm": algorithm, "activation": 1}
    operands = [x, Weight(w), Weight(bias), residual]
    y = run_single(kernel, operands, params, ("float32", expected.shape), isa, pool)
    np.testing.assert_allclose(y, np.maximum(expected + bias + residual, 0), rtol=1e-5, atol=2e-4)


@pytest.mark.parametrize("pixels", [(2, 2), (7, 9)])
@pytest.mark.parametrize("channels", [40, 700])
def test_positions_that_see_nothing_but_padding_are_not_computed(channels, pixels, isa, pool, rng):
    x, w = rng.standard_normal((1, *pixels, channels), np.float32), rng.standard_normal((9, channels, 3, 3), np.float32)
    geometry = ((1, 1), (9, 9), (9, 9, 9, 9), 1)
    params, expected = conv_params(x, w, *geometry), conv2d(x, w, *geometry)
    w[:, :, 0] = w[:, :, :, 2] = np.nan
    y = run_single("conv2d_f32", [x, Weight(w), None, None], params, ("float32", expected.shape), isa, pool)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=2e-4)


@pytest.mark.parametrize("filters", range(1, 9))
def test_few_filters_with_columns_in_vectors(filters, isa, pool, rng):
    x, w = rng.standard_normal((2, 3, 131, 12), np.float32), rng.standard_normal((filters, 5, 3, 4), np.float32)
    bias, geometry = rng.standard_normal(filters, np.float32), ((1, 1), (1, 2), (1, 3, 1, 4), 1)
    expected = conv2d(x[..., :5], w, *geometry)
    residual = rng.standard_normal((*expected.shape[:3], 11), np.float32)
    expected = np.maximum(expected + bias + residual[..., :filters], 0)
    strides = {"x_pixel_stride": 12, "y_pixel_stride": 10, "residual_pixel_stride": 11}
    params = {**conv_params(x[..., :5], w, *geometry), **strides, "algorithm": 5, "activation": 1}
    operands = [x, Weight(w), Weight(bias), residual]
    y = run_single("conv2d_f32", operands, params, ("float32", (*expected.shape[:3], 10)), isa, pool)
    np.testing.assert_allclose(y[..., :filters], expected, rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(y[..., filters:], 77)


@pytest.mark.parametrize("block_rows", [1, 7, 96, 4096])
@pytest.mark.parametrize("case", ["1x1", "stem", "several blocks and panels"])
def test_blocks_of_rounded_factors_never_change_a_bit(case, block_rows, isa, pool, rng):
    x_shape, w_shape, *geometry = CASES[case]
    x, w = rng.standard_normal(x_shape, np.float32), rng.standard_normal(w_shape, np.float32)
    params, shape = conv_params(x, w, *geometry), conv2d(x, w, *geometry).shape
    own, other = (
        run_single("conv2d_bf16_f32", [x, Weight(w), None, None], params | blocks, ("float32", shape), isa, pool)
        for blocks in ({}, {"block_rows": block_rows})
    )
    np.testing.assert_array_equal(other, own)


@pytest.mark.parametrize("kernel", ["conv2d_f32", "conv2d_bf16_f32"])
def test_conv_reads_and_writes_slices_of_channels(kernel, isa, pool, rng):
    x, w = rng.standard_normal((1, 6, 7, 30), np.float32), rng.standard_normal((18, 10, 3, 3), np.float32)
    geometry = ((1, 1), (1, 1), (1, 1, 1, 1), 1)
    params = {**conv_params(x[..., :10], w, *geometry), "x_pixel_stride": 30, "y_pixel_stride": 25}
    y = run_single(kernel, [x, Weight(w), None, None], params, ("float32", (1, 6, 7, 25)), isa, pool)
    factors = (x[..., :10], w) if kernel == "conv2d_f32" else (rounded(x[..., :10]), rounded(w))
    np.testing.assert_allclose(y[..., :18], conv2d(*factors, *geometry), rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(y[..., 18:], 77)


def is_winograd_case(case: str) -> bool:
    _, w_shape, strides, dilations, _, groups = CASES[case]
    return w_shape[2:] == (3, 3) and strides == dilations == (1, 1) and groups == 1


WINOGRAD = {"2x2": 3, "4x4": 4}


@pytest.mark.parametrize("activation", [1, 6])
@pytest.mark.parametrize(
    ("kernel", "algorithm"),
    [
        *(("conv2d_winograd_f32", each) for each in (0, *WINOGRAD.values())),
        ("conv2d_winograd_bf16_f32", WINOGRAD["2x2"]),
    ],
)
@pytest.mark.parametrize("case", [case for case in CASES if is_winograd_case(case)])
def test_winograd_equals_numpy(case, kernel, algorithm, activation, isa, pool, rng):
    x_shape, w_shape, *geometry = CASES[case]
    x, w = rng.standard_normal(x_shape, np.float32), rng.standard_normal(w_shape, np.float32)
    bias = rng.standard_normal(w_shape[0], np.float32)
    before = conv2d(x, w, *geometry)
    residual = rng.standard_normal(before.shape, np.float32)
    params = {**conv_params(x, w, *geometry), "activation": activation, "algorithm": algorithm}
    operands = [x, Weight(w), Weight(bias), residual]
    y = run_single(kernel, operands, params, ("float32", before.shape), isa, pool)
    before += bias + residual
    with np.errstate(over="ignore"):
        expected = np.maximum(before, 0) if activation == 1 else before / (1 + np.exp(-before))
    rtol, atol = (0, 0.02 * np.abs(expected).max(initial=1.0)) if "bf16" in kernel else (1e-5, 4e-4)
    np.testing.assert_allclose(y, expected, rtol, atol)


@pytest.mark.parametrize("blocks", [{}, {"block_rows": 5}, {"group_channels": 64}], ids=str)
@pytest.mark.parametrize("channels", [1, 24, 37])
def test_winograd_of_factors_that_bfloat16_holds_is_exact(channels, blocks, isa, pool, rng):
    """Transforms of these integers have at most 8 bits."""
    x = rng.integers(-15, 16, (2, 9, 11, channels)).astype(np.float32)
    w = 4 * rng.integers(-3, 4, (140, channels, 3, 3)).astype(np.float32)
    geometry = ((1, 1), (1, 1), (1, 1, 1, 1), 1)
    params = conv_params(x, w, *geometry) | {"algorithm": WINOGRAD["2x2"]} | blocks
    expected = conv2d(x, w, *geometry)
    y = run_single(
        "conv2d_winograd_bf16_f32", [x, Weight(w), None, None], params, ("float32", expected.shape), isa, pool
    )
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("shape", ["28x28x128", "7x7x512"])
@pytest.mark.parametrize(("form", "factor"), [("2x2", 1.5), ("4x4", 2.5)])
def test_winograd_is_as_exact_as_the_direct_form(form, factor, shape, isa, rng):
    height, width, channels = map(int, shape.split("x"))
    x = rng.standard_normal((1, height, width, channels), np.float32)
    w = rng.standard_normal((32, channels, 3, 3), np.float32)
    geometry = ((1, 1), (1, 1), (1, 1, 1, 1), 1)
    expected = conv2d(x, w, *geometry)
    errors = []
    for kernel, algorithm in (("conv2d_f32", 1), ("conv2d_winograd_f32", WINOGRAD[form])):
        params = conv_params(x, w, *geometry) | {"algorithm": algorithm}
        y = run_single(kernel, [x, Weight(w), None, None], params, ("float32", expected.shape), isa)
        errors.append(np.sqrt(np.mean((y - expected) ** 2)))
    assert errors[1] < factor * errors[0]


@pytest.mark.parametrize(
    "blocks", [{"block_rows": 1}, {"block_rows": 5}, {"block_rows": 48, "group_channels": 40}], ids=str
)
@pytest.mark.parametrize("algorithm", [0, *WINOGRAD.values()])
def test_winograd_blocks_never_change_a_bit(algorithm, blocks, isa, pool, rng):
    x, w = rng.standard_normal((2, 13, 11, 24), np.float32), rng.standard_normal((140, 24, 3, 3), np.float32)
    params = conv_params(x, w, (1, 1), (1, 1), (1, 1, 1, 1), 1) | {"algorithm": algorithm}
    operands, output = [x, Weight(w), None, None], ("float32", (2, 13, 11, 140))
    own = run_single("conv2d_winograd_f32", operands, params, output, isa, pool)
    other = run_single("conv2d_winograd_f32", operands, params | blocks, output, isa, pool)
    np.testing.assert_array_equal(other, own)


@pytest.mark.parametrize("panel_order", [0, 1, 2])
@pytest.mark.parametrize("block_rows", [1, 7, 96, 4096])
@pytest.mark.parametrize("case", ["1x1", "stem", "groups", "several blocks and panels"])
def test_blocks_never_change_a_bit(case, block_rows, panel_order, isa, pool, rng):
    x_shape, w_shape, *geometry = CASES[case]
    x, w = rng.standard_normal(x_shape, np.float32), rng.standard_normal(w_shape, np.float32)
    params, shape = conv_params(x, w, *geometry), conv2d(x, w, *geometry).shape
    operands, blocks = [x, Weight(w), None, None], {"block_rows": block_rows, "panel_order": panel_order}
    own = run_single("conv2d_f32", operands, params, ("float32", shape), isa, pool)
    other = run_single("conv2d_f32", operands, params | blocks, ("float32", shape), isa, pool)
    np.testing.assert_array_equal(other, own)


@pytest.mark.parametrize(
    ("kernel", "wrong", "message"),
    [
        ("conv2d_f32", {"algorithm": 3}, "there is no algorithm 3 here"),
        ("conv2d_winograd_f32", {"algorithm": 1}, "there is no algorithm 1 here"),
        ("conv2d_bf16_f32", {"algorithm": 3}, "there is no algorithm 3 here"),
        ("conv2d_bf16_f32", {"groups": 2}, "there are 2 groups, not one"),
        ("conv2d_winograd_bf16_f32", {"algorithm": 4}, "there is no algorithm 4 here"),
        ("conv2d_f32", {"block_rows": -1}, "a block cannot have -1 rows"),
        ("conv2d_winograd_f32", {"block_rows": 5000}, "a block cannot have 5000 rows"),
        ("conv2d_winograd_f32", {"group_channels": -8}, "a group cannot have -8 channels"),
        ("conv2d_f32", {"panel_order": 3}, "there is no order of panels 3"),
    ],
)
def test_impossible_choices_are_refused(kernel, wrong, message, rng):
    x, w = rng.standard_normal((1, 8, 8, 4), np.float32), rng.standard_normal((4, 4, 3, 3), np.float32)
    params = conv_params(x, w, (1, 1), (1, 1), (1, 1, 1, 1), 1) | wrong
    with pytest.raises(TargetError, match=message):
        run_single(kernel, [x, Weight(w), None, None], params, ("float32", (1, 8, 8, 4)), "scalar")


def test_winograd_refuses_other_windows(rng):
    x, w = rng.standard_normal((1, 8, 8, 4), np.float32), rng.standard_normal((4, 4, 3, 3), np.float32)
    params = conv_params(x, w, (2, 2), (1, 1), (1, 1, 1, 1), 1)
    with pytest.raises(TargetError, match="only 3x3 windows of stride and dilation 1"):
        run_single("conv2d_winograd_f32", [x, Weight(w), None, None], params, ("float32", (1, 4, 4, 4)), "scalar")
