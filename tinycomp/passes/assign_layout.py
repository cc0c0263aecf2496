"""AssignLayout: choose the memory order of every value, with Relayout only where two orders meet.

Before, with a target whose Conv wants channels last::

    %c: float32[1, 8, 6, 6] = Conv@11(%x, %w)
    %r: float32[1, 8, 6, 6] = Relu@14(%c)

After; logical shapes, axes and attributes are untouched::

    %x_nhwc: float32[1, 3, 8, 8; NHWC] = tinycomp::Relayout@1(%x) {layout = "NHWC"}
    %c: float32[1, 8, 6, 6; NHWC] = Conv@11(%x_nhwc, %w)
    %r: float32[1, 8, 6, 6; NHWC] = Relu@14(%c)
    %r_rm: float32[1, 8, 6, 6] = tinycomp::Relayout@1(%r) {layout = ""}
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from tinycomp.ir.graph import TINYCOMP, Graph, Node, Value
from tinycomp.ir.layout import CHANNELS_LAST, layout_of, memory_order
from tinycomp.ir.types import ROW_MAJOR, TensorType, tensor
from tinycomp.ops import OPS
from tinycomp.passes.base import Pass
from tinycomp.records import dataclass


class LayoutRule(Enum):
    """Say how an operator treats the memory order of its operands and results."""

    CHANNELS_LAST = "wants its data operands channels last, and gives its results so"
    IMAGE = "wants its first operand channels last and the others row-major, and gives its results channels last"
    FOLLOW = "works in any order that its operands of full rank share, and gives its results in the same"
    EITHER = "is row-major if its first operand is and only row-major results become of its own, else channels last"
    TRANSPOSE = "reads any order; its result takes the order that makes the copy cheapest"
    ROW_MAJOR = "wants all operands row-major"


LayoutRules = Callable[[Node], LayoutRule]


def by_traits(node: Node) -> LayoutRule:
    """Return the rule for an operator's record: element-wise operators follow their operands, others are row-major."""
    record = OPS.find(node.op, node.domain, node.version)
    if record is not None and "elementwise" in record.traits:
        return LayoutRule.FOLLOW
    return LayoutRule.ROW_MAJOR


@dataclass(frozen=True)
class AssignLayout(Pass):
    """Assign layouts to the values of one graph (bodies are left alone).

    Attributes:
        rules: The layout rule of a node; a target passes its own.
    """

    rules: LayoutRules = by_traits

    def run(self, graph: Graph) -> bool:
        """Insert Relayout nodes and set layouts; graph inputs and outputs stay row-major."""
        assigner = _Assigner(graph, self.rules)
        for node in graph.nodes:
            assigner.assign(node, self.rules(node))
        assigner.finish()
        return assigner.changed


class _Assigner:
    def __init__(self, graph: Graph, rules: LayoutRules) -> None:
        self.graph = graph
        self.rules = rules
        self.changed = False
        self._copies: dict[tuple[Value, str], Value] = {}

    def assign(self, node: Node, rule: LayoutRule) -> None:
        if rule is LayoutRule.CHANNELS_LAST:
            self._channels_last(node)
        elif rule is LayoutRule.EITHER:
            self._either(node)
        elif rule is LayoutRule.IMAGE:
            self._image(node)
        elif rule is LayoutRule.FOLLOW:
            self._follow(node)
        elif rule is LayoutRule.TRANSPOSE:
            self._transpose(node)
        else:
            for index, value in enumerate(node.inputs):
                self._read(node, index, value, ROW_MAJOR)

    def finish(self) -> None:
        outputs = [self._in_layout(v, ROW_MAJOR) for v in self.graph.outputs]
        self.graph.set_outputs(outputs, self.graph.output_names)

    def _channels_last(self, node: Node) -> None:
        rank = node.output.rank
        layout = CHANNELS_LAST.get(rank if rank is not None else 0, ROW_MAJOR)
        for index, value in enumerate(node.inputs):
            # Behind the first operand, constants are weights, which have an order of their own.
            if value is not None and (index == 0 or not value.is_const) and value.rank == rank:
                self._read(node, index, value, layout)
        self._write(node, layout)

    def _either(self, node: Node) -> None:
        if _layout(node.operand(0)) == ROW_MAJOR and self._ends_row_major(node.output):
            for index, value in enumerate(node.inputs):
                self._read(node, index, value, ROW_MAJOR)
            self._write(node, ROW_MAJOR)
        else:
            self._channels_last(node)

    def _ends_row_major(self, value: Value) -> bool:
        """Tell whether a value reaches nothing but outputs of the graph, through operators that follow its layout."""
        left, seen = [value], {value}
        while left:
            for user in left.pop().users:
                if self.rules(user) is not LayoutRule.FOLLOW:
                    return False
                left += [v for v in user.outputs if v not in seen]
                seen.update(user.outputs)
        return True

    def _image(self, node: Node) -> None:
        for index, value in enumerate(node.inputs):
            rank = value.rank if index == 0 and value is not None else None
            self._read(node, index, value, CHANNELS_LAST.get(rank or 0, ROW_MAJOR))
        self._write(node, CHANNELS_LAST.get(node.output.rank or 0, ROW_MAJOR))

    def _follow(self, node: Node) -> None:
        rank = node.output.rank
        layout = next((_layout(v) for v in node.inputs if v is not None and v.rank == rank and _layout(v)), ROW_MAJOR)
        for index, value in enumerate(node.inputs):
            if value is not None and not value.is_const:
                self._read(node, index, value, layout if value.rank == rank else ROW_MAJOR)
        self._write(node, layout)

    def _transpose(self, node: Node) -> None:
        source = node.operand(0)
        rank = source.rank
        if rank is None:
            return
        perm = list(node.attrs.get("perm", reversed(range(rank))))
        order = [perm.index(dim) for dim in memory_order(_layout(source), rank)]
        if perm == [0, *range(2, rank), 1] and _lies_channels_last(source):
            self._write(node, ROW_MAJOR)
        else:
            self._write(node, layout_of(order) or ROW_MAJOR)

    def _read(self, node: Node, index: int, value: Value | None, layout: str) -> None:
        if value is not None and _layout(value) != layout:
            self.graph.set_input(node, index, self._in_layout(value, layout))

    def _write(self, node: Node, layout: str) -> None:
        for value in node.outputs:
            if isinstance(value.type, TensorType) and value.type.layout != layout and value.rank in CHANNELS_LAST:
                value.type = value.type.with_layout(layout)
                self.changed = True

    def _in_layout(self, value: Value, layout: str) -> Value:
        if _layout(value) == layout:
            return value
        key = (value, layout)
        if key not in self._copies:
            name = self.graph.fresh(f"{value.name}_{layout.lower() or 'row_major'}")
            relayout = self.graph.add(
                "Relayout", [value], {"layout": layout}, domain=TINYCOMP, outputs=[name], at=value.producer
            )
            self._copies[key] = relayout.output
            self._copies[relayout.output, _layout(value)] = value
            self.changed = True
        return self._copies[key]


def _lies_channels_last(value: Value) -> bool:
    """Tell whether a value is a channels-last one that was only renamed to row-major and reshaped after its channels.

    Such a Relayout need not be carried out: with the channels moved to the end, the memory is right as it is.
    """
    origin = value
    while (node := origin.producer) is not None and node.op in ("Reshape", "Flatten", "Squeeze", "Unsqueeze"):
        origin = node.operand(0)
    if node is None or node.op != "Relayout" or _layout(node.operand(0)) == ROW_MAJOR:
        return False
    before, after = origin.shape, value.shape
    return before is not None and after is not None and before[:2] == after[:2]


def _layout(value: Value) -> str:
    return tensor(value.type).layout
