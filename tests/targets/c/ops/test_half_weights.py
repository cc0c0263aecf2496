"""Weights that half precision holds exactly are kept in it, where memory decides how fast a product is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

import tinycomp
from tests.cases.case import make_model
from tinycomp.targets.c.ops import matmul

RNG = np.random.default_rng(0)
SHAPE = (512, 600)
RANDOM = RNG.standard_normal(SHAPE).astype(np.float32)
WEIGHTS = {
    "float16": RANDOM.astype(np.float16).astype(np.float32),
    "bfloat16": (RANDOM * np.float32(1e20)).astype(ml_dtypes.bfloat16).astype(np.float32),
    "float32": RANDOM,
    "one that is not": np.where(np.arange(600) == 577, RANDOM, RANDOM.astype(np.float16).astype(np.float32)),
    "infinite": np.where(np.arange(600) == 3, np.float32(np.inf), np.float32(0.5)) * np.ones(SHAPE, np.float32),
    "NaN": np.where(np.arange(600) == 3, np.float32(np.nan), np.float32(0.5)) * np.ones(SHAPE, np.float32),
}
HALF = {"float16", "bfloat16"}


def model(weights: np.ndarray, rows: Any, op: str = "MatMul", **attrs: Any) -> Any:
    """Return a product with weights, of their dtype."""
    sizes = weights.shape[::-1] if attrs.get("transB") else weights.shape
    node = helper.make_node(op, ["x", "w"], ["y"], **attrs)
    x = np.empty((), weights.dtype)
    return make_model([node], {"x": x}, {"w": weights}, ["y"], symbolic={"x": [rows, sizes[0]]})


def kernels(module: tinycomp.Module, rows: int) -> list[str]:
    feeds = {"x": np.zeros((rows, 512), np.float32)}
    return [row.kernel for row in module.profile(feeds, runs=1).rows]


@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize(("op", "attrs"), [("MatMul", {}), ("Gemm", {}), ("Gemm", {"transB": 1})])
def test_what_half_precision_holds_is_kept_in_it(kind: str, op: str, attrs: dict[str, Any], monkeypatch: Any) -> None:
    weights = np.ascontiguousarray(WEIGHTS[kind].T) if attrs else WEIGHTS[kind]
    module = tinycomp.compile(model(weights, "rows", op, **attrs), strict=True)
    assert kernels(module, 2) == ["gemm_half_f32" if kind in HALF else "gemm_f32"]
    monkeypatch.setattr(matmul, "LARGE_WEIGHTS", 1 << 40)
    plain = tinycomp.compile(model(weights, "rows", op, **attrs), strict=True)
    assert kernels(plain, 2) == ["gemm_f32"]
    for rows in (0, 1, 3, 7, 250):
        x = RNG.standard_normal((rows, 512)).astype(np.float32)
        np.testing.assert_array_equal(module(x), plain(x))


@pytest.mark.parametrize(("rows", "kernel"), [(1, "gemm_half_f32"), (16, "gemm_half_f32"), (17, "gemm_f32")])
def test_many_rows_would_widen_the_weights_for_nothing(rows: int, kernel: str) -> None:
    assert kernels(tinycomp.compile(model(WEIGHTS["float16"], rows)), rows) == [kernel]


def test_small_weights_are_near_enough() -> None:
    assert kernels(tinycomp.compile(model(WEIGHTS["float16"][:, :500], 1)), 1) == ["gemm_f32"]


def test_a_factor_that_is_no_power_of_two_takes_more_bits() -> None:
    weights = np.round(RANDOM * 64) / 64
    assert kernels(tinycomp.compile(model(weights, 1, "Gemm", alpha=0.5)), 1) == ["gemm_half_f32"]
    assert kernels(tinycomp.compile(model(weights, 1, "Gemm", alpha=0.3)), 1) == ["gemm_f32"]


def test_saved_modules_hold_half_as_much(tmp_path: Path) -> None:
    sizes = {}
    x = RNG.standard_normal((2, 512)).astype(np.float32)
    for kind in ("float16", "float32"):
        module = tinycomp.compile(model(WEIGHTS[kind], "rows"))
        module.save(tmp_path / kind)
        np.testing.assert_array_equal(tinycomp.load(tmp_path / kind)(x), module(x))
        sizes[kind] = (tmp_path / kind).stat().st_size
    assert sizes["float32"] - sizes["float16"] > 0.45 * WEIGHTS["float32"].nbytes


def test_models_in_half_precision() -> None:
    weights = RANDOM.astype(np.float16)
    module = tinycomp.compile(model(weights, "rows"), strict=True)
    x = RNG.standard_normal((1, 512)).astype(np.float16)
    assert "gemm_half_f32" in [row.kernel for row in module.profile({"x": x}, runs=1).rows]
    exact = (x.astype(np.float64) @ weights.astype(np.float64)).astype(np.float16)
    np.testing.assert_allclose(module(x), exact, rtol=2e-3, atol=1e-2)
