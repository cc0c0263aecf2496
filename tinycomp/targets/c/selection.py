"""Places of extreme elements, the best of a row, running sums, one-hot vectors on the C target."""

from __future__ import annotations

import math

import numpy as np

from tinycomp.ir.graph import Node, Value
from tinycomp.ir.types import numpy_dtype, tensor
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.rewrite import reject
from tinycomp.targets.c.element_program import NUMBERS, TYPES
from tinycomp.targets.c.emit import Emitter, nbytes
from tinycomp.targets.c.gather import around_axis, second
from tinycomp.targets.c.movement import element_size, movable
from tinycomp.targets.c.rules import Rules, known_rank
from tinycomp.targets.common.checks import Verdict, all_of, constant, dtypes, first, operand, static_type

FAMILY = Rules()
_numbers = dtypes(*NUMBERS, operands=(0,))


def _type(value: Value) -> int:
    return TYPES[tensor(value.type).dtype]


@FAMILY.lower("ArgMax", "ArgMin", check=all_of(_numbers, known_rank), layout=LayoutRule.ROW_MAJOR)
def arg_reduce(emit: Emitter, node: Node) -> None:
    """Emit a search for the extreme element along one axis."""
    x = first(node)
    params = {
        "type": _type(x),
        "least": int(node.op == "ArgMin"),
        "last": int(node.attrs.get("select_last_index", 0)),
        **around_axis(static_type(x)[1], int(node.attrs.get("axis", 0))),
    }
    emit.call("arg_reduce", [node.output, x], params, node)


_FLATTENING_BEFORE = 13
"""Until this opset Hardmax works on the axis and everything behind it as one."""


@FAMILY.lower("Hardmax", check=all_of(_numbers, known_rank), layout=LayoutRule.ROW_MAJOR)
def hardmax(emit: Emitter, node: Node) -> None:
    """Emit the places of the largest elements, then one-hot vectors."""
    type_, shape = static_type(node.output)
    flattening = node.version < _FLATTENING_BEFORE
    axis = int(node.attrs.get("axis", 1 if flattening else -1)) % max(len(shape), 1)
    sizes = around_axis(shape, axis)
    if flattening:
        sizes = {"outer": math.prod(shape[:axis]), "axis": math.prod(shape[axis:]), "inner": 1}
    places = emit.scratch(8 * sizes["outer"] * sizes["inner"])
    flags = {"type": _type(first(node)), "least": 0, "last": 0}
    emit.call("arg_reduce", [places, first(node)], {**flags, **sizes}, node)
    values = emit.constant(np.array([0, 1], numpy_dtype(type_.dtype)))
    params = {
        "element_size": element_size(node.output), "index_size": 8,
        "outer": sizes["outer"], "depth": sizes["axis"], "inner": sizes["inner"],
    }  # fmt: skip
    emit.call("one_hot", [node.output, places, values], params, node)


def _one_hot_check(node: Node) -> Verdict:
    dtype = tensor(first(node).type).dtype
    return dtype in ("int32", "int64") or reject(f"indices are {dtype}")


@FAMILY.lower("OneHot", check=all_of(movable, known_rank, constant(1), _one_hot_check), layout=LayoutRule.ROW_MAJOR)
def one_hot(emit: Emitter, node: Node) -> None:
    """Emit one-hot vectors of any two values."""
    indices, shape = first(node), static_type(node.output)[1]
    sizes = around_axis(shape, int(node.attrs.get("axis", -1)))
    params = {
        "element_size": element_size(node.output),
        "index_size": element_size(indices),
        "outer": sizes["outer"],
        "depth": sizes["axis"],
        "inner": sizes["inner"],
    }
    emit.call("one_hot", [node.output, indices, operand(node, 2)], params, node)


@FAMILY.lower("TopK", check=all_of(_numbers, known_rank, constant(1)), layout=LayoutRule.ROW_MAJOR)
def top_k(emit: Emitter, node: Node) -> None:
    """Emit a selection of the best elements and their places; a result that nobody reads goes to scratch memory."""
    x, axis = first(node), int(node.attrs.get("axis", -1))
    shape = static_type(node.outputs[0])[1] if node.outputs[0].name else static_type(node.outputs[1])[1]
    params = {
        "type": _type(x),
        "largest": int(node.attrs.get("largest", 1)),
        "sorted": int(node.attrs.get("sorted", 1)),
        **around_axis(static_type(x)[1], axis),
        "k": shape[axis],
    }
    results = [v if v.name else emit.scratch(nbytes(tensor(v.type))) for v in node.outputs]
    emit.call("top_k", [*results, x], params, node)


@FAMILY.lower("CumSum", "CumProd", check=all_of(_numbers, known_rank, constant(1)), layout=LayoutRule.ROW_MAJOR)
def cumulate(emit: Emitter, node: Node) -> None:
    """Emit a running sum or product along one axis."""
    x, axis = first(node), second(node).const
    assert axis is not None
    params = {
        "type": _type(x),
        "product": int(node.op == "CumProd"),
        "exclusive": int(node.attrs.get("exclusive", 0)),
        "reverse": int(node.attrs.get("reverse", 0)),
        **around_axis(static_type(x)[1], int(axis.reshape(-1)[0])),
    }
    emit.call("cumulate", [node.output, x], params, node)
