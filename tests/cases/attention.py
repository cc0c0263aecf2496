"""Attention of ONNX; more of it, with lengths and pasts, is in ``ops/test_cached_attention.py``."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.cases.case import Case
from tests.cases.values import floats

HEADS = {"q_num_heads": 4, "kv_num_heads": 2}


def attentions() -> Iterator[Case]:
    """Return heads apart and side by side, one query and many, masks and a past."""
    for rows, keys in ((1, 9), (5, 7), (70, 600)):
        apart = (floats(2, 4, rows, 8), floats(2, 2, keys, 8), floats(2, 2, keys, 12))
        yield Case("Attention", apart, {"is_causal": 1}, opset=24, rtol=1e-4, onnxruntime=False)
        beside = (floats(2, rows, 32), floats(2, keys, 16), floats(2, keys, 24))
        yield Case("Attention", beside, HEADS, opset=23, rtol=1e-4, onnxruntime=False)
        truths = np.arange(rows * keys).reshape(rows, keys) % 3 > 0
        for mask in (floats(2, 1, rows, keys), truths):
            yield Case("Attention", (*apart, mask), {"softcap": 2.0}, opset=24, rtol=1e-4, onnxruntime=False)


def edges() -> Iterator[Case]:
    """A past whose presents are asked for, a short mask, rotary embeddings, and heads that do not fit."""
    q, k = floats(2, 4, 3, 8), floats(2, 2, 5, 8)
    past = [None, floats(2, 2, 4, 8, seed=3), floats(2, 2, 4, 8, seed=4)]
    yield Case("Attention", [q, k, k, *past], {}, 23, 3, rtol=1e-4, onnxruntime=False)
    short = [q, k, k, floats(3, 7), *past[1:]]
    yield Case("Attention", short, {"qk_matmul_output_mode": 3}, 23, 4, rtol=1e-4, onnxruntime=False)
    beside = [floats(2, 3, 32), floats(2, 5, 16), floats(2, 5, 16)]
    yield Case("Attention", beside, HEADS, 23, rtol=1e-4, onnxruntime=False)
    for heads in (0, 5):
        yield Case("Attention", beside, {"q_num_heads": heads, "kv_num_heads": 2}, 23, refused="Attention")
    yield Case("Attention", [q, k, floats(2, 2, 6, 8)], {}, 23, refused="Attention|does not fit")
    for interleaved in (0, 1):
        caches = [floats(2, 3, 4, seed=1), floats(2, 3, 4, seed=2)]
        yield Case("RotaryEmbedding", [q, *caches], {"interleaved": interleaved}, 23, onnxruntime=False)
        tables = [floats(9, 4, seed=1), floats(9, 4, seed=2), np.array([[0, 1, 2], [4, 8, 1]])]
        yield Case("RotaryEmbedding", [q, *tables], {"interleaved": interleaved}, 23, onnxruntime=False)


def rows() -> Iterator[Case]:
    """Return the rows of the family."""
    yield from attentions()
    yield from edges()
