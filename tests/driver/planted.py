"""Models in which one obstacle, or several of one cause, keeps a target from taking all in one region."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.driver.test_placement import running
from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.types import TensorType
from tinycomp.ops.typing import infer_node_types
from tinycomp.rewrite import P, reject
from tinycomp.target import Policy, Target

MULTIPLE = 8


@dataclass
class Planted:
    """A model, what it is compiled with, and the kind of advice that it needs."""

    graph: Graph
    target: Target
    options: dict[str, Any] = field(default_factory=dict)
    borders: int = 1
    tolerance: float = 1e-4


class Network:
    """A chain of blocks on an image, with weights from one generator of random numbers."""

    def __init__(self, seed: int, batch: int | str = 1) -> None:
        self.rng = np.random.default_rng(seed)
        self.graph = Graph(opsets={"": 18}, infer=infer_node_types)
        self.channels = MULTIPLE
        self.value = self.graph.add_input("x", TensorType("float32", (batch, MULTIPLE, 8, 8)))
        self.count = 0

    def name(self, op: str) -> str:
        self.count += 1
        return f"{op.lower()}{self.count}"

    def add(self, op: str, *others: Value | None, name: str = "", **attrs: Any) -> Node:
        node = self.graph.add(op, [self.value, *others], attrs, sources=[name or self.name(op)])
        self.value = node.output
        return node

    def const(self, array: np.ndarray) -> Value:
        return self.graph.add_const(array)

    def weights(self, *shape: int) -> np.ndarray:
        return (self.rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    def conv(self, channels: int = 0, *, kernel: int = 3, name: str = "", **attrs: Any) -> Node:
        channels = channels or MULTIPLE * int(self.rng.integers(1, 4))
        weight = self.const(self.weights(channels, self.channels, kernel, kernel))
        bias = self.const(self.weights(channels, 1)[:, 0])
        dilation = attrs.get("dilations", [1])[0]
        pad = dilation * (kernel // 2)
        self.channels = channels
        return self.add("Conv", weight, bias, name=name, pads=[pad] * 4, **attrs)

    def block(self) -> None:
        """Add a block that the plain target takes."""
        kind = self.rng.integers(3)
        self.conv(kernel=int(self.rng.choice([1, 3])))
        self.add("Relu")
        if kind == 1:
            kept = self.value
            self.conv(self.channels)
            self.add("Add", kept)
            self.add("Relu")
        elif kind == 2:
            self.add("MaxPool", kernel_shape=[3, 3], pads=[1] * 4)

    def blocks(self) -> None:
        for _ in range(int(self.rng.integers(1, 4))):
            self.block()

    def finished(self) -> Graph:
        self.graph.set_outputs([self.value], ["y"])
        return self.graph


def plain_target(*ops: str, **options: Any) -> Target:
    """Return a target that takes the blocks of a network."""
    target = Target("npu", **options)
    target.accept("Relu", "Add", "MaxPool", *ops)

    @target.op("Conv")
    def _(node: Node) -> object:
        channels = node.inputs[1].type.shape[0]
        if channels % MULTIPLE:
            return reject(f"output channels must be a multiple of {MULTIPLE}, got {channels}")
        dilations = node.attrs.get("dilations", [1, 1])
        return dilations == [1, 1] or reject(f"dilations must be 1, got {dilations[0]}")

    return running(target)


Plant = Callable[[Network], None]


def _chain(seed: int, plant: Plant, batch: int | str = 1) -> tuple[Graph, int]:
    """Return blocks with the obstacle between them once or twice, and how often."""
    network = Network(seed, batch)
    obstacles = 1 + seed % 2
    network.blocks()
    for _ in range(obstacles):
        plant(network)
        network.blocks()
    return network.finished(), obstacles


def lacks_rule(seed: int) -> Planted:
    op = ("Erf", "Tanh", "Atan", "Softsign", "Elu", "Sign")[seed % 6]
    graph, obstacles = _chain(seed, lambda net: net.add(op) and None)
    return Planted(graph, plain_target(), borders=obstacles)


def narrow_rule(seed: int) -> Planted:
    graph, obstacles = _chain(seed, lambda net: net.conv(dilations=[2, 2]) and None)
    return Planted(graph, plain_target(), borders=obstacles)


def narrow_composite(seed: int) -> Planted:
    """A pattern asks for what one layer is not: its attribute, or a constant bias."""
    target = running(Target("npu"))
    target.accept("Relu", "Add", "MaxPool")

    @target.composite
    def conv(x: Any, w: Any = P.const, b: Any = P.const) -> Any:
        return P.Conv(x, w, b, auto_pad="NOTSET", dilations=[1, 1])

    graph, obstacles = _chain(seed, lambda net: net.conv(dilations=[2, 2]) and None)
    return Planted(graph, target, borders=obstacles)


def strict_check(seed: int) -> Planted:
    """A check of a composite refuses a kernel of one size."""
    target = running(Target("npu"))
    target.accept("Relu", "Add", "MaxPool")

    @target.composite
    def conv(x: Any, w: Any = P.const, b: Any = P.const) -> Any:
        return P.Conv(x, w, b)

    @conv.check
    def _(match: Any) -> object:
        height, width = match.w.type.shape[2:]
        return height < 5 or reject(f"the kernel may have 3 x 3 elements, got {height} x {width}")

    graph, obstacles = _chain(seed, lambda net: net.conv(kernel=5) and None)
    return Planted(graph, target, borders=obstacles)


def odd_channels(seed: int) -> Planted:
    def plant(network: Network) -> None:
        network.conv(MULTIPLE * int(network.rng.integers(1, 3)) + 1 + seed % (MULTIPLE - 1))
        network.add(("Relu", "Sigmoid")[seed % 2])
        if seed % 3 == 0:  # a sum, whose both sides have to be padded
            kept = network.value
            network.conv(network.channels)
            network.add("Add", kept)

    graph, obstacles = _chain(seed, plant)
    return Planted(graph, plain_target("Sigmoid"), borders=obstacles * (2 if seed % 3 == 0 else 1))


def whole_operator(seed: int) -> Planted:
    """A target takes the parts of an operator that is not taken apart by itself."""
    graph, obstacles = _chain(seed, lambda net: net.add("Softplus") and None)
    return Planted(graph, plain_target("Exp", "Log"), borders=obstacles)


def excluded(seed: int) -> Planted:
    graph, obstacles = _chain(seed, lambda net: net.add("Neg", name=net.name("left/out")) and None)
    return Planted(graph, plain_target("Neg"), {"policy": {"npu": Policy(exclude=("left/*",))}}, obstacles)


def placed(seed: int) -> Planted:
    graph, obstacles = _chain(seed, lambda net: net.add("Neg", name=net.name("elsewhere/")) and None)
    return Planted(graph, plain_target("Neg"), {"place": {"elsewhere/*": "host"}}, obstacles)


def open_size(seed: int) -> Planted:
    target = plain_target()

    @target.op("AveragePool")
    def _(node: Node) -> object:
        batch = node.inputs[0].type.shape[0]
        return isinstance(batch, int) or reject(f"the batch must be known, got {batch}")

    def plant(network: Network) -> None:
        network.add("AveragePool", kernel_shape=[3, 3], pads=[1] * 4)

    graph, obstacles = _chain(seed, plant, batch="batch")
    return Planted(graph, target, borders=obstacles)


def _conversions(network: Network, scale: float) -> None:
    parameters = (network.const(np.float32(scale)), network.const(np.int8(0)))
    network.add("QuantizeLinear", *parameters)
    network.add("DequantizeLinear", *parameters)


def quantised_layer(seed: int) -> Planted:
    """One layer is quantised, and the target computes in float only."""

    def plant(network: Network) -> None:
        _conversions(network, 0.05)
        network.conv()
        _conversions(network, 0.05)

    graph, obstacles = _chain(seed, plant)
    return Planted(graph, plain_target(), borders=2 * obstacles, tolerance=0.5)


def float_layer(seed: int) -> Planted:
    """One layer between quantised ones has float weights, and the target has composites for quantised ones only."""
    target = running(Target("npu"))

    @target.composite
    def qconv(x: Any, s: Any = P.const, z: Any = P.const, w: Any = P.const, b: Any = P.const) -> Any:
        weight = P.DequantizeLinear(w, P.const, P.const)
        y = P.Conv(P.DequantizeLinear(x, s, z), weight, b)
        return P.QuantizeLinear(P.Relu(y) | y, P.const, P.const)

    network = Network(seed)
    scale, point = network.const(np.float32(0.05)), network.const(np.int8(0))
    layers = int(network.rng.integers(3, 7))
    obstacles = 1 + (seed % 2) * (layers > 4)
    kept = {1, 3} if obstacles == 2 else {1 + seed % (layers - 2)}
    for layer in range(layers):
        if layer == 0:
            network.add("QuantizeLinear", scale, point)
        network.add("DequantizeLinear", scale, point)
        channels, before = MULTIPLE, network.channels
        weight = network.weights(channels, before, 3, 3)
        operand = network.const(weight)
        if layer not in kept:
            size = np.abs(weight).max(axis=(1, 2, 3)) / 127
            integers = np.rint(weight / size[:, None, None, None]).astype(np.int8)
            parts = [network.const(a) for a in (integers, size, np.zeros(channels, np.int8))]
            operand = network.graph.add("DequantizeLinear", parts, {"axis": 0}).output
        bias = network.const(np.zeros(channels, np.float32))
        network.channels = channels
        network.add("Conv", operand, bias, pads=[1] * 4)
        if seed % 3:
            network.add("Relu")
        network.add("QuantizeLinear", scale, point)
    network.add("DequantizeLinear", scale, point)
    return Planted(network.finished(), target, borders=obstacles, tolerance=0.5)


KINDS: dict[str, tuple[str, Callable[[int], Planted]]] = {
    "lacks_rule": ("rule", lacks_rule),
    "narrow_rule": ("rule", narrow_rule),
    "narrow_composite": ("composite", narrow_composite),
    "strict_check": ("composite", strict_check),
    "odd_channels": ("padding", odd_channels),
    "whole_operator": ("definition", whole_operator),
    "excluded": ("policy", excluded),
    "placed": ("place", placed),
    "open_size": ("shapes", open_size),
    "quantised_layer": ("float", quantised_layer),
    "float_layer": ("quantise", float_layer),
}
"""Obstacles by name: the kind of the advice that must come first, and what plants one."""


def unhindered(seed: int) -> Planted:
    """A model that its target takes in one region."""
    network = Network(seed)
    network.blocks()
    return Planted(network.finished(), plain_target(), borders=0)
