"""Attention of ONNX; more of it, with lengths and pasts, is in ``ops/test_cached_attention.py``."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.targets.c.cases.values import floats
from tests.targets.c.harness import Case

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
