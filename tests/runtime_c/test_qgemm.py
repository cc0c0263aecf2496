from __future__ import annotations

import numpy as np
import pytest

from tests.runtime_c.helpers import run_single
from tests.runtime_c.quantized import FIXED_POINT, RESULTS, Result, activations, constants
from tinycomp.errors import TargetError

SHAPES = [
    (1, 1, 1),
    (1, 1000, 512),
    (5, 3, 7),
    (6, 64, 9),
    (13, 65, 31),
    (49, 48, 33),
    (50, 97, 2049),
    (193, 80, 130),
    (300, 17, 5),
    (0, 4, 3),
    (4, 0, 3),
    (4, 5, 0),
]


def gemm_params(result: Result, m: int, n: int, k: int) -> dict[str, int]:
    return {"m": m, "n": n, "k": k, "x_row_stride": k, "y_row_stride": n, "trans_b": 0} | result.params()


def product(result, m, n, k, rng):
    """Operands of a product, and its exact sums."""
    x, w = activations(rng, m, k), result.weights(rng, k, n)
    bias = rng.integers(-5000, 5000, n, np.int32)
    sums = (x.astype(np.int64) - result.x_zero_point) @ w.astype(np.int64) + bias
    return x, w, bias, sums


@pytest.mark.parametrize("result", RESULTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gemm_is_exact(shape, result, isa, pool, rng):
    m, n, k = shape
    result = RESULTS[result]
    x, w, bias, sums = product(result, m, n, k, rng)
    factors = result.factors(rng, sums)
    operands = [x, *constants(result, w, bias, factors)]
    y = run_single("qgemm", operands, gemm_params(result, m, n, k), (result.type, (m, n)), isa, pool)
    np.testing.assert_array_equal(y, result.expected(sums, factors))


@pytest.mark.parametrize("result", RESULTS)
def test_gemm_of_transposed_weights_without_bias(result, isa, pool, rng):
    result = RESULTS[result]
    x, w, bias, sums = product(result, 20, 37, 45, rng)
    factors = result.factors(rng, sums - bias)
    params = gemm_params(result, 20, 37, 45) | {"trans_b": 1}
    operands = [x, *constants(result, w.T, None, factors)]
    y = run_single("qgemm", operands, params, (result.type, (20, 37)), isa, pool)
    np.testing.assert_array_equal(y, result.expected(sums - bias, factors))


@pytest.mark.parametrize("result", RESULTS)
def test_row_strides_leave_the_gaps_alone(result, isa, pool, rng):
    result = RESULTS[result]
    x, w, bias, sums = product(result, 20, 21, 30, rng)
    factors = result.factors(rng, sums)
    params = gemm_params(result, 20, 21, 30) | {"x_row_stride": 50, "y_row_stride": 33}
    operands = [np.pad(x, ((0, 0), (0, 20))), *constants(result, w, bias, factors)]
    y = run_single("qgemm", operands, params, (result.type, (20, 33)), isa, pool)
    np.testing.assert_array_equal(y[:, :21], result.expected(sums, factors))
    np.testing.assert_array_equal(y[:, 21:], 77)


@pytest.mark.parametrize("block_rows", [1, 7, 96, 4096])
def test_blocks_never_change_a_bit(block_rows, isa, pool, rng):
    result = RESULTS["uint8"]
    x, w, bias, sums = product(result, 101, 70, 2100, rng)
    factors = result.factors(rng, sums)
    params = gemm_params(result, 101, 70, 2100) | {"block_rows": block_rows}
    y = run_single("qgemm", [x, *constants(result, w, bias, factors)], params, ("uint8", (101, 70)), isa, pool)
    np.testing.assert_array_equal(y, result.expected(sums, factors))


@pytest.mark.parametrize("rule", [0, 1])
def test_sums_at_the_ends_of_their_range(rule, isa, pool):
    """Sums of almost 2^31, with factors that carry them far beyond the range of y and back into it."""
    result = Result("int8", rule, 0, 0, -128, 127)
    k = 2**31 // (255 * 127)
    x, w = np.full((2, k), 255, np.uint8), np.array([[127, -127]] * k, np.int8)
    sums = x.astype(np.int64) @ w
    factors = np.full(2, 1.0 if rule == 0 else 0, np.float32)
    if rule == FIXED_POINT:
        factors = np.array([[2**30, -24], [2**31 - 1, -31]], np.int32)
    operands = [x, *constants(result, w, None, factors)]
    y = run_single("qgemm", operands, gemm_params(result, 2, 2, k), ("int8", (2, 2)), isa, pool)
    np.testing.assert_array_equal(y, result.expected(sums, factors))


def test_factors_that_are_no_numbers_give_the_lowest_number(isa, rng):
    result = RESULTS["uint8"]
    x, w, bias, _ = product(result, 3, 9, 4, rng)
    operands = [x, *constants(result, w, bias, np.full(9, np.nan, np.float32))]
    y = run_single("qgemm", operands, gemm_params(result, 3, 9, 4) | {"low": 5}, ("uint8", (3, 9)), isa)
    np.testing.assert_array_equal(y, 5)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"type": 1}, "no product of 8-bit numbers gives type 1"),
        ({"weight_type": 5}, "no weights are of type 5"),
        ({"x_zero_point": 256}, "the zero point 256 is out of range"),
        ({"y_zero_point": -1}, "the zero point -1 is out of range"),
        ({"low": 9, "high": 8}, "the bounds 9 and 8 are out of range"),
        ({"high": 256}, "the bounds 0 and 256 are out of range"),
        ({"rule": 2}, "there is no rule of requantisation 2"),
        ({"rule": 1, "type": 0}, "only 8-bit results have fixed-point factors"),
        ({"block_rows": -1}, "a block cannot have -1 rows"),
        ({"x_row_stride": 3}, "a row stride is shorter than its row"),
    ],
    ids=str,
)
def test_impossible_parameters_are_refused(wrong, message, rng):
    result = RESULTS["uint8"]
    x, w, bias, sums = product(result, 3, 9, 4, rng)
    operands = [x, *constants(result, w, bias, result.factors(rng, sums))]
    params = gemm_params(result, 3, 9, 4) | wrong
    output = ("float32" if "type" in wrong else "uint8", (3, 9))
    with pytest.raises(TargetError, match=message):
        run_single("qgemm", operands, params, output, "scalar")


def test_results_need_factors(rng):
    result = RESULTS["uint8"]
    x, w, bias, _ = product(result, 3, 9, 4, rng)
    operands = [x, *constants(result, w, bias, np.ones(9, np.float32))[:2], None, None]
    with pytest.raises(TargetError, match="only sums need no factors"):
        run_single("qgemm", operands, gemm_params(result, 3, 9, 4), ("uint8", (3, 9)), "scalar")


def test_only_sums_take_a_zero_point_of_the_run(rng):
    result = RESULTS["uint8"]
    x, w, bias, _ = product(result, 3, 9, 4, rng)
    operands = [x, *constants(result, w, bias, np.ones(9, np.float32))[:3], np.zeros(1, np.uint8)]
    with pytest.raises(TargetError, match="only sums take a zero point of the run, in place of another"):
        run_single("qgemm", operands, gemm_params(result, 3, 9, 4), ("uint8", (3, 9)), "scalar")
