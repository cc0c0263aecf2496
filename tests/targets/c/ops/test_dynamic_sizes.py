"""Operators of which one program serves every size, beside the host: random numbers, selections, blocks, n-grams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import helper

import tinycomp
from tests.cases.values import floats
from tests.targets.c.harness import make_model

GRAMS = {
    "max_gram_length": 2, "min_gram_length": 1, "max_skip_count": 1, "mode": "TF", "ngram_counts": [0, 2],
    "ngram_indexes": [2, 0, 1], "pool_int64s": [0, 1, 1, 2],
}  # fmt: skip
OPERATORS: Mapping[str, tuple[str, Sequence[Any], int, Mapping[str, Any]]] = {
    "Det": ("Det", ["n", 3, 3], 1, {}),
    "RandomUniformLike": ("RandomUniformLike", ["n", 5], 1, {"seed": 1.0}),
    "RandomNormalLike": ("RandomNormalLike", ["n", "m"], 1, {"seed": 1.0}),
    "Unique": ("Unique", ["n", "m"], 4, {}),
    "Unique of rows": ("Unique", ["n", 2], 4, {"axis": 0, "sorted": 0}),
    "MaxPool": ("MaxPool", ["n", 2, "m", 7], 2, {"kernel_shape": [2, 3], "pads": [0, 1, 0, 1]}),
    "TfIdfVectorizer": ("TfIdfVectorizer", ["n", "m"], 1, GRAMS),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_one_program_serves_every_size(name: str) -> None:
    op, shape, outputs, attrs = OPERATORS[name]
    dtype = np.int64 if op == "TfIdfVectorizer" else np.float32
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, ["x"], results, "node", **attrs)
    model = make_model([node], {"x": np.zeros((), dtype)}, {}, results, symbolic={"x": shape})
    module, host = (tinycomp.compile(model, target) for target in ("c", "host"))
    assert not module.report().hosts, str(module.report())
    for n, m in ((4, 6), (9, 3), (2, 8)):
        sizes = [{"n": n, "m": m}.get(size, size) for size in shape]
        x = np.round(2 * floats(*sizes, seed=n)).astype(dtype)
        for found, wanted in zip(module.run({"x": x}).values(), host.run({"x": x}).values(), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
