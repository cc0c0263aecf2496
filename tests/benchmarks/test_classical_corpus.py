"""Models that libraries of classical machine learning export, against their own predictions and onnxruntime."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import numpy as np
import onnxruntime
import pytest

import tinycomp

for _library in ("sklearn", "skl2onnx", "onnxmltools", "lightgbm", "xgboost", "catboost", "pandas"):
    pytest.importorskip(_library, reason=f"{_library} trains or converts models of the corpus")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from benchmarks.classical_corpus import MODELS, ONNXRUNTIME_FAILS, Trained

HOSTS: dict[str, dict[str, int]] = {
    "logistic regression of names": {"Gather": 1},
    "linear discriminants": {"ai.onnx.ml::ZipMap": 1},
    "support vectors of three classes with probabilities": {"Gather": 1, "ai.onnx.ml::ZipMap": 1},
    "support vectors without probabilities": {"ai.onnx.ml::ZipMap": 1},
    "random forest": {"Gather": 1, "ai.onnx.ml::ZipMap": 1},
    "LightGBM of two classes": {"ai.onnx.ml::ZipMap": 1},
    "CatBoost of two classes": {"ai.onnx.ml::ZipMap": 1},
    "CatBoost of three classes": {"ai.onnx.ml::ZipMap": 1},
}
"""What the target c leaves to the host."""


def numbers(result: Any) -> np.ndarray:
    """Return a result as an array; a dictionary per row is a row of its values."""
    return np.array([list(row.values()) for row in result]) if isinstance(result, list) else np.asarray(result)


def assert_same(ours: Any, wanted: Any) -> None:
    """Compare labels exactly, and numbers by the greatest of them."""
    result, expected = numbers(ours), numbers(wanted)
    if expected.dtype.kind not in "f":
        assert result.reshape(-1).tolist() == expected.reshape(-1).tolist()
        return
    most = float(np.abs(expected).max())
    np.testing.assert_allclose(result, expected.reshape(result.shape), rtol=0, atol=2e-5 * most)


def trained(name: str) -> Trained:
    """Train and convert a model; what the libraries warn of is theirs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return MODELS[name]()


def test_there_are_enough() -> None:
    assert len(MODELS) >= 60


@pytest.mark.filterwarnings("ignore:.*the declaration is ignored")  # some converters declare other shapes
@pytest.mark.parametrize("name", MODELS)
def test_predictions(name: str) -> None:
    case = trained(name)
    module = tinycomp.compile(case.model, "c")
    results = list(module.run(case.feeds).values())
    assert len(results) == len(case.wanted)
    for ours, wanted in zip(results, case.wanted, strict=True):
        if wanted is not None:
            assert_same(ours, wanted)
    if name not in ONNXRUNTIME_FAILS:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(case.model.SerializeToString(), options)
        for ours, wanted in zip(results, session.run(None, case.feeds), strict=True):
            assert_same(ours, wanted)
    assert Counter(node.op for node in module.report().hosts) == HOSTS.get(name, {})
