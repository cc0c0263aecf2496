"""Weights that are rounded to half precision, as a user asks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

import tinycomp
from tests.cases.case import make_model
from tinycomp.errors import OptionError, VerifyError
from tinycomp.frontend import import_model
from tinycomp.passes.round_weights import RoundWeights
from tinycomp.runtime.native.processor import IsaShape, default_isa, isa_shape
from tinycomp.targets.c.ops import matmul
from tinycomp.targets.c.tuning import choices

RNG = np.random.default_rng(0)
LARGE = RNG.standard_normal((512, 640)).astype(np.float32)
SMALL = RNG.standard_normal((640, 10)).astype(np.float32)
DTYPES = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}


def model(large: np.ndarray = LARGE, op: str = "MatMul", **attrs: Any) -> Any:
    """A product with large weights and one with small ones; the large ones are a result as well."""
    nodes = [
        helper.make_node(op, ["x", "large"], ["h"], **attrs),
        helper.make_node("MatMul", ["h", "small"], ["y"]),
        helper.make_node("Identity", ["large"], ["weights"]),
    ]
    constants = {"large": large, "small": SMALL}
    return make_model(nodes, {"x": LARGE[:1]}, constants, ["y", "weights"], symbolic={"x": ["rows", 512]})


@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize(("op", "attrs"), [("MatMul", {}), ("Gemm", {"transB": 1})])
def test_large_weights_of_products_are_rounded(
    precision: Any, op: str, attrs: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = IsaShape(*isa_shape(default_isa())[:2])  # of a processor that gains nothing by rounding the other factor
    for each in (choices, matmul):
        monkeypatch.setattr(each, "isa_shape", lambda isa: shape)
    large = np.ascontiguousarray(LARGE.T) if attrs else LARGE
    module = tinycomp.compile(model(large, op, **attrs), precision=precision, strict=True)
    x = RNG.standard_normal((3, 512)).astype(np.float32)
    found = module.run({"x": x})
    rounded = LARGE.astype(DTYPES[precision]).astype(np.float32)
    np.testing.assert_allclose(found["y"], x @ rounded @ SMALL, rtol=1e-4, atol=1e-2)
    assert not np.allclose(found["y"], x @ LARGE @ SMALL, rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(found["weights"], large, "what is no product reads them as they are")
    kernels = [row.kernel for row in module.profile({"x": x}, runs=1).rows]
    assert {"gemm_half_f32", "gemm_f32"} <= set(kernels)


def test_nothing_is_rounded_unasked() -> None:
    x = RNG.standard_normal((3, 512)).astype(np.float32)
    for options in ({}, {"precision": "f32"}):
        module = tinycomp.compile(model(), **options)
        np.testing.assert_allclose(module.run({"x": x})["y"], x @ LARGE @ SMALL, rtol=1e-4, atol=1e-3)
        assert not any("rounded" in note for note in module.report().notes)


def test_reports_say_what_it_changes(tmp_path: Path) -> None:
    notes = tinycomp.compile(model(), precision="bf16").report().notes
    assert notes[0] == "Large weights of products are rounded to bf16."
    module = tinycomp.compile(model(), precision="bf16", verify=True)
    note = module.report().notes[0]
    assert note.startswith("Large weights of products are rounded to bf16. Results of random inputs change by 0.00")
    assert note.endswith(" of the largest one.")
    module.save(tmp_path / "m.tcm")
    assert tinycomp.load(tmp_path / "m.tcm").report().notes[0] == note


def test_verification_refuses_what_changes_too_much() -> None:
    """Differences of numbers that rounding makes equal."""
    large = np.ones((1024, 512), np.float32)
    large[:, 0] = 1.001
    nodes = [helper.make_node("MatMul", ["x", "large"], ["h"]), helper.make_node("MatMul", ["h", "apart"], ["y"])]
    apart = np.zeros((512, 1), np.float32)
    apart[:2, 0] = 1, -1
    close = make_model(nodes, {"x": np.ones((2, 1024), np.float32)}, {"large": large, "apart": apart}, ["y"])
    with pytest.raises(VerifyError, match="the pass round-weights changes the results"):
        tinycomp.compile(close, precision="bf16", verify=True)


@pytest.mark.parametrize("odd", [1e6, np.inf, np.nan])
def test_what_float16_cannot_hold_is_left_alone(odd: float) -> None:
    large = LARGE.copy()
    large[5, 5] = odd
    graph = import_model(model(large))
    assert not RoundWeights("f16").run(graph)
    assert RoundWeights("bf16").run(graph) == np.isfinite(odd)


def test_weights_of_several_products_are_rounded_once() -> None:
    nodes = [helper.make_node("MatMul", [x, "large"], [y]) for x, y in (("x", "a"), ("x2", "b"))]
    feeds = dict.fromkeys(("x", "x2"), np.ones((1, 512), np.float32))
    graph = import_model(make_model(nodes, feeds, {"large": LARGE}, ["a", "b"]))
    assert RoundWeights("f16").run(graph)
    first, second = (node.operand(1) for node in graph.nodes)
    assert first is second
    assert not RoundWeights("f16").run(graph), "they are rounded already"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"precision": "fp16"}, r'precision: .*expected "f32", "bf16", "f16" or None; found .fp16'),
        (
            {"precision": "bf16", "passes": "simplify"},
            r"rounded by the default passes only.*round-weights\{precision=bf16\}",
        ),
    ],
)
def test_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        tinycomp.compile(model(), **options)


def test_the_pass_by_its_name() -> None:
    module = tinycomp.compile(model(), "host", passes="round-weights{precision=f16}")
    x = RNG.standard_normal((1, 512)).astype(np.float32)
    rounded = LARGE.astype(np.float16).astype(np.float32)
    np.testing.assert_allclose(module.run({"x": x})["y"], x @ rounded @ SMALL, rtol=1e-4, atol=1e-3)
