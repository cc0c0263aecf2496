"""The layer around an operator, read and written alike in float and between DequantizeLinear and QuantizeLinear.

What only moves numbers is written on the stored ones, so that products and means keep their conversions beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinycomp.index import named
from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ops.numeric import Array
from tinycomp.passes.simplify.facts import is_private, producer
from tinycomp.records import dataclass
from tinycomp.rewrite.edits import take_over, version_of
from tinycomp.rewrite.rules import erase_dead

Rows = slice | Array | None


@dataclass(frozen=True)
class Stored:
    """An operand as it is stored: 8-bit numbers behind which a DequantizeLinear stands, or floats.

    Attributes:
        graph: The graph.
        value: The numbers.
        dequantizer: What makes floats of them; None if they are floats.
    """

    graph: Graph
    value: Value
    dequantizer: Node | None

    @property
    def array(self) -> Array | None:
        """The numbers of a constant; None if they are computed."""
        return self.value.const

    @property
    def is_even(self) -> bool:
        """Whether there is one scale, so that numbers may be moved along any axis."""
        scale = None if self.dequantizer is None else self.dequantizer.const(1)
        return scale is None or scale.size == 1

    @property
    def zero(self) -> Array:
        """What stands for 0, of the numbers' own dtype; one per scale."""
        point = None if self.dequantizer is None else self.dequantizer.const(2)
        return np.zeros((), np.dtype(self.value.dtype)) if point is None else point

    def real(self, value: Value, at: Node, rows: Rows = None, **attrs: Any) -> Value:
        """Return floats of other numbers like these.

        Args:
            value: The numbers.
            at: The node whose place they are used in.
            rows: Which of the scales are theirs, if there are several.
            attrs: What is different about their DequantizeLinear.
        """
        node = self.dequantizer
        if node is None:
            return value
        parameters = node.inputs[1:]
        if rows is not None and not self.is_even:
            parameters = tuple(self._rows_of(v, rows) for v in parameters)
        return self.graph.add(
            "DequantizeLinear", [value, *parameters], {**node.attrs, **attrs}, version=node.version, at=at,
            sources=node.sources or at.sources,
        ).output  # fmt: skip

    def constant(self, array: Array, at: Node, rows: Rows = None, **attrs: Any) -> Value:
        """Return floats of constant numbers like these."""
        return self.real(self.graph.add_const(np.ascontiguousarray(array), self.value.name), at, rows, **attrs)

    def _rows_of(self, value: Value | None, rows: slice | Array) -> Value | None:
        return None if value is None or value.const is None else self.graph.add_const(value.const[rows], value.name)


def stored(graph: Graph, value: Value) -> Stored:
    """Return an operand as it is stored; what has no known scale is taken as floats."""
    node = producer(value, "DequantizeLinear")
    known = node is not None and node.const(1) is not None and not node.attrs.get("block_size", 0)
    if node is None or not known or not (node.optional_operand(2) is None or node.const(2) is not None):
        return Stored(graph, value, None)
    return Stored(graph, node.operand(0), node)


@dataclass(frozen=True)
class Layer:
    """An operator with the bias, the activation and the QuantizeLinear that alone follow it, one after the other.

    Attributes:
        graph: The graph.
        node: The operator.
        tail: What follows.
    """

    graph: Graph
    node: Node
    tail: tuple[Node, ...]

    @classmethod
    def around(cls, graph: Graph, node: Node) -> Layer:
        """Return the layer of an operator."""
        tail: list[Node] = []
        for ops in (("Add",) if node.op == "MatMul" else (), named("clamp"), ("QuantizeLinear",)):
            value = (tail or [node])[-1].output
            reader = next(iter(value.users), None)
            if reader is not None and is_private(graph, value) and reader.op in ops and reader.target is None:
                others = [stored(graph, v) for v in reader.inputs if v is not None and v is not value]
                scale = reader.const(1) if reader.op == "QuantizeLinear" else None
                if all(other.array is not None for other in others) and (scale is None or scale.size == 1):
                    tail.append(reader)
        return cls(graph, node, tuple(tail))

    @property
    def nodes(self) -> list[Node]:
        """What stands before the operator, it, and what follows."""
        read = [value for node in (self.node, *self.tail) for value in node.inputs]
        before = [producer(value, "DequantizeLinear") for value in read]
        return [*dict.fromkeys(node for node in before if node is not None), self.node, *self.tail]

    @property
    def result(self) -> Value:
        """What the layer gives."""
        return (self.tail[-1] if self.tail else self.node).output

    def operand(self, index: int = 0) -> Stored:
        """Return an operand as it is stored."""
        return stored(self.graph, self.node.operand(index))

    @property
    def bias(self) -> Stored | None:
        """What is added to a product: its third operand, or of a MatMul what an Add behind it adds."""
        if self.node.op != "MatMul":
            return self.optional(2)
        if not self.tail or self.tail[0].op != "Add":
            return None
        return next(stored(self.graph, v) for v in self.tail[0].inputs if v is not None and v is not self.node.output)

    def optional(self, index: int) -> Stored | None:
        """Return an operand, or None if it is absent."""
        value = self.node.optional_operand(index)
        return None if value is None else stored(self.graph, value)

    def add(self, op: str, inputs: Sequence[Value | None], **attrs: Any) -> Value:
        """Add an operator in the place of this one, of the version that the model has or else the graph's."""
        same = self.node.version if op == self.node.op else version_of(self.graph, op)
        return self.graph.add(op, inputs, attrs, version=same, at=self.node).output

    def sizes(self, numbers: Sequence[int], name: str) -> Value:
        """Add a constant of int64."""
        return self.graph.add_const(np.array(numbers, np.int64), name)

    def reshaped(self, value: Value, shape: Sequence[int]) -> Value:
        """Add a Reshape, if the shape is another."""
        if value.static_shape == tuple(shape):
            return value
        return self.add("Reshape", [value, self.sizes(shape, f"{value.name}_shape")])

    def padded(self, value: Value, before: Sequence[int], after: Sequence[int], zero: Array) -> Value:
        """Add a Pad of ``zero`` along every axis, if it is any."""
        if not any(before) and not any(after):
            return value
        widths = self.sizes([*before, *after], f"{value.name}_pads")
        fill = self.graph.add_const(zero.reshape(()), f"{value.name}_fill")
        return self.add("Pad", [value, widths, fill], mode="constant")

    def cut(self, value: Value, starts: Sequence[int], ends: Sequence[int], axes: Sequence[int]) -> Value:
        """Add a Slice."""
        places = [self.sizes(v, f"{value.name}_{n}") for v, n in ((starts, "starts"), (ends, "ends"), (axes, "axes"))]
        return self.add("Slice", [value, *places])

    def finished(self, value: Value) -> Value:
        """Return what follows the operator, on another result."""
        before = self.node.output
        for node in self.tail:
            inputs = [value if v is before else v for v in node.inputs]
            before = node.output
            value = self.graph.add(
                node.op, inputs, node.attrs, version=node.version, at=node, sources=node.sources
            ).output
        return value

    def replace(self, value: Value) -> bool:
        """Let a value stand for the layer's result, and erase the layer.

        Returns:
            True, for passes to return.
        """
        old, new = self.result.producer, value.producer
        assert old is not None
        assert new is not None
        before = [v.producer for v in (*old.inputs, *self.node.inputs) if v is not None and v.producer is not None]
        take_over(self.graph, old, new)
        for node in dict.fromkeys(before):
            if node in self.graph:
                erase_dead(self.graph, node)
        return True


def attributes(node: Node, **changed: Any) -> dict[str, Any]:
    """Return the attributes of a node with some changed, and without those that are changed to None."""
    merged = {**node.attrs, **changed}
    return {name: value for name, value in merged.items() if value is not None}


def has_plain_pads(node: Node) -> bool:
    """Tell whether the pads are given as numbers, and no window reaches beyond them."""
    return node.attrs.get("auto_pad", "NOTSET") in ("NOTSET", "VALID") and not node.attrs.get("ceil_mode", 0)


def given(node: Node, name: str, rank: int, default: int = 1) -> list[int]:
    """Return an attribute of one number per spatial axis."""
    return [int(number) for number in node.attrs.get(name) or [default] * rank]
