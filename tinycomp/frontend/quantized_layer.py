"""Quantised layers: QLinearConv and QLinearMatMul as what they stand for, and composites of that as these again."""

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

PRODUCT = "product"
"""Where the metadata of a composite's body keep the QLinearConv or QLinearMatMul that it was."""
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


def take_apart(graph: Graph, composite: Node) -> list[Node]:
    """Put the contents of a composite into its place; one that was made of a quantised product becomes that again.

    Returns:
        The new nodes.
    """
    body = composite.body
    op = body.metadata.get(PRODUCT)
    if op is None:
        return graph.inline(composite)
    outer = dict(zip(body.inputs, [v for v in composite.inputs if v is not None], strict=True))
    product = next(n for n in body.nodes if n.op == QUANTIZED_PRODUCTS[op])
    x, w, *bias = (v.producer for v in product.inputs if v is not None)
    y = body.outputs[0].producer
    assert x is not None
    assert w is not None
    assert y is not None
    values = [*x.inputs, *w.inputs, *y.inputs[1:], *(n.operand(0) for n in bias if n is not None)]
    operands = [outer[v] if v in outer else graph.add_const(_array(v)) for v in values if v is not None]
    new = graph.add(
        op, operands, product.attrs, outputs=[graph.fresh(composite.output.name)], types=[composite.output.type],
        at=composite, sources=composite.sources,
    )  # fmt: skip
    name = composite.output.name
    graph.replace_uses(composite.output, new.output)
    graph.erase(composite)
    graph.rename(new.output, name)
    return [new]


def _array(value: Value) -> Array:
    assert value.const is not None, value
    return value.const


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
