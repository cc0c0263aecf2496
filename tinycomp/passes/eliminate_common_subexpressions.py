"""EliminateCommonSubexpressions: merge equal nodes and equal constants.

>>> from tinycomp.ir.text.parser import parse_graph
>>> graph = parse_graph('''
... graph @main opset {"" = 17} (%x: float32[2], %k: float32[2]) -> (%y) {
...   %a: float32[2] = Add(%x, %k) from ["a"]
...   %b: float32[2] = Add(%k, %x) from ["b"]
...   %y: float32[2] = Mul(%a, %b)
... }''')
>>> EliminateCommonSubexpressions().run(graph)
True
>>> print(graph)
graph @main opset {"" = 17} (%x: float32[2], %k: float32[2]) -> (%y) {
  %a: float32[2] = Add@14(%x, %k) from ["a", "b"]
  %y: float32[2] = Mul@14(%a, %a)
}
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.types import refine
from tinycomp.lazy import LazyModule
from tinycomp.passes.base import Pass
from tinycomp.records import dataclass
from tinycomp.rewrite.edits import joined_sources
from tinycomp.rewrite.rules import erase_dead, open_graphs
from tinycomp.rewrite.traits import is_random, permutable

if TYPE_CHECKING:
    from tinycomp.ir import equality
    from tinycomp.ir.text import literals
else:
    equality, literals = LazyModule("tinycomp.ir.equality"), LazyModule("tinycomp.ir.text.literals")

_SAMPLED = 8
"""The approximate number of elements of a constant to compare before all of them are read."""


@dataclass(frozen=True)
class EliminateCommonSubexpressions(Pass):
    """Merge equal constants and equal nodes, in the graph and in the bodies of unclaimed nodes.

    Nodes are equal when operator, version, attributes, bodies and operands are; the operands of a commutative operator
    may stand in any order. Operators that draw random numbers, claimed nodes, composites and regions stay.
    """

    def run(self, graph: Graph) -> bool:
        """Merge in topological order, inner graphs first, so that bodies are at their simplest when compared."""
        return sum(_merge(each) for each in reversed(list(open_graphs(graph)))) > 0


def _merge(graph: Graph) -> int:
    changes = _merge_constants(graph)
    alike: dict[Hashable, Node] = {}
    seen: dict[Hashable, Node] = {}
    for node in graph.nodes:
        other = alike.setdefault((node.op, frozenset(map(id, node.inputs))), node)
        if other is node:  # as nearly always: the rest of what nodes may share is not worth looking at
            continue
        if _mergeable(other):
            seen.setdefault(_key(other), other)
        first = seen.setdefault(_key(node), node) if _mergeable(node) else node
        if first is node or not _same_bodies(first, node):
            continue
        for kept, value in zip(first.outputs, node.outputs, strict=True):
            if value.name:
                kept.type = refine(value.type, kept.type)
                graph.replace_uses(value, kept)
        first.sources = joined_sources(first, node)
        erase_dead(graph, node)
        changes += 1
    return changes


def _merge_constants(graph: Graph) -> int:
    """Merge equal constants; only arrays of the same type that agree in a few elements are read."""
    constants = [(value, value.const) for value in graph.constants if value.const is not None]
    changes = 0
    for alike in _groups(constants, lambda value, array: (array.dtype, array.shape)):
        for values in _groups(alike, lambda value, array: (value.type, _sample(array))):
            for equals in _groups(values, lambda value, array: _checksum(array)):
                first, kept = equals[0]
                for value, array in equals[1:]:
                    if equality.arrays_equal(kept, array):
                        graph.replace_uses(value, first)
                        graph.erase_unused(value)
                        changes += 1
    return changes


def _groups(
    constants: Iterable[tuple[Value, np.ndarray]], key: Callable[[Value, np.ndarray], Hashable]
) -> list[list[tuple[Value, np.ndarray]]]:
    """Return the groups of constants with the same key that have more than one member."""
    groups: defaultdict[Hashable, list[tuple[Value, np.ndarray]]] = defaultdict(list)
    for value, array in constants:
        groups[key(value, array)].append((value, array))
    return [group for group in groups.values() if len(group) > 1]


def _sample(array: np.ndarray) -> bytes:
    """Return some elements, evenly spread; none of texts."""
    if array.dtype.kind in "OUST":
        return b""
    return array.reshape(-1)[:: array.size // _SAMPLED + 1].tobytes()


def _checksum(array: np.ndarray) -> Hashable:
    """Return a checksum that tells apart arrays that agree in a few elements; arrays that share it are compared."""
    if isinstance(array, literals.AbsentArray) or array.dtype.kind in "OUST":
        return literals.content_hash(array)
    import zlib  # imported here, because few models have constants of the same type that agree in a few elements

    return zlib.crc32(literals.raw_bytes(array))


def _mergeable(node: Node) -> bool:
    if node.target is not None or node.is_composite or node.is_region or is_random(node):
        return False
    return not any(is_random(inner) for body in node.bodies.values() for _, inner in body.walk())


def _key(node: Node) -> Hashable:
    """Return a key that equal nodes share; bodies are compared afterwards."""
    return (
        node.domain,
        node.op,
        node.version,
        node.captures,
        _operands(node),
        tuple(bool(value.name) for value in node.outputs),
        tuple(sorted((key, _frozen(value)) for key, value in node.attrs.items())),
        tuple(sorted((key, len(body)) for key, body in node.bodies.items())),
    )


def _operands(node: Node) -> tuple[int, ...]:
    """Return the identities of a node's operands, sorted if their order does not matter."""
    operands = tuple(map(id, node.inputs))
    free = permutable(node)
    return (*sorted(operands[:free]), *operands[free:]) if free else operands


def _frozen(value: Any) -> Hashable:
    """Return a hashable stand-in for an attribute; floats by their bits, to tell apart NaN, 0.0 and -0.0."""
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, literals.content_hash(value))
    if isinstance(value, (list, tuple)):
        return tuple(map(_frozen, value))
    return (type(value).__name__, value.hex() if isinstance(value, float) else value)


def _same_bodies(a: Node, b: Node) -> bool:
    return a.bodies.keys() == b.bodies.keys() and all(
        equality.equal(body, b.bodies[key]) for key, body in a.bodies.items()
    )
