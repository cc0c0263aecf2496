"""Short graph building for pattern tests: every node is named after its operator and a number."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinycomp.ir import Graph, Node, TensorType, Value

TYPE = TensorType("float32", (2, 4))
IMAGE = TensorType("float32", (1, 4, 8, 8))


class Net:
    """A graph under construction; ``net.Relu(x)`` adds a node and returns its first result."""

    def __init__(self, inputs: int = 1, type_: TensorType = TYPE) -> None:
        self.graph = Graph(opsets={"": 17})
        self.x = [self.graph.add_input(f"x{i}", type_) for i in range(inputs)]
        self._count = 0

    def node(self, op: str, *operands: Any, outputs: int = 1, domain: str = "", **rest: Any) -> Node:
        self._count += 1
        return self.graph.add(
            op, [self._value(v) for v in operands], rest, domain=domain, outputs=outputs, sources=[self._name(op)]
        )

    def __getattr__(self, op: str) -> Any:
        if not op[:1].isupper():
            raise AttributeError(op)
        return lambda *operands, **rest: self.node(op, *operands, **rest).output

    def const(self, value: Any, dtype: str = "float32") -> Value:
        return self.graph.add_const(np.asarray(value, dtype))

    def conv(self, x: Value, channels: int = 4, size: int = 1, **attrs: Any) -> Value:
        return self.Conv(x, self.const(np.ones((channels, 4, size, size))), **attrs)

    def done(self, *values: Value) -> Graph:
        self.graph.set_outputs(values, [f"out{i}" for i in range(len(values))])
        return self.graph

    def _name(self, op: str) -> str:
        return f"{op.lower()}{self._count}"

    def _value(self, item: Any) -> Value | None:
        return item if item is None or isinstance(item, Value) else self.const(item)


def root(graph: Graph, op: str = "") -> Node:
    """Return the last node, or the last one of an operator."""
    return [n for n in graph.nodes if not op or n.op == op][-1]
