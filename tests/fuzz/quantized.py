"""Random quantised networks: all targets have the bits of the documented rules, onnxruntime theirs or those of a tie.

onnxruntime computes some layers of such a network in float32, others by formulas of its own. What is stored may then
differ by one step where the real number lies halfway between two, and in every layer behind. So every layer is judged
by itself, on the operands that onnxruntime had: neither result may be further from the real number than rounding it
explains.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

import tinycomp
from tests.cases.case import make_model
from tests.fuzz.harness import Harness, WrongError
from tests.fuzz.peers import Results, by_onnxruntime, declared
from tests.targets.quantized_arithmetic import evaluate
from tests.targets.quantized_models import random_model
from tinycomp.targets.c import TARGET

SLACK = 1e-3
"""How far from a tie, in steps of the result, float32 arithmetic may take a number to the other side."""


def case(seed: int) -> tuple[onnx.ModelProto, Results]:
    """Return the network of a seed; every other one has only layers that onnxruntime, too, can compute in integers."""
    return random_model(seed // 2, integer_only=bool(seed % 2))


def check_model(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> Counter[str]:
    """Run a quantised network by the rules, on C, on the host, on the simulated NPU, and in onnxruntime.

    Returns:
        How many results and numbers there were, and how many of onnxruntime's numbers lie on the other side of a tie.

    Raises:
        WrongError: If a target does not have the bits of the rules, or onnxruntime differs by more than a tie.
    """
    stored = [n.output[0] for n in model.graph.node if n.op_type == "QuantizeLinear"]
    model = declared(model, stored)
    wanted = dict(zip(stored, evaluate(model, TARGET, feeds), strict=True))
    for target in ("c", "host", "npu_sim"):
        found = tinycomp.compile(model, target, threads=1).run(feeds)
        for name, right in wanted.items():
            if not np.array_equal(found[name], right):
                count = int((found[name] != right).sum())
                raise WrongError(f"{target} differs from the rule in {count} numbers of {name}")
    other = by_onnxruntime(model, feeds)
    if all(np.array_equal(other[name], right) for name, right in wanted.items()):
        return Counter(equal=1)
    numbers = {**feeds, **other}
    return Counter(explained=1, ties=sum(_ties(Layer(model, name, numbers)) for name in stored))


def _ties(layer: Layer) -> int:
    """Return in how many numbers onnxruntime and the rule differ; all of them are ties."""
    (wanted,) = evaluate(layer.stored(), TARGET, layer.operands)
    apart = layer.result != wanted
    real = layer.real()
    for source, result in (("onnxruntime", layer.result), ("the rule", wanted)):
        distance = np.abs(result - real)[apart].max(initial=0)
        if distance > 0.5 + layer.slack():
            raise WrongError(f"{source} is {distance:.6f} steps from the real number in {layer.name}")
    return int(apart.sum())


class Layer:
    """What lies between the stored operands of a result and the result.

    Args:
        model: The network.
        name: The result of a QuantizeLinear.
        numbers: All that is stored, by name.
    """

    def __init__(self, model: onnx.ModelProto, name: str, numbers: Mapping[str, np.ndarray]) -> None:
        self.model, self.name, self.result = model, name, numbers[name]
        self.constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        wanted, self.nodes = {name}, []
        for node in reversed(model.graph.node):
            if node.output[0] in wanted:
                self.nodes.insert(0, node)
                wanted |= {v for v in node.input if v not in numbers}
        names = {v for node in self.nodes for v in node.input if v in numbers}
        self.operands = {v: numbers[v] for v in sorted(names)}
        self.last = self.nodes[-1]

    def _model(
        self, nodes: list[onnx.NodeProto], operands: Results, constants: Results, result: str
    ) -> onnx.ModelProto:
        used = {v for node in nodes for v in node.input}
        kept = {name: array for name, array in constants.items() if name in used}
        model = make_model(nodes, operands, kept, [result])
        model.opset_import[0].version = self.model.opset_import[0].version
        return model

    def stored(self) -> onnx.ModelProto:
        """Return the layer as it is."""
        return self._model(self.nodes, self.operands, self.constants, self.name)

    def real(self) -> np.ndarray:
        """Return the result in float64, in steps of what is stored, and within its range, but not rounded."""
        operands: Results = {}
        for node in self.nodes:
            if node.op_type == "DequantizeLinear":
                operands[node.output[0]] = self._dequantized(node)
        constants = {n: c.astype(np.float64) if c.dtype == np.float32 else c for n, c in self.constants.items()}
        inner = [n for n in self.nodes[:-1] if n.op_type != "DequantizeLinear"]
        y = operands.get(self.last.input[0])
        if inner:
            used = {name: array for name, array in operands.items() if any(name in n.input for n in inner)}
            model = self._model(inner, used, constants, self.last.input[0])
            (y,) = tinycomp.compile(model, "host", passes=[]).run(used).values()
        scale, point = (self.constants[v] for v in self.last.input[1:])
        info = np.iinfo(point.dtype)
        return np.clip(y / np.float64(scale) + float(point), info.min, info.max)

    def _dequantized(self, node: onnx.NodeProto) -> np.ndarray:
        name, scale, point = node.input[0], *(self.constants[v].astype(np.float64) for v in node.input[1:])
        numbers = self.operands.get(name)
        numbers = (self.constants[name] if numbers is None else numbers).astype(np.float64)
        if scale.size > 1:
            axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
            around = [-1 if d == axis else 1 for d in range(numbers.ndim)]
            scale, point = scale.reshape(around), point.reshape(around)
        return (numbers - point) * scale

    def slack(self) -> float:
        """Return how far from a tie the results may be: a float32 bias is rounded to a multiple of the sums' step."""
        steps = 0.0
        made = {node.output[0]: node for node in self.nodes}
        for node in self.nodes:
            if node.op_type in ("Conv", "Gemm", "MatMul"):
                data, weight = (self.constants[made[v].input[1]].astype(np.float64) for v in node.input[:2])
                steps = float((data * weight).max()) / float(self.constants[self.last.input[1]])
        return SLACK + steps / 2 * self._has_real_bias()

    def _has_real_bias(self) -> bool:
        adding = [v for n in self.nodes if n.op_type in ("Conv", "Gemm", "Add") for v in n.input[n.op_type != "Add" :]]
        return any(v in self.constants and self.constants[v].dtype == np.float32 for v in adding)


def save(seed: int, folder: Path, stem: str) -> None:
    model, feeds = case(seed)
    onnx.save(model, folder / f"{stem}.onnx")
    np.savez(folder / f"{stem}.npz", **feeds)


HARNESS = Harness("quantized", lambda seed: check_model(*case(seed)), save)
