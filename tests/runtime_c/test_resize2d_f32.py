from __future__ import annotations

import numpy as np
import pytest

from tests.runtime_c.emulated import runner
from tests.runtime_c.helpers import Weight, run_single, single
from tinycomp.errors import ExecutionError, TargetError
from tinycomp.runtime.native.executor import NativeProgram


def resize_params(shape, out_height, out_width, line_taps, column_taps):
    names = ("batch", "height", "width", "channels", "out_height", "out_width", "line_taps", "column_taps")
    strides = {"x_pixel_stride": shape[3], "y_pixel_stride": shape[3], "crops": 0, "extrapolation": 0.0}
    return dict(zip(names, (*shape, out_height, out_width, line_taps, column_taps), strict=True)) | strides


SHAPES = [(1, 5, 7, 3), (2, 8, 6, 37), (1, 9, 4, 1), (1, 3, 3, 130)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("size", [(10, 14), (3, 5), (1, 1)], ids=str)
def test_nearest(shape, size, isa, pool, rng):
    x = rng.standard_normal(shape, np.float32)
    lines, columns = rng.integers(0, shape[1], (size[0], 1)), rng.integers(0, shape[2], (size[1], 1))
    params = resize_params(shape, *size, 1, 1)
    operands = [x, Weight(lines), Weight(columns), None, None]
    expected = x[:, lines[:, 0]][:, :, columns[:, 0]]
    y = run_single("resize2d_f32", operands, params, ("float32", expected.shape), isa, pool)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("taps", [(2, 2), (4, 4), (1, 3)], ids=str)
def test_weighted(shape, taps, isa, pool, rng):
    x, size = rng.standard_normal(shape, np.float32), (11, 9)
    tables = [rng.integers(0, extent, (n, t)) for extent, n, t in zip(shape[1:3], size, taps, strict=True)]
    weights = [rng.standard_normal(table.shape, np.float32) for table in tables]
    matrices = [np.zeros((n, extent)) for n, extent in zip(size, shape[1:3], strict=True)]
    for matrix, table, weight in zip(matrices, tables, weights, strict=True):
        np.add.at(matrix, (np.arange(len(table))[:, None], table), weight)
    expected = np.einsum("ih,jw,nhwc->nijc", *matrices, x)
    operands = [x, *map(Weight, tables), *map(Weight, weights)]
    params = resize_params(shape, *size, *taps)
    y = run_single("resize2d_f32", operands, params, ("float32", expected.shape), isa, pool)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("weighted", [False, True])
def test_slices_of_channels(weighted, isa, pool, rng):
    """Both images are the first channels of larger ones; the others stay as they are."""
    x = rng.standard_normal((2, 5, 7, 30), np.float32)
    lines, columns = rng.integers(0, 5, (9, 1)), rng.integers(0, 7, (8, 1))
    weights = [Weight(np.full(table.shape, 2, np.float32)) if weighted else None for table in (lines, columns)]
    params = resize_params((2, 5, 7, 19), 9, 8, 1, 1) | {"x_pixel_stride": 30, "y_pixel_stride": 21}
    operands = [x, Weight(lines), Weight(columns), *weights]
    y = run_single("resize2d_f32", operands, params, ("float32", (2, 9, 8, 21)), isa, pool)
    expected = x[:, lines[:, 0]][:, :, columns[:, 0], :19]
    np.testing.assert_array_equal(y[..., :19], expected * (4 if weighted else 1))
    np.testing.assert_array_equal(y[..., 19:], 77)


@pytest.mark.parametrize("operand", ["x", "y"])
def test_pixels_may_not_overlap(operand, isa):
    params = resize_params((1, 5, 7, 3), 2, 2, 1, 1) | {f"{operand}_pixel_stride": 2}
    table = Weight(np.zeros((2, 1), np.int64))
    with pytest.raises(TargetError, match="a pixel stride is smaller than the number of channels"):
        run_single(
            "resize2d_f32",
            [np.zeros((1, 5, 7, 3), np.float32), table, table, None, None],
            params,
            ("float32", (1, 2, 2, 3)),
            isa,
        )


@pytest.mark.parametrize("position", [-1, 5])
def test_position_outside_the_image(position, isa):
    x, inside = np.zeros((1, 5, 7, 3), np.float32), np.zeros((2, 1), np.int64)
    operands = [x, Weight(np.array([[0], [position]])), Weight(inside), None, None]
    program, feeds = single("resize2d_f32", operands, resize_params(x.shape, 2, 2, 1, 1), ("float32", (1, 2, 2, 3)))
    with pytest.raises(ExecutionError, match="a position in the tables lies outside the image"):
        runner(program, None, isa).run(feeds, [np.empty((1, 2, 2, 3), np.float32)])


@pytest.mark.parametrize(
    ("taps", "given", "text"),
    [
        (2, (False, False), "several taps need weights"),
        (0, (True, True), "taps is not positive"),
        (1, (True, False), "one"),
    ],
)
def test_bad_parameters(taps, given, text):
    x, table = np.zeros((1, 5, 7, 3), np.float32), np.zeros((2, 2), np.int64)
    weights = [Weight(np.zeros((2, 2), np.float32)) if is_given else None for is_given in given]
    params = resize_params(x.shape, 2, 2, taps, taps)
    program, _ = single("resize2d_f32", [x, Weight(table), Weight(table), *weights], params, ("float32", (1, 2, 2, 3)))
    with pytest.raises(TargetError, match=text):
        NativeProgram(program)
