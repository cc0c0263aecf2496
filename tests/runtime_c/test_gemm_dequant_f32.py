from __future__ import annotations

import numpy as np
import pytest

from tests.runtime_c.helpers import NO_ACTIVATION, Weight, run_single
from tests.runtime_c.quantized import TYPES
from tinycomp.errors import TargetError

SHAPES = [
    (1, 1, 1),
    (1, 100, 64),
    (1, 33, 257),
    (3, 70, 96),
    (5, 65, 31),
    (200, 48, 130),
    (0, 4, 3),
    (4, 0, 3),
    (4, 5, 0),
]


def codes_of(rng, bits, dtype, *shape):
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if dtype == "int8" else (0, 2**bits - 1)
    return rng.integers(low, high, shape, dtype, endpoint=True)


def dequant_params(m, n, k, bits, dtype, block):
    sizes = {"m": m, "n": n, "k": k, "lda": k, "ldc": n}
    return sizes | {"bits": bits, "code_type": TYPES[dtype], "block": block} | NO_ACTIVATION


def dequantised(codes, scales, zeros, block):
    """The weights [n, k] in double precision."""
    spread = [np.repeat(x.astype(np.float64), block, axis=1)[:, : codes.shape[1]] for x in (scales, zeros)]
    return (codes - spread[1]) * spread[0]


def operands_of(rng, m, n, k, bits, dtype, block):
    blocks = -(-k // block) if block else min(k, 1)
    x = rng.standard_normal((m, k), np.float32)
    codes, zeros = codes_of(rng, bits, dtype, n, k), codes_of(rng, bits, dtype, n, blocks)
    return x, codes, rng.uniform(0.01, 0.1, (n, blocks)).astype(np.float32), zeros


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("block", [0, 16, 32, 128])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("bits", [8, 4])
def test_equals_dequantising_first(bits, dtype, block, shape, isa, pool, rng):
    m, n, k = shape
    x, codes, scales, zeros = operands_of(rng, m, n, k, bits, dtype, block)
    bias = rng.standard_normal(n, np.float32)
    params = dequant_params(m, n, k, bits, dtype, block) | {"activation": 1}
    operands = [x, Weight(codes), Weight(scales), Weight(zeros), Weight(bias)]
    y = run_single("gemm_dequant_f32", operands, params, ("float32", (m, n)), isa, pool)
    weights = dequantised(codes, scales, zeros, block or max(k, 1))
    magnitude = np.abs(x).astype(np.float64) @ np.abs(weights).T + 1
    error = np.abs(y - np.maximum(x @ weights.T + bias, 0)) / magnitude
    assert error.max(initial=0) < 2e-6


@pytest.mark.parametrize("m", [2, 9])
def test_without_zero_points_and_bias_between_gaps(m, isa, pool, rng):
    x, codes, scales, _ = operands_of(rng, m, 37, 50, 4, "int8", 16)
    params = dequant_params(m, 37, 50, 4, "int8", 16) | {"lda": 55, "ldc": 40, "activation": 6}
    operands = [np.pad(x, ((0, 0), (0, 5))), Weight(codes), Weight(scales), None, None]
    y = run_single("gemm_dequant_f32", operands, params, ("float32", (m, 40)), isa, pool)
    before = x @ dequantised(codes, scales, np.zeros_like(scales), 16).T
    np.testing.assert_allclose(y[:, :37], before / (1 + np.exp(-before)), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(y[:, 37:], 77)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"bits": 3}, "no codes have 3 bits"),
        ({"code_type": 6}, "no codes are of type 6"),
        ({"block": 15}, "a block of 15 is odd"),
        ({"lda": 3}, "a row stride is shorter than its row"),
    ],
    ids=str,
)
def test_impossible_parameters_are_refused(wrong, message, rng):
    x, codes, scales, zeros = operands_of(rng, 2, 5, 32, 8, "int8", 16)
    params = dequant_params(2, 5, 32, 8, "int8", 16) | wrong
    operands = [x, Weight(codes), Weight(scales), Weight(zeros), None]
    with pytest.raises(TargetError, match=message):
        run_single("gemm_dequant_f32", operands, params, ("float32", (2, 5)), "scalar")
