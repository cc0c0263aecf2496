"""Rules on products of whole numbers that a model computes in floats, as some quantisers write them.

Data that a Cast has made of 8-bit numbers, or that are rounded and clipped to their range, times weights that are whole
numbers of 8 bits: as quantised layers whose scales are 1, they are open to targets that compute in integers. Sums
are exact there; in float32 they are up to 2**24.
"""

from __future__ import annotations

import numpy as np

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.passes.simplify_rules.facts import constant, dtype, operand, producer
from tinycomp.rewrite import rule

_BYTES = (np.int8, np.uint8)
_CODES = {"uint8": 2, "int8": 3}
_PRODUCTS = ("Conv", "Gemm", "MatMul")
_ROUNDINGS = ("Ceil", "Floor", "Round")


@rule(*_PRODUCTS)
def quantise_whole_numbers(graph: Graph, node: Node) -> bool:
    """A float32 product of 8-bit whole numbers reads both through a DequantizeLinear of scale 1."""
    if producer(node.inputs[0], "Cast", "Clip") is None or graph.opsets.get("", 0) < 10:
        return False  # before the weights are read
    weight = _whole(constant(node, 1))
    if weight is None or dtype(node.output) != "float32":
        return False
    if node.op != "MatMul" and operand(node, 2) is not None:
        bias = constant(node, 2)
        if bias is None or not (bias == np.rint(bias)).all():
            return False
    data = _stored(graph, node)
    if data is None:
        return False
    name = operand(node, 1)
    assert name is not None
    stored = graph.add_const(weight, f"{name.name}_stored")
    for index, value in enumerate((data, stored)):
        graph.set_input(node, index, _dequantized(graph, node, value))
    return True


def _whole(weight: np.ndarray | None) -> np.ndarray | None:
    """Return a constant as 8-bit numbers, if that is what it holds."""
    if weight is None or weight.size == 0 or weight.dtype != np.float32:
        return None
    first = weight[(0,) * (weight.ndim - 1)]  # one row tells of nearly all real weights, without reading the others
    if not np.array_equal(first, np.rint(first)):
        return None
    for kind in _BYTES:
        info = np.iinfo(kind)
        if info.min <= weight.min() and weight.max() <= info.max:
            stored = weight.astype(kind)
            return stored if np.array_equal(stored, weight) else None
    return None


def _stored(graph: Graph, node: Node) -> Value | None:
    """Return the data of a product as 8-bit numbers; None where they are others."""
    cast = producer(node.inputs[0], "Cast")
    if cast is not None:
        return cast.inputs[0] if dtype(cast.inputs[0]) in _CODES else None
    clip = producer(node.inputs[0], "Clip")
    kind = None if clip is None or producer(clip.inputs[0], *_ROUNDINGS) is None else _range_of(clip)
    if clip is None or kind is None:
        return None
    return graph.add("Cast", [clip.output], {"to": _CODES[kind]}, at=clip).output


def _range_of(clip: Node) -> str | None:
    """Return the 8-bit type that holds all whole numbers that a Clip leaves."""
    ends = [constant(clip, index) for index in (1, 2)]
    if ends[0] is None or ends[1] is None or ends[0].size != 1 or ends[1].size != 1:
        return None
    low, high = ends[0].item(), ends[1].item()
    if low != np.rint(low) or high != np.rint(high):
        return None
    for kind in _BYTES:
        info = np.iinfo(kind)
        if info.min <= low and high <= info.max:
            return np.dtype(kind).name
    return None


def _dequantized(graph: Graph, node: Node, value: Value) -> Value:
    one = graph.add_const(np.array(1, np.float32), "one")
    zero = graph.add_const(np.zeros((), np.dtype(dtype(value))), "zero")
    return graph.add("DequantizeLinear", [value, one, zero], at=node).output


RULES = (quantise_whole_numbers,)
