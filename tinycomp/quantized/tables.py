"""Functions of one 8-bit number as tables of 256 entries, which any target looks up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tinycomp.ir.graph import Node, Value
from tinycomp.ops import bind
from tinycomp.ops.numeric import Array
from tinycomp.remark import Verdict, reject
from tinycomp.rewrite import Match

_VALUES = 256
"""Entries of a table: as many as a byte has values."""


def one_variable(match: Match) -> Verdict:
    """Tell whether nothing but scalar constants stands beside the one tensor, so that a byte decides the result."""
    if match.x.const is not None:
        return reject(f'"{match.x.name}" is a constant')
    members = set(match.matched)
    for node in match.matched:
        for value in node.inputs:
            if value is None or value is match.x or value.producer in members:
                continue
            if value.const is None or value.const.size != 1:
                return reject(f'"{value.name}" beside the 8-bit tensor is not a scalar constant')
    if match.x.rank is None:
        return reject("the rank is unknown")
    return True


def looked_up(node: Node) -> Value:
    """Return the tensor among the scalars of a table; simplifying may have made it a constant as well."""
    values = [v for v in node.inputs if v is not None]
    variable = next((v for v in values if v.const is None), None)
    return variable or max(values, key=lambda v: 0 if v.const is None else v.const.size)


def table_of(node: Node) -> Array:
    """Return the results of a composite of one 8-bit tensor for all bytes, in the order of the bytes as uint8."""
    operand, body = looked_up(node), node.body.clone()
    inner = dict(zip([v for v in node.inputs if v is not None], body.inputs, strict=True))
    x = inner.pop(operand)
    for scalar, formal in inner.items():
        if scalar.const is not None:
            body.replace_uses(formal, body.add_const(scalar.const, formal.name))
    return of_all_bytes(body.nodes, x, body.outputs[0])


def of_all_bytes(nodes: Sequence[Node], x: Value, result: Value) -> Array:
    """Return what nodes make of all bytes, in the order of the bytes as uint8, on the host's kernels."""
    column = np.arange(_VALUES, dtype=np.uint8).view(x.dtype).reshape(_VALUES, *[1] * ((x.rank or 1) - 1))
    arrays: dict[Value | None, Array | None] = {None: None, x: column}
    with np.errstate(all="ignore"):
        for node in nodes:
            run, _ = bind(node)
            operands = [v.const if v is not None and v.const is not None else arrays[v] for v in node.inputs]
            arrays |= dict(zip(node.outputs, run(*operands), strict=True))
    table = arrays[result]
    assert table is not None
    return np.ascontiguousarray(table.reshape(_VALUES))
