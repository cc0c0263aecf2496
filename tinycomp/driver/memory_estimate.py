"""How much memory a run of a graph needs, as far as its types tell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.types import TensorType, bits
from tinycomp.memory.budget import reserve_bytes


def value_bytes(value: Value) -> int:
    """Return the bytes of a value in memory, where elements below one byte take a whole one; 0 if they are unknown."""
    type_ = value.type
    if not isinstance(type_, TensorType) or type_.static_shape is None:
        return 0
    width = 8 if type_.dtype in ("?", "string") else max(bits(type_.dtype) // 8, 1)
    return math.prod(type_.static_shape) * width


def check_footprint(graph: Graph, nodes: Sequence[Node], dying: Mapping[int, Sequence[Value]], beside: int = 0) -> int:
    """Return the most bytes that values of known size need at one step; refuse what the budget in force does not allow.

    Args:
        graph: The graph; its constants exist already and do not count.
        nodes: Its nodes in the order of execution.
        dying: By index of a node, the values that nobody needs after it.
        beside: Bytes that a run needs for other things at the same time.

    Raises:
        MemoryLimitError: If a step needs more; it names the step with the peak.
    """
    alive = sum(value_bytes(v) for v in graph.inputs)
    peak, culprit = 0, None
    for index, node in enumerate(nodes):
        alive += sum(value_bytes(v) for v in node.used_outputs())
        if alive > peak:
            peak, culprit = alive, node
        alive -= sum(value_bytes(v) for v in dying.get(index, ()))
    if culprit is not None:
        results = ", ".join(f"{v.name}: {v.type}" for v in culprit.used_outputs()[:4])
        where = f"node {culprit.label} ({culprit.qualified_op})"
        reserve_bytes(peak + beside, where, f"the values alive there, with {results}")
    return peak
