"""Gathering and scattering on the C target; an index out of range makes the run fail."""

from __future__ import annotations

from tinycomp.ir.graph import TINYCOMP, Node, Value
from tinycomp.ir.layout import strides
from tinycomp.ir.types import tensor
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.rewrite import reject
from tinycomp.runtime.native.library import lib
from tinycomp.symbolic import Size, maximum, product
from tinycomp.targets.c.codegen.element_program import NUMBERS, TYPES, broadcast_steps
from tinycomp.targets.c.codegen.emitter import MAX_RANK, Emitter, Strided, eight, nd_params
from tinycomp.targets.c.codegen.placement import around_axis, element_size, emit_copy, leave
from tinycomp.targets.c.codegen.rules import LoweringRules, known_rank
from tinycomp.targets.c.ops.movement import movable
from tinycomp.targets.common.checks import Verdict, all_of, sized_type

FAMILY = LoweringRules()


def index_check(node: Node) -> Verdict:
    """Tell whether operand 1 holds indices of 32 or 64 bits."""
    dtype = node.operand(1).dtype
    return dtype in ("int32", "int64") or reject(f"indices are {dtype}")


@FAMILY.lower("Gather", check=all_of(movable, known_rank, index_check), layout=LayoutRule.ROW_MAJOR)
def gather(emit: Emitter, node: Node) -> None:
    """Emit a gather of slices along one axis."""
    data, indices = node.operand(0), node.operand(1)
    if emit.repeats(data) and len(sized_type(node.output)[1]) <= MAX_RANK:
        _gather_repeated(emit, node, data, indices)
        return
    params = {
        "element_size": element_size(data),
        "index_size": element_size(indices),
        **around_axis(sized_type(data)[1], int(node.attrs.get("axis", 0))),
        "count": product(sized_type(indices)[1]),
    }
    emit.call("gather", [node.output, data, indices], params, node)


def _gather_repeated(emit: Emitter, node: Node, data: Value, indices: Value) -> None:
    """Gather from a broadcast that nobody has written out, once where slices repeat an element."""
    where, shape, found = emit.where(data), sized_type(data)[1], sized_type(indices)[1]
    axis, size = int(node.attrs.get("axis", 0)) % len(shape), element_size(indices)
    once = [1 if step == 0 else n for n, step in zip(shape, where.strides, strict=True)]
    picked = (*once[:axis], *found, *once[axis + 1 :])
    spread = [*[0] * axis, *strides(tensor(indices.type)), *[0] * (len(shape) - axis - 1)]
    steps = [product(picked[dim + 1 :]) for dim in range(len(picked))]
    places, result = emit.scratch(product(picked) * size), emit.scratch(product(picked) * element_size(data))
    emit_copy(emit, node, places, emit.view(indices), picked, steps, spread, size)
    params = {
        "element_size": element_size(data),
        "index_size": size,
        "axis": shape[axis],
        "axis_stride": where.strides[axis],
        **nd_params(picked, data_stride=[*where.strides[:axis], *[0] * len(found), *where.strides[axis + 1 :]]),
    }
    emit.call("gather_elements", [result, where.view, places], params, node)
    whole = sized_type(node.output)[1]
    leave(emit, node, node.output, Strided(result, tuple(broadcast_steps(picked, steps, whole)), repeated=True))


_INDEX_BYTES = 8
_SEGMENT = 4096
"""Elements that are searched at a time."""


def _searchable(node: Node) -> Verdict:
    x = node.operand(0)
    if x.rank == 0:
        return reject("its operand has no dimensions")
    return x.dtype in (*NUMBERS, "bool", "float16", "bfloat16") or reject(f"its operand is {x.dtype}")


@FAMILY.lower("NonZero", check=all_of(known_rank, _searchable), layout=LayoutRule.ROW_MAJOR)
def nonzero(emit: Emitter, node: Node) -> None:
    """Emit a search for positions, which are then put side by side and counted, and turned into columns."""
    x = node.operand(0)
    type_, shape = sized_type(x)
    rank, elements, size = len(shape), product(shape), element_size(x)
    segments = -(-elements // _SEGMENT)
    room = segments * _SEGMENT
    positions, counts, count = emit.scratch(room * 8), emit.scratch(segments * 8), emit.scratch(8)
    is_float = int(type_.dtype in ("float32", "float64", "float16", "bfloat16"))
    params = {"element_size": size, "is_float": is_float, "elements": elements, "room": _SEGMENT}
    emit.call("nonzero", [positions, counts, x], params, node)
    rows = emit.scratch(room * rank * 8)
    sizes = {"segments": segments, "room": _SEGMENT, "rank": rank}
    emit.call("coordinates", [rows, count, positions, counts], sizes | eight("size", shape, 1), node)
    found = sized_type(node.output)[1][1]
    emit.finds(found, 1)
    emit_copy(emit, node, emit.view(node.output), rows, [rank, found], [found, 1], [1, rank], 8)


@FAMILY.lower("GroupSlices", domain=TINYCOMP, check=all_of(known_rank, _searchable), layout=LayoutRule.ROW_MAJOR)
def group_slices(emit: Emitter, node: Node) -> None:
    """Emit a sort of slices, which says which of them are equal."""
    type_, shape = sized_type(node.operand(0))
    sizes = around_axis(shape, int(node.attrs["axis"]))
    params = {"type": TYPES[type_.dtype], "outer": sizes["outer"], "count": sizes["axis"], "inner": sizes["inner"]}
    results = [v if v.name else emit.scratch(_INDEX_BYTES * sizes["axis"]) for v in node.outputs]
    emit.call("group_slices", [*results, node.operand(0)], params, node)


@FAMILY.lower("GatherElements", check=all_of(movable, known_rank, index_check), layout=LayoutRule.ROW_MAJOR)
def gather_elements(emit: Emitter, node: Node) -> None:
    """Emit a walk over the indices, which takes steps through the data along all axes but the indexed one."""
    data, indices = node.operand(0), node.operand(1)
    type_, shape = sized_type(data)
    axis = int(node.attrs.get("axis", 0)) % len(shape)
    steps = list(strides(type_))
    params = {
        "element_size": element_size(data),
        "index_size": element_size(indices),
        "axis": shape[axis],
        "axis_stride": steps[axis],
        **nd_params(sized_type(indices)[1], data_stride=[0 if d == axis else s for d, s in enumerate(steps)]),
    }
    emit.call("gather_elements", [node.output, data, indices], params, node)


def tuple_check(node: Node) -> Verdict:
    """Tell whether the number of indices that make a tuple is known."""
    depth = (node.operand(1).shape or (None,))[-1]
    return isinstance(depth, int) or reject("the number of indices in a tuple is not known")


def tuple_params(indices: Value, shape: tuple[Size, ...], batch: int = 0) -> dict[str, float | Size]:
    """Return the parameters of kernels with tuples of indices into the dimensions of ``shape`` after ``batch`` ones."""
    depth = sized_type(indices)[1][-1]
    assert isinstance(depth, int), indices
    stop = batch + depth
    return {
        "index_size": element_size(indices),
        "count": product(sized_type(indices)[1][batch:-1]),
        "depth": depth,
        "inner": product(shape[stop:]),
        **eight("size", shape[batch:stop], 1),
    }


@FAMILY.lower(
    "GatherND",
    check=all_of(movable, tuple_check, known_rank, index_check),
    layout=LayoutRule.ROW_MAJOR,
)
def gather_nd(emit: Emitter, node: Node) -> None:
    """Emit a gather of the slices that tuples of indices address."""
    data, indices = node.operand(0), node.operand(1)
    _, shape = sized_type(data)
    batch = int(node.attrs.get("batch_dims", 0))
    params = {
        "element_size": element_size(data),
        "batch": product(shape[:batch]),
        **tuple_params(indices, shape, batch),
    }
    emit.call("gather_nd", [node.output, data, indices], params, node)


@FAMILY.lower("ReverseSequence", check=all_of(movable, known_rank), layout=LayoutRule.ROW_MAJOR)
def reverse_sequence(emit: Emitter, node: Node) -> None:
    """Emit a reversal of the first steps of every sequence."""
    data, lengths = node.operand(0), node.operand(1)
    _, shape = sized_type(data)
    time_first = int(node.attrs.get("time_axis", 0)) % len(shape) == 0
    time, batch = shape[:2] if time_first else shape[1::-1]
    params = {
        "element_size": element_size(data),
        "time_first": int(time_first),
        "batch": batch,
        "time": time,
        "inner": product(shape[2:]),
    }
    emit.call("reverse_sequence", [node.output, data, lengths], params, node)


_REDUCTIONS = {
    "none": lib.TC_SCATTER_REPLACE, "add": lib.TC_SCATTER_ADD, "mul": lib.TC_SCATTER_MUL, "max": lib.TC_SCATTER_MAX,
    "min": lib.TC_SCATTER_MIN,
}  # fmt: skip


def _reduction(node: Node) -> str:
    return str(node.attrs.get("reduction", "none"))


def _reduction_check(node: Node) -> Verdict:
    dtype = node.output.dtype
    if _reduction(node) != "none" and dtype not in NUMBERS:
        return reject(f"reduction {_reduction(node)} of {dtype}")
    return True


def _step_params(node: Node) -> dict[str, float | Size]:
    """Return element size, type and reduction; without one the type does not matter."""
    return {
        "element_size": element_size(node.output),
        "type": TYPES.get(node.output.dtype, 0),
        "reduction": _REDUCTIONS[_reduction(node)],
    }


def _copy_data(emit: Emitter, node: Node) -> Value:
    """Copy the data into the result, and return the updates."""
    data = node.operand(0)
    type_, shape = sized_type(data)
    emit_copy(
        emit, node, emit.view(node.output), emit.view(data), shape, strides(type_), strides(type_), element_size(data)
    )
    return node.operand(2)


@FAMILY.lower(
    "ScatterElements", "Scatter",
    check=all_of(movable, known_rank, index_check, _reduction_check), layout=LayoutRule.ROW_MAJOR,
)  # fmt: skip
def scatter_elements(emit: Emitter, node: Node) -> None:
    """Emit one update per index, the indexed axis innermost so that no two rows write the same element."""
    updates, indices = _copy_data(emit, node), node.operand(1)
    (type_, shape), (index_type, counts) = sized_type(node.output), sized_type(indices)
    axis = int(node.attrs.get("axis", 0)) % len(shape)
    order = [*(d for d in range(len(shape)) if d != axis), axis]
    own, steps = strides(type_), strides(index_type)
    params = {
        **_step_params(node),
        "index_size": element_size(indices),
        "axis": shape[axis],
        "axis_stride": own[axis],
        **eight("size", [counts[d] for d in order], 1),
        **eight("y_stride", [*(maximum(own[d], 1) for d in order[:-1]), 0], 0),  # 0 where there are no elements
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
    updates, indices = _copy_data(emit, node), node.operand(1)
    params = {**_step_params(node), **tuple_params(indices, sized_type(node.output)[1])}
    emit.call("scatter_nd", [node.output, indices, updates], params, node)


@FAMILY.lower("TensorScatter", check=all_of(movable, known_rank), layout=LayoutRule.ROW_MAJOR)
def tensor_scatter(emit: Emitter, node: Node) -> None:
    """Emit the writing of new steps into a cache."""
    cache, updates, starts = node.operand(0), node.operand(1), node.optional_operand(2)
    shape, part = sized_type(node.output)[1], sized_type(updates)[1]
    axis = int(node.attrs.get("axis", -2)) % len(shape)
    sizes = around_axis(shape, axis)
    params = {
        **sizes,
        "element_size": element_size(node.output),
        "circular": int(node.attrs.get("mode", "linear") in ("circular", b"circular")),
        "batch": shape[0],
        "outer": product(shape[1:axis]),
        "count": part[axis],
    }
    emit.call("tensor_scatter", [node.output, cache, updates, starts], params, node)
