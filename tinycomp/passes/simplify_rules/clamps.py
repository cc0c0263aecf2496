"""Rules on Relu and Clip, which are both limits: Relu to [0, inf], Clip to what it says."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.types import numpy_dtype
from tinycomp.passes.edits import bypass, replace, version_of
from tinycomp.passes.simplify_rules.facts import FLOATS, dtype, is_private, operand, producer
from tinycomp.rewrite import rule
from tinycomp.rewrite.constraints import attribute

Limits = tuple[float, float]
_RELU = (0.0, math.inf)


@rule("Relu", "Clip")
def merge_clamps(graph: Graph, node: Node) -> bool:
    """A limit of a limit is one limit; where the outer one changes nothing it goes away."""
    inner = producer(node.inputs[0], "Relu", "Clip")
    if inner is None or dtype(node.output) not in FLOATS:
        return False
    first, second = limits(inner), limits(node)
    if first is None or second is None:
        return False
    both = (_limit(first[0], second), _limit(first[1], second))
    if both == first:
        return bypass(graph, node, inner.output)
    return is_private(graph, inner.output) and _replace(graph, node, inner, both)


def limits(node: Node) -> Limits | None:
    """Return the limits of a Relu or Clip of floats, or None where they are not known; a missing one is finite."""
    if node.op == "Relu":
        return _RELU
    greatest = _greatest(dtype(node.output))
    if node.version < 11:
        low, high = float(attribute(node, "min")), float(attribute(node, "max"))
        return _checked(max(low, -greatest), min(high, greatest))
    return _checked(_bound(operand(node, 1), -greatest), _bound(operand(node, 2), greatest))


def _bound(value: Value | None, default: float) -> float:
    if value is None:
        return default
    return math.nan if value.const is None or value.const.size != 1 else float(value.const.reshape(-1)[0])


def _checked(low: float, high: float) -> Limits | None:
    return None if math.isnan(low) or math.isnan(high) else (low, high)


def _limit(x: float, limits: Limits) -> float:
    return min(max(x, limits[0]), limits[1])


def _greatest(name: str) -> float:
    return float(ml_dtypes.finfo(numpy_dtype(name)).max)  # type: ignore[no-untyped-call]


def _replace(graph: Graph, node: Node, inner: Node, both: Limits) -> bool:
    x = inner.inputs[0]
    if both == _RELU:
        return replace(graph, node, "Relu", [x], merged=[inner])
    if version_of(graph, "Clip") < 11:
        finite = all(map(math.isfinite, both))
        return finite and replace(
            graph, node, "Clip", [x], dict(zip(("min", "max"), both, strict=True)), merged=[inner]
        )
    greatest = _greatest(dtype(node.output))
    bounds = [_const(graph, node, *pair) for pair in zip(("min", "max"), both, (-greatest, greatest), strict=True)]
    return replace(graph, node, "Clip", [x, *bounds], merged=[inner])


def _const(graph: Graph, node: Node, name: str, bound: float, default: float) -> Value | None:
    if bound == default:
        return None
    return graph.add_const(np.array(bound, numpy_dtype(dtype(node.output))), f"{node.output.name}_{name}")


RULES = (merge_clamps,)
