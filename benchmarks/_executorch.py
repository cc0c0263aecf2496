"""What ExecuTorch's Arm backend makes of a model, in an environment with executorch, tosa-tools and ethos-u-vela.

Run by :mod:`benchmarks.ethos_u`, which writes the model as ``nodes.json`` and ``arrays.npz``; prints a line of JSON.
"""

from __future__ import annotations

import csv
import json
import operator
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from executorch.backends.arm import arm_vela
from executorch.backends.arm.ethosu import EthosUCompileSpec, EthosUPartitioner
from executorch.backends.arm.quantizer import EthosUQuantizer, get_symmetric_quantization_config
from executorch.exir import to_edge_transform_and_lower
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

functional = torch.nn.functional


class Network(torch.nn.Module):
    """The nodes of an ONNX model, one after the other."""

    def __init__(self, nodes: list[dict[str, Any]], arrays: dict[str, np.ndarray], result: str) -> None:
        super().__init__()
        self.nodes, self.result = nodes, result
        self.places = {name: f"array{number}" for number, name in enumerate(arrays)}
        self.arrays = arrays
        for name, array in arrays.items():
            if array.dtype == np.float32:
                self.register_buffer(self.places[name], torch.from_numpy(array.copy()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Compute the result of the model."""
        held: dict[str, Any] = {"": x}

        def get(name: str) -> Any:
            return held[name] if name in held else getattr(self, self.places[name])

        for node in self.nodes:
            held[node["output"]] = self.run(node, [get(name) for name in node["inputs"][:1]], node["inputs"][1:], get)
        return held[self.result]

    def run(self, node: dict[str, Any], first: list[torch.Tensor], names: list[str], get: Any) -> torch.Tensor:
        """Compute one node."""
        (x,), op, attrs = first, node["op"], node["attrs"]
        if op == "Conv":
            top, left, bottom, right = attrs.get("pads", [0, 0, 0, 0])
            padding: Any = (top, left)
            if (top, left) != (bottom, right):
                x, padding = functional.pad(x, (left, right, top, bottom)), 0
            weight, bias = get(names[0]), get(names[1]) if len(names) > 1 else None
            return functional.conv2d(x, weight, bias, attrs.get("strides", 1), padding, 1, attrs.get("group", 1))
        if op == "Gemm":
            weight = get(names[0])
            return functional.linear(x, weight if attrs.get("transB") else weight.t(), get(names[1]))
        if op == "MatMul":
            return functional.linear(x, get(names[0]).t())
        if op in ("AveragePool", "GlobalAveragePool"):
            kernel = attrs.get("kernel_shape") or list(x.shape[2:])
            if list(kernel) == list(x.shape[2:]):  # as models for PyTorch have it
                return functional.adaptive_avg_pool2d(x, 1)
            return functional.avg_pool2d(x, kernel, attrs.get("strides") or 1)
        if op == "Relu":
            return functional.relu(x)
        if op == "Add":
            return x + get(names[0])
        if op == "Transpose":
            return x.permute(attrs["perm"])
        if op == "Reshape":
            return x.reshape([int(size) for size in self.arrays[names[0]]])
        raise NotImplementedError(op)


def lowered(network: Network, inputs: list[torch.Tensor], spec: EthosUCompileSpec) -> Any:
    """Quantise a model as the backend's own examples do, and lower it."""
    quantizer = EthosUQuantizer(spec)
    quantizer.set_global(get_symmetric_quantization_config(is_per_channel=True))
    example = (inputs[0],)
    prepared = prepare_pt2e(torch.export.export(network, example).module(), quantizer)
    for each in inputs:
        prepared(each)
    program = torch.export.export(convert_pt2e(prepared), example)
    return to_edge_transform_and_lower(program, partitioner=[EthosUPartitioner(spec)])


def main(folder: Path, accelerator: str, system: str, memory: str) -> None:
    """Print the parts on the NPU, what is left, and Vela's cycles."""
    described = json.loads((folder / "nodes.json").read_text())
    with np.load(folder / "arrays.npz") as stored:
        arrays = dict(stored)
    inputs = [torch.from_numpy(each[None].copy()) for each in arrays.pop("#inputs")]
    network = Network(described["nodes"], arrays, described["result"]).eval()
    spec = EthosUCompileSpec(accelerator, system_config=system, memory_mode=memory, extra_flags=[])
    cycles: list[float] = []
    run = arm_vela.vela.main

    def watched(arguments: list[str]) -> None:
        run(arguments)
        (folder_of,) = [text.partition("=")[2] for text in arguments if text.startswith("--output-dir=")]
        for summary in Path(folder_of).glob("*_summary_*.csv"):
            with summary.open(newline="") as file:
                cycles.extend(float(row["cycles_total"]) for row in csv.DictReader(file, skipinitialspace=True))

    arm_vela.vela.main = watched
    edge = lowered(network, inputs, spec)
    names = [
        node.target.__name__.removesuffix(".default").rpartition(".")[2] for node in edge.exported_program().graph.nodes
        if node.op == "call_function" and node.target is not operator.getitem
    ]  # fmt: skip
    left = [name for name in names if "executorch_call_delegate" not in name]
    print(json.dumps({"cycles": sum(cycles), "parts": len(cycles), "left": left}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:5])
