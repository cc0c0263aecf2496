"""Where the results of a quantised model differ from the reference: layer by layer, in steps of their quantisation.

Layers amplify: a number that lies on the other side of a tie in the first layers of a deep model with random weights
becomes many steps in its results. To tell that from a fault, every tensor between QuantizeLinear and the layers that
read it is cut: it becomes an output, and an input that both engines are given equal numbers for.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from benchmarks.peers import Feeds, Run

Load = Callable[[Path, int, Feeds], Run]
_CUT = "_of_its_layer"


@dataclass(frozen=True)
class Difference:
    """How far quantised numbers are apart.

    Attributes:
        count: Numbers that differ.
        total: All numbers.
        steps: The greatest difference, in steps of the quantisation.
    """

    count: int
    total: int
    steps: int

    def __str__(self) -> str:
        return f"{self.count} of {self.total} by up to {self.steps} step{'s' * (self.steps != 1)}"


def difference_of_layers(model: Path, feeds: Feeds, ours: Load, reference: Load) -> Difference | None:
    """Run every layer of a model on equal data in two engines; return None if it has no QuantizeLinear.

    The data are what ``ours`` computes for the feeds, in a run that shows all quantised tensors.
    """
    whole = onnx.load(model)
    results = {output.name for output in whole.graph.output}
    made = [node.output[0] for node in whole.graph.node if node.op_type == "QuantizeLinear"]
    names = [name for name in made if name not in results]
    if not made:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(_shown(whole, names), path)
        outputs = len(whole.graph.output)
        shown = dict(zip(names, ours(path, 1, feeds)(feeds)[outputs:], strict=True))
        onnx.save(_cut(whole, shown), path)
        given = {**feeds, **shown}
        pairs = zip(ours(path, 1, given)(given), reference(path, 1, given)(given), strict=True)
        apart = [np.abs(a.astype(np.int64) - b.astype(np.int64)) for a, b in pairs if a.dtype.kind in "iu"]
    count, total = sum(int((each > 0).sum()) for each in apart), sum(each.size for each in apart)
    return Difference(count, total, max((int(each.max(initial=0)) for each in apart), default=0))


def steps_of_results(model: Path, found: list[NDArray[Any]], wanted: list[NDArray[Any]]) -> int | None:
    """Return the greatest difference of results in steps; None if one does not come from one scale that is constant."""
    graph = onnx.load(model).graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    producers = {name: node for node in graph.node for name in node.output}
    most = 0
    for output, a, b in zip(graph.output, found, wanted, strict=True):
        steps = np.ones((), np.float64)
        if a.dtype.kind == "f":
            node = producers.get(output.name)
            if node is None or node.op_type != "DequantizeLinear" or node.input[1] not in constants:
                return None
            steps = onnx.numpy_helper.to_array(constants[node.input[1]]).astype(np.float64)
        if steps.size != 1 or a.shape != b.shape:
            return None
        apart = np.abs(a.astype(np.float64) - b.astype(np.float64)) / steps.reshape(())
        most = max(most, round(float(apart.max(initial=0))))
    return most


def _shown(model: onnx.ModelProto, names: list[str]) -> onnx.ModelProto:
    """Return the model with these tensors as further outputs."""
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    shown.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    return shown


def _cut(model: onnx.ModelProto, values: Feeds) -> onnx.ModelProto:
    """Return the model with these tensors as inputs, and what it computes for them as further outputs."""
    cut = onnx.ModelProto()
    cut.CopyFrom(model)
    for node in cut.graph.node:
        if node.output[0] in values:
            name, array = node.output[0], values[node.output[0]]
            kind = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
            node.output[0] = name + _CUT
            cut.graph.input.append(onnx.helper.make_tensor_value_info(name, kind, array.shape))
            cut.graph.output.append(onnx.helper.make_tensor_value_info(name + _CUT, kind, None))
    return cut
