"""The quantised layers that QLinearConv and QLinearMatMul stand for."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.schemas import known_opsets
from tinycomp.ir.types import TensorType, Type
from tinycomp.ops.numeric import Array
from tinycomp.ops.typing import infer_node_types

QUANTIZED_PRODUCTS = MappingProxyType({"QLinearConv": "Conv", "QLinearMatMul": "MatMul"})
"""The quantised products that stand for a layer, and the operator between its conversions."""


def is_quantized_product(node: Node) -> bool:
    """Tell whether the node is a QLinearConv or QLinearMatMul."""
    return not node.domain and node.op in QUANTIZED_PRODUCTS


def layer_definition(node: Node) -> Graph | None:
    """Return a QLinearConv or QLinearMatMul as a quantised layer: dequantise, multiply, quantise.

    The node adds integers, the layer floats: only a composite of the whole that adds integers as well gives the same
    bits.

    Returns:
        A graph with one input for every distinct operand that is not constant, and one output; None where scales or
        zero points are not constant, or there are several for the data or the result.
    """
    of_x, of_w, of_y = (_parameters(node, *places) for places in ((1, 2), (4, 5), (6, 7)))
    if of_x is None or of_w is None or of_y is None or of_x[0].ndim or of_y[0].ndim:
        return None
    dtype = of_x[0].dtype
    if of_w[0].dtype != dtype or of_y[0].dtype != dtype:
        return None
    graph = Graph(node.op, infer=infer_node_types, opsets={"": known_opsets()[""]})
    inner: dict[Value, Value] = {}

    def add(op: str, operands: Sequence[Value], type_: Type, **attrs: Any) -> Value:
        return graph.add(op, operands, attrs, types=[type_], sources=node.sources).output

    def dequantized(index: int, *parameters: Array, **attrs: Any) -> Value:
        stored = node.operand(index)
        if stored not in inner:
            name, array = graph.fresh(stored.name), stored.const
            inner[stored] = graph.add_input(name, stored.type) if array is None else graph.add_const(array, name)
        operands = [inner[stored], *map(graph.add_const, parameters)]
        return add("DequantizeLinear", operands, TensorType(dtype.name, stored.shape), **attrs)

    axis = 0 if node.op == "QLinearConv" else (node.operand(3).rank or 1) - 1
    factors = [dequantized(0, *of_x), dequantized(3, *of_w, axis=axis)]
    if node.optional_operand(8) is not None:
        with np.errstate(all="ignore"):
            factors.append(dequantized(8, of_x[0] * of_w[0], axis=0))
    sums = add(QUANTIZED_PRODUCTS[node.op], factors, TensorType(dtype.name, node.output.shape), **node.attrs)
    graph.set_outputs([add("QuantizeLinear", [sums, *map(graph.add_const, of_y)], node.output.type)])
    return graph


def _parameters(node: Node, scale: int, point: int) -> tuple[Array, Array] | None:
    """Return the constant scales and zero points at two operands: scalars, or vectors of equal size."""
    given = node.const(scale), node.const(point)
    vectors = [p for p in given if p is not None and (p.size == 1 or p.shape[-1] == p.size)]
    sizes = {p.size for p in vectors} - {1}
    if len(vectors) < len(given) or len(sizes) > 1:
        return None
    shape = tuple(sizes)
    full = [p.reshape(shape) if p.size != 1 or not shape else np.full(shape, p.item(), p.dtype) for p in vectors]
    return full[0], full[1]
