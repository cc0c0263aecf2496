"""Maxima of windows and where they lie."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.runtime_c.element import TYPES
from tests.runtime_c.emulated import runner
from tinycomp.runtime.native.program import BufferSpec, Instruction, Operand, Program

# shape (images, depth, height, width), kernel, strides, dilations, cells ahead of each axis, cells of padding behind it
CASES = {
    "2x2": ((3, 1, 12, 140), (1, 2, 2), (1, 2, 2), (1, 1, 1), (0, 0, 0), (0, 0, 0)),
    "3x3, padded": ((2, 1, 9, 71), (1, 3, 3), (1, 2, 2), (1, 1, 1), (0, 1, 1), (0, 1, 1)),
    "overlapping": ((1, 1, 6, 90), (1, 3, 2), (1, 1, 1), (1, 1, 1), (0, 0, 1), (0, 2, 0)),
    "strides of three, dilated": ((2, 1, 11, 50), (1, 2, 3), (1, 1, 3), (1, 2, 4), (0, 1, 5), (0, 0, 3)),
    "volumes": ((2, 5, 6, 20), (2, 3, 2), (2, 1, 2), (1, 1, 1), (1, 0, 0), (0, 1, 0)),
    "windows in the padding": ((1, 1, 4, 4), (1, 2, 2), (1, 1, 1), (1, 1, 1), (0, 3, 2), (0, 0, 3)),
}
AXES = ("depth", "height", "width")


def expected(x: np.ndarray, case: str, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Look at one window after the other, in plain Python."""
    _, kernel, strides, dilations, before, behind = CASES[case]
    images, *sizes = x.shape
    out = [
        (n + a + b - (k - 1) * d - 1) // s + 1
        for n, a, b, k, d, s in zip(sizes, before, behind, kernel, dilations, strides, strict=True)
    ]
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    y, places = np.full((images, *out), lowest, x.dtype), np.empty((images, *out), np.int64)
    for image, *at in itertools.product(range(images), *map(range, out)):
        starts = [o * s - b for o, s, b in zip(at, strides, before, strict=True)]
        cells = [range(f, f + k * d, d) for f, k, d in zip(starts, kernel, dilations, strict=True)]
        inside = [[c for c in line if 0 <= c < n] for line, n in zip(cells, sizes, strict=True)]
        nearest = [min(next((c for c in line if c >= 0), 0), n - 1) for line, n in zip(cells, sizes, strict=True)]
        best = tuple(nearest)
        for cell in itertools.product(*inside):
            new, old = x[(image, *cell)], y[(image, *at)]
            if new > old or (new != new and old == old):
                y[(image, *at)], best = new, cell
        d, h, w = best
        flat = (d * sizes[1] + h) * sizes[2] + w if order == 0 else (w * sizes[1] + h) * sizes[0] + d
        places[(image, *at)] = image * int(np.prod(sizes)) + flat
    return y, places


def run(x: np.ndarray, case: str, order: int, shape: tuple[int, ...], isa: str, pool) -> list[np.ndarray]:
    _, kernel, strides, dilations, before, _ = CASES[case]
    fields = {
        "": x.shape[1:], "out_": shape[1:], "kernel_": kernel, "stride_": strides, "dilation_": dilations,
        "before_": before,
    }  # fmt: skip
    params = {f"{name}{axis}": n for name, sizes in fields.items() for axis, n in zip(AXES, sizes, strict=True)}
    params |= {"type": TYPES.index(x.dtype), "storage_order": order, "images": x.shape[0]}
    specs = (BufferSpec("y", x.dtype.name, shape), BufferSpec("places", "int64", shape))
    places = (Operand("output", 0), Operand("output", 1), Operand("input", 0))
    call = Instruction("max_pool_indices", places, params, ("n",))
    program = Program("test", (BufferSpec("x", x.dtype.name, x.shape),), specs, (), 0, (call,))
    results = [np.full(shape, 77, x.dtype), np.full(shape, 77, np.int64)]
    runner(program, pool, isa).run([x], results)
    return results


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint8"])
def test_max_pool_indices_equals_python(case, dtype, isa, pool, rng):
    """Few numbers, so that several are equal, among them NaN and the lowest."""
    x = rng.integers(0, 9, CASES[case][0]).astype(dtype)
    if x.dtype.kind == "f":
        x[rng.random(x.shape) < 0.03] = np.nan
        x[rng.random(x.shape) < 0.3] = -np.inf
    order = int(dtype == "float64")
    wanted = expected(x, case, order)
    for found, each in zip(run(x, case, order, wanted[0].shape, isa, pool), wanted, strict=True):
        np.testing.assert_array_equal(found, each)
