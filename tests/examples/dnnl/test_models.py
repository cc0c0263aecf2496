"""Whole networks on oneDNN: one region each where the library takes every operator, and results like onnxruntime's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tinycomp
from benchmarks import corpus
from tests.examples.dnnl.harness import needs_dnnl
from tests.models import light_models

pytestmark = needs_dnnl
LIGHT = {path.stem: path for path in light_models()}


def share_of_macs(module: tinycomp.Module, target: str = "dnnl") -> float:
    report = module.report()
    mine = sum(r.macs for r in report.regions if r.target == target)
    return mine / (sum(r.macs for r in report.regions) + sum(h.macs for h in report.hosts))


def assert_like_onnxruntime(module: tinycomp.Module, path: Path, feeds: dict[str, np.ndarray]) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for found, wanted in zip(module.run(feeds).values(), session.run(None, feeds), strict=True):
        assert np.abs(found - wanted).max() <= 1e-4 * np.abs(wanted).max()


@pytest.mark.parametrize("name", ["resnet50", "mobilenet_v2"])
def test_a_classifier_is_one_region(name: str) -> None:
    try:
        path = corpus.path(name)
    except ModuleNotFoundError as error:
        pytest.skip(str(error))
    module = tinycomp.compile(path, "dnnl", strict=True)
    assert [r.target for r in module.report().regions] == ["dnnl"]
    assert share_of_macs(module) == 1.0
    assert_like_onnxruntime(module, path, corpus.feeds(name))


@pytest.mark.long
@pytest.mark.parametrize(("name", "regions"), [("light_resnet50", 1), ("light_squeezenet", 1)])
def test_the_light_models_of_onnx(name: str, regions: int) -> None:
    module = tinycomp.compile(LIGHT[name], "dnnl")
    assert len(module.report().regions) == regions
    assert share_of_macs(module) == 1.0
    (spec,) = module.inputs
    feeds = {spec.name: np.random.default_rng(0).standard_normal(spec.shape).astype(np.float32)}
    assert_like_onnxruntime(module, LIGHT[name], feeds)
