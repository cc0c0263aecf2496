"""Building graphs of one quantised layer with random weights and sensible scales."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinycomp.ir import Graph, TensorType, Value
from tinycomp.ops.typing import infer_node_types


class Layer:
    """A graph under construction: quantised inputs, one layer, a quantised output.

    Args:
        shape: Of every input.
        dtype: Of every input and of the result.
        inputs: How many inputs.
        seed: Of the random constants.
        opset: Of ONNX's operators; numbers of 16 bits came with 21.
    """

    def __init__(self, *shape: int | str, dtype: str = "int8", inputs: int = 1, seed: int = 0, opset: int = 17) -> None:
        self.graph = Graph("layer", infer=infer_node_types, opsets={"": opset})
        self.dtype = dtype
        self.rng = np.random.default_rng(seed)
        self.inputs = [self.graph.add_input(f"x{i}", TensorType(dtype, shape)) for i in range(inputs)]

    def __getattr__(self, op: str) -> Any:
        if not op[:1].isupper():
            raise AttributeError(op)
        return lambda *operands, **attrs: self.graph.add(op, map(self.value, operands), attrs, sources=[op]).output

    def value(self, item: Any) -> Value | None:
        return item if item is None or isinstance(item, Value) else self.graph.add_const(np.asarray(item))

    def dequantized(self, x: Value, scale: Any = 0.05, zero_point: int = 3) -> Value:
        return self.DequantizeLinear(x, np.float32(scale), self.point(zero_point))

    def point(self, zero_point: int) -> np.ndarray:
        """A zero point; uint8 is int8 plus 128, uint16 is int16 plus 32768."""
        info = np.iinfo(self.dtype)
        return np.asarray(zero_point + (0 if info.min else info.max // 2 + 1), self.dtype)

    def weight(
        self, *shape: int, axis: int = 0, per_channel: bool = True, dtype: str = "int8", zero_point: int = 0
    ) -> Value:
        info = np.iinfo(dtype)
        stored = self.rng.integers(info.min, info.max, shape, endpoint=True).astype(dtype)
        count = shape[axis] if per_channel else ()
        scale = self.rng.uniform(0.001, 0.01, count).astype(np.float32)
        return self.DequantizeLinear(stored, scale, np.full(count, zero_point, dtype), axis=axis)

    def bias(self, weight: Value, scale: float = 0.05) -> Value:
        """An int32 bias in steps of the sums, as quantisers write it."""
        scales = weight.producer.inputs[1].const * np.float32(scale)
        channels = weight.type.shape[weight.producer.attrs["axis"]]
        stored = self.rng.integers(-4000, 4000, channels).astype(np.int32)
        return self.DequantizeLinear(stored, scales, np.zeros(scales.shape, np.int32), axis=0)

    def done(self, y: Value, scale: Any = 0.1, zero_point: int = -7) -> Graph:
        """Quantise the result."""
        return self.finish(self.QuantizeLinear(y, np.asarray(scale, np.float32), self.point(zero_point)))

    def finish(self, *values: Value) -> Graph:
        self.graph.set_outputs(values, [f"y{i}" for i in range(len(values))])
        return self.graph

    def data(self) -> list[np.ndarray]:
        """Random operands; a symbolic dimension has size 3."""
        info = np.iinfo(self.dtype)
        shapes = [[d if isinstance(d, int) else 3 for d in v.type.shape] for v in self.inputs]
        return [self.rng.integers(info.min, info.max, s, endpoint=True).astype(self.dtype) for s in shapes]


def quantized_product(op: str, channels: int = 16, dtype: str = "int8") -> Layer:
    """Return a graph of one QLinearConv, or of one QLinearMatMul with a constant matrix; scales are per channel."""
    shape, weights, attrs = ((2, 8, 9, 9), (channels, 8, 3, 3), {"pads": [1, 1, 1, 1]})
    if op == "QLinearMatMul":
        shape, weights, attrs = (10, 40), (40, channels), {}
    layer = Layer(*shape, dtype=dtype)
    rng = layer.rng
    weight = rng.integers(-128, 127, weights, endpoint=True).astype(np.int8)
    scales, points = rng.uniform(0.001, 0.01, channels).astype(np.float32), np.zeros(channels, np.int8)
    bias = [rng.integers(-4000, 4000, channels).astype(np.int32)] if op == "QLinearConv" else []
    data, result = (np.float32(0.05), layer.point(3)), (np.float32(0.11), layer.point(-5))
    y = getattr(layer, op)(layer.inputs[0], *data, weight, scales, points, *result, *bias, **attrs)
    layer.graph.set_outputs([y])
    return layer
