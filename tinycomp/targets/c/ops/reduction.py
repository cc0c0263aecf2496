"""What goes along axes on the C target: reductions, softmax, running sums, and the selection of elements."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

import numpy as np

from tinycomp.ir.graph import Node, Value
from tinycomp.ir.layout import memory_order
from tinycomp.ir.types import TensorType, numpy_dtype, tensor
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.rewrite import reject
from tinycomp.runtime.native.library import codes
from tinycomp.symbolic import Size, if_zero, marked_axes, product
from tinycomp.targets.c.codegen.element_program import NUMBERS, TYPES
from tinycomp.targets.c.codegen.emitter import Emitter, View, nbytes
from tinycomp.targets.c.codegen.placement import around_axis, element_size, emit_copy
from tinycomp.targets.c.codegen.rules import LoweringRules, known, known_rank
from tinycomp.targets.c.ops.movement import movable
from tinycomp.targets.common.checks import Verdict, all_of, dtypes, settled, sized_type

FAMILY = LoweringRules()

REDUCTIONS = {
    f"Reduce{name.title().replace('_', '')}": code for name, code in codes("tc_reduction", "TC_REDUCE_").items()
}
"""Codes of reductions by operator, such as ``ReduceLogSum``."""


def reduced_axes(node: Node) -> list[Size]:
    """Return the axes that a reduction works on, from either form of the operator; they may be elements of a run."""
    rank, given = node.operand(0).rank or 0, node.optional_operand(1)
    axes = node.attrs.get("axes", ()) if given is None else known(given.contents or ())
    if not axes:
        return [] if node.attrs.get("noop_with_empty_axes", 0) else list(range(rank))
    return [axis % rank if isinstance(axis, int) else axis for axis in axes]


def _places(axes: Sequence[int], layout: str, rank: int) -> list[int]:
    """Tell where axes lie in memory."""
    order = memory_order(layout, rank)
    return sorted(order.index(axis) for axis in axes)


def _runs(places: Sequence[int]) -> list[list[int]]:
    """Group sorted places into runs of neighbours."""
    runs: list[list[int]] = []
    for place in places:
        if runs and runs[-1][-1] == place - 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    return runs


@FAMILY.lower(
    *REDUCTIONS,
    check=all_of(dtypes(*NUMBERS, "bool", operands=(0,)), known_rank, settled(1)),
    layout=LayoutRule.FOLLOW,
)
def reduce(emit: Emitter, node: Node) -> None:
    """Emit a reduction over at most two runs of neighbouring axes; others are brought together first."""
    x, axes = node.operand(0), reduced_axes(node)
    type_, logical = sized_type(x)
    rank = len(logical)
    order = memory_order(type_.layout, rank)
    shape = [logical[d] for d in order]
    fixed = [axis for axis in axes if isinstance(axis, int)]
    found = _runs(_places(fixed, type_.layout, rank))
    if len(fixed) == len(axes) and len(found) <= 2:
        source, sizes = emit.view(x), _around_runs(shape, found)
    else:
        marks = marked_axes(axes, rank)
        source, sizes = _reduced_last(emit, node, shape, [marks[d] for d in order])
    dtype = x.dtype
    kernel, which = ("reduce_f32", {}) if dtype == "float32" else ("reduce", {"type": TYPES[dtype]})
    emit.call(kernel, [node.output, source], {**which, "op": REDUCTIONS[node.op], **sizes}, node)


def _around_runs(shape: Sequence[Size], found: Sequence[Sequence[int]]) -> dict[str, Size]:
    """Return the sizes of, before, between and behind at most two runs of axes, as the kernels name them."""
    second_run = found[-1] if found else []
    first_run = found[0] if len(found) > 1 else []
    start = second_run[0] if second_run else len(shape)
    stop = second_run[-1] + 1 if second_run else len(shape)
    split = first_run[0] if first_run else start
    resume = first_run[-1] + 1 if first_run else start
    return {
        "outer": product(shape[:split]),
        "axis0": product(shape[split:resume]),
        "middle": product(shape[resume:start]),
        "axis1": product(shape[start:stop]),
        "inner": product(shape[stop:]),
    }


def _reduced_last(
    emit: Emitter, node: Node, shape: Sequence[Size], marks: Sequence[Size]
) -> tuple[View, dict[str, Size]]:
    """Copy an operand so that the marked dimensions are the last; return the copy, and the sizes of the two parts."""
    kept = [if_zero(mark, size, 1) for mark, size in zip(marks, shape, strict=True)]
    reduced = [if_zero(mark, 1, size) for mark, size in zip(marks, shape, strict=True)]
    along = product(reduced)
    to = [
        if_zero(mark, along * product(kept[place + 1 :]), product(reduced[place + 1 :]))
        for place, mark in enumerate(marks)
    ]
    origin = [product(shape[place + 1 :]) for place in range(len(shape))]
    source = node.operand(0)
    size = element_size(source)
    copied = emit.scratch(size * product(shape))
    emit_copy(emit, node, copied, emit.view(source), shape, to, origin, size)
    return copied, {"outer": product(kept), "axis0": 1, "middle": 1, "axis1": along, "inner": 1}


def around(type_: TensorType, axes: Sequence[int]) -> tuple[Size, Size, Size] | None:
    """Return the sizes before, along and behind ``axes`` in memory, or None if they do not lie side by side there.

    >>> around(TensorType("float32", (1, 3, 4, 5), "NHWC"), [1, 2, 3])
    (1, 60, 1)
    """
    shape = type_.sizes
    assert shape is not None, type_
    order = memory_order(type_.layout, len(shape))
    places = _places(axes, type_.layout, len(shape))
    if len(_runs(places)) != 1:
        return None
    sizes = [shape[d] for d in order]
    start, stop = places[0], places[-1] + 1
    return product(sizes[:start]), product(sizes[start:stop]), product(sizes[stop:])


_FLATTENING_BEFORE = 13
"""Until this opset softmax works on the axis and everything behind it as one."""


@FAMILY.lower("Softmax", "LogSoftmax", check=all_of(dtypes("float32"), known_rank), layout=LayoutRule.FOLLOW)
def softmax(emit: Emitter, node: Node) -> None:
    """Emit a softmax; the flattening form works on a run of axes."""
    type_, shape = sized_type(node.output)
    flattening = node.version < _FLATTENING_BEFORE
    axis = int(node.attrs.get("axis", 1 if flattening else -1)) % max(len(shape), 1)
    sizes = around(type_, range(axis, len(shape)) if flattening else [axis])
    assert sizes is not None, node
    params = dict(zip(("outer", "axis", "inner"), sizes, strict=True))
    emit.call(
        "softmax_f32", [node.output, node.operand(0)], {**params, "logarithm": int(node.op == "LogSoftmax")}, node
    )


_numbers = dtypes(*NUMBERS, operands=(0,))


def _type(value: Value) -> int:
    return TYPES[value.dtype]


@FAMILY.lower("ArgMax", "ArgMin", check=all_of(_numbers, known_rank), layout=LayoutRule.ROW_MAJOR)
def arg_reduce(emit: Emitter, node: Node) -> None:
    """Emit a search for the extreme element along one axis."""
    x = node.operand(0)
    params = {
        "type": _type(x),
        "least": int(node.op == "ArgMin"),
        "last": int(node.attrs.get("select_last_index", 0)),
        **around_axis(sized_type(x)[1], int(node.attrs.get("axis", 0))),
    }
    emit.call("arg_reduce", [node.output, x], params, node)


"""Until this opset Hardmax works on the axis and everything behind it as one."""


@FAMILY.lower("Hardmax", check=all_of(_numbers, known_rank), layout=LayoutRule.ROW_MAJOR)
def hardmax(emit: Emitter, node: Node) -> None:
    """Emit the places of the largest elements, then one-hot vectors."""
    type_, shape = sized_type(node.output)
    flattening = node.version < _FLATTENING_BEFORE
    axis = int(node.attrs.get("axis", 1 if flattening else -1)) % max(len(shape), 1)
    sizes = around_axis(shape, axis)
    if flattening:
        sizes = {"outer": product(shape[:axis]), "axis": product(shape[axis:]), "inner": 1}
    places = emit.scratch(8 * sizes["outer"] * sizes["inner"])
    flags = {"type": _type(node.operand(0)), "least": 0, "last": 0}
    searched = {**sizes, "outer": if_zero(sizes["axis"], 0, sizes["outer"])}  # an empty axis has no places
    emit.call("arg_reduce", [places, node.operand(0)], {**flags, **searched}, node)
    values = emit.constant(np.array([0, 1], numpy_dtype(type_.dtype)))
    params = {
        "element_size": element_size(node.output), "index_size": 8,
        "outer": sizes["outer"], "depth": sizes["axis"], "inner": sizes["inner"],
    }  # fmt: skip
    emit.call("one_hot", [node.output, places, values], params, node)


def _one_hot_check(node: Node) -> Verdict:
    dtype = node.operand(0).dtype
    return dtype in ("int32", "int64") or reject(f"indices are {dtype}")


@FAMILY.lower("OneHot", check=all_of(movable, known_rank, settled(1), _one_hot_check), layout=LayoutRule.ROW_MAJOR)
def one_hot(emit: Emitter, node: Node) -> None:
    """Emit one-hot vectors of any two values."""
    indices, shape = node.operand(0), sized_type(node.output)[1]
    sizes = around_axis(shape, int(node.attrs.get("axis", -1)))
    params = {
        "element_size": element_size(node.output),
        "index_size": element_size(indices),
        "outer": sizes["outer"],
        "depth": sizes["axis"],
        "inner": sizes["inner"],
    }
    emit.call("one_hot", [node.output, indices, node.optional_operand(2)], params, node)


@FAMILY.lower("TopK", check=all_of(_numbers, known_rank, settled(1)), layout=LayoutRule.ROW_MAJOR)
def top_k(emit: Emitter, node: Node) -> None:
    """Emit a selection of the best elements and their places; a result that nobody reads goes to scratch memory."""
    x, axis = node.operand(0), int(node.attrs.get("axis", -1))
    shape = sized_type(node.outputs[0])[1] if node.outputs[0].name else sized_type(node.outputs[1])[1]
    params = {
        "type": _type(x),
        "largest": int(node.attrs.get("largest", 1)),
        "sorted": int(node.attrs.get("sorted", 1)),
        **around_axis(sized_type(x)[1], axis),
        "k": shape[axis],
    }
    results = [v if v.name else emit.scratch(nbytes(tensor(v.type))) for v in node.outputs]
    emit.call("top_k", [*results, x], params, node)


@FAMILY.lower("CumSum", "CumProd", check=all_of(_numbers, known_rank, settled(1)), layout=LayoutRule.ROW_MAJOR)
def cumulate(emit: Emitter, node: Node) -> None:
    """Emit a running sum or product along one axis."""
    x = node.operand(0)
    shape, (axis,) = sized_type(x)[1], known(node.operand(1).contents or ())
    marks = marked_axes([axis], len(shape))
    params = {
        "type": _type(x),
        "product": int(node.op == "CumProd"),
        "exclusive": int(node.attrs.get("exclusive", 0)),
        "reverse": int(node.attrs.get("reverse", 0)),
        "outer": product(if_zero(_sum(marks[place + 1 :]), 1, size) for place, size in enumerate(shape)),
        "axis": product(if_zero(mark, 1, size) for mark, size in zip(marks, shape, strict=True)),
        "inner": product(if_zero(_sum(marks[:place]), 1, size) for place, size in enumerate(shape)),
    }
    emit.call("cumulate", [node.output, x], params, node)


def _sum(sizes: Sequence[Size]) -> Size:
    return functools.reduce(operator.add, sizes, 0)
