"""Products of factors that are rounded to bfloat16: exact products, sums in float32."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.runtime_c.helpers import NO_ACTIVATION, OWN_BLOCKS, Weight, run_single
from tests.runtime_c.test_gemm_f32 import SHAPES
from tinycomp.errors import TargetError
from tinycomp.targets.c.codegen.element_program import TYPES

TYPE = {dtype: TYPES[dtype] for dtype in ("float32", "bfloat16")}


def rounded(x: np.ndarray) -> np.ndarray:
    """Return the nearest numbers that bfloat16 has, as float32."""
    return x.astype(ml_dtypes.bfloat16).astype(np.float32)


def parameters(m, n, k, **changes):
    strides = {"lda": k, "ldc": n, "ldr": n}
    return {
        "m": m,
        "n": n,
        "k": k,
        **strides,
        "trans_b": 0,
        "type": TYPE["float32"],
        **OWN_BLOCKS,
        **NO_ACTIVATION,
    } | changes


def product(a, b, params, isa, pool=None, bias=None, residual=None, columns=None):
    stored = Weight(b.T if params["trans_b"] else b)
    output = ("float32", (params["m"], params["n"] if columns is None else columns))
    return run_single("gemm_bf16_f32", [a, stored, bias, residual], params, output, isa, pool)


@pytest.mark.parametrize("shape", [*SHAPES, (1, 300, 40), (2, 256, 33), (7, 70, 4101), (193, 130, 1100)], ids=str)
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("dtype", TYPE)
def test_products_of_rounded_factors(shape, trans_b, dtype, isa, pool, rng):
    m, n, k = shape
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    bias, residual = rng.standard_normal(n, np.float32), rng.standard_normal((m, n), np.float32)
    params = parameters(m, n, k, trans_b=trans_b, type=TYPE[dtype])
    stored = b if dtype == "float32" else b.astype(ml_dtypes.bfloat16)
    y = product(a, stored, params, isa, pool, Weight(bias), residual)
    expected = rounded(a).astype(np.float64) @ rounded(b) + bias + residual
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6 * (k + 10))


@pytest.mark.parametrize("rows", [1, 2, 5, 6, 61])
def test_sums_that_are_exact_are_the_same_everywhere(rows, isa, pool, rng):
    a, b = (rng.integers(-100, 101, shape).astype(np.float32) for shape in ((rows, 333), (333, 131)))
    y = product(a, b, parameters(rows, 131, 333), isa, pool)
    np.testing.assert_array_equal(y, a.astype(np.int64) @ b.astype(np.int64))


def test_factors_are_rounded_to_nearest_even(isa, rng):
    ties = np.float32(1) + np.arange(16, dtype=np.float32) / 256
    normal = rng.integers(0x0080_0000, 0x7F7F_0000, 400).astype(np.uint32).view(np.float32)
    numbers = np.concatenate([ties, normal, -normal, np.float32([0, np.inf, -np.inf])])
    wanted = rounded(numbers)
    for left in (True, False):
        m, n = (numbers.size, 1) if left else (1, numbers.size)
        a, b = (numbers[:, None], np.ones((1, 1), np.float32)) if left else (np.ones((1, 1), np.float32), numbers[None])
        np.testing.assert_array_equal(product(a, b, parameters(m, n, 1), isa).ravel(), wanted)


@pytest.mark.parametrize("k", [1, 2, 31])
def test_nan_stays_nan_whatever_its_bits(k, isa):
    nans = np.uint32([0x7F80_0001, 0x7FFF_FFFF, 0xFF80_8000, 0xFFFF_FFFF]).view(np.float32)
    a = np.ones((nans.size + 1, k), np.float32)
    a[:-1, -1] = nans
    y = product(a, np.ones((k, 3), np.float32), parameters(len(a), 3, k), isa)
    assert np.isnan(y[:-1]).all()
    np.testing.assert_array_equal(y[-1], k)
    b = np.ones((k, nans.size + 1), np.float32)
    b[-1, :-1] = nans
    y = product(np.ones((1, k), np.float32), b, parameters(1, b.shape[1], k), isa)
    np.testing.assert_array_equal(np.isnan(y), [[True] * nans.size + [False]])


@pytest.mark.parametrize("m", [1, 3, 20])
def test_row_strides_and_activations(m, isa, pool, rng):
    a, b = rng.standard_normal((m, 50), np.float32), rng.standard_normal((30, 70), np.float32)
    params = parameters(m, 70, 30, lda=50, ldc=83, ldr=0, activation=1)
    y = product(a, b, params, isa, pool, columns=83)
    np.testing.assert_allclose(y[:, :70], np.maximum(rounded(a[:, :30]) @ rounded(b), 0), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(y[:, 70:], 77)


@pytest.mark.parametrize("block_rows", [1, 7, 96, 4096])
def test_blocks_never_change_a_bit(block_rows, isa, pool, rng):
    a, b = rng.standard_normal((101, 75), np.float32), rng.standard_normal((75, 150), np.float32)
    params = parameters(101, 150, 75)
    own = product(a, b, params, isa, pool)
    np.testing.assert_array_equal(product(a, b, params | {"block_rows": block_rows}, isa, pool), own)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"type": TYPES["float16"]}, "is neither float32 nor bfloat16"),
        ({"trans_b": 2}, "trans_b must be 0 or 1"),
        ({"lda": 4}, "a row stride is shorter than its row"),
        ({"k": 6, "lda": 6}, "operand 2 ends at byte"),
        ({"block_rows": -1}, "a block cannot have -1 rows"),
        ({"k": 1 << 62, "lda": 1 << 62}, "overflow|too large|beyond"),
    ],
)
def test_refused(changes, text, isa):
    operands = [np.zeros((2, 5), np.float32), Weight(np.zeros((5, 3), np.float32)), None, None]
    with pytest.raises(TargetError, match=text):
        run_single("gemm_bf16_f32", operands, parameters(2, 3, 5) | changes, ("float32", (2, 3)), isa)
