"""Whole models on the simulated NPU: accuracy, reports, saved modules, and the cost of a program."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

import tinycomp
from tinycomp.data import digits, digits_model
from tinycomp.driver.pipeline import Pipeline, optimisation_passes, partitioning_passes
from tinycomp.ir import TensorType
from tinycomp.targets.npu_sim import TARGET, build
from tinycomp.targets.npu_sim_device import Program


def share_of_macs(module: tinycomp.Module) -> float:
    """The share of MACs on the NPU itself."""
    report = module.report()
    npu = sum(r.macs for r in report.regions if r.target == "npu_sim")
    return npu / (sum(r.macs for r in report.regions) + sum(h.macs for h in report.hosts))


@pytest.mark.long
@pytest.mark.parametrize("quantized", [True, False], ids=["int8", "fp32"])
def test_the_digits_run_on_the_npu(quantized: bool):
    onnxruntime = pytest.importorskip("onnxruntime")
    images, labels = digits()
    module = tinycomp.compile(digits_model(quantized), ["npu_sim", "c"], verify=True)
    options = onnxruntime.SessionOptions()
    # As it stands: merged kernels of quantised layers saturate on x86 without VNNI.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(digits_model(quantized), options, providers=["CPUExecutionProvider"])
    expected = session.run(None, {"image": images})[0]
    found = module(images)
    right = (found.argmax(axis=1) == labels).mean()
    assert right == (expected.argmax(axis=1) == labels).mean()
    assert right > 0.95
    np.testing.assert_allclose(found, expected, atol=0.02 if quantized else 1e-5)
    assert share_of_macs(module) > 0.99
    (region,) = [r for r in module.report().regions if r.target == "npu_sim"]
    assert region.composites["npu_sim.qconv" if quantized else "npu_sim.conv"] == 6


def test_the_digits_report_names_what_stayed_behind():
    rows = tinycomp.compile(digits_model(True), "npu_sim").report().hosts
    told = {row.op: [str(r) for r in row.reasons] for row in rows}
    assert "npu_sim.qdense: output channels must be a multiple of 16, got 10" in told["Gemm"]
    assert any("Softmax" in text for text in told["Softmax"])


def npu_without(composite: str) -> tinycomp.Target:
    """The NPU as it would be without one of its instructions."""
    target = tinycomp.Target("npu_sim", tolerance=TARGET.tolerance, static_shapes=True)
    target.composites = [c for c in TARGET.composites if c.name != composite]
    target.rules = TARGET.rules
    target.codegen(build)
    return target


def compare_with_stored(path: Path, target: str | tinycomp.Target) -> tuple[tinycomp.Module, np.ndarray, np.ndarray]:
    if not path.exists():
        pytest.skip(f"no {path.name} in the model folder")
    module = tinycomp.compile(path, [target, "c"])
    stored = np.load(path.with_suffix(".npz"))
    return module, module(stored["input"]).astype(int), stored["output"].astype(int)


@pytest.mark.parametrize("name", ["ad_autoencoder", "kws_dscnn", "vww_mobilenet"])
def test_quantized_models_are_within_one_step_of_their_stored_outputs(models: Path, name: str):
    module, found, stored = compare_with_stored(models / f"{name}_int8.onnx", "npu_sim")
    assert np.abs(found - stored).max() <= 1
    assert share_of_macs(module) > 0.9


def test_a_model_whose_means_are_ties_keeps_its_classes(models: Path):
    """The mean of 64 values with equal scales is a tie for one sum in 64, and the softmax magnifies a step."""
    path = models / "ic_resnet8_int8.onnx"
    module, found, stored = compare_with_stored(path, "npu_sim")
    assert (found.argmax(axis=1) == stored.argmax(axis=1)).all()
    assert np.abs(found - stored).max() <= 8
    assert share_of_macs(module) > 0.9
    _, found, stored = compare_with_stored(path, npu_without("qavgpool"))
    assert np.abs(found - stored).max() <= 1


# Modules and programs -------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_modules_can_be_saved_and_pickled(tmp_path):
    images, _ = digits()
    module = tinycomp.compile(digits_model(True), ["npu_sim", "c"])
    expected = module(images[:20])
    module.save(tmp_path / "digits.tcm")
    for copy in (tinycomp.load(tmp_path / "digits.tcm"), pickle.loads(pickle.dumps(module))):
        np.testing.assert_array_equal(copy(images[:20]), expected)
        assert [r.target for r in copy.report().regions] == [r.target for r in module.report().regions]


def test_a_program_lists_its_instructions_and_their_cost():
    graph = tinycomp.from_onnx(digits_model(True), {"image": (1, 1, 8, 8)})
    partitioned = Pipeline([*optimisation_passes(), *partitioning_passes([TARGET])])(graph)
    (region,) = [n for n in partitioned.nodes if n.is_region]
    program = TARGET.build(region)
    assert isinstance(program, Program)
    names = [step.name for step in program.instructions]
    assert sorted(names) == sorted(["qconv"] * 6 + ["qadd", "MaxPool", "qavgpool"])
    stem = next(s for s in program.instructions if s.work.macs == 8 * 8 * 16 * 9)
    assert stem.work.cycles == 8 * 8
    # 8-bit data in and out, weight and bias with scales and zero points, two scales, and one zero point that is shared.
    assert stem.bytes == 64 + 64 * 16 + (144 + 16 * 5) + (64 + 16 * 8) + 2 * 4 + 1
    # Everything fits: the largest two results alive together stay in the scratchpad, only the last one leaves it.
    outputs = {
        place.memory
        for place, step in zip(program.memory.places, program.instructions, strict=True)
        if step.writes in program.outputs
    }
    assert outputs == {"dram"}
    assert program.memory.used == {"scratchpad": 6144, "dram": 48}
    assert {step.work.tiles for step in program.instructions} == {1}
    lines = str(program).splitlines()
    assert len(lines) == len(names) + 1
    assert lines[-1].split()[:2] == [str(program.cycles), "cycles,"]


def test_large_layers_are_computed_in_tiles():
    rng = np.random.default_rng(0)
    graph = tinycomp.Graph("m", opsets={"": 17})
    x = graph.add_input("x", TensorType("float32", (2, 64, 56, 56)))
    weights = [graph.add_const(rng.standard_normal((64, 64, 3, 3)).astype(np.float32)) for _ in range(2)]
    hidden = graph.add("Conv", [x, weights[0]], {"pads": [1, 1, 1, 1]}).output
    graph.set_outputs([graph.add("Conv", [hidden, weights[1]], {"pads": [1, 1, 1, 1]}).output], ["y"])
    partitioned = Pipeline(partitioning_passes([TARGET]))(graph)
    (region,) = [n for n in partitioned.nodes if n.is_region]
    program = TARGET.build(region)
    assert all(step.work.tiles > 2 for step in program.instructions)
    assert program.memory.used["scratchpad"] == 0  # what is between them is larger
