"""MoveTransposes: a Transpose behind what treats all elements alike, until it meets another that undoes it.

>>> from tinycomp.ir.text.parser import parse_graph
>>> from tinycomp.ops.typing import infer_node_types
>>> graph = parse_graph('''
... graph @main opset {"" = 17} (%x: float32[1, 2, 3, 4], %z: float32[1, 2, 3, 4]) -> (%y) {
...   %a = Transpose(%x) {perm = [0, 2, 3, 1]} from ["a"]
...   %b = Transpose(%z) {perm = [0, 2, 3, 1]} from ["b"]
...   %s = Add(%a, %b) from ["sum"]
...   %r = Relu(%s) from ["relu"]
...   %y = Transpose(%r) {perm = [0, 3, 1, 2]} from ["back"]
... }''', infer=infer_node_types)
>>> MoveTransposes().run(graph)
True
>>> print(graph)
graph @main opset {"" = 17} (%x: float32[1, 2, 3, 4], %z: float32[1, 2, 3, 4]) -> ("y" = %relu) {
  %add: float32[1, 2, 3, 4] = Add@14(%x, %z) from ["sum"]
  %relu: float32[1, 2, 3, 4] = Relu@14(%add) from ["relu"]
}
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.passes.legalize.base import Legalization
from tinycomp.passes.simplify.facts import producer
from tinycomp.records import dataclass
from tinycomp.rewrite.edits import take_over
from tinycomp.rewrite.rules import erase_dead
from tinycomp.rewrite.traits import has_trait


@dataclass(frozen=True)
class MoveTransposes(Legalization):
    """Move Transposes with the data, behind element-wise operators, conversions and Concat; two that meet become one.

    So a region between two of them is left without, as where a model of images with channels last has been wrapped for
    ONNX. Targets want it for which a Transpose costs time, or ends a region; for those by way of TOSA it is only a name
    for the order that a tensor has already.
    """

    ops: ClassVar = frozenset({"Transpose"})
    whole: ClassVar = True

    def run(self, graph: Graph) -> bool:
        """Move and merge until nothing changes."""
        changed = False
        while super().run(graph):
            changed = True
        return changed

    def rewrite(self, graph: Graph, node: Node) -> bool:
        """Merge one Transpose with the one before it, or move it behind what reads it alone."""
        perm = list(node.attrs.get("perm") or range(node.operand(0).rank or 0)[::-1])
        before = producer(node.inputs[0], "Transpose")
        if before is not None and len(perm) == before.operand(0).rank:
            return _merged(graph, before, node, perm)
        reader = next(iter(node.output.users), None)
        if reader is None or len(node.output.users) > 1 or graph.is_output(node.output) or reader.target is not None:
            return False
        attrs = _attributes(reader, perm)
        operands = None if attrs is None else _before(graph, reader, perm)
        if attrs is None or operands is None:
            return False
        new = graph.add(reader.op, operands, attrs, domain=reader.domain, version=reader.version, at=reader)
        late = graph.add(
            "Transpose", [new.output], {"perm": perm}, version=node.version, at=reader, sources=node.sources
        )
        old = [v.producer for v in reader.inputs if v is not None and v.producer is not None]
        take_over(graph, reader, late)
        for each in dict.fromkeys(old):
            erase_dead(graph, each)
        return True


def _merged(graph: Graph, before: Node, node: Node, perm: list[int]) -> bool:
    first = list(before.attrs.get("perm") or range(len(perm))[::-1])
    whole = [first[axis] for axis in perm]
    x = before.operand(0)
    if whole == list(range(len(perm))):
        graph.replace_uses(node.output, x)
        graph.erase(node)
    else:
        sources = dict.fromkeys((*before.sources, *node.sources))
        new = graph.add("Transpose", [x], {"perm": whole}, version=node.version, at=node, sources=sources)
        take_over(graph, node, new)
    erase_dead(graph, before)
    return True


def _attributes(node: Node, perm: list[int]) -> dict[str, object] | None:
    """Return the attributes of an operator in front of a Transpose that it stands behind, or None if it cannot."""
    if node.output.rank != len(perm):
        return None
    if node.op == "Concat" and not node.domain:
        return {**node.attrs, "axis": perm[node.attrs["axis"] % len(perm)]}
    if has_trait(node, "quantization"):
        scale = node.const(1)
        return dict(node.attrs) if scale is not None and scale.size == 1 else None
    single = len(node.outputs) == 1 and not node.bodies and has_trait(node, "elementwise")
    return dict(node.attrs) if single else None


def _before(graph: Graph, node: Node, perm: list[int]) -> list[Value | None] | None:
    """Return the operands of a node as they are in front of their Transposes; constants are turned back."""
    operands: list[Value | None] = []
    for value in node.inputs:
        turned = producer(value, "Transpose")
        if value is None or value.rank == 0 or (value.const is not None and value.const.size == 1):
            operands.append(value)
        elif value.const is not None and not has_trait(node, "quantization"):
            whole = value.const.reshape([1] * (len(perm) - value.const.ndim) + list(value.const.shape))
            operands.append(graph.add_const(np.ascontiguousarray(whole.transpose(np.argsort(perm))), value.name))
        elif turned is not None and list(turned.attrs.get("perm") or range(len(perm))[::-1]) == perm:
            operands.append(turned.inputs[0])
        else:
            return None
    return operands
