"""Targets whose code is numpy, models for them, and devices that tell what they were asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tinycomp.target_api import (
    Array,
    DeviceBuffer,
    DeviceProgram,
    FaultPolicy,
    Graph,
    Node,
    Region,
    Split,
    Target,
    TensorType,
    Tolerance,
    split,
)
from tinycomp.targets.device_sim import Behaviour, SimulatedDevice

FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    "Abs": np.abs, "Add": np.add, "Mul": np.multiply, "Neg": np.negative, "Sub": np.subtract,
    "Relu": lambda x: np.maximum(x, np.float32(0)),
}  # fmt: skip
SHAPE = (4, 8)


class Listening(SimulatedDevice):
    """A simulated device that keeps the names of its commands: ``"in"``, ``"out"``, ``"across"``, ``"run"``."""

    def __init__(self, name: str, behaviour: Behaviour | None = None) -> None:
        super().__init__(name, behaviour)
        self.asked: list[str] = []

    def copy(self, source: DeviceBuffer | Array, target: DeviceBuffer | Array) -> Any:
        ends = isinstance(source, DeviceBuffer), isinstance(target, DeviceBuffer)
        self.asked.append({(False, True): "in", (True, False): "out", (True, True): "across"}[ends])
        return super().copy(source, target)

    def submit(self, region: Any, operands: Sequence[DeviceBuffer], results: Sequence[DeviceBuffer]) -> Any:
        self.asked.append("run")
        return super().submit(region, operands, results)


def computed(
    body: Graph, operands: Sequence[Array], before: Callable[[Node], object] = lambda node: None
) -> list[Array]:
    """What a region computes; ``before`` is called for every node."""
    known = dict(zip(body.inputs, operands, strict=True)) | {v: v.const for v in body.constants}
    for node in body.nodes:
        before(node)
        known[node.output] = FUNCTIONS[node.op](*(known[v] for v in node.inputs))
    return [known[v] for v in body.outputs]


def unit(
    name: str,
    *ops: str,
    behaviour: Behaviour | None = None,
    faults: FaultPolicy | None = None,
    before: Callable[[Node], object] = lambda node: None,
    single: bool = False,
    on_device: bool = True,
    **options: Any,
) -> Target:
    """A target with devices; ``single`` makes a region of every node, ``on_device=False`` plain callables."""
    target = Target(name, tolerance=Tolerance(rtol=0, atol=0), **options)
    target.accept(*ops)
    if on_device:
        target.device(lambda index: Listening(f"{name}:{index}", behaviour))

    @target.codegen
    def build(region: Node) -> Any:
        def run(*operands: Array) -> list[Array]:
            return computed(region.body, operands, before)

        return DeviceProgram(run, faults or FaultPolicy()) if on_device else run

    if single:

        @target.region_check
        def one(region: Region) -> bool | Split:
            return len(region.nodes) == 1 or split(region.nodes[0].output, reason="one node each")

    return target


def graph_of(shape: Sequence[int | str] = SHAPE, inputs: int = 1) -> Graph:
    """A graph with inputs ``x0``, ``x1`` and so on."""
    graph = Graph("model", opsets={"": 17})
    for number in range(inputs):
        graph.add_input(f"x{number}", TensorType("float32", tuple(shape)))
    return graph


def chain(*ops: str, shape: Sequence[int | str] = SHAPE) -> Graph:
    """A chain of operators with one operand; the source of each is its name and place."""
    graph = graph_of(shape)
    value = graph.inputs[0]
    for place, op in enumerate(ops):
        value = graph.add(op, [value], sources=[f"{op}{place}"]).output
    graph.set_outputs([value], ["y"])
    return graph


def diamond() -> Graph:
    """``Sub(Relu(x), Neg(x))``: two branches, one for each of two targets, and a node for neither."""
    graph = graph_of()
    (x,) = graph.inputs
    left, right = (graph.add(op, [x], sources=[op]).output for op in ("Relu", "Neg"))
    graph.set_outputs([graph.add("Sub", [left, right], sources=["Sub"]).output], ["y"])
    return graph


def mixed() -> Graph:
    """Two targets and the host take turns; values go to several of them."""
    graph = graph_of((32, 32))
    (x,) = graph.inputs
    a = graph.add("Relu", [x], sources=["a"]).output
    b = graph.add("Mul", [a, graph.add_const(np.float32(3), "three")], sources=["b"]).output
    c = graph.add("Neg", [b], sources=["c"]).output
    d = graph.add("Tanh", [a], sources=["d"]).output
    e = graph.add("Sub", [c, d], sources=["e"]).output
    graph.set_outputs([e, graph.add("Exp", [b], sources=["f"]).output], ["y", "z"])
    return graph


def data(shape: Sequence[int] = SHAPE, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
