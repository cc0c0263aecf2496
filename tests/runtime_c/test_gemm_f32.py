from __future__ import annotations

import numpy as np
import pytest

from tests.runtime_c.helpers import NO_ACTIVATION, OWN_BLOCKS, Weight, run_single

SHAPES = [
    (1, 1, 1),
    (1, 1000, 512),
    (2, 97, 2049),
    (3, 130, 31),
    (4, 1000, 70),
    (5, 3, 7),
    (5, 200, 33),
    (6, 64, 9),
    (13, 65, 31),
    (37, 8, 2050),
    (49, 48, 33),
    (50, 97, 2049),
    (193, 80, 129),
    (300, 17, 5),
    (0, 4, 3),
    (4, 0, 3),
    (4, 5, 0),
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("trans_b", [0, 1])
def test_gemm_equals_numpy(shape, trans_b, isa, pool, rng):
    m, n, k = shape
    a, b = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    bias, residual = rng.standard_normal(n, np.float32), rng.standard_normal((m, n), np.float32)
    params = {"m": m, "n": n, "k": k, "lda": k, "ldc": n, "ldr": n, "trans_b": trans_b, **OWN_BLOCKS, **NO_ACTIVATION}
    operands = [a, Weight(b.T if trans_b else b), Weight(bias), residual]
    y = run_single("gemm_f32", operands, params, ("float32", (m, n)), isa, pool)
    expected = a.astype(np.float64) @ b + bias + residual
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-6 * (k + 10))


def test_gemm_row_strides_leave_the_gaps_alone(isa, pool, rng):
    a, b = rng.standard_normal((20, 50), np.float32), rng.standard_normal((30, 21), np.float32)
    params = {"m": 20, "n": 21, "k": 30, "lda": 50, "ldc": 33, "ldr": 0, "trans_b": 0, **OWN_BLOCKS, **NO_ACTIVATION}
    y = run_single("gemm_f32", [a, Weight(b), None, None], params, ("float32", (20, 33)), isa, pool)
    np.testing.assert_allclose(y[:, :21], a[:, :30] @ b, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(y[:, 21:], 77)


@pytest.mark.parametrize("panel_order", [0, 1, 2])
@pytest.mark.parametrize("block_rows", [1, 7, 96, 4096])
def test_blocks_never_change_a_bit(block_rows, panel_order, isa, pool, rng):
    a, b = rng.standard_normal((101, 2100), np.float32), rng.standard_normal((2100, 70), np.float32)
    params = {"m": 101, "n": 70, "k": 2100, "lda": 2100, "ldc": 70, "ldr": 0, "trans_b": 0, **NO_ACTIVATION}
    own, other = (
        run_single("gemm_f32", [a, Weight(b), None, None], params | blocks, ("float32", (101, 70)), isa, pool)
        for blocks in (OWN_BLOCKS, {"block_rows": block_rows, "panel_order": panel_order})
    )
    np.testing.assert_array_equal(other, own)


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6])
def test_few_rows_have_the_bits_of_many(rows, isa, pool, rng):
    a, b = rng.standard_normal((13, 2100), np.float32), rng.standard_normal((2100, 330), np.float32)
    bias, residual = rng.standard_normal(330, np.float32), rng.standard_normal((13, 330), np.float32)
    same = {"n": 330, "k": 2100, "lda": 2100, "ldc": 330, "ldr": 330, "trans_b": 0, **OWN_BLOCKS, **NO_ACTIVATION}
    few, many = (
        run_single(
            "gemm_f32",
            [a[:m], Weight(b), Weight(bias), residual[:m]],
            same | {"m": m},
            ("float32", (m, 330)),
            isa,
            pool,
        )
        for m in (rows, 13)
    )
    np.testing.assert_array_equal(few, many[:rows])


@pytest.mark.parametrize("columns", [1, 2, 3, 4])
@pytest.mark.parametrize("depth", [0, 3, 10, 32, 33])
def test_products_of_a_few_columns_have_the_bits_of_few_rows(columns, depth, isa, pool, rng):
    """Rows in the lanes of vectors: whole groups of them, some more, one alone; with gaps between rows."""
    a, b = rng.standard_normal((262, depth + 3), np.float32), rng.standard_normal((depth, columns), np.float32)
    bias, residual = rng.standard_normal(columns, np.float32), rng.standard_normal((262, columns + 1), np.float32)
    params = {"n": columns, "k": depth, "lda": depth + 3, "ldc": columns, "ldr": columns + 1, "trans_b": 0}
    params |= {**OWN_BLOCKS, **NO_ACTIVATION}

    def product(rows, added, **changes):
        operands = [a[rows], Weight(b), Weight(bias), added[rows] if added is not None else None]
        given = params | {"m": len(a[rows])} | changes
        return run_single("gemm_f32", operands, given, ("float32", (len(a[rows]), given["ldc"])), isa, pool)

    many = product(slice(262), residual)
    for first in (0, 31, 62, 192, 257):
        few = slice(first, first + 5)
        np.testing.assert_array_equal(product(few, residual), many[few])
    np.testing.assert_array_equal(product(slice(77), residual), many[:77])
    wide = product(slice(262), None, ldc=columns + 2)
    np.testing.assert_allclose(wide[:, :columns], a[:, :depth] @ b + bias, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(wide[:, columns:], 77)
