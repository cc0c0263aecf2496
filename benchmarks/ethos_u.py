"""Cycles on Arm's Ethos-U, as Vela estimates them, beside those of ExecuTorch's Arm backend.

``python -m benchmarks ethos-u`` takes the float models of MLPerf Tiny from the folder that TINYCOMP_MODELS names. Both
sides quantise the same model with the same inputs, each in its own way, and hand it to Vela with the same
configuration; a Softmax at the end is cut off. TINYCOMP_TOSA_PYTHON names the interpreter of the target, and
TINYCOMP_EXECUTORCH_PYTHON one with executorch, tosa-tools and ethos-u-vela.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import tinycomp
from benchmarks import output
from tinycomp.driver.pipeline import optimisation_passes
from tinycomp.frontend import export_model
from tinycomp.ir import Graph
from tinycomp.passes.fold_constants import FoldConstants

MODELS = ("ad_autoencoder", "ic_resnet8", "kws_dscnn", "vww_mobilenet")
CONFIGURATIONS = {
    "ethos-u55-128": ("Ethos_U55_High_End_Embedded", "Shared_Sram"),
    "ethos-u85-256": ("Ethos_U85_SYS_DRAM_Mid", "Dedicated_Sram_384KB"),
}
"""System configuration and memory mode of Vela's by device."""
PYTHON = "TINYCOMP_EXECUTORCH_PYTHON"
_BORDER = ("quantize", "dequantize")
_INPUTS = 8
_WORKER = Path(__file__).with_name("_executorch.py")


def prepared(path: Path) -> Graph:
    """Return a model of one input with numbers for sizes, simplified, without a Softmax at the end."""
    graph = tinycomp.from_onnx(path)
    (value,) = graph.inputs
    shape = (1, *(value.shape or ())[1:])
    graph = tinycomp.from_onnx(export_model(graph), {value.name: shape})
    passes = [*optimisation_passes(), FoldConstants(keep_quantized=False), *optimisation_passes()]
    graph = tinycomp.Pipeline(passes)(graph)
    (result,) = graph.outputs
    if result.producer is not None and result.producer.op == "Softmax":
        graph.set_outputs([result.producer.operand(0)], ["logits"])
        graph = tinycomp.Pipeline(passes)(graph)
    return graph


def ours(model: onnx.ModelProto, inputs: Sequence[np.ndarray], accelerator: str) -> dict[str, Any]:
    """Return the cycles of all regions, how many there are, and the operators outside."""
    system, memory = CONFIGURATIONS[accelerator]
    target = f"ethos_u:accelerator={accelerator},system_config={system},memory_mode={memory}"
    quantized = tinycomp.quantize(model, inputs, target=target, progress=False)
    report = tinycomp.compile(quantized, target).report()
    cycles = sum(region.figures["cycles"] for region in report.regions)
    return {"cycles": cycles, "parts": len(report.regions), "left": [row.op for row in report.hosts]}


def theirs(graph: Graph, inputs: Sequence[np.ndarray], accelerator: str) -> dict[str, Any]:
    """Return the same of ExecuTorch's lowering, or why there is none."""
    python = os.environ.get(PYTHON)
    if not python:
        return {"error": f"{PYTHON} is not set"}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        nodes = [
            {
                "op": node.op, "attrs": node.attrs, "output": node.output.name,
                "inputs": [
                    "" if v is graph.inputs[0] else v.name for v in node.inputs if v is not None
                ],
            }
            for node in graph.nodes
        ]  # fmt: skip
        (folder / "nodes.json").write_text(json.dumps({"nodes": nodes, "result": graph.outputs[0].name}, default=list))
        arrays = {value.name: value.const for value in graph.constants if value.const is not None}
        stored = {"#inputs": np.concatenate(inputs), **arrays}
        np.savez(folder / "arrays.npz", **stored)  # type: ignore[arg-type]
        command = [python, str(_WORKER), name, accelerator, *CONFIGURATIONS[accelerator]]
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        outcome = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if outcome.returncode:
            return {"error": outcome.stderr.strip().splitlines()[-1]}
        made: dict[str, Any] = json.loads(outcome.stdout.strip().splitlines()[-1])
        return made


def measure(folder: Path, name: str, accelerator: str) -> dict[str, Any]:
    """Return a row: the cycles of both sides."""
    graph = prepared(folder / f"{name}_fp32.onnx")
    (value,) = graph.inputs
    rng = np.random.default_rng(0)
    assert value.static_shape is not None
    inputs = [rng.standard_normal(value.static_shape).astype(np.float32) for _ in range(_INPUTS)]
    model = export_model(graph)
    return {
        "model": name, "device": accelerator, "ours": ours(model, inputs, accelerator),
        "executorch": theirs(graph, inputs, accelerator),
    }  # fmt: skip


def render(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows as a Markdown table."""
    lines = ["| model | device | tinycomp, cycles | ExecuTorch, cycles | ratio |", "|---|---|--:|--:|--:|"]
    for row in rows:
        own, other = row["ours"], row["executorch"]
        ratio = f"{other['cycles'] / own['cycles']:.2f}" if "cycles" in other else ""
        lines.append(f"| {row['model']} | {row['device']} | {_told(own)} | {_told(other)} | {ratio} |")
    return "\n".join(lines)


def _told(side: dict[str, Any]) -> str:
    """Say what one side has made of a model, and which operators beside conversions at its borders it leaves."""
    if "error" in side:
        return str(side["error"])
    left = sorted(
        {name for name in side["left"] if name.lower().partition("_")[0].removesuffix("linear") not in _BORDER}
    )
    parts = f" in {side['parts']} parts" if side["parts"] != 1 else ""
    return f"{side['cycles']:,.0f}{parts}" + (f", without {', '.join(left)}" if left else "")


def main(arguments: list[str] | None = None) -> int:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks ethos-u", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("models", nargs="*", default=[], help=f"by default {', '.join(MODELS)}")
    parser.add_argument("--device", action="append", choices=tuple(CONFIGURATIONS), help="by default all")
    output.add_option(parser)
    options = parser.parse_args(arguments)
    folder = Path(os.environ.get("TINYCOMP_MODELS", ""))
    rows = []
    for name in options.models or MODELS:
        for accelerator in options.device or CONFIGURATIONS:
            rows.append(measure(folder, name, accelerator))
            print(render(rows[-1:]).splitlines()[-1], flush=True)
    found = output.record("ethos-u", output.command_line("ethos-u", arguments), {"inputs": _INPUTS}, rows)
    output.save(options.output, found, render(rows))
    print(render(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
