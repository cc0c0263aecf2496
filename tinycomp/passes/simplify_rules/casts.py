"""Rules on Cast."""

from __future__ import annotations

from tinycomp.ir.graph import Graph, Node
from tinycomp.ir.proto import NUMBER_BY_DTYPE
from tinycomp.ir.types import UNKNOWN_DTYPE
from tinycomp.passes.edits import replace
from tinycomp.passes.simplify_rules.facts import dtype, producer
from tinycomp.rewrite import rule

_SIGNIFICANT = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}
"""Bits of the integers that a float type holds exactly."""
_WIDER_FLOATS = {
    "float16": ("float32", "float64"),
    "bfloat16": ("float32", "float64"),
    "float32": ("float64",),
}
_INTEGER_BITS = {f"{sign}int{bits}": bits for sign in ("", "u") for bits in (8, 16, 32, 64)}


@rule("Cast")
def merge_casts(graph: Graph, node: Node) -> bool:
    """``Cast(Cast(x))`` is one Cast where the inner one loses nothing."""
    inner = producer(node.inputs[0], "Cast")
    if inner is None or not is_lossless(dtype(inner.inputs[0]), dtype(inner.output)):
        return False
    if dtype(node.output) == "string":
        return False
    return replace(graph, node, "Cast", inner.inputs, node.attrs, merged=[inner], version=node.version)


@rule("CastLike")
def name_type(graph: Graph, node: Node) -> bool:
    """``CastLike(x, y)`` is a Cast to the dtype of ``y`` where that is known, so that a constant can be folded."""
    known = dtype(node.output)
    if known == UNKNOWN_DTYPE:
        return False
    return replace(graph, node, "Cast", node.inputs[:1], {**node.attrs, "to": NUMBER_BY_DTYPE[known]})


def is_lossless(source: str, target: str) -> bool:
    """Whether every number of dtype ``source`` is one of dtype ``target``; False for dtypes that few operators know.

    >>> is_lossless("int8", "float16"), is_lossless("int32", "float32"), is_lossless("uint8", "int8")
    (True, False, False)
    """
    if target in _WIDER_FLOATS.get(source, ()):
        return True
    if source == "bool":
        return target in _INTEGER_BITS or target in _SIGNIFICANT
    if source not in _INTEGER_BITS:
        return False
    signed, bits = source.startswith("int"), _INTEGER_BITS[source]
    if target in _SIGNIFICANT:
        return bits - signed <= _SIGNIFICANT[target]
    if target not in _INTEGER_BITS:
        return False
    if signed == target.startswith("int"):
        return bits <= _INTEGER_BITS[target]
    return not signed and bits < _INTEGER_BITS[target]


RULES = (merge_casts, name_type)
