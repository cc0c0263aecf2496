"""Running models on oneDNN and comparing them with the host; every test here needs the library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from tinycomp_dnnl import TARGET
from tinycomp_dnnl.library import load
from tinycomp_dnnl.lowering import generate
from tinycomp_dnnl.program import Program

import tinycomp
from tests.targets.c.harness import Case, make_model
from tinycomp.driver.pipeline import Pipeline, partitioning_passes
from tinycomp.errors import TargetError
from tinycomp.runtime.module import Module

TOLERANCE = 1e-5
"""Largest difference, as a share of the largest result."""


def floats(*shape: int, seed: int = 0, low: float = -3.0, high: float = 3.0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


def why_missing() -> str:
    try:
        TARGET.require()
    except TargetError as error:
        return str(error)
    return ""


needs_dnnl = pytest.mark.skipif(bool(why_missing()), reason=f"no oneDNN: {why_missing()}")


def compiled(model: onnx.ModelProto, target: Any = "dnnl", **options: Any) -> Module:
    """Compile with the partitioning passes alone, so that no simplification takes the node under test away."""
    targets = () if target == "host" else (TARGET,)
    return tinycomp.compile(model, target, passes=partitioning_passes(targets), **options)


def program_of(model: onnx.ModelProto) -> Program:
    """The program of a model that is one region."""
    graph = Pipeline(partitioning_passes((TARGET,)))(tinycomp.from_onnx(model))
    (region,) = graph.nodes
    return generate(region, load())


def assert_close(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray], tolerance: float = TOLERANCE) -> None:
    assert len(found) == len(wanted)
    for f, w in zip(found, wanted, strict=True):
        assert (f.dtype, f.shape) == (w.dtype, w.shape)
        assert np.isfinite(w).all()
        np.testing.assert_allclose(f, w, rtol=0, atol=tolerance * max(float(np.abs(w).max()), 1e-3))


def check(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> Module:
    """Compare with the host; everything must have run in one region."""
    module = compiled(model, strict=True)
    assert [r.target for r in module.report().regions] == ["dnnl"]
    wanted = compiled(model, "host").run(feeds)
    assert_close(list(module.run(feeds).values()), list(wanted.values()))
    return module


def behind_convolution(case: Case) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The node of a case on the results of convolutions, which the library gives in layouts of its own."""
    model = case.model()
    nodes, constants = [], {}
    for name, x in case.feeds.items():
        if x.ndim == 4:
            weights = np.eye(x.shape[1], dtype=np.float32).reshape(x.shape[1], x.shape[1], 1, 1)
            constants[f"{name}_w"] = weights * np.float32(1.25)
            nodes.append(helper.make_node("Conv", [name, f"{name}_w"], [f"{name}_made"], name=f"{name}_conv"))
    node = model.graph.node[0]
    node.input[:] = [f"{n}_made" if f"{n}_w" in constants else n for n in node.input]
    constants |= {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    return make_model([*nodes, node], case.feeds, constants, list(node.output), case.opset), case.feeds
