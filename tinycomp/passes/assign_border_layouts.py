"""AssignBorderLayouts: let values pass between regions in the layouts that their targets ask for.

Before, with a target that wants the data of its convolutions as NCHW8c::

    %b = tinycomp.region::npu_0(%a)       body = graph @npu_0(%a: float32[1, 8, 4, 4]) -> (%b) { … }
    %c = tinycomp.region::npu_1(%b)       body = graph @npu_1(%b) -> (%c) { … }

After; the regions convert at their borders, which costs a device nothing, and so does the graph where nothing cancels::

    %a8 = tinycomp.layout::Pack_NCHW8c(%a)
    %b8 = tinycomp.region::npu_0(%a8)     body = graph @npu_0(%a8: float32[1, 1, 4, 4, 8]) -> (%b8) {
                                            %a = tinycomp.layout::Unpack_NCHW8c(%a8)
                                            …
                                            %b8 = tinycomp.layout::Pack_NCHW8c(%b)
    %c8 = tinycomp.region::npu_1(%b8)
    %c = tinycomp.layout::Unpack_NCHW8c(%c8)

The conversions are functions of ONNX operators, so that every type says what lies in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tinycomp.ir.blocked import PACK, UNPACK, BlockedLayout
from tinycomp.ir.graph import CONVERSION, Graph, Node, Value
from tinycomp.ir.types import Dim, tensor
from tinycomp.passes.base import Pass
from tinycomp.records import dataclass
from tinycomp.rewrite.rules import open_graphs
from tinycomp.target import Target, find_all


@dataclass(frozen=True)
class AssignBorderLayouts(Pass):
    """Convert the operands and results of regions to the layouts that their targets ask for.

    An operand is converted if all that read it in the region want the same layout, a result if its producer wants one;
    the sizes from the blocked axis on must be known.

    Attributes:
        targets: Targets (or names); those without layouts are left alone.
    """

    targets: Sequence[Target | str] = ()

    def run(self, graph: Graph) -> bool:
        """Convert at the borders of the regions of ``graph`` and of its open bodies.

        Raises:
            TargetError: If a target fails to answer, or with what is no layout.
        """
        targets = {t.name: t for t in find_all(self.targets) if t.has_layouts}
        changed = [_Borders(scope, targets).convert() for scope in open_graphs(graph)] if targets else []
        return any(changed)


class _Borders:
    """Convert at the borders of the regions of one graph."""

    def __init__(self, graph: Graph, targets: Mapping[str, Target]) -> None:
        self._graph, self._targets = graph, targets
        self._blocked: dict[tuple[Value, str], Value] = {}
        """The blocked twin of a value, by its layout."""
        self._changed = False

    def convert(self) -> bool:
        for node in self._graph.nodes:
            target = self._targets.get(node.target or "") if node.is_region else None
            if target is not None:
                self._operands(node, target)
                self._results(node, target)
        for node in reversed(self._graph.nodes):
            if node.domain == CONVERSION and self._graph.is_dead(node):
                self._graph.erase(node)
        return self._changed

    def _operands(self, region: Node, target: Target) -> None:
        body = region.body
        for index, (formal, outer) in enumerate(zip(body.inputs, region.inputs, strict=True)):
            layouts = {target.layout(user) for user in formal.users}
            name = layouts.pop() if len(layouts) == 1 else None
            if outer is None or name is None or outer.is_const or body.is_output(formal):
                continue
            layout = BlockedLayout.parse(name)
            if layout.fits(formal.shape):
                shape = formal.shape or ()
                blocked = self._packed(outer, layout)
                self._graph.set_input(region, index, blocked)
                logical_name = formal.name
                formal.type = blocked.type
                body.rename(formal, body.fresh(f"{logical_name}_{name}"))
                _redirect(body, formal, _unpack(body, formal, layout, shape, logical_name))
                self._changed = True

    def _results(self, region: Node, target: Target) -> None:
        body, outputs = region.body, list(region.body.outputs)
        for index, (inner, outer) in enumerate(zip(outputs, region.outputs, strict=True)):
            name = None if inner.producer is None else target.layout(inner.producer)
            layout = None if name is None else BlockedLayout.parse(name)
            shape = inner.shape
            if layout is None or shape is None or not layout.fits(shape) or not outer.name:
                continue
            outputs[index] = _pack(body, inner, layout)
            logical_name = outer.name
            outer.type = outputs[index].type
            self._graph.rename(outer, self._graph.fresh(f"{logical_name}_{name}"))
            logical = _unpack(self._graph, outer, layout, shape, logical_name)
            _redirect(self._graph, outer, logical)
            self._blocked[logical, layout.name] = outer
            self._changed = True
        body.set_outputs(outputs)

    def _packed(self, value: Value, layout: BlockedLayout) -> Value:
        """Return a value in a layout: the value that it was unpacked from, or packed once for all its readers."""
        key = value, layout.name
        if key not in self._blocked:
            self._blocked[key] = _pack(self._graph, value, layout)
        return self._blocked[key]


def _redirect(graph: Graph, old: Value, new: Value) -> None:
    """Let everything but the conversion itself read ``new`` instead of ``old``."""
    for user in [user for user in old.users if user is not new.producer]:
        for index, value in enumerate(user.inputs):
            if value is old:
                graph.set_input(user, index, new)
    if graph.is_output(old):
        graph.set_outputs([new if v is old else v for v in graph.outputs], graph.output_names)


def _pack(graph: Graph, value: Value, layout: BlockedLayout) -> Value:
    """Add a conversion to a layout: zeros up to a whole block, the blocks as an axis of their own, the order."""
    shape = tensor(value.type).shape or ()
    padded, body = layout.padded(shape), Graph(f"{PACK}_{layout.name}", infer=graph.infer, opsets=graph.opsets)
    last = body.add_input("x", value.type)
    if padded != shape:
        behind = [_number(now) - _number(old) if now != old else 0 for now, old in zip(padded, shape, strict=True)]
        pads = body.add_const(np.array([*[0] * len(shape), *behind], np.int64))
        last = body.add("Pad", [last, pads], {"mode": "constant"}).output
    if layout.splits and layout.axis is not None:
        axis, size = layout.axis, _number(padded[layout.axis])
        last = _reshaped(body, last, [*[0] * axis, size // layout.block, layout.block, *padded[axis + 1 :]])
    last = body.add("Transpose", [last], {"perm": layout.permutation}).output
    return _called(graph, value, body, last, f"{value.name}_{layout.name}")


def _unpack(graph: Graph, value: Value, layout: BlockedLayout, shape: tuple[Dim, ...], name: str) -> Value:
    """Add the conversion from a layout to a logical shape; its result gets a name."""
    padded, body = layout.padded(shape), Graph(f"{UNPACK}_{layout.name}", infer=graph.infer, opsets=graph.opsets)
    inverse = [int(index) for index in np.argsort(layout.permutation)]
    last = body.add("Transpose", [body.add_input("x", value.type)], {"perm": inverse}).output
    if layout.splits and layout.axis is not None:
        last = _reshaped(body, last, [*[0] * layout.axis, *padded[layout.axis :]])
    if padded != shape and layout.axis is not None:
        bounds = [body.add_const(np.array([n], np.int64)) for n in (0, _number(shape[layout.axis]), layout.axis)]
        last = body.add("Slice", [last, *bounds]).output
    return _called(graph, value, body, last, name)


def _called(graph: Graph, value: Value, body: Graph, result: Value, name: str) -> Value:
    """Add a call of a conversion, whose result gets a name near ``name``."""
    body.set_outputs([result], ["y"])
    return graph.add(
        body.name, [value], domain=CONVERSION, version=1, outputs=[graph.fresh(name)], types=[result.type],
        bodies={"body": body}, sources=() if value.producer is None else value.producer.sources,
    ).output  # fmt: skip


def _reshaped(graph: Graph, value: Value, sizes: Sequence[Dim]) -> Value:
    return graph.add("Reshape", [value, graph.add_const(np.array(sizes, np.int64))]).output


def _number(size: Dim) -> int:
    assert isinstance(size, int), size
    return size
