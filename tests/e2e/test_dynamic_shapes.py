"""One program serves all sizes: a new one compiles nothing, packs nothing and keeps nothing."""

from __future__ import annotations

import threading

import numpy as np
import onnx
import pytest
from onnx import helper

import tinycomp
from tests.targets.c.harness import make_model
from tinycomp.data import digits, digits_model
from tinycomp.passes.merge_regions import MergeRegions
from tinycomp.rewrite import reject
from tinycomp.runtime.module import Module
from tinycomp.runtime.regions import SPECIALISATIONS, NativeRegion, PerShape

W = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)


def rows(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32)


@pytest.fixture
def partitions(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The graphs that regions were sought in, in order."""
    seen: list[str] = []
    run = MergeRegions.run

    def counted(self: MergeRegions, graph: tinycomp.Graph) -> bool:
        seen.append(graph.name)
        return run(self, graph)

    monkeypatch.setattr(MergeRegions, "run", counted)
    return seen


def regions_of(module: Module) -> list[NativeRegion]:
    return [step.run for step in module._parts.plan.steps if isinstance(step.run, NativeRegion)]


def test_a_new_size_compiles_nothing_and_packs_nothing(partitions):
    images, _ = digits()
    module = tinycomp.compile(digits_model())
    (region,) = regions_of(module)
    assert region.program.symbols == ("N",)
    held, (context,) = region.native.state_bytes, region.native.contexts
    assert len(partitions) == 1
    whole = module(images[:40])
    for n in (1, 2, 3, 17, 40):
        np.testing.assert_allclose(module(images[:n]), whole[:n], atol=1e-6)
    assert len(partitions) == 1
    assert regions_of(module) == [region]
    assert region.native.state_bytes == held
    assert region.native.contexts == [context]


def computed_shape() -> onnx.ModelProto:
    """An initial state as large as the batch: Shape, Gather, Concat and Expand, as recurrent models are exported."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["n"]),
        helper.make_node("Concat", ["n", "four"], ["wanted"], axis=0),
        helper.make_node("Expand", ["one", "wanted"], ["ones"], name="state"),
        helper.make_node("Add", ["x", "ones"], ["s"]),
        helper.make_node("MatMul", ["s", "w"], ["y"]),
    ]
    constants = {"zero": np.array([0]), "four": np.array([4]), "one": np.ones((1, 1), np.float32), "w": W}
    return make_model(nodes, {"x": rows(2)}, constants, ["y"], symbolic={"x": ("N", 4)})


def test_shapes_that_are_computed_are_part_of_the_program():
    module = tinycomp.compile(computed_shape(), strict=True)
    (region,) = regions_of(module)
    kernels = [call.kernel for call in region.program.instructions]
    assert not {"sizes", "gather"} & set(kernels), "nobody reads them as data"
    for n in (1, 3, 8, 0):
        np.testing.assert_allclose(module(rows(n)), (rows(n) + 1) @ W, rtol=1e-4, atol=1e-5)


def test_specialising_builds_a_region_for_every_set_of_sizes_within_bounds():
    module = tinycomp.compile(computed_shape(), specialize=True)
    (step,) = module._parts.plan.steps
    assert isinstance(step.run, PerShape)
    for n in range(1, SPECIALISATIONS + 8):
        np.testing.assert_allclose(module(rows(n)), (rows(n) + 1) @ W, rtol=1e-4, atol=1e-5)
    assert len(step.run.cache) == SPECIALISATIONS
    restored = tinycomp.load(module.__reduce__()[1][0])
    assert isinstance(restored._parts.plan.steps[0].run, PerShape)
    np.testing.assert_array_equal(restored(rows(5)), module(rows(5)))


def test_a_target_that_needs_sizes_is_asked_for_every_set_of_them():
    asked = []
    picky = tinycomp.Target("picky", static_shapes=True)
    picky.accept("Exp")

    @picky.codegen
    def build(region):
        asked.append(region.inputs[0].type.shape)
        return lambda x: np.exp(x)

    model = make_model([helper.make_node("Exp", ["x"], ["y"])], {"x": rows(2)}, {}, ["y"], symbolic={"x": ("N", 4)})
    module = tinycomp.compile(model, picky)
    for n in (2, 3, 2):
        np.testing.assert_allclose(module(rows(n)), np.exp(rows(n)), rtol=1e-5)
    assert asked == [(2, 4), (3, 4)]


def test_threads_may_ask_for_new_sizes_at_once():
    images, _ = digits()
    module = tinycomp.compile(digits_model())
    whole = tinycomp.compile(digits_model())(images[:12])
    start, wrong = threading.Barrier(8), []

    def work(seed: int) -> None:
        start.wait()
        sizes = np.random.default_rng(seed).integers(1, 13, 12)
        wrong.extend(n for n in sizes if not np.allclose(module(images[:n]), whole[:n], atol=1e-6))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    (region,) = regions_of(module)
    assert 1 <= len(region.native.contexts) <= 8


def test_a_loaded_module_serves_all_sizes_without_the_compiler(partitions):
    images, _ = digits()
    module = tinycomp.compile(digits_model())
    restored = tinycomp.load(module.__reduce__()[1][0])
    assert regions_of(restored)[0].program.to_text() == regions_of(module)[0].program.to_text()
    for n in (1, 5, 0):
        np.testing.assert_array_equal(restored(images[:n]), module(images[:n]))
    assert len(partitions) == 1
