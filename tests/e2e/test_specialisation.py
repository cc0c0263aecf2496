"""A new size of a symbolic dimension costs types and lowering, not passes and packing."""

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


def shared_bytes(module: Module) -> int:
    """Bytes of the packed weights that the module's plans share."""
    specialise = module._parts.specialise
    assert specialise is not None
    return int(specialise.func.__self__.weights.nbytes)  # type: ignore[attr-defined]


def own_bytes(module: Module) -> list[int]:
    return [
        step.run.native.state_bytes
        for _, made in module._plans.items()
        for step in made.plan.steps
        if hasattr(step.run, "native")
    ]


def test_a_new_size_runs_no_partitioning_and_packs_nothing(partitions):
    images, _ = digits()
    module = tinycomp.compile(digits_model())
    assert len(partitions) == 1
    whole = module(images[:40])
    held = shared_bytes(module)
    assert held > 0
    for n in (1, 2, 3, 17, 40):
        np.testing.assert_allclose(module(images[:n]), whole[:n], atol=1e-6)
    assert len(partitions) == 1
    assert shared_bytes(module) == held
    assert len(own_bytes(module)) == 5
    assert max(own_bytes(module)) < held / 10


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


def test_what_follows_from_sizes_is_folded_for_every_size():
    module = tinycomp.compile(computed_shape())
    for n in (1, 3, 8):
        np.testing.assert_allclose(module(rows(n)), (rows(n) + 1) @ W, rtol=1e-4, atol=1e-5)
    for _, made in module._plans.items():  # noqa: PERF102 - not a dict
        assert [step.tier for step in made.plan.steps] == ["c"]


def test_the_model_is_partitioned_again_where_a_size_lets_a_target_take_more(partitions):
    picky = tinycomp.Target("picky")

    @picky.op("Exp")
    def _(node):
        return node.inputs[0].type.shape[0] == 2 or reject("two rows at a time")

    @picky.codegen
    def build(region):
        return lambda x: np.exp(x)

    model = make_model([helper.make_node("Exp", ["x"], ["y"])], {"x": rows(2)}, {}, ["y"], symbolic={"x": ("N", 4)})
    module = tinycomp.compile(model, picky)
    for n in (2, 3):
        np.testing.assert_allclose(module(rows(n)), np.exp(rows(n)), rtol=1e-5)
    assert [[s.tier for s in made.plan.steps] for _, made in module._plans.items()] == [["picky"], ["numpy"]]
    assert len(partitions) == 2, "once for all sizes, once for two rows"


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
    assert shared_bytes(module) > 0


def test_a_loaded_module_takes_new_sizes_in_the_same_way(partitions):
    images, _ = digits()
    module = tinycomp.compile(digits_model())
    restored = tinycomp.load(module.__reduce__()[1][0])
    for n in (1, 5):
        np.testing.assert_array_equal(restored(images[:n]), module(images[:n]))
    assert len(partitions) == 1
