from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

corpus = pytest.importorskip("benchmarks.corpus", reason="the corpus is part of the source tree, not of the package")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TINYCOMP_CORPUS", str(tmp_path / "corpus"))
    return tmp_path / "corpus"


@pytest.mark.parametrize("name", corpus.names())
def test_feeds_fit_the_inputs_and_follow_the_seed(name: str) -> None:
    first, again, other = corpus.feeds(name), corpus.feeds(name), corpus.feeds(name, seed=1)
    for wanted in corpus.architecture(name).inputs:
        value = first[wanted.name]
        assert value.shape == wanted.shape
        assert value.dtype == (np.int64 if wanted.below else np.float32)
        np.testing.assert_array_equal(value, again[wanted.name])
        assert not np.array_equal(value, other[wanted.name])


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(KeyError, match=r"no model 'resnet51' in the corpus; there are resnet18, resnet50, "):
        corpus.path("resnet51")


@pytest.mark.parametrize("dynamic", [False, True], ids=["batch_1", "batch_n"])
def test_a_model_is_exported_once_and_runs(cache: Path, dynamic: bool) -> None:
    pytest.importorskip("torch", reason="exporting the corpus needs PyTorch")
    ort = pytest.importorskip("onnxruntime", reason="exported models are verified by onnxruntime")
    file = corpus.path("lstm_bidir", dynamic_batch=dynamic)
    written = file.stat().st_mtime_ns
    assert [path.name for path in cache.iterdir()] == [file.name]
    assert corpus.path("lstm_bidir", dynamic_batch=dynamic) == file
    assert file.stat().st_mtime_ns == written

    batch = 3 if dynamic else 1
    session = ort.InferenceSession(file, providers=["CPUExecutionProvider"])
    (log_probs,) = session.run(["log_probs"], corpus.feeds("lstm_bidir", batch=batch))
    assert log_probs.shape == (batch, 100, 29)
    np.testing.assert_allclose(np.exp(log_probs).sum(axis=-1), 1, rtol=1e-4)
