"""Differences of quantised models, layer by layer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from benchmarks import models
from benchmarks.contest import Result
from benchmarks.peers import ENGINES, OURS, REFERENCE, Feeds, Run
from benchmarks.quantized_layers import Difference, difference_of_layers, steps_of_results
from tinycomp.data import digits, digits_model


@pytest.fixture
def quantised() -> Path:
    return Path(digits_model(quantized=True))


def feeds() -> Feeds:
    return {"image": digits()[0][:1]}


def wrong(path: Path, threads: int, given: Feeds) -> Run:
    """Make an engine whose second layer is two steps off in one place."""
    load = ENGINES[OURS].load(path, threads, given)

    def run(given: Feeds) -> list[np.ndarray]:
        results = [result.copy() for result in load(given)]
        flat = results[2].reshape(-1)
        flat[0] += 2 if flat[0] < 100 else -2
        return results

    return run


def test_a_layer_that_is_off_is_found(quantised: Path) -> None:
    found = difference_of_layers(quantised, feeds(), ENGINES[OURS].load, wrong)
    assert found is not None
    assert (found.count, found.steps) == (1, 2)
    assert str(found) == f"1 of {found.total} by up to 2 steps"


def test_layers_agree_with_onnxruntime_and_the_table_says_so(quantised: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the engine that is compared with")
    results = [Result(OURS, samples=[1.0], outputs=[np.float32([1, 2])]),
               Result(REFERENCE, samples=[1.0], outputs=[np.float32([1, 3])])]  # fmt: skip
    row = models.make_row("m", results)
    models.add_layers(row, quantised, feeds(), results)
    assert row["agrees"]
    assert row["layers"]["steps"] <= models.STEPS
    assert models.error(row).startswith("3.3e-01; layers given equal data: ")


def test_rows_without_steps_are_told_apart() -> None:
    row = {"error": 0.5, "agrees": False, "steps": 7, "layers": {"count": 3, "total": 9, "steps": 2}}
    assert models.error(row) == "5.0e-01, 7 steps; layers given equal data: 3 of 9 by up to 2 steps differs"
    assert str(Difference(1, 2, 1)) == "1 of 2 by up to 1 step"


def test_results_differ_by_steps_of_their_scale(tmp_path: Path) -> None:
    nodes = [onnx.helper.make_node("DequantizeLinear", ["x", "s"], ["y"])]
    values = [onnx.helper.make_tensor_value_info(n, t, [2]) for n, t in (("x", 3), ("y", 1))]
    scale = onnx.numpy_helper.from_array(np.float32(0.5), "s")
    onnx.save(
        onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", values[:1], values[1:], [scale])), tmp_path / "m"
    )
    assert steps_of_results(tmp_path / "m", [np.float32([1, 2])], [np.float32([1, 3.5])]) == 3
    assert difference_of_layers(tmp_path / "m", {}, wrong, wrong) is None


def test_results_that_are_not_quantised_have_no_steps(quantised: Path) -> None:
    found = [np.zeros((1, 10), np.float32)]
    assert steps_of_results(quantised, found, found) is None
