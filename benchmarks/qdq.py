"""Post-training quantisation of a plain float graph to the QDQ form, for making test models.

Activations become int8 with a zero point and one scale per tensor, weights symmetric int8 with a scale per output
channel, biases int32. Each consumer gets a DequantizeLinear of its own, as ONNX Runtime and PyTorch write them, so that
``QuantizeLinear(Relu(Conv(DequantizeLinear(x), DequantizeLinear(w), DequantizeLinear(b))))`` is a closed pattern.

Before → after, for one layer::

    y = Relu(Conv(x, w, b))
    y_q = QuantizeLinear(Relu(Conv(DequantizeLinear(x_q), DequantizeLinear(w_q), DequantizeLinear(b_q))))
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import helper, numpy_helper

WEIGHTED = frozenset({"Conv", "Gemm"})
SAME_RANGE = frozenset({"MaxPool", "Flatten"})
FLOAT_ONLY = frozenset({"Softmax"})
INT8_MIN, INT8_MAX = -128, 127


@dataclass(frozen=True)
class Scale:
    """``real = scale * (quantised - zero_point)`` of one activation."""

    scale: np.float32
    zero_point: np.int8


def quantize_qdq(model: onnx.ModelProto, samples: dict[str, NDArray[np.float32]]) -> onnx.ModelProto:
    """Quantise every layer but Softmax.

    Args:
        model: A float32 model without batch normalisations, nodes in topological order; Conv without or with bias,
            Gemm with ``transB=1``.
        samples: Calibration inputs; the smallest and largest value that each activation takes on them set its scale.

    Returns:
        A new, checked model with the same inputs and outputs.
    """
    return _Quantizer(model, _ranges(model, samples)).run()


def _ranges(model: onnx.ModelProto, samples: dict[str, NDArray[np.float32]]) -> dict[str, tuple[float, float]]:
    """The smallest and largest value of every activation."""
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    known = {v.name for v in probe.graph.output}
    made = [name for node in probe.graph.node for name in node.output]
    probe.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made if name not in known)
    session = ort.InferenceSession(probe.SerializeToString(), providers=["CPUExecutionProvider"])
    values = dict(zip(made, session.run(made, samples), strict=True)) | samples
    return {name: (float(v.min()), float(v.max())) for name, v in values.items()}


def _scale(low: float, high: float) -> Scale:
    """The scale that spans ``low..high`` and represents 0 exactly, so that padding adds no error."""
    low, high = min(low, 0.0), max(high, 0.0)
    scale = np.float32((high - low) / (INT8_MAX - INT8_MIN) or 1.0)
    return Scale(scale, np.int8(np.clip(round(INT8_MIN - low / float(scale)), INT8_MIN, INT8_MAX)))


class _Quantizer:
    def __init__(self, model: onnx.ModelProto, ranges: dict[str, tuple[float, float]]) -> None:
        self.model, self.ranges = model, ranges
        self.weights = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        self.uses = Counter(name for node in model.graph.node for name in node.input)
        self.scales: dict[str, Scale] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}

    def run(self) -> onnx.ModelProto:
        nodes = list(self.model.graph.node)
        for value in self.model.graph.input:
            self._quantize(value.name, value.name, _scale(*self.ranges[value.name]))
        for node, following in zip(nodes, [*nodes[1:], None], strict=True):
            self._rewrite(node)
            if not self._fuses(node, following) and node.op_type not in FLOAT_ONLY:
                self._close(node)
        return self._finish()

    def _fuses(self, node: onnx.NodeProto, following: onnx.NodeProto | None) -> bool:
        """Whether the next node is a ReLU that alone reads this one: then only the ReLU's output is quantised."""
        fusable = node.op_type in WEIGHTED or node.op_type == "Add"
        return (
            fusable
            and following is not None
            and following.op_type == "Relu"
            and following.input[0] == node.output[0]
            and self.uses[node.output[0]] == 1
        )

    def _rewrite(self, node: onnx.NodeProto) -> None:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        if node.op_type in WEIGHTED:
            copy.input[:] = self._weighted_inputs(node)
        else:
            copy.input[:] = [self._dequantize(n, f"{node.name}/dequantize{i}") for i, n in enumerate(node.input)]
        self.nodes.append(copy)

    def _close(self, node: onnx.NodeProto) -> None:
        """Quantise the node's output; pools and reshapes keep their input's scale."""
        name = node.output[0]
        kept = self.scales[node.input[0]] if node.op_type in SAME_RANGE else _scale(*self.ranges[name])
        self._quantize(name, node.name, kept)

    def _quantize(self, value: str, owner: str, scale: Scale) -> None:
        self.scales[value] = scale
        operands = self._parameters(value, scale)
        self.nodes.append(
            helper.make_node("QuantizeLinear", [value, *operands], [f"{value}/q"], name=f"{owner}/quantize")
        )

    def _dequantize(self, value: str, name: str) -> str:
        """Give the consumer its own float copy; a value that stayed float is passed on as it is."""
        if value not in self.scales:
            return value
        operands = self._parameters(value, self.scales[value])
        self.nodes.append(helper.make_node("DequantizeLinear", [f"{value}/q", *operands], [f"{name}:0"], name=name))
        return f"{name}:0"

    def _weighted_inputs(self, node: onnx.NodeProto) -> list[str]:
        x, weight, *bias = node.input
        w = self.weights[weight]
        largest = np.abs(w.reshape(len(w), -1)).max(axis=1)
        scale = np.where(largest > 0, largest / INT8_MAX, 1).astype(np.float32)
        spread = scale.reshape(-1, *[1] * (w.ndim - 1))
        quantised = np.clip(np.rint(w / spread), -INT8_MAX, INT8_MAX).astype(np.int8)
        inputs = [
            self._dequantize(x, f"{node.name}/dequantize_input"),
            self._dequantize_constant(weight, quantised, scale, f"{node.name}/dequantize_weight"),
        ]
        for name in bias:
            product = self.scales[x].scale * scale
            exact = np.rint(self.weights[name].astype(np.float64) / product).astype(np.int32)
            inputs.append(self._dequantize_constant(name, exact, product, f"{node.name}/dequantize_bias"))
        return inputs

    def _dequantize_constant(self, name: str, q: NDArray[np.generic], scale: NDArray[np.float32], node: str) -> str:
        parts = (f"{name}/q", q), (f"{name}/scale", scale), (f"{name}/zero_point", np.zeros(len(scale), q.dtype))
        operands = [self._constant(*part) for part in parts]
        self.nodes.append(helper.make_node("DequantizeLinear", operands, [f"{node}:0"], name=node, axis=0))
        return f"{node}:0"

    def _parameters(self, value: str, scale: Scale) -> list[str]:
        return [
            self._constant(f"{value}/scale", np.asarray(scale.scale)),
            self._constant(f"{value}/zero_point", np.asarray(scale.zero_point)),
        ]

    def _constant(self, name: str, value: NDArray[np.generic]) -> str:
        self.initializers.setdefault(name, numpy_helper.from_array(value, name))
        return name

    def _finish(self) -> onnx.ModelProto:
        source = self.model.graph
        graph = helper.make_graph(
            self.nodes, source.name, source.input, source.output, list(self.initializers.values())
        )
        model = helper.make_model(graph, opset_imports=self.model.opset_import, ir_version=self.model.ir_version)
        model.producer_name = self.model.producer_name
        onnx.checker.check_model(model, full_check=True)
        return model
