"""Writing elements and slices at indices on the C target: a copy of the data, then the updates into it."""

from __future__ import annotations

import math

from tinycomp.ir.graph import Node, Value
from tinycomp.ir.layout import strides
from tinycomp.ir.types import tensor
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.rewrite import reject
from tinycomp.targets.c.element_program import NUMBERS, TYPES
from tinycomp.targets.c.emit import Emitter, eight
from tinycomp.targets.c.gather import around_axis, index_check, second, tuple_check, tuple_params
from tinycomp.targets.c.movement import element_size, emit_copy, movable
from tinycomp.targets.c.rules import Rules, known_rank
from tinycomp.targets.common.checks import Verdict, all_of, first, operand, static_type

FAMILY = Rules()

_REDUCTIONS = ("none", "add", "mul", "max", "min")


def _reduction(node: Node) -> str:
    found = node.attrs.get("reduction", "none")
    return found.decode() if isinstance(found, bytes) else str(found)


def _reduction_check(node: Node) -> Verdict:
    dtype = tensor(node.output.type).dtype
    if _reduction(node) != "none" and dtype not in NUMBERS:
        return reject(f"reduction {_reduction(node)} of {dtype}")
    return True


def _step_params(node: Node) -> dict[str, int | float]:
    """Element size, type and reduction; without one the type does not matter."""
    return {
        "element_size": element_size(node.output),
        "type": TYPES.get(tensor(node.output.type).dtype, 0),
        "reduction": _REDUCTIONS.index(_reduction(node)),
    }


def _copy_data(emit: Emitter, node: Node) -> Value:
    """Copy the data into the result, and return the updates."""
    data = first(node)
    type_, shape = static_type(data)
    emit_copy(
        emit, node, emit.view(node.output), emit.view(data), shape, strides(type_), strides(type_), element_size(data)
    )
    updates = operand(node, 1 if node.op == "TensorScatter" else 2)
    assert updates is not None, node
    return updates


@FAMILY.lower(
    "ScatterElements", "Scatter",
    check=all_of(movable, known_rank, index_check, _reduction_check), layout=LayoutRule.ROW_MAJOR,
)  # fmt: skip
def scatter_elements(emit: Emitter, node: Node) -> None:
    """Emit one update per index, the indexed axis innermost so that no two rows write the same element."""
    updates, indices = _copy_data(emit, node), second(node)
    (type_, shape), (index_type, counts) = static_type(node.output), static_type(indices)
    axis = int(node.attrs.get("axis", 0)) % len(shape)
    order = [*(d for d in range(len(shape)) if d != axis), axis]
    own, steps = strides(type_), strides(index_type)
    params = {
        **_step_params(node),
        "index_size": element_size(indices),
        "axis": shape[axis],
        "axis_stride": own[axis],
        **eight("size", [counts[d] for d in order], 1),
        **eight("y_stride", [*(own[d] for d in order[:-1]), 0], 0),
        **eight("index_stride", [steps[d] for d in order], 0),
        **eight("update_stride", [steps[d] for d in order], 0),
    }
    emit.call("scatter_elements", [node.output, indices, updates], params, node)


@FAMILY.lower(
    "ScatterND",
    check=all_of(movable, known_rank, index_check, tuple_check, _reduction_check), layout=LayoutRule.ROW_MAJOR,
)  # fmt: skip
def scatter_nd(emit: Emitter, node: Node) -> None:
    """Emit one update of a slice per tuple of indices."""
    updates, indices = _copy_data(emit, node), second(node)
    params = {**_step_params(node), **tuple_params(indices, static_type(node.output)[1])}
    emit.call("scatter_nd", [node.output, indices, updates], params, node)


@FAMILY.lower("TensorScatter", check=all_of(movable, known_rank), layout=LayoutRule.ROW_MAJOR)
def tensor_scatter(emit: Emitter, node: Node) -> None:
    """Emit the writing of new steps into a cache."""
    updates, starts = _copy_data(emit, node), operand(node, 2)
    shape, part = static_type(node.output)[1], static_type(updates)[1]
    axis = int(node.attrs.get("axis", -2)) % len(shape)
    sizes = around_axis(shape, axis)
    params = {
        **sizes,
        "element_size": element_size(node.output),
        "circular": int(node.attrs.get("mode", "linear") in ("circular", b"circular")),
        "batch": shape[0],
        "outer": math.prod(shape[1:axis]),
        "count": part[axis],
    }
    emit.call("tensor_scatter", [node.output, updates, starts], params, node)
