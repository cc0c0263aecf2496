"""What operators compute that select by contents: distinct elements, maxima with their places, and the way back."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

import numpy as np

from tinycomp.frontend.definition_body import Body, Definition
from tinycomp.ir.graph import TINYCOMP, Node, Value
from tinycomp.ir.types import numpy_dtype


def _unique(body: Body, node: Node, operands: Sequence[Value | None]) -> Sequence[Value] | None:
    """Define it by which slices are equal: the first of each group is gathered, the others are counted."""
    x, axis = operands[0], node.attrs.get("axis")
    if x is None or not x.rank or x.dtype == "string":
        return None
    if axis is None and x.rank != 1:
        x = body.reshape(x, [-1])
    axis = int(axis or 0) % (x.rank or 1)
    first, rank = body.graph.add("GroupSlices", [x], {"axis": axis}, domain=TINYCOMP, version=1, outputs=2).outputs
    count = body("Shape", first)
    zero, one = body.const(np.int64(0)), body.const(np.int64(1))
    is_new = body("Equal", first, body("Range", zero, body.reshape(count, []), one))
    places = body.reshape(body("NonZero", is_new), [-1])
    nothing = body("ConstantOfShape", count, value=np.zeros(1, np.int64))
    if node.attrs.get("sorted", 1):
        leads = body("ScatterElements", nothing, rank, first)
        indices, inverse = body("Slice", leads, body.ints(0), body("Shape", places), body.ints(0)), rank
    else:
        numbers = body("Sub", body("CumSum", body.cast(is_new, "int64"), zero), one)
        indices, inverse = places, body("Gather", numbers, first)
    ones = body("ConstantOfShape", count, value=np.ones(1, np.int64))
    counts = body("Gather", body("ScatterElements", nothing, first, ones, reduction="add"), indices)
    results = (body("Gather", x, indices, axis=axis), indices, inverse, counts)
    return [v for v, result in zip(results, node.outputs, strict=False) if result.name]


def _max_pool(body: Body, node: Node, operands: Sequence[Value | None]) -> Sequence[Value] | None:
    x = operands[0]
    if x is None:
        return None
    results = body.graph.add("MaxPoolIndices", [x], dict(node.attrs), domain=TINYCOMP, version=1, outputs=2).outputs
    return [v for v, result in zip(results, node.outputs, strict=False) if result.name]


def _wants_indices(node: Node) -> bool:
    return len(node.outputs) > 1 and bool(node.outputs[1].name)


def _max_unpool(body: Body, node: Node, operands: Sequence[Value | None]) -> Value | None:
    """Scatter into zeros of the size that was pooled, which lie in the corner of a larger result if asked."""
    x, indices, wanted = operands[:3]
    if x is None or indices is None or x.rank is None or x.rank < 3:
        return None
    rank = x.rank - 2
    kernel = [int(n) for n in node.attrs["kernel_shape"]]
    strides, pads = list(node.attrs.get("strides") or [1] * rank), list(node.attrs.get("pads") or [0] * 2 * rank)
    first = [kernel[i] - strides[i] - pads[i] - pads[rank + i] for i in range(rank)]
    natural = body("Add", body("Mul", body("Shape", x), body.ints(1, 1, *strides)), body.ints(0, 0, *first))
    zeros = body.reshape(body("ConstantOfShape", natural, value=np.zeros(1, numpy_dtype(x.dtype))), [-1])
    flat = body("ScatterElements", zeros, body.reshape(indices, [-1]), body.reshape(x, [-1]))
    y = body("Reshape", flat, natural)
    if wanted is None:
        return y
    missing = body("Sub", body.cast(wanted, "int64"), natural)
    return body("Pad", y, body("Concat", body.ints(*[0] * x.rank), missing, axis=0))


DEFINITIONS = MappingProxyType({
    "MaxPool": Definition(_max_pool, _wants_indices),
    "MaxUnpool": Definition(_max_unpool),
    "Unique": Definition(_unique),
})  # fmt: skip
