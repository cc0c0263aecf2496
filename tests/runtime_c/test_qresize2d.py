from __future__ import annotations

import numpy as np
import pytest

from tests.runtime_c.helpers import Weight, run_single
from tests.targets.quantized_arithmetic import multiplied
from tinycomp.errors import ExecutionError, TargetError
from tinycomp.quantized.reading import fixed_point


def taps(rng: np.random.Generator, size: int, output: int, steps: int) -> np.ndarray:
    return np.stack([*rng.integers(0, size, (2, output)), rng.integers(0, steps + 1, output)], axis=1).astype(np.int32)


def params(x: np.ndarray, lines: np.ndarray, columns: np.ndarray, ratio: float, **changed: int) -> dict[str, int]:
    batch, height, width, channels = x.shape
    multiplier, shift = fixed_point(np.array([ratio]))[0].tolist()
    return {
        "batch": batch, "height": height, "width": width, "channels": channels,
        "out_height": len(lines), "out_width": len(columns), "line_steps": 6, "column_steps": 2048,
        "x_pixel_stride": channels, "y_pixel_stride": channels, "multiplier": multiplier, "shift": shift,
        "x_zero_point": 77, "y_zero_point": 40, "low": 2, "high": 250, **changed,
    }  # fmt: skip


@pytest.mark.parametrize("gap", [0, 3])
@pytest.mark.parametrize(("shape", "output"), [
    ((2, 5, 7, 19), (9, 3)), ((1, 1, 1, 1), (4, 5)), ((1, 3, 2, 300), (2, 2)), ((0, 3, 2, 4), (2, 2)),
    ((1, 3, 2, 4), (0, 2)),
], ids=str)  # fmt: skip
def test_interpolation(shape, output, gap, isa, pool, rng):
    x = rng.integers(0, 256, shape).astype(np.uint8)
    lines, columns = taps(rng, shape[1], output[0], 6), taps(rng, shape[2], output[1], 2048)
    ratio, channels = 1.3 / (6 * 2048), shape[3]
    wide = np.pad(x, [(0, 0)] * 3 + [(0, gap)], constant_values=255)
    changed = params(x, lines, columns, ratio, x_pixel_stride=channels + gap, y_pixel_stride=channels + gap)
    result = ("uint8", (shape[0], *output, channels + gap))
    y = run_single("qresize2d", [wide, Weight(lines), Weight(columns)], changed, result, isa, pool)
    numbers = x.astype(np.int64) - 77
    above, below = (numbers[:, lines[:, i]] for i in (0, 1))
    weight = lines[:, 2].reshape(-1, 1, 1)
    numbers = above * (6 - weight) + below * weight
    left, right = (numbers[:, :, columns[:, i]] for i in (0, 1))
    weight = columns[:, 2].reshape(-1, 1)
    sums = left * (2048 - weight) + right * weight
    wanted = np.array([multiplied(s, ratio) + 40 for s in sums.reshape(-1).tolist()]).reshape(sums.shape)
    np.testing.assert_array_equal(y[..., :channels], np.clip(wanted, 2, 250))
    np.testing.assert_array_equal(y[..., channels:], 77)


@pytest.mark.parametrize(("table", "entry", "value"), [(0, 0, 5), (0, 1, -1), (1, 2, 2049), (1, 0, 7), (0, 2, -1)])
def test_tables_that_leave_the_image_fail(table, entry, value, isa, rng):
    x = np.zeros((1, 5, 7, 3), np.uint8)
    tables = [taps(rng, 5, 4, 6), taps(rng, 7, 4, 2048)]
    tables[table][2, entry] = value
    with pytest.raises(ExecutionError, match="in the tables lies outside the image"):
        run_single("qresize2d", [x, *map(Weight, tables)], params(x, *tables, 0.5), ("uint8", (1, 4, 4, 3)), isa)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"line_steps": 0}, "lines have 0 steps"),
        ({"column_steps": 2049}, "columns have 2049 steps"),
        ({"multiplier": 2**31}, "the multiplier 2147483648 is"),
        ({"shift": -32}, "the shift -32 is"),
        ({"y_pixel_stride": 2}, "a pixel stride is smaller"),
        ({"x_zero_point": 256}, "the zero point 256 is"),
    ],
)
def test_impossible_parameters_are_refused(changed, message, rng):
    x = np.zeros((1, 5, 7, 3), np.uint8)
    tables = [taps(rng, 5, 4, 6), taps(rng, 7, 4, 2048)]
    with pytest.raises(TargetError, match=message):
        run_single("qresize2d", [x, *map(Weight, tables)], params(x, *tables, 0.5, **changed), ("uint8", (1, 4, 4, 3)),
                   "scalar")  # fmt: skip
