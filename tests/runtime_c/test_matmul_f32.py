from __future__ import annotations

import numpy as np
import pytest

from tests.runtime_c.helpers import NO_ACTIVATION, run_single


def strides(array: np.ndarray, batch0: str, batch1: str, row: str, column: str | None) -> dict[str, int]:
    """Name the strides (in elements) of the four dimensions of a view."""
    values = [stride // array.itemsize for stride in array.strides]
    names = [batch0, batch1, row, column]
    return {name: value for name, value in zip(names, values, strict=True) if name is not None}


def matmul_params(a, b, c, residual, alpha=1.0):
    batch0, batch1, m, k = a.shape
    r = residual if residual is not None else c
    return {
        "batch0": batch0,
        "batch1": batch1,
        "m": m,
        "n": b.shape[3],
        "k": k,
        "alpha": alpha,
        "block_rows": 0,
        **strides(a, "a_batch0", "a_batch1", "a_row", "a_column"),
        **strides(b, "b_batch0", "b_batch1", "b_row", "b_column"),
        **strides(c, "c_batch0", "c_batch1", "c_row", None),
        **strides(r, "r_batch0", "r_batch1", "r_row", None),
        **NO_ACTIVATION,
    }


SIZES = [(1, 1, 1, 1, 1), (2, 3, 17, 33, 9), (1, 2, 200, 70, 40), (1, 1, 5, 3, 2100), (2, 2, 0, 3, 4), (1, 1, 3, 4, 0)]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_matmul_equals_numpy(size, transpose_a, transpose_b, isa, pool, rng):
    batch0, batch1, m, n, k = size
    a_stored = rng.standard_normal((batch0, batch1, k, m) if transpose_a else (batch0, batch1, m, k), np.float32)
    b_stored = rng.standard_normal((batch0, batch1, n, k) if transpose_b else (batch0, batch1, k, n), np.float32)
    a = a_stored.swapaxes(2, 3) if transpose_a else a_stored
    b = b_stored.swapaxes(2, 3) if transpose_b else b_stored
    c = np.empty((batch0, batch1, m, n), np.float32)
    bias = rng.standard_normal(n, np.float32)
    params = matmul_params(a, b, c, None, alpha=0.125)
    y = run_single("matmul_f32", [a_stored, b_stored, bias, None], params, ("float32", c.shape), isa, pool)
    expected = 0.125 * (a.astype(np.float64) @ b) + bias
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=2e-7 * (k + 20))


@pytest.mark.parametrize("block_rows", [1, 12, 200])
@pytest.mark.parametrize("transpose_a", [False, True])
def test_blocks_never_change_a_bit(block_rows, transpose_a, isa, pool, rng):
    stored = rng.standard_normal((2, 2, 30, 70) if transpose_a else (2, 2, 70, 30), np.float32)
    a, b = stored.swapaxes(2, 3) if transpose_a else stored, rng.standard_normal((2, 2, 30, 40), np.float32)
    c = np.empty((2, 2, 70, 40), np.float32)
    params = matmul_params(a, b, c, None)
    own, other = (
        run_single("matmul_f32", [stored, b, None, None], params | {"block_rows": n}, ("float32", c.shape), isa, pool)
        for n in (0, block_rows)
    )
    np.testing.assert_array_equal(other, own)


def test_matmul_reads_heads_in_place_and_broadcasts(isa, pool, rng):
    """Attention scores: queries and keys side by side in one array, one mask row for all heads."""
    rows, heads, width = 23, 3, 8
    qkv = rng.standard_normal((rows, 2, heads, width), np.float32)
    mask = rng.standard_normal((1, rows), np.float32)
    q, k = qkv[:, 0].transpose(1, 0, 2)[None], qkv[:, 1].transpose(1, 2, 0)[None]
    c = np.empty((1, heads, rows, rows), np.float32)
    params = matmul_params(q, k, c, np.broadcast_to(mask, c.shape))
    params["b_batch0"] = 0
    # The keys start behind the queries of the same row: hand in the slice from there on.
    keys = qkv.reshape(-1)[heads * width :]
    y = run_single("matmul_f32", [qkv, keys, None, mask], params, ("float32", c.shape), isa, pool)
    np.testing.assert_allclose(y, q.astype(np.float64) @ k + mask, rtol=1e-5, atol=1e-5)
