from __future__ import annotations

import numpy as np
import pytest

from tests.runtime_c.helpers import run_single


def element_strides(array: np.ndarray, letter: str, names: tuple[str, ...]) -> dict[str, int]:
    """Name the strides of a view's dimensions, in elements; the last of V, Q and Y is always 1."""
    steps = [stride // array.itemsize for stride in array.strides]
    return {f"{letter}_{name}": step for name, step in zip(names, steps, strict=False)}


def attention_params(y, q, k, v, mask, **more):
    three, four = ("batch", "head", "row"), ("batch", "head", "row", "column")
    return {
        "batch": q.shape[0], "heads": q.shape[1], "group": q.shape[1] // k.shape[1] if k.shape[1] else 1,
        "rows": q.shape[2], "keys": k.shape[2], "depth": q.shape[3], "value_depth": v.shape[3],
        "causal": 0, "past": 0, "scale": 0.125,
        **element_strides(y, "y", three), **element_strides(q, "q", three), **element_strides(k, "k", four),
        **element_strides(v, "v", three), **element_strides(mask if mask is not None else y, "mask", four), **more,
    }  # fmt: skip


def expected(q, k, v, mask, params):
    k, v = (np.repeat(x, params["group"], 1) for x in (k, v))
    scores = params["scale"] * (q.astype(np.float64) @ k.swapaxes(2, 3).astype(np.float64))
    if mask is not None:
        scores = scores + mask
    if params["causal"]:
        rows, keys = scores.shape[2:]
        scores = np.where(np.arange(keys) <= np.arange(rows)[:, None] + params["past"], scores, -np.inf)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)) @ v


# batch, heads, group, rows, keys, depth, value_depth: one block, tails, several blocks of keys and of queries
SIZES = [
    (1, 1, 1, 1, 1, 1, 1),
    (2, 4, 2, 7, 33, 8, 5),
    (1, 3, 1, 197, 197, 64, 64),
    (1, 2, 1, 50, 700, 32, 72),
    (1, 1, 1, 5, 256, 80, 130),
    (1, 6, 3, 400, 257, 16, 16),
    (1, 2, 1, 0, 4, 4, 4),
]


def draw(size, rng):
    batch, heads, group, rows, keys, depth, value_depth = size
    q = rng.standard_normal((batch, heads, rows, depth), np.float32)
    k = rng.standard_normal((batch, heads // group, keys, depth), np.float32)
    return q, k, rng.standard_normal((batch, heads // group, keys, value_depth), np.float32)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("mask_shape", [None, "full", "row", "key", "one"])
def test_attention_equals_numpy(size, mask_shape, isa, pool, rng):
    q, k, v = draw(size, rng)
    y = np.empty((*q.shape[:3], v.shape[3]), np.float32)
    scores = (*q.shape[:3], k.shape[2])
    shapes = {"full": scores, "row": (1, 1, scores[2], 1), "key": (scores[0], 1, 1, scores[3]), "one": (1, 1, 1, 1)}
    stored = None if mask_shape is None else rng.standard_normal(shapes[mask_shape], np.float32)
    mask = None if stored is None else np.broadcast_to(stored, scores)
    params = attention_params(y, q, k, v, mask)
    result = run_single("attention_f32", [q, k, v, stored], params, ("float32", y.shape), isa, pool)
    np.testing.assert_allclose(result, expected(q, k, v, mask, params), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("past", [-3, 0, 5, 300])
def test_causal(past, isa, pool, rng):
    q, k, v = draw((1, 2, 1, 300, 600, 24, 24), rng)
    params = attention_params(q, q, k, v, None, causal=1, past=past)
    result = run_single("attention_f32", [q, k, v, None], params, ("float32", q.shape), isa, pool)
    blind = max(-past, 0)
    assert np.isnan(result[:, :, :blind]).all(), "a query that sees no key"
    wanted = expected(q[:, :, blind:], k, v, None, {**params, "past": past + blind})
    np.testing.assert_allclose(result[:, :, blind:], wanted, rtol=2e-5, atol=2e-6)


def test_whole_blocks_of_keys_may_be_masked(isa, pool, rng):
    q, k, v = draw((1, 1, 1, 9, 600, 16, 16), rng)
    mask = np.zeros((1, 1, 9, 600), np.float32)
    mask[..., :300] = -np.inf
    mask[:, :, 4, 560:] = -np.inf
    params = attention_params(q, q, k, v, mask)
    result = run_single("attention_f32", [q, k, v, mask], params, ("float32", q.shape), isa, pool)
    np.testing.assert_allclose(result, expected(q, k, v, mask, params), rtol=2e-5, atol=2e-6)


def test_heads_are_read_and_written_in_place(isa, pool, rng):
    """Queries, keys and values side by side in one row per token, as one product leaves them."""
    tokens, heads, width = 70, 3, 20
    qkv = rng.standard_normal((1, tokens, 3, heads, width), np.float32)
    q, k, v = (qkv[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
    y = np.empty((1, tokens, heads, width), np.float32)
    params = attention_params(y.transpose(0, 2, 1, 3), q, k, v, None)
    slices = [qkv.reshape(-1)[i * heads * width :] for i in range(3)]
    result = run_single("attention_f32", [*slices, None], params, ("float32", y.shape), isa, pool)
    wanted = expected(q, k, v, None, params).transpose(0, 2, 1, 3)
    np.testing.assert_allclose(result, wanted, rtol=2e-5, atol=2e-6)


def test_nan_spreads_over_its_row_alone(isa, pool, rng):
    q, k, v = draw((1, 1, 1, 20, 300, 8, 8), rng)
    q[0, 0, 3, 2] = np.nan
    params = attention_params(q, q, k, v, None)
    result = run_single("attention_f32", [q, k, v, None], params, ("float32", q.shape), isa, pool)
    assert np.isnan(result[0, 0, 3]).all()
    assert np.isfinite(np.delete(result, 3, 2)).all()
