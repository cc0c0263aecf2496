"""The tables of the kernel resize_taps: those that the numpy kernel makes of the unit vectors, to the bit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tests.runtime_c.emulated import runner
from tinycomp.errors import TargetError
from tinycomp.ops.resize import AxisScale, Mode, resize_axes
from tinycomp.runtime.native.library import lib
from tinycomp.runtime.native.program import ABSENT, BufferSpec, Instruction, Operand, Program

COORDINATES = {
    "half_pixel": "HALF_PIXEL",
    "half_pixel_symmetric": "HALF_PIXEL_SYMMETRIC",
    "pytorch_half_pixel": "PYTORCH_HALF_PIXEL",
    "align_corners": "ALIGN_CORNERS",
    "asymmetric": "ASYMMETRIC",
    "tf_half_pixel_for_nn": "HALF_PIXEL_FOR_NEAREST",
}
ROUNDINGS = {
    "round_prefer_floor": "ROUND_PREFER_FLOOR",
    "round_prefer_ceil": "ROUND_PREFER_CEIL",
    "floor": "FLOOR",
    "ceil": "CEIL",
    "simple": "FLOOR_UNLESS_SHRINKING",
}
MODES = {"nearest": "NEAREST", "linear": "LINEAR", "cubic": "CUBIC"}
CUBIC_A = float(np.float32(-0.6))
SIZES = [(7, 14), (7, 5), (5, 5), (1, 4), (9, 1), (33, 100), (300, 2)]
SCALES = [0.0, 2.0, 0.5, 1.7, 0.3]


def matrix_of(axis: AxisScale, mode: Mode) -> np.ndarray:
    """What the numpy kernel makes of the unit vectors."""
    return resize_axes(np.eye(axis.size, dtype=np.float32), {0: axis}, mode)


def tables(params: dict[str, float], isa: str) -> tuple[np.ndarray, np.ndarray]:
    shape = (int(params["output"]), int(params["taps"]))
    specs = (BufferSpec("cells", "int64", shape), BufferSpec("weights", "float32", shape))
    params = {"whole": int(params["scale"] == 0), "place": 0, "places": 1} | params
    places = (Operand("output", 0), Operand("output", 1), ABSENT, ABSENT)
    call = Instruction("resize_taps", places, params, ("n",))
    results = [np.full(shape, 77, spec.dtype) for spec in specs]
    runner(Program("test", (), specs, (), 0, (call,)), None, isa).run([], results)
    return results[0], results[1]


def code(name: str) -> int:
    return int(getattr(lib, f"TC_RESIZE_{name}"))


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("mode", MODES)
def test_tables_are_those_of_the_numpy_kernel(mode, coordinates, isa):
    roundings = ROUNDINGS if mode == "nearest" else ["floor"]
    flags = [(0, 0)] if mode == "nearest" else [(0, 0), (1, 0), (0, 1), (1, 1)]
    for (size, wanted), scale, rounding, (outside, antialias) in itertools.product(SIZES, SCALES, roundings, flags):
        length = float(np.float32(size) * np.float32(scale)) if scale else float(wanted)
        output = int(length)
        exact = float(np.float32(scale)) if scale else wanted / size
        how = Mode(mode, coordinates, rounding, CUBIC_A, bool(outside), bool(antialias))
        expected = matrix_of(AxisScale(size, output, exact, length), how)
        params = {
            "size": size, "output": output, "taps": size, "scale": scale, "mode": code(MODES[mode]),
            "coordinates": code(COORDINATES[coordinates]), "rounding": code(ROUNDINGS[rounding]), "cubic_a": CUBIC_A,
            "exclude_outside": outside, "antialias": antialias,
        }  # fmt: skip
        cells, weights = tables(params, isa)
        found = np.zeros((output, size), np.float32)
        np.add.at(found, (np.arange(output)[:, None], cells), weights)
        label = f"{size} -> {output}, {scale}, {rounding}, {outside}, {antialias}"
        np.testing.assert_array_equal(found, expected, label)


def test_an_axis_without_cells_gives_none(isa):
    params = dict.fromkeys(("size", "mode", "coordinates", "rounding", "exclude_outside", "antialias"), 0)
    with pytest.raises(TargetError, match="an axis without cells is resized to 3"):
        tables(params | {"output": 3, "taps": 1, "scale": 0.0, "cubic_a": 0.0}, isa)
