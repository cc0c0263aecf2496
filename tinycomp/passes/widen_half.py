"""WidenHalf: compute in float32 where a model has float16 or bfloat16, and round where values leave.

>>> from tinycomp.ir.text.parser import parse_graph
>>> from tinycomp.ops.typing import infer_node_types
>>> graph = parse_graph('''
... graph @main opset {"" = 17} (%x: float16[1, 2]) -> (%y) {
...   %w: float16[2, 2] = const [1, 2, 3, 4]
...   %p: float16[1, 2] = MatMul(%x, %w)
...   %y: float16[1, 2] = Relu(%p)
... }''', infer=infer_node_types)
>>> WidenHalf().run(graph)
True
>>> print(graph)
graph @main opset {"" = 17} (%x: float16[1, 2]) -> ("y" = %y_1) {
  %x_1: float32[1, 2] = Cast@13(%x) {to = 1}
  %w_1: float32[2, 2] = const [1.0, 2.0, 3.0, 4.0]
  %p: float32[1, 2] = MatMul@13(%x_1, %w_1)
  %y: float32[1, 2] = Relu@14(%p)
  %y_1: float16[1, 2] = Cast@13(%y) {to = 10}
}

Constants that nobody reads any more die with the next dead code.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tinycomp.errors import TinycompError
from tinycomp.ir.graph import Attr, Graph, Node, Value
from tinycomp.ir.proto import NUMBER_BY_DTYPE
from tinycomp.ir.types import SequenceType, TensorType, Type, refine
from tinycomp.passes.base import Pass
from tinycomp.records import dataclass, field
from tinycomp.rewrite.edits import bind_constant_captures, version_of
from tinycomp.rewrite.rules import open_graphs
from tinycomp.rewrite.traits import has_trait, is_random

HALF = frozenset({"float16", "bfloat16"})
_CHOOSING = ("output_dtype", "precision", "softmax_precision")
"""Attributes that name the dtype of a result or of intermediate values, and may ask for half precision."""
_CAST_OF_HALF = 13
"""The first version of Cast with bfloat16."""


@dataclass(frozen=True)
class WidenHalf(Pass):
    """Let operators on float16 and bfloat16 compute in float32, with conversions only where values enter and leave.

    Values are rounded to half precision where they leave the graph or a body, where the model says so by a Cast to half
    precision, and where numbers that are no floats are made of them (comparisons, indices, conversions to integers), so
    that these see what half precision tells apart. In between nothing is rounded, and nothing overflows at 65504.

    What only moves elements that are stored in half precision goes on doing so. Claimed nodes, composites, calls,
    random operators and those on sequences keep their types; values are converted around them. Values that enter a
    body or leave it are in half precision.
    """

    def run(self, graph: Graph) -> bool:
        """Widen ``graph`` and its open bodies."""
        return sum(_Widening(each).run() for each in open_graphs(graph) if _holds_half(each)) > 0


def multiplies_bfloat16(graph: Graph) -> bool:
    """Tell whether a model has products and convolutions, and computes all of them in bfloat16."""
    found = False
    for _, node in graph.walk():
        if has_trait(node, "product"):
            for value in node.inputs[:2]:
                if value is not None:
                    if value.dtype != "bfloat16":
                        return False
                    found = True
    return found


def _holds_half(graph: Graph) -> bool:
    """Tell whether a value of the graph itself is in half precision."""
    types = [value.type for value in graph.values.values()]
    return not HALF.isdisjoint([type_.dtype for type_ in types if isinstance(type_, TensorType)])


@dataclass
class _Widening:
    """Widen one graph.

    Attributes:
        graph: The graph.
        narrow: The half-precision dtype of every value that has been widened in its place.
    """

    graph: Graph
    narrow: dict[Value, str] = field(default_factory=dict)
    _twins: dict[tuple[Value, str], Value] = field(default_factory=dict)

    def run(self) -> bool:
        changed = False
        for node in self.graph.nodes:
            is_open = node.bodies and node.target is None and not node.is_call
            if is_open and any(v is not None and v.is_const and _is_half(v) for v in node.inputs):
                changed |= bind_constant_captures(self.graph, node)
        for node in self.graph.nodes:
            if any(map(_is_half, node.outputs)) or any(v is not None and self._dtype(v) in HALF for v in node.inputs):
                self._take(node)
        if not self.narrow:
            return changed or bool(self._twins)
        names = self.graph.output_names
        self.graph.set_outputs([self._as_half(v) for v in self.graph.outputs], names)
        return True

    def _take(self, node: Node) -> None:
        if node.qualified_op in ("Cast", "CastLike"):
            self._take_cast(node)
        elif not _computes(node) or not any(v is not None and self._dtype(v) in HALF for v in node.inputs):
            self._feed(node, self._as_half)
        elif has_trait(node, "movement") and not any(v in self.narrow for v in node.inputs):
            return
        else:
            self._widen(node)

    def _take_cast(self, node: Node) -> None:
        """Convert what the node converts from float32: to a float at once, to another type after rounding."""
        x = node.operand(0)
        if x in self.narrow and node.output.dtype not in HALF | {"float32", "float64"}:
            self.graph.set_input(node, 0, self._as_half(x))
        if node.op == "CastLike" and (like := node.inputs[1]) is not None and like in self.narrow:
            self.graph.set_input(node, 1, self._as_half(like))

    def _widen(self, node: Node) -> None:
        """Let the node compute in float32, or leave it as it is if it does not."""
        rounds = has_trait(node, "quantization") or has_trait(node, "measure")  # rounds itself, or reads no element
        is_exact = not rounds and not all(_is_float(v) for v in node.used_outputs() if self._is_read(v))
        operands, attrs, types = node.inputs, node.attrs, [v.type for v in node.outputs]
        self._feed(node, self._rounded if is_exact else self._as_wide)
        node.attrs = {name: _wide_attr(name, attr) for name, attr in attrs.items()}
        try:
            found = self.graph.infer(node)
        except TinycompError:
            found = []
        if len(found) != len(types) or any(_is_half_type(t) for t in found):
            node.attrs = attrs
            for index, value in enumerate(operands):
                self.graph.set_input(node, index, value)
            self._feed(node, self._as_half)
            return
        for value, before, after in zip(node.outputs, types, found, strict=True):
            if isinstance(before, TensorType) and before.dtype in HALF:
                self.narrow[value] = before.dtype
                before = TensorType("float32", before.shape, before.layout)
            value.type = refine(before, after)

    def _is_read(self, value: Value) -> bool:
        return self.graph.use_count(value) > 0

    def _dtype(self, value: Value) -> str:
        """Return the dtype of a value in the model."""
        return self.narrow.get(value) or value.dtype

    def _feed(self, node: Node, form: Callable[[Value], Value]) -> None:
        for index, value in enumerate(node.inputs):
            if value is not None and self._dtype(value) in HALF:
                self.graph.set_input(node, index, form(value))

    def _as_wide(self, value: Value) -> Value:
        return self._cast(value, "float32") if value.dtype in HALF else value

    def _as_half(self, value: Value) -> Value:
        return self._cast(value, self.narrow[value]) if value in self.narrow else value

    def _rounded(self, value: Value) -> Value:
        return self._as_wide(self._as_half(value))

    def _cast(self, value: Value, dtype: str) -> Value:
        """Return a value in another dtype; it is converted only once, and constants are converted at compile time."""
        key = value, dtype
        if key not in self._twins:
            name = self.graph.fresh(value.name)
            if value.const is not None:
                with np.errstate(invalid="ignore"):
                    self._twins[key] = self.graph.add_const(value.const.astype(np.float32), name)
            else:
                attrs = {"to": NUMBER_BY_DTYPE[dtype]}
                version = max(version_of(self.graph, "Cast"), _CAST_OF_HALF)
                node = self.graph.add("Cast", [value], attrs, version=version, outputs=[name], at=value.producer)
                self._twins[key] = node.output
        return self._twins[key]


def _wide_attr(name: str, attr: Attr) -> Attr:
    chosen = name in _CHOOSING and attr in {NUMBER_BY_DTYPE[dtype] for dtype in HALF}
    return NUMBER_BY_DTYPE["float32"] if chosen else attr


def _computes(node: Node) -> bool:
    """Tell whether a node may be given operands of another dtype."""
    if node.target is not None or node.is_call or node.bodies or node.op == "BitCast" or is_random(node):
        return False
    values = (*node.inputs, *node.outputs)
    return all(v is None or not isinstance(v.type, SequenceType) for v in values)


def _is_half_type(type_: Type) -> bool:
    return isinstance(type_, TensorType) and type_.dtype in HALF


def _is_half(value: Value) -> bool:
    return _is_half_type(value.type)


def _is_float(value: Value) -> bool:
    return value.dtype in HALF | {"float32", "float64"}
