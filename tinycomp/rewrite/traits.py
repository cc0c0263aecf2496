"""What patterns and rules need to know about operators, read from the operator table and ONNX's schemas."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from tinycomp.ir.graph import TINYCOMP, Graph, Node, Value
from tinycomp.ir.schemas import schema
from tinycomp.ir.types import tensor
from tinycomp.ops import is_opaque, traits_of
from tinycomp.symbolic import Size


def attribute(node: Node, name: str) -> Any:
    """Return an attribute of ``node``, its ONNX default where the node leaves it out, or None."""
    return node.attrs[name] if name in node.attrs else _default(node.op, node.domain, node.version, name)


@functools.cache
def _default(op: str, domain: str, version: int, name: str) -> Any:
    definition = schema(op, domain, version)
    if definition is None or name not in definition.attributes:
        return None
    return definition.attributes[name].default


def has_trait(node: Node, trait: str) -> bool:
    """Tell whether the node's operator has ``trait``."""
    return trait in traits_of(node.op, node.domain, node.version)


def is_same_view(node: Node, op: str, axis: int | None = None) -> bool:
    """Tell whether a Reshape certainly gives its operand the shape that a Flatten, Squeeze or Unsqueeze gives it.

    ``axis`` is that of a Flatten; None stands for any.
    """
    before, after = node.operand(0).sizes, node.output.sizes
    if before is None or after is None:
        return False
    if op == "Flatten":
        axes = range(len(before) + 1) if axis is None else [axis + len(before) * (axis < 0)]
        return any(after == (math.prod(before[:at]), math.prod(before[at:])) for at in axes)
    longer, shorter = (before, after) if op == "Squeeze" else (after, before)
    return len(longer) > len(shorter) and _drops_ones(longer, shorter)


def _drops_ones(sizes: Sequence[Size], rest: Sequence[Size]) -> bool:
    """Tell whether ``rest`` is ``sizes`` without some of the ones."""
    place = 0
    for size in sizes:
        if place < len(rest) and rest[place] == size:
            place += 1
        elif size != 1:
            return False
    return place == len(rest)


def is_barrier(node: Node) -> bool:
    """Tell whether the node is a ``StopFusion``."""
    return (node.domain, node.op) == (TINYCOMP, "StopFusion")


def is_structural(node: Node) -> bool:
    """Tell whether the node hands its first operand on unchanged (Identity, StopFusion, Dropout at inference)."""
    return "structural" in traits_of(node.op, node.domain, node.version) and not _drops(node)


def at_border(graph: Graph) -> set[Node]:
    """Return the nodes that only take apart what a caller hands in, or put together what a caller gets.

    They handle sequences and optionals, touch no element of a tensor, and stand before all that computes, or behind it.
    """
    handles = [node for node in graph.nodes if has_trait(node, "handle")]
    found: set[Node] = set()
    handed_in = set(graph.inputs)
    for node in handles:
        if all(v is None or v.is_const or v in handed_in for v in node.inputs):
            found.add(node)
            handed_in |= set(node.outputs)
    behind: set[Node] = set()
    for node in reversed(handles):
        if all(user in behind for v in node.used_outputs() for user in v.users):
            behind.add(node)
    return found | behind


def looks_through(value: Value, through: frozenset[str] | None) -> bool:
    """Tell whether ``value`` is its producer's first operand handed on, by an operator of ``through`` (None: any)."""
    node = value.producer
    if node is None or "structural" not in traits_of(node.op, node.domain, node.version):
        return False
    if value is not node.output or node.inputs[0] is None or _drops(node):
        return False
    return through is None or node.op in through


def is_random(node: Node) -> bool:
    """Tell whether two runs of the node may differ, as far as anything is known about it."""
    return is_opaque(node) or has_trait(node, "random") or (not node.domain and _drops(node))


def _drops(node: Node) -> bool:
    """Tell whether a Dropout may run in training mode: by attribute before version 7, by operand from 12 on."""
    if node.op != "Dropout":
        return False
    if node.version < 7:
        return not node.attrs.get("is_test", 0)
    mode = node.optional_operand(2)
    return mode is not None and (mode.const is None or bool(mode.const.any()))


def permutable(node: Node) -> int:
    """Return how many leading operands may stand in any order; 0 where order matters."""
    return len(node.inputs) if has_trait(node, "commutative") else 0


def is_duplicable(node: Node) -> bool:
    """Tell whether each consumer may own a copy of the node.

    The operator must be pure and cheap, and a copy must not read more than the shared result would have cost to read:
    at most one variable operand is as large as the result. That admits DequantizeLinear, Cast, Relu or an addition of a
    bias, and leaves out the sum of two full tensors, whose copy would double the memory traffic.
    """
    if not has_trait(node, "cheap") or node.bodies:
        return False
    size = tensor(node.output.type).size()
    variables = [v for v in node.inputs if v is not None and not v.is_const]
    return sum(tensor(v.type).size() >= size for v in variables) <= 1
