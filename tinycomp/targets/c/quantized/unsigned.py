"""Activations of 8 bits as uint8, whatever the model has: the kernels multiply unsigned data by signed weights.

The stored number of an int8 value becomes itself plus 128, and so does the zero point of whoever gives or reads it,
which leaves what it stands for as it is. Operators that only move numbers or take the greatest carry on with whatever
they get. Where a number itself matters, at the region's border above all, a requantisation turns it back.

Before, inside a region::

    %y: int8[…] = c.qconv(%x, …)         DequantizeLinear(%x, s, 3) … QuantizeLinear(…, t, -7)
    %z: int8[…] = Transpose(%y)

After::

    %x_u: uint8[…] = c.qtable(%x)        QuantizeLinear(DequantizeLinear(%x, 1, 0), 1, 128)
    %y: uint8[…] = c.qconv(%x_u, …)      DequantizeLinear(%x, s, 131) … QuantizeLinear(…, t, 121)
    %z: uint8[…] = Transpose(%y)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tinycomp.index import named
from tinycomp.ir.graph import COMPOSITE, Graph, Node, Value
from tinycomp.ir.types import TensorType, tensor
from tinycomp.ops import factors, zero_points
from tinycomp.records import dataclass, field
from tinycomp.rewrite.edits import take_over
from tinycomp.rewrite.traits import has_trait, is_structural
from tinycomp.targets.c.codegen.rules import LoweringRule

OFFSET = 128
TABLE = "c.qtable"
_MOVES = frozenset({*named("selection"), "Concat", "Pad", "Resize"})
_PAD_VALUE = 2


@dataclass
class MakeUnsigned:
    """Give the 8-bit activations of one region the dtype uint8.

    Attributes:
        graph: The body of the region; it is changed.
        rules: The lowering rule of a node, which says whether it takes unsigned data only, and whether it can give
            int8 numbers as well, which spares a conversion at the end.
    """

    graph: Graph
    rules: Callable[[Node], LoweringRule]
    _shifted: dict[Value, None] = field(default_factory=dict)
    _copies: dict[tuple[Value, str], Value] = field(default_factory=dict)

    def run(self) -> None:
        """Go through the graph once, in order, if there is anything to do."""
        if not any(map(_is_int8, self.graph.values.values())):
            return
        for node in self.graph.nodes:
            self._visit(node)
        outputs = [self._signed(v) for v in self.graph.outputs]
        self.graph.set_outputs(outputs, self.graph.output_names)

    def _visit(self, node: Node) -> None:
        if has_trait(node, "integer_product"):
            self._visit_product(node)
        elif self.rules(node).unsigned:
            self._shift(node, [i for i, v in enumerate(node.inputs) if _is_int8(v) or v in self._shifted])
        elif self._converts(node, "DequantizeLinear") and node.inputs[0] in self._shifted:
            self._shift_parameters(self.graph, node)
        elif self._converts(node, "QuantizeLinear") and _is_int8(node.output) and not self._is_final(node):
            self._shifted[self._shift_parameters(self.graph, node).output] = None
        elif self._moves(node):
            self._shift(node, [i for i, v in enumerate(node.inputs) if _is_int8(v) or v in self._shifted])
        else:
            for index, value in enumerate(node.inputs):
                if value is not None:
                    self._replace(node, index, self._signed(value))

    def _converts(self, node: Node, op: str) -> bool:
        """Tell whether the node is a conversion whose zero point is known, and so may be moved."""
        points = node.inputs[2:]
        return node.op == op and not node.domain and all(v is None or v.is_const for v in points)

    def _visit_product(self, node: Node) -> None:
        """Let one of the integer operators read and give unsigned numbers; constant factors stay as they are.

        Products of two run-time factors take both types, and read one as it is whose zero point is computed.
        """
        packed = any(node.operand(index).is_const for index in factors(node))
        for index, place in zero_points(node).items():
            factor, point = node.operand(index), node.optional_operand(place)
            if factor.is_const:
                continue
            if point is not None and not point.is_const:
                convert = self._unsigned if packed and (_is_int8(factor) or factor in self._shifted) else self._signed
                self._replace(node, index, convert(factor))
                self._replace(node, place, convert(point))
            elif (packed and _is_int8(factor)) or factor in self._shifted:
                node = self._with_point(node, place)
                self._replace(node, index, self._unsigned(factor))

    def _with_point(self, node: Node, index: int) -> Node:
        """Add 128 to the zero point that is operand ``index``; return the node in its place."""
        given = node.inputs[index] if index < len(node.inputs) else None
        stored = np.zeros((), np.int8) if given is None else given.const
        assert stored is not None, node
        point = self.graph.add_const(_flipped(stored), f"{node.output.name}_zero_point")
        if index < len(node.inputs):
            self._replace(node, index, point)
            return node
        return self._rebuilt(node, [*node.inputs, *[None] * (index - len(node.inputs)), point])

    def _rebuilt(self, node: Node, inputs: list[Value | None]) -> Node:
        new = self.graph.add(
            node.op, inputs, node.attrs, version=node.version, outputs=[self.graph.fresh(node.output.name)], at=node,
            types=[node.output.type], sources=node.sources,
        )  # fmt: skip
        take_over(self.graph, node, new)
        return new

    def _moves(self, node: Node) -> bool:
        """Tell whether the node only moves numbers of which some are unsigned by now."""
        moves = (node.op in _MOVES and not node.domain) or is_structural(node)
        return moves and any(value in self._shifted for value in node.inputs)

    def _shift(self, node: Node, operands: list[int]) -> None:
        """Let a node read and give unsigned numbers."""
        if node.op == "Pad" and not node.domain:
            node = self._with_pad_value(node)
        for index in operands:
            value = node.inputs[index]
            assert value is not None
            self._replace(node, index, self._unsigned(value))
        final = self.rules(node).either and self._is_final(node)
        if node.is_composite:
            self._shift_body(node, operands, final)
        for value in node.outputs:
            if _is_int8(value) and not final:
                value.type = _as_uint8(value)
                self._shifted[value] = None

    def _is_final(self, node: Node) -> bool:
        return self.graph.is_output(node.output) and not node.output.users

    def _shift_body(self, node: Node, operands: list[int], final: bool) -> None:
        body = node.body
        places = [v for v in node.inputs if v is not None]
        for index in operands:
            inner = body.inputs[places.index(node.inputs[index])]  # type: ignore[arg-type]
            if not _is_int8(inner):
                continue
            inner.type = _as_uint8(inner)
            for user in list(inner.users):
                self._shift_parameters(body, user)
        last = body.outputs[0].producer
        assert last is not None
        if last.op == "QuantizeLinear" and _is_int8(last.output) and not final:
            self._shift_parameters(body, last)
            # A result that is requantised by explicit arithmetic is moved by whoever reads the composite.

    def _shift_parameters(self, graph: Graph, node: Node) -> Node:
        """Add 128 to the zero point of a QuantizeLinear or DequantizeLinear; return the node in its place."""
        given = node.inputs[2] if len(node.inputs) > 2 else None
        stored = np.zeros((), np.int8) if given is None else given.const
        assert stored is not None, node
        point = graph.add_const(_flipped(stored), f"{node.output.name}_zero_point")
        attrs = {k: v for k, v in node.attrs.items() if k != "output_dtype" or node.op == "DequantizeLinear"}
        new = graph.add(
            node.op, [*node.inputs[:2], point], attrs, version=node.version, outputs=[graph.fresh(node.output.name)],
            at=node, sources=node.sources,
        )  # fmt: skip
        if _is_int8(node.output):
            node.output.type = _as_uint8(node.output)  # what is known of both types must not contradict each other
        take_over(graph, node, new)
        return new

    def _with_pad_value(self, node: Node) -> Node:
        """Return the Pad with a padding value of its own, which is 0 where a model says nothing."""
        if len(node.inputs) > _PAD_VALUE and node.inputs[_PAD_VALUE] is not None:
            return node
        zero = self.graph.add_const(np.zeros((), np.int8), f"{node.output.name}_value")
        return self._rebuilt(node, [*node.inputs[:2], zero, *node.inputs[3:]])

    def _unsigned(self, value: Value) -> Value:
        return value if value in self._shifted else self._converted(value, "uint8")

    def _signed(self, value: Value) -> Value:
        return self._converted(value, "int8") if value in self._shifted else value

    def _converted(self, value: Value, dtype: str) -> Value:
        """Return the same numbers as the other type; each value is converted once."""
        if (value, dtype) not in self._copies:
            if value.const is not None:
                self._copies[value, dtype] = self.graph.add_const(_flipped(value.const), f"{value.name}_{dtype}")
            else:
                self._copies[value, dtype] = self._requantized(value, dtype)
        return self._copies[value, dtype]

    def _requantized(self, value: Value, dtype: str) -> Value:
        """Return a table composite that turns uint8 into int8 numbers or back."""
        body, graph = Graph(TABLE, infer=self.graph.infer, opsets=self.graph.opsets), self.graph
        one = body.add_const(np.array(1, np.float32), "one")
        points = {"int8": np.array(0, np.int8), "uint8": np.array(OFFSET, np.uint8)}
        inner = body.add_input("x", value.type)
        real = body.add("DequantizeLinear", [inner, one, body.add_const(points[value.dtype])])
        body.set_outputs([body.add("QuantizeLinear", [real.output, one, body.add_const(points[dtype])]).output])
        type_ = TensorType(dtype, value.shape)
        node = graph.add(
            TABLE, [value], domain=COMPOSITE, bodies={"body": body}, types=[type_], outputs=[graph.fresh(value.name)],
            at=value.producer,
        )  # fmt: skip
        return node.output

    def _replace(self, node: Node, index: int, value: Value) -> None:
        if node.inputs[index] is not value:
            self.graph.set_input(node, index, value)


def _is_int8(value: Value | None) -> bool:
    return value is not None and isinstance(value.type, TensorType) and value.type.dtype == "int8"


def _as_uint8(value: Value) -> TensorType:
    type_ = tensor(value.type)
    return TensorType("uint8", type_.shape, type_.layout)


def _flipped(stored: np.ndarray) -> np.ndarray:
    """Return int8 numbers plus 128 as uint8, or the other way round: the same bits but for the first."""
    other = np.uint8 if stored.dtype == np.int8 else np.int8
    return (stored.view(np.uint8) ^ np.uint8(OFFSET)).view(other)
