"""Float models to quantise, and tools to look at what came out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper

import tinycomp
from tinycomp.ir import Graph, TensorType, Value

CONVERSIONS = ("QuantizeLinear", "DequantizeLinear")


class Network:
    """Builds a graph layer by layer, with seeded weights."""

    def __init__(self, *shape: int | str, opset: int = 17, seed: int = 0) -> None:
        self.graph = Graph("network", opsets={"": opset})
        self.x = self.graph.add_input("x", TensorType("float32", shape))
        self.rng = np.random.default_rng(seed)

    def const(self, *shape: int, spread: float = 1.0) -> Value:
        return self.graph.add_const((self.rng.standard_normal(shape) * spread).astype(np.float32), "c")

    def op(self, op: str, *inputs: Value | None, name: str = "", **attrs: Any) -> Value:
        label = name or f"{op.lower()}{len(self.graph)}"
        return self.graph.add(op, inputs, attrs, sources=[label], outputs=[f"{label}:0"]).output

    def conv(
        self, x: Value, channels: int, kernel: int = 3, name: str = "", group: int = 1, bias: bool = True
    ) -> Value:
        inner = x.type.shape[1] // group
        weight = self.const(channels, inner, kernel, kernel, spread=(inner * kernel**2) ** -0.5)
        operands = [x, weight, *([self.const(channels, spread=0.1)] if bias else [])]
        return self.op("Conv", *operands, name=name, pads=[kernel // 2] * 4, group=group)

    def done(self, *values: Value) -> onnx.ModelProto:
        self.graph.set_outputs(values, [f"y{i}" for i in range(len(values))])
        return tinycomp.to_onnx(self.graph)


def residual() -> onnx.ModelProto:
    """Convolutions with Relu and Clip, a residual, pools, a dense layer and a Softmax."""
    net = Network("N", 3, 8, 8)
    x = net.op("Relu", net.conv(net.x, 8, name="first"), name="first_relu")
    six = net.graph.add_const(np.float32(6)), net.graph.add_const(np.float32(0))
    y = net.op("Clip", net.conv(x, 8, group=8, name="depthwise"), six[1], six[0], name="six")
    y = net.conv(y, 8, kernel=1, bias=False, name="point")
    x = net.op("Relu", net.op("Add", y, x, name="add"), name="add_relu")
    x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], name="pool")
    x = net.op("GlobalAveragePool", net.conv(x, 16, name="last"), name="mean")
    x = net.op("Flatten", x, name="flatten")
    x = net.op("Gemm", x, net.const(16, 5, spread=0.3), net.const(5), name="dense")
    return net.done(net.op("Softmax", x, axis=1, name="softmax"))


def images(count: int = 4, batch: int = 2, channels: int = 3, size: int = 8, seed: int = 1) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((batch, channels, size, size)).astype(np.float32) for _ in range(count)]


def by_onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], optimised: bool = False) -> list[Any]:
    """Run a model; without optimisations onnxruntime computes exactly what the nodes say."""
    onnx.checker.check_model(model, full_check=True)
    options = ort.SessionOptions()
    levels = ort.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(feeds))


def decibels(exact: np.ndarray, found: np.ndarray) -> float:
    noise = ((exact.astype(np.float64) - found) ** 2).sum()
    return float(10 * np.log10((exact.astype(np.float64) ** 2).sum() / noise)) if noise else np.inf


class Picture:
    """A model as tests look at it: nodes by name, makers and readers of values, constants."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.nodes = list(model.graph.node)
        self.constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
        self.maker = {name: node for node in self.nodes for name in node.output}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.nodes:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)
        self.outputs = [v.name for v in model.graph.output]

    @property
    def ops(self) -> Counter[str]:
        return Counter(node.op_type for node in self.nodes)

    def node(self, name: str) -> onnx.NodeProto:
        return next(n for n in self.nodes if n.name == name or n.name.startswith(f"{name}…"))

    def is_quantized(self, name: str) -> bool:
        """Whether a node reads a DequantizeLinear and is read by a QuantizeLinear, perhaps behind an activation."""
        node = self.node(name)
        if any(operand in self.constants and self.constants[operand].ndim > 1 for operand in node.input):
            return False
        made = self.maker.get(node.input[0])
        readers = self.readers.get(node.output[0], [])
        while readers and readers[0].op_type in ("Relu", "Clip", "Add") and len(readers) == 1:
            readers = self.readers.get(readers[0].output[0], [])
        return (
            made is not None
            and made.op_type == "DequantizeLinear"
            and [r.op_type for r in readers] == ["QuantizeLinear"]
        )

    def affine(self, node: onnx.NodeProto) -> tuple[np.ndarray, np.ndarray]:
        """Scale and zero point of a conversion."""
        return self.constants[node.input[1]], self.constants[node.input[2]]

    def data_of(self, name: str) -> onnx.NodeProto:
        """The DequantizeLinear that the first operand of a node comes from."""
        return self.maker[self.node(name).input[0]]

    def result_of(self, name: str) -> onnx.NodeProto:
        """The QuantizeLinear behind a node."""
        (reader,) = self.readers[self.node(name).output[0]]
        return reader
