"""Sizes that depend on data: only a run shows them, even if the sizes of all operands of a region are known."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence

from tinycomp.errors import TypeInferenceError
from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.types import TensorType, Type
from tinycomp.ops import is_opaque
from tinycomp.ops.typing import infer_node_types
from tinycomp.symbolic import size, symbol, typical

_UNKNOWN = symbol("unknown")


def data_dependent(
    graph: Graph, nodes: Sequence[Node], besides: Collection[Value] = frozenset()
) -> list[tuple[Node, str]]:
    """Return the nodes of a region whose types do not follow from the sizes of its operands, with the reasons.

    The types in the region are inferred for sample sizes of its operands. Whatever then has no size depends on what
    the elements are, as the result of NonZero does, or of a Slice whose ends are operands. Such a result counts as an
    operand of what follows: its size is known where a region begins behind it. Nothing is said of nodes that the sample
    does not fit, or of regions with operators that nobody knows.

    ``nodes`` stand producers first; values ``besides`` may have sizes that depend on data, too.
    """
    if all(v.static_shape is not None for n in nodes for v in n.used_outputs()):
        return []
    if any(is_opaque(inner) for n in nodes for inner in n.operators()):
        return []
    return _Sample(graph).run(nodes, besides)


class _Sample:
    """A region whose operands have some sizes."""

    def __init__(self, graph: Graph) -> None:
        self.graph = Graph("sample", infer=infer_node_types, opsets=graph.opsets)
        self.copies: dict[Value, Value] = {}

    def run(self, nodes: Sequence[Node], besides: Collection[Value]) -> list[tuple[Node, str]]:
        found: list[tuple[Node, str]] = []
        for node in nodes:
            listed = next((v for v in node.inputs if v is not None and not isinstance(v.type, TensorType)), None)
            if listed is not None:
                found.append((node, f'its operand "{listed.name}" is {listed.type}, which has no size'))
                continue
            try:
                results = self._add(node)
            except TypeInferenceError:
                continue
            if results is None:
                continue
            pairs = [(v, result) for v, result in zip(node.outputs, results, strict=True) if v.name]
            unknown = next((v for v, result in pairs if result.static_shape is None and v not in besides), None)
            if unknown is None:
                self.copies.update(pairs)
            else:
                found.append((node, f'the size of its result "{unknown.name}" depends on data'))
        return found

    def _add(self, node: Node) -> tuple[Value, ...] | None:
        """Return the results of a copy of a node; None where only a run shows the rank of an operand."""
        operands = [None if v is None else self._operand(v) for v in node.inputs]
        if any(v is not None and v.shape is None for v in operands):
            return None
        copy = self.graph.add(
            node.op, operands, node.attrs, domain=node.domain, version=node.version,
            outputs=[v.name and self.graph.fresh(v.name) for v in node.outputs],
            bodies={name: body.clone() for name, body in node.bodies.items()}, captures=node.captures,
        )  # fmt: skip
        return copy.outputs

    def _operand(self, value: Value) -> Value:
        copy = self.copies.get(value)
        if copy is None:
            name = self.graph.fresh(value.name)
            const, type_ = value.const, _sized(value.type)
            copy = self.graph.add_input(name, type_) if const is None else self.graph.add_const(const, name)
            self.copies[value] = copy
        return copy


def _sized(type_: Type) -> Type:
    """Return a type with a number for every dimension that it has."""
    if not isinstance(type_, TensorType) or type_.shape is None:
        return type_
    dims = [d if isinstance(d, int) else max(typical(_UNKNOWN if d is None else size(d)), 1) for d in type_.shape]
    return dataclasses.replace(type_, shape=tuple(dims), contents=None)
