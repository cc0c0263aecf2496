"""Whole networks through the default pipeline: everything on C in few regions, and right against onnxruntime."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

import tinycomp
from tests.models import folder_models, light_models
from tinycomp.checking import random_feeds
from tinycomp.data import digits, digits_model
from tinycomp.runtime.module import Module

LIMIT = 1e-4
"""Largest difference allowed, as a share of the largest output."""
REGIONS = 3
MACS = 0.99
FOLDER = ("ad_autoencoder", "ic_resnet8", "kws_dscnn", "vww_mobilenet")


def onnxruntime_results(path: Path, feeds: dict[str, np.ndarray], literally: bool = False) -> list[np.ndarray]:
    """Run a model; ``literally`` as it stands, without kernels that merge quantised layers and round otherwise.

    On x86 without VNNI those kernels also add pairs of products in 16 bits, which saturates where weights are large.
    """
    options = ort.SessionOptions()
    if literally:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 2
    return list(ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, feeds))


def assert_offloaded(module: Module) -> None:
    """Nearly all of the work is on C in at most three regions; what is not has a reason."""
    report = module.report()
    assert report.totals["macs"]["share"] >= MACS
    assert len(report.regions) <= REGIONS
    assert [h.name for h in report.hosts if not h.reasons] == []


def assert_near(found: np.ndarray, wanted: np.ndarray, limit: float = LIMIT) -> None:
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    assert np.abs(found.astype(np.float64) - wanted).max() <= limit * np.abs(wanted.astype(np.float64)).max()


def assert_steps(found: np.ndarray, wanted: np.ndarray) -> None:
    """Quantised results may be one step off on one element in a hundred."""
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    steps = np.abs(found.astype(int) - wanted.astype(int))
    assert steps.max() <= 1
    assert (steps > 0).mean() <= 0.01


@pytest.mark.rows(4)
@pytest.mark.parametrize("path", light_models(), ids=lambda p: p.stem)
def test_light_models(path):
    module = tinycomp.compile(path, threads=2)
    assert_offloaded(module)
    feeds = random_feeds(module.inputs)
    for found, wanted in zip(module.run(feeds).values(), onnxruntime_results(path, feeds), strict=True):
        assert_near(found, wanted)


@pytest.mark.parametrize("name", FOLDER)
def test_folder_models_in_float32(models, name):
    path = models / f"{name}_fp32.onnx"
    module = tinycomp.compile(path)
    assert_offloaded(module)
    with np.load(path.with_suffix(".npz")) as stored:
        found = module(stored["input"])
        assert_near(found, stored["output"])
        assert_near(found, onnxruntime_results(path, {module.inputs[0].name: stored["input"]})[0])


@pytest.mark.parametrize("name", FOLDER)
def test_folder_models_in_int8(models, name):
    path = models / f"{name}_int8.onnx"
    module = tinycomp.compile(path)
    assert_offloaded(module)
    with np.load(path.with_suffix(".npz")) as stored:
        assert_steps(module(stored["input"]), stored["output"])


@pytest.mark.parametrize("path", [p for p in folder_models() if "int8" in p.stem], ids=lambda p: p.stem)
def test_folder_models_in_int8_on_noise(path):
    """On noise many sums lie half-way between two steps, and whole runtimes disagree: most results are still equal."""
    module = tinycomp.compile(path)
    (spec,) = module.inputs
    shape = [d if isinstance(d, int) else 16 for d in spec.shape or ()]
    feed = np.random.default_rng(3).integers(-128, 128, shape).astype(np.int8)
    wanted = onnxruntime_results(path, {spec.name: feed}, literally=True)[0]
    assert (module(feed) != wanted).mean() <= 0.1


@pytest.mark.parametrize("quantized", [False, True])
def test_digits(quantized):
    path = digits_model(quantized)
    module = tinycomp.compile(path)
    assert_offloaded(module)
    images, labels = digits()
    found = module(images)
    assert (found.argmax(1) == labels).mean() >= 0.98
    (wanted,) = onnxruntime_results(path, {"image": images}, literally=quantized)
    if quantized:  # one step of the last layer moves the probabilities by far more than rounding does
        assert (np.abs(found - wanted) > 1e-3).mean() <= 0.01
    else:
        assert_near(found, wanted)


CORPUS = ("resnet50", "mobilenet_v2", "bert", "unet", "llama", "shufflenet_v2", "diffusion_unet", "tcn")


@pytest.mark.parametrize("name", CORPUS)
def test_corpus_models(name):
    path = corpus_path(name)
    from benchmarks import corpus

    module = tinycomp.compile(path, threads=2)
    assert_offloaded(module)
    feeds = corpus.feeds(name)
    for found, wanted in zip(module.run(feeds).values(), onnxruntime_results(path, feeds), strict=True):
        assert_near(found, wanted)


@pytest.mark.parametrize("name", ["llama", "shufflenet_v2", "ssd_nms"])
def test_corpus_models_with_a_symbolic_batch(name):
    """The plan for one batch says nothing about the next one."""
    path = corpus_path(name, dynamic_batch=True)
    from benchmarks import corpus

    module = tinycomp.compile(path, threads=2)
    for batch in (2, 3, 2):
        feeds = corpus.feeds(name, seed=batch, batch=batch)
        for found, wanted in zip(module.run(feeds).values(), onnxruntime_results(path, feeds), strict=True):
            assert_near(found, wanted)


def corpus_path(name: str, dynamic_batch: bool = False) -> Path:
    """The exported model; skips the test where it cannot be exported."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed, which exports the corpus")
    from benchmarks import corpus

    try:
        return corpus.path(name, dynamic_batch)
    except ModuleNotFoundError as error:
        pytest.skip(str(error))
