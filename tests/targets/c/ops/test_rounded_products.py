"""Products and convolutions of factors that are rounded to bfloat16: when that is done, and what reports say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

import tinycomp
from tests.cases.case import make_model
from tinycomp.runtime.native.processor import IsaShape, default_isa, isa_shape
from tinycomp.targets.c.ops import matmul
from tinycomp.targets.c.tuning import choices

RNG = np.random.default_rng(0)
ROUNDED = {"conv2d_bf16_f32", "gemm_bf16_f32"}
BFLOAT16, FLOAT = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float32)


@pytest.fixture
def pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let code generators take this machine for one that multiplies pairs of bfloat16; kernels do without."""
    shape = IsaShape(*isa_shape(default_isa())[:2], pairs=True)
    for module in (choices, matmul):
        monkeypatch.setattr(module, "isa_shape", lambda isa: shape)


def network(dtype: np.dtype[Any] = FLOAT, *, of_product: np.dtype[Any] | None = None) -> Any:
    """A convolution of 1x1, Relu, and a product with large weights, both of a dtype; the product may have its own."""
    filters = RNG.standard_normal((64, 32, 1, 1)).astype(dtype)
    weights = (RNG.standard_normal((1024, 300)) / 32).astype(of_product or dtype)
    last = helper.np_dtype_to_tensor_dtype(weights.dtype)
    nodes = [
        helper.make_node("Conv", ["x", "filters"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Reshape", ["r", "shape"], ["f"]),
        helper.make_node("Cast", ["f"], ["g"], to=last),
        helper.make_node("MatMul", ["g", "weights"], ["y"]),
    ]
    constants = {"filters": filters, "weights": weights, "shape": np.array([16, 1024])}
    return make_model(nodes, {"x": np.empty((1, 32, 16, 16), dtype)}, constants, ["y"], 22)


def image(dtype: np.dtype[Any] = FLOAT) -> np.ndarray:
    return RNG.standard_normal((1, 32, 16, 16)).astype(dtype)


def kernels(module: tinycomp.Module, dtype: np.dtype[Any] = FLOAT) -> set[str]:
    rows = module.profile({"x": image(dtype)}, runs=1).rows
    return {row.kernel for row in rows if row.kernel.startswith(("conv", "gemm"))}


@pytest.mark.usefixtures("pairs")
def test_factors_are_rounded_where_asked_for_and_results_are_near() -> None:
    model, x = network(), image()
    module, plain = tinycomp.compile(model, precision="bf16", strict=True), tinycomp.compile(model)
    assert kernels(module) == ROUNDED
    assert not kernels(plain) & ROUNDED
    exact, found = plain(x), module(x)
    difference = np.abs(found - exact).max() / np.abs(exact).max()
    assert 1e-4 < difference < 2e-2


def test_a_processor_that_gains_nothing_computes_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    shape = IsaShape(*isa_shape(default_isa())[:2])
    for module in (choices, matmul):
        monkeypatch.setattr(module, "isa_shape", lambda isa: shape)
    assert not kernels(tinycomp.compile(network(), precision="bf16")) & ROUNDED


@pytest.mark.usefixtures("pairs")
def test_float16_stays_exact() -> None:
    assert not kernels(tinycomp.compile(network(), precision="f16")) & ROUNDED
    model = network(np.dtype(np.float16))
    assert not kernels(tinycomp.compile(model), np.dtype(np.float16)) & ROUNDED


@pytest.mark.usefixtures("pairs")
def test_models_in_bfloat16_are_computed_in_it_unless_told_otherwise() -> None:
    model, x = network(BFLOAT16), image(BFLOAT16)
    module = tinycomp.compile(model, strict=True, verify=True)
    assert kernels(module, BFLOAT16) == ROUNDED
    note = "Factors of products may be rounded to bf16 on c. Results of its regions for random inputs differ by "
    assert any(text.startswith(note) for text in module.report().notes)
    plain = tinycomp.compile(model, precision="f32")
    assert not kernels(plain, BFLOAT16) & ROUNDED
    assert plain.report().notes == ()
    found, exact = (each(x).astype(np.float32) for each in (module, plain))
    np.testing.assert_allclose(found, exact, rtol=0.02, atol=0.02 * np.abs(exact).max())


@pytest.mark.usefixtures("pairs")
@pytest.mark.parametrize(("dtype", "of_product"), [(BFLOAT16, FLOAT), (FLOAT, BFLOAT16)])
def test_a_model_that_asks_for_float32_anywhere_gets_it(dtype: np.dtype[Any], of_product: np.dtype[Any]) -> None:
    assert not kernels(tinycomp.compile(network(dtype, of_product=of_product)), dtype) & ROUNDED


@pytest.mark.usefixtures("pairs")
def test_saved_modules_keep_the_kernels_and_the_option(tmp_path: Path) -> None:
    module = tinycomp.compile(network(), precision="bf16", options={"c": {"precision": "bf16"}})
    module.save(tmp_path / "m.tcm")
    loaded = tinycomp.load(tmp_path / "m.tcm")
    x = image()
    np.testing.assert_array_equal(loaded(x), module(x))
    assert kernels(loaded) == ROUNDED
    assert loaded.report().notes == module.report().notes


@pytest.mark.usefixtures("pairs")
def test_large_weights_are_kept_in_bfloat16(tmp_path: Path) -> None:
    """Half a megabyte of the product's 1.2: only those count as large."""
    sizes = {}
    model = network()
    for precision in ("f32", "bf16"):
        tinycomp.compile(model, precision=precision).save(tmp_path / precision)  # type: ignore[arg-type]
        sizes[precision] = (tmp_path / precision).stat().st_size
    assert sizes["f32"] - sizes["bf16"] > 0.45 * 4 * 1024 * 300


@pytest.mark.usefixtures("pairs")
@pytest.mark.parametrize("rows", [1, 3, 7, 250])
def test_products_serve_every_number_of_rows(rows: int) -> None:
    weights = RNG.standard_normal((512, 600)).astype(np.float32)
    x = RNG.standard_normal((rows, 512)).astype(np.float32)
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = make_model([node], {"x": x}, {"w": weights}, ["y"], symbolic={"x": ["rows", 512]})
    module = tinycomp.compile(model, precision="bf16", strict=True)
    exact = x.astype(BFLOAT16).astype(np.float64) @ weights.astype(BFLOAT16).astype(np.float64)
    np.testing.assert_allclose(module(x), exact, rtol=1e-4, atol=1e-3)
    assert [row.kernel for row in module.profile({"x": x}, runs=1).rows] == ["gemm_bf16_f32"]
