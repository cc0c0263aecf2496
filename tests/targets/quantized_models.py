"""Random quantised networks in the QuantizeLinear/DequantizeLinear form, as quantisers write them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper

OPSET = 17
WEIGHT_BITS = 7
"""onnxruntime's kernels for x86 without VNNI add two products in 16 bits: weights of 7 bits keep them exact."""
UNARY = ("Sigmoid", "Tanh", "HardSwish", "LeakyRelu", "Relu", "Neg", "Abs", "HardSigmoid", "Elu")


@dataclass(frozen=True)
class Stored:
    """8-bit numbers in the model.

    Attributes:
        name: The value.
        shape: Its sizes.
        scale: What a step is worth.
        point: What stands for 0.
    """

    name: str
    shape: tuple[int, ...]
    scale: float
    point: int


@dataclass
class Network:
    """A quantised model under construction.

    Attributes:
        rng: Chooses everything.
        dtype: Of all activations.
        integer_only: Whether to keep to layers that onnxruntime, too, computes in integers by the same rule.
    """

    rng: np.random.Generator
    dtype: str
    integer_only: bool
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    values: list[Stored] = field(default_factory=list)

    def add(self, op: str, *inputs: str, **attrs: object) -> str:
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attrs))
        return name

    def const(self, array: np.ndarray) -> str:
        name = f"k{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def point(self) -> int:
        low, high = np.iinfo(self.dtype).min, np.iinfo(self.dtype).max
        return int(self.rng.choice([low, low + 100, 0 if low else 128, high - 90, self.rng.integers(low, high)]))

    def scale(self, about: float) -> float:
        return float(np.float32(about * self.rng.uniform(0.6, 1.7)))

    def parameters(self, scale: float, point: int) -> tuple[str, str]:
        return self.const(np.float32(scale)), self.const(np.array(point, self.dtype))

    def real(self, x: Stored) -> str:
        return self.add("DequantizeLinear", x.name, *self.parameters(x.scale, x.point))

    def store(self, y: str, shape: tuple[int, ...], scale: float, point: int | None = None) -> Stored:
        point = self.point() if point is None else point
        name = self.add("QuantizeLinear", y, *self.parameters(scale, point))
        stored = Stored(name, shape, scale, point)
        self.values.append(stored)
        return stored

    def pick(self, *ranks: int) -> Stored | None:
        found = [v for v in self.values[-4:] if len(v.shape) in ranks]
        return found[int(self.rng.integers(len(found)))] if found else None

    def weight(self, shape: tuple[int, ...], axis: int) -> tuple[str, np.ndarray, int]:
        """Return a dequantised weight, its scales, and the number of terms of one sum."""
        unsigned = not self.integer_only and self.rng.random() < 0.25
        half = 2 ** (WEIGHT_BITS - 1)
        stored = self.rng.integers(-half, half, shape)
        per_channel = self.rng.random() < 0.6
        scales = self.rng.uniform(0.001, 0.02, shape[axis] if per_channel else ()).astype(np.float32)
        offset = int(self.rng.integers(100, 140)) if unsigned else 0
        dtype = np.uint8 if unsigned else np.int8
        name = self.add(
            "DequantizeLinear", self.const((stored + offset).astype(dtype)), self.const(scales),
            self.const(np.full(scales.shape, offset, dtype)), axis=axis,
        )  # fmt: skip
        return name, scales, int(np.prod(shape)) // shape[axis]

    def bias(self, scales: np.ndarray, scale: float, channels: int) -> list[str]:
        if self.rng.random() < 0.3:
            return []
        steps = np.float32(scale) * scales
        stored = self.rng.integers(-3000, 3000, channels).astype(np.int32)
        if not self.integer_only and self.rng.random() < 0.3:
            return [self.const((stored * np.float64(1.001) * steps).astype(np.float32))]
        return [
            self.add(
                "DequantizeLinear", self.const(stored), self.const(steps),
                self.const(np.zeros(steps.shape, np.int32)), axis=0,
            )
        ]  # fmt: skip

    def activated(self, y: str) -> str:
        kind = self.rng.random()
        if kind < 0.3:
            return self.add("Relu", y)
        if kind < 0.45:
            return self.add("Clip", y, self.const(np.float32(-0.3)), self.const(np.float32(2.0)))
        return y


def conv(net: Network) -> None:
    """A convolution: dense, grouped or depthwise, with pads, strides and dilations."""
    x = net.pick(4)
    if x is None:
        return
    channels = x.shape[1]
    kind = net.rng.random()
    group = channels if kind < 0.3 else 2 if kind < 0.4 and channels % 2 == 0 else 1
    filters = group * int(net.rng.choice([1, 2])) if group > 1 else int(net.rng.integers(1, 40))
    size = int(net.rng.choice([1, 1, 3, 3, 5]))
    stride, dilation = int(net.rng.integers(1, 3)), int(net.rng.choice([1, 1, 2]))
    pads = [int(p) for p in net.rng.integers(0, size // 2 + 1, 4)]
    reach = dilation * (size - 1) + 1
    sizes = [(x.shape[2 + d] + pads[d] + pads[2 + d] - reach) // stride + 1 for d in range(2)]
    if min(sizes) < 1:
        return
    w, scales, terms = net.weight((filters, channels // group, size, size), 0)
    b = net.bias(scales, x.scale, filters)
    attrs = {"pads": pads, "strides": [stride] * 2, "dilations": [dilation] * 2, "group": group}
    y = net.activated(net.add("Conv", net.real(x), w, *b, **attrs))
    about = float(x.scale * scales.mean() * 30 * np.sqrt(terms))
    net.store(y, (x.shape[0], filters, *sizes), net.scale(about))


def dense(net: Network) -> None:
    """A matrix product of rows: Gemm with either order of the weight, or MatMul and Add."""
    x = net.pick(2, 3)
    if x is None:
        return
    depth, columns = x.shape[-1], int(net.rng.integers(1, 50))
    kind = net.rng.random() if len(x.shape) == 2 else 1.0
    shape, axis = ((columns, depth), 0) if kind < 0.3 else ((depth, columns), 1)
    w, scales, terms = net.weight(shape, axis)
    b = net.bias(scales, x.scale, columns)
    if kind < 0.6:
        y = net.add("Gemm", net.real(x), w, *b, transB=int(axis == 0))
    else:
        y = net.add("MatMul", net.real(x), w)
        y = net.add("Add", y, *b) if b else y
    y = net.activated(y)
    about = float(x.scale * scales.mean() * 30 * np.sqrt(terms))
    net.store(y, (*x.shape[:-1], columns), net.scale(about))


def combine(net: Network) -> None:
    """Add, Sub or Mul of two tensors, one of them broadcast now and then."""
    x = net.pick(2, 3, 4)
    if x is None:
        return
    others = [v for v in net.values if v.shape == x.shape]
    other = others[int(net.rng.integers(len(others)))]
    op = str(net.rng.choice(["Add", "Add", "Sub", "Mul"]))
    if len(x.shape) == 4 and net.rng.random() < 0.2:
        mean = net.add("GlobalAveragePool", net.real(other))
        other = net.store(mean, (*x.shape[:2], 1, 1), net.scale(other.scale))
    y = net.activated(net.add(op, net.real(x), net.real(other)))
    about = x.scale * other.scale * 60 if op == "Mul" else 1.3 * (x.scale + other.scale) / 2
    net.store(y, x.shape, net.scale(about))


def unary(net: Network) -> None:
    """A function of single elements."""
    x = net.pick(2, 3, 4)
    if x is None:
        return
    op = str(net.rng.choice(UNARY))
    y = net.add(op, net.real(x))
    if net.rng.random() < 0.3:
        y = net.add("Mul", y, net.const(np.float32(net.rng.uniform(0.5, 1.5))))
    about = 1 / 128 if op in ("Sigmoid", "Tanh", "HardSigmoid") else x.scale
    net.store(y, x.shape, net.scale(about))


def pool(net: Network) -> None:
    """A maximum or mean of windows."""
    x = net.pick(4)
    if x is None or min(x.shape[2:]) < 3:
        return
    size, stride = int(net.rng.integers(2, 4)), int(net.rng.integers(1, 3))
    pad = int(net.rng.integers(0, 2))
    attrs = {"kernel_shape": [size] * 2, "strides": [stride] * 2, "pads": [pad] * 4}
    sizes = [(n + 2 * pad - size) // stride + 1 for n in x.shape[2:]]
    if net.integer_only or net.rng.random() < 0.5:
        net.store(net.add("MaxPool", net.real(x), **attrs), (*x.shape[:2], *sizes), x.scale, x.point)
        return
    y = net.add("AveragePool", net.real(x), count_include_pad=int(net.rng.integers(2)), **attrs)
    net.store(y, (*x.shape[:2], *sizes), net.scale(x.scale))


def move(net: Network) -> None:
    """Something that only moves numbers, with the scale of its operand or another."""
    x = net.pick(4, 3, 2)
    if x is None:
        return
    y, shape = net.real(x), x.shape
    kind = net.rng.random()
    if len(shape) == 4 and kind < 0.3:
        shape = (shape[0], shape[1] * shape[2] * shape[3]) if kind < 0.15 else (shape[0], shape[1], shape[2] * shape[3])
        y = net.add("Reshape", y, net.const(np.array(shape, np.int64)))
    elif len(shape) > 2 and kind < 0.6:
        perm = [0, *reversed(range(1, len(shape)))]
        shape = tuple(shape[p] for p in perm)
        y = net.add("Transpose", y, perm=perm)
    elif shape[1] > 2:
        bounds = [net.const(np.array([n], np.int64)) for n in (1, shape[1], 1)]
        y = net.add("Slice", y, *bounds)
        shape = (shape[0], shape[1] - 1, *shape[2:])
    if net.rng.random() < 0.6:
        net.store(y, shape, x.scale, x.point)
    else:
        net.store(y, shape, net.scale(x.scale))


def join(net: Network) -> None:
    """A Concat along the channels; scales may differ."""
    x = net.pick(4, 3, 2)
    if x is None:
        return
    parts = [v for v in net.values if len(v.shape) == len(x.shape) and v.shape[2:] == x.shape[2:]][-3:]
    y = net.add("Concat", *(net.real(v) for v in parts), axis=1)
    shape = (x.shape[0], sum(v.shape[1] for v in parts), *x.shape[2:])
    if net.rng.random() < 0.5:
        net.store(y, shape, x.scale, x.point)
    else:
        net.store(y, shape, net.scale(x.scale))


def softmax(net: Network) -> None:
    """A Softmax between two conversions."""
    x = net.pick(2)
    if x is not None:
        net.store(net.add("Softmax", net.real(x), axis=-1), x.shape, 1 / 256, int(np.iinfo(net.dtype).min))


LAYERS: tuple[Callable[[Network], None], ...] = (
    conv, conv, conv, conv, dense, dense, combine, combine, unary, pool, move, join, softmax,
)  # fmt: skip


def shares(net: Network) -> None:
    """A Softmax along any axis, whose result may have any scale."""
    x = net.pick(2, 3, 4)
    if x is not None:
        y = net.add("Softmax", net.real(x), axis=int(net.rng.integers(-len(x.shape), len(x.shape))))
        net.store(y, x.shape, 1 / 256 if net.rng.random() < 0.5 else net.scale(0.01))


def resize(net: Network) -> None:
    """A linear Resize to other sizes, by whole scales or by sizes."""
    x = net.pick(4)
    if x is None:
        return
    mode = str(net.rng.choice(["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"]))
    sizes = [int(net.rng.choice([n, 2 * n, 3 * n, max(n // 2, 1), n + 3])) for n in x.shape[2:]]
    shape = (*x.shape[:2], *sizes)
    if all(m % n == 0 for n, m in zip(x.shape, shape, strict=True)) and net.rng.random() < 0.5:
        wanted = [net.const(np.array([m // n for n, m in zip(x.shape, shape, strict=True)], np.float32))]
    else:
        wanted = ["", net.const(np.array(shape, np.int64))]
    y = net.add("Resize", net.real(x), "", *wanted, mode="linear", coordinate_transformation_mode=mode)
    net.store(y, shape, x.scale if net.rng.random() < 0.5 else net.scale(x.scale))


INTEGER_LAYERS: tuple[Callable[[Network], None], ...] = (conv, conv, conv, dense, dense, pool)
FIXED_POINT_LAYERS: tuple[Callable[[Network], None], ...] = (*LAYERS, shares, shares, resize, resize)
"""With those that ``requantize="fixed_point"`` computes in integers."""


def random_model(
    seed: int, integer_only: bool = False, layers: tuple[Callable[[Network], None], ...] = LAYERS
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return a quantised network and an input, both chosen by ``seed``.

    Args:
        seed: Of the random choices.
        integer_only: Whether to keep to layers that onnxruntime computes in integers by the same rule.
        layers: What to choose from otherwise.
    """
    rng = np.random.default_rng(seed)
    net = Network(rng, str(rng.choice(["int8", "uint8"])), integer_only)
    images = rng.random() < 0.75
    shape = (2, int(rng.integers(1, 33)), *(int(n) for n in rng.integers(5, 13, 2))) if images else (3, 40)
    net.values.append(Stored("x", shape, net.scale(0.05), net.point()))
    layers = INTEGER_LAYERS if integer_only else layers
    for _ in range(int(rng.integers(2, 9))):
        layers[int(rng.integers(len(layers)))](net)
    while len(net.values) == 1:  # a window that does not fit is chosen again
        (conv if images else dense)(net)
    data = rng.integers(np.iinfo(net.dtype).min, np.iinfo(net.dtype).max, shape, endpoint=True).astype(net.dtype)
    code = helper.np_dtype_to_tensor_dtype(data.dtype)
    outputs = [v.name for v in net.values[1:] if not any(v.name in n.input for n in net.nodes)]
    infos = [helper.make_tensor_value_info(n, code, None) for n in outputs]
    graph = helper.make_graph(
        net.nodes, f"quantised{seed}", [helper.make_tensor_value_info("x", code, shape)], infos, net.constants
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9), {"x": data}
