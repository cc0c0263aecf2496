"""Random chains of layers over images, with branches that meet again: what strips and work in place are made for."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from tests.cases.case import make_model


def random_chain(seed: int, layers: int = 8) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return a model of convolutions, pooling and element-wise layers, and its input."""
    rng = np.random.default_rng(seed)
    size, channels = int(rng.integers(6, 20)), int(rng.choice([3, 4, 8, 16]))
    x = rng.standard_normal((1, channels, size, size)).astype(np.float32)
    nodes: list[onnx.NodeProto] = []
    constants: dict[str, np.ndarray] = {}
    known = {"x": (channels, size)}
    last = "x"

    def constant(array: np.ndarray) -> str:
        constants[f"k{len(constants)}"] = array.astype(np.float32)
        return list(constants)[-1]

    for number in range(layers):
        channels, size = known[last]
        kind = rng.choice(["depthwise", "pointwise", "dense", "relu", "pool", "add", "scale"])
        name = f"v{number}"
        if kind in ("depthwise", "pointwise", "dense"):
            kernel = 1 if kind == "pointwise" else int(rng.choice([2, 3, 5]))
            stride = 2 if kind == "dense" else int(rng.choice([1, 1, 2]))
            pad = int(rng.integers(0, kernel // 2 + 1))
            if size + 2 * pad < kernel:
                continue
            out = channels if kind == "depthwise" else int(rng.choice([4, 8, 12]))
            weights = rng.standard_normal((out, 1 if kind == "depthwise" else channels, kernel, kernel)) / kernel
            nodes.append(
                helper.make_node(
                    "Conv", [last, constant(weights), constant(rng.standard_normal(out))], [name],
                    group=channels if kind == "depthwise" else 1, strides=[stride] * 2, pads=[pad] * 4,
                    kernel_shape=[kernel] * 2,
                )
            )  # fmt: skip
            known[name] = out, (size + 2 * pad - kernel) // stride + 1
        elif kind == "pool":
            if size < 2:
                continue
            op = str(rng.choice(["MaxPool", "AveragePool"]))
            nodes.append(helper.make_node(op, [last], [name], kernel_shape=[2, 2], strides=[1, 1]))
            known[name] = channels, size - 1
        elif kind == "add":
            others = [other for other, shape in known.items() if shape == known[last]]
            nodes.append(helper.make_node("Add", [last, str(rng.choice(others))], [name]))
            known[name] = known[last]
        elif kind == "scale":
            factor = rng.standard_normal((1, channels, 1, 1) if rng.random() < 0.5 else ())
            nodes.append(helper.make_node("Mul", [last, constant(np.array(factor))], [name]))
            known[name] = known[last]
        else:
            nodes.append(helper.make_node("Sigmoid" if rng.random() < 0.5 else "Relu", [last], [name]))
            known[name] = known[last]
        last = name
    if last == "x":
        nodes.append(helper.make_node("Relu", ["x"], ["v"]))
        last = "v"
    return make_model(nodes, {"x": x}, constants, [last]), {"x": x}
