"""The multipliers of TOSA's RESCALE against the definitions that they must have the results of."""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets.quantized_arithmetic import multiplied
from tinycomp.quantized import rescale
from tinycomp.quantized.rescale import Scale

BYTES = np.arange(-128, 128)


def rescaled(sums: np.ndarray, scale: Scale) -> np.ndarray:
    """Return what the specification says of one multiplier: apply_scale_32 of TOSA 1.0, section 1.9."""
    multiplier, shift = int(scale.multipliers[0]), int(scale.shifts[0])
    assert 0 <= multiplier < 2**31
    assert 2 <= shift <= 62
    assert (np.abs(sums) <= 1 << (shift - 1)).all()
    half = np.int64(1) << (shift - 1)
    if scale.double and shift > 31:
        half = half + np.where(sums >= 0, 1 << 30, -(1 << 30))
    return (sums.astype(np.int64) * multiplier + half) >> shift


@pytest.mark.parametrize("ratio", [0.75, 0.5, 0.1234567, 3e-3, 1.7e-5, 2.0**-20, 1e-10])
def test_two_roundings_are_those_of_tflite(ratio: float):
    rng = np.random.default_rng(0)
    largest = 2**29
    near = np.rint((np.arange(-200, 200) + 0.5) / ratio)
    sums = np.r_[rng.integers(-largest, largest, 200), near[np.abs(near) < largest], -1, 0, 1].astype(np.int64)
    scale = rescale.by_fixed_point(np.array([ratio]), largest)
    assert scale is not None
    assert rescaled(sums, scale).tolist() == [multiplied(int(value), ratio) for value in sums]


def test_sums_outside_the_defined_range_are_refused():
    assert rescale.by_fixed_point(np.array([0.75]), 2**30 - 1) is not None
    assert rescale.by_fixed_point(np.array([0.75]), 2**30) is None
    assert rescale.by_fixed_point(np.array([2.0**30]), 1) is None


def test_a_bias_beyond_all_results_may_be_less():
    ratios, terms = np.array([0.6, 0.6]), np.array([1000, 1000])
    bias = rescale.bounded(np.array([2**31 - 1, 500]), terms, ratios)
    assert bias[1] == 500
    assert bias[0] < 2**20
    for value in (bias[0] - terms[0], bias[0] + terms[0]):
        assert multiplied(int(value), 0.6) > 255


def operands(rng: np.random.Generator) -> tuple[list[np.ndarray], list[np.float32], np.float32, int]:
    points = rng.integers(-128, 128, 3)
    scales = (2.0 ** rng.uniform(-7, -2, 3)).astype(np.float32)
    return [BYTES - points[0], BYTES - points[1]], list(scales[:2]), scales[2], int(points[2])


@pytest.mark.parametrize("combine", [np.add, np.subtract])
def test_sums_of_two_bytes_are_those_of_float32(combine: np.ufunc):
    rng = np.random.default_rng(1)
    found = 0
    for _ in range(8):
        (a, b), (of_a, of_b), step, point = operands(rng)
        real = combine(a[:, None].astype(np.float32) * of_a, b.astype(np.float32) * of_b)
        low, high = -128 - point, 127 - point
        wanted = np.clip(np.rint(real / step), low, high).astype(np.int64)
        sign = -1 if combine is np.subtract else 1
        scales = float(of_a) / float(step), sign * float(of_b) / float(step)
        factors = rescale.scaled_sum(a, b, scales, wanted, low, high)
        if factors is not None:
            found += 1
            assert 0 < factors.first < 2**15 << 6
            assert factors.offset or factors.first < 2**15
            sums = a[:, None] * factors.first + b * factors.second + factors.offset
            np.testing.assert_array_equal(np.clip(rescaled(sums, factors.scale), low, high), wanted)
    assert found >= 7


def test_ties_to_even_are_no_multiplication():
    a = b = BYTES
    wanted = np.rint((a[:, None] + b) / 2).astype(np.int64)  # every other sum is a tie
    assert rescale.scaled_sum(a, b, (0.5, 0.5), wanted, -128, 127) is None


def test_products_of_two_bytes_are_those_of_float32():
    rng = np.random.default_rng(2)
    found = 0
    for _ in range(8):
        (a, b), (of_a, of_b), _, point = operands(rng)
        step = np.float32(of_a * of_b * rng.uniform(40, 200))
        real = (a[:, None].astype(np.float32) * of_a) * (b.astype(np.float32) * of_b)
        low, high = -128 - point, 127 - point
        wanted = np.clip(np.rint(real / step), low, high).astype(np.int64)
        scale = rescale.product(np.multiply.outer(a, b), wanted, low, high)
        if scale is not None:
            found += 1
            np.testing.assert_array_equal(np.clip(rescaled(np.multiply.outer(a, b), scale), low, high), wanted)
    assert found >= 6
