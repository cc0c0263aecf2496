from __future__ import annotations

import numpy as np
import pytest

from tests.runtime_c.helpers import Weight, run_single
from tests.targets.quantized_arithmetic import multiplied
from tinycomp.errors import TargetError
from tinycomp.quantized.reading import fixed_point

SHAPES = [(1, 1, 1), (2, 197, 1), (3, 7, 5), (1, 500, 2), (4, 16, 1), (0, 4, 1), (2, 0, 3), (2, 3, 0)]


def tables(unit: int, step: float = 0.05) -> tuple[np.ndarray, np.ndarray]:
    powers = np.rint(np.exp(-step * np.arange(256)) * unit).astype(np.int32)
    return powers, np.minimum(np.rint(256 / (1 + np.arange(256) / 256)), 255).astype(np.uint8)


def expected(x: np.ndarray, powers: np.ndarray, inverses: np.ndarray, ratio: float, point: int) -> np.ndarray:
    """What the header says, in Python's integers."""
    y = np.zeros(x.shape, np.uint8)
    for outer, inner in np.ndindex(x.shape[0], x.shape[2]):
        line = x[outer, :, inner].astype(np.int64)
        own = [int(powers[d]) for d in line.max() - line]
        left = 31 - sum(own).bit_length()
        scaled = sum(own) << left
        guess = int(inverses[min((scaled - 2**30 + 2**21) >> 22, 255)]) << 14
        rest = 2**30 - ((scaled * guess + 2**22) >> 23)
        inverse = ((rest * guess + 2**28) >> 29) << left
        shares = [(p * inverse + 2**21) >> 22 for p in own]
        y[outer, :, inner] = np.clip([multiplied(s, ratio) + point for s in shares], 0, 255)
    return y


def params(shape: tuple[int, ...], ratio: float, **changed: int) -> dict[str, int]:
    multiplier, shift = fixed_point(np.array([ratio]))[0].tolist()
    named = dict(zip(("outer", "axis", "inner"), shape, strict=True))
    return {**named, "inverse_shift": 29, "multiplier": multiplier, "shift": shift, "y_zero_point": 3,
            "low": 0, "high": 255, **changed}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("step", [0.2, 0.002])
def test_shares(shape, step, isa, pool, rng):
    x = rng.integers(0, 256, shape).astype(np.uint8)
    constants = tables(min(127 * 32767, (2**31 - 1) // max(shape[1], 1)), step)
    ratio = 251 * 2.0**-30 / (1 if step > 0.1 else 4 / max(shape[1], 4))
    operands = [x, *map(Weight, constants)]
    y = run_single("qsoftmax", operands, params(shape, ratio), ("uint8", shape), isa, pool)
    if all(shape):
        np.testing.assert_array_equal(y, expected(x, *constants, ratio, 3))


@pytest.mark.parametrize("multiplier", [0, 1 << 30, 2**31 - 1])
def test_tables_of_other_numbers_stay_within_memory(multiplier, isa, pool, rng):
    x = rng.integers(0, 256, (2, 300, 1)).astype(np.uint8)
    powers = rng.integers(0, 2**31 - 1, 256).astype(np.int32)
    powers[::2] = 0
    inverses = rng.integers(0, 256, 256).astype(np.uint8)
    changed = params((2, 300, 1), 0.5, multiplier=multiplier, shift=31, low=7, high=9)
    y = run_single("qsoftmax", [x, Weight(powers), Weight(inverses)], changed, ("uint8", x.shape), isa, pool)
    assert set(np.unique(y)) <= {7, 8, 9}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"inverse_shift": 28}, "inverses are shifted by 28"),
        ({"multiplier": -1}, "the multiplier -1 is"),
        ({"shift": 32}, "the shift 32 is"),
        ({"low": -1}, "the bounds"),
    ],
)
def test_impossible_parameters_are_refused(changed, message):
    operands = [np.zeros((1, 4, 1), np.uint8), *map(Weight, tables(1 << 20))]
    with pytest.raises(TargetError, match=message):
        run_single("qsoftmax", operands, params((1, 4, 1), 0.5, **changed), ("uint8", (1, 4, 1)), "scalar")
