"""Operators that read or write elements at indices: Gather and Scatter, OneHot, Compress, NonZero and Unique."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from tinycomp.errors import ExecutionError
from tinycomp.ir.graph import Node
from tinycomp.memory.budget import reserve
from tinycomp.ops.contents import moved
from tinycomp.ops.numeric import Array, compute_dtype, fix_indices, scalar_int
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Facts, Results, Sizes, known_of
from tinycomp.symbolic import Size, if_zero, minimum, product

FAMILY = OpFamily("indexing")
_objects: Any = importlib.import_module("tinycomp.ops._objects")


@FAMILY.op("Gather", traits={"movement", "silent"})
def gather(x: Array, indices: Array, *, axis: int = 0) -> Array:
    """Return slices of ``x`` along ``axis``, arranged in the shape of ``indices``.

    Raises:
        ExecutionError: If an index is out of bounds.
    """
    fixed = axis % x.ndim
    if not indices.size:
        return np.empty(x.shape[:fixed] + indices.shape + x.shape[fixed + 1 :], x.dtype)
    try:
        # Of a view, such as an Expand is, taking would copy the whole first.
        found = x.take(indices, fixed) if x.flags.c_contiguous else x[(slice(None),) * fixed + (indices,)]
    except IndexError:
        fix_indices(indices, x.shape[fixed], "Gather")
        raise
    return found if isinstance(found, np.ndarray) else np.asarray(found, x.dtype)


@FAMILY.objects("Gather")
def _gathered_objects(node: Node) -> Callable[[Any], Any] | None:
    """Return what looks up texts of a constant table, which is how classes become their names."""
    table = None if node.inputs[0] is None else node.inputs[0].const
    if not isinstance(table, np.ndarray) or table.dtype != object or table.ndim != 1:
        return None
    found: Callable[[Any], Any] = _objects.table_of(table.tolist(), np.empty, table.dtype)
    return found


@FAMILY.infer("Gather", contents=moved(1))
def _gather_rule(facts: Facts) -> Results:
    shape, indices = facts.shape(0), facts.shape(1)
    axis = facts.require_axis(int(facts.attr("axis", 0)), facts.rank(0))
    if shape is None or indices is None:
        return [facts.tensor(facts.dtype(0), None)]
    return [facts.tensor(facts.dtype(0), (*shape[:axis], *indices, *shape[axis + 1 :]))]


def _along(indices: Array, axis: int) -> tuple[Array, ...]:
    """Return an index tuple that addresses (i, j, …) with axis ``axis`` replaced by ``indices[i, j, …]``."""
    grid = np.ogrid[tuple(slice(d) for d in indices.shape)]
    return tuple(indices if i == axis else g for i, g in enumerate(grid))


def _require_inside(facts: Facts) -> Sizes | None:
    """Demand an axis, and indices that lie within the data outside it; return their shape."""
    shape, indices = facts.shape(0), facts.shape(1)
    axis = facts.require_axis(int(facts.attr("axis", 0)), facts.rank(0))
    if shape is None or indices is None:
        return indices if shape is None else (None,) * len(shape)
    facts.require_rank(1, len(shape), "indices")
    for place, (size, count) in enumerate(zip(shape, indices, strict=True)):
        if place != axis:
            facts.require_at_most(count, size, f"the indices reach beyond axis {place} of the data")
    return indices


@FAMILY.op("GatherElements", traits={"movement"})
def gather_elements(x: Array, indices: Array, *, axis: int = 0) -> Array:
    """Return one element of ``x`` per index; the other coordinates are the index's own.

    Raises:
        ExecutionError: If an index is out of bounds.
    """
    fixed = axis % x.ndim
    return np.asarray(x[_along(fix_indices(indices, x.shape[fixed], "GatherElements"), fixed)])


@FAMILY.infer("GatherElements")
def _gather_elements_rule(facts: Facts) -> Results:
    return [facts.tensor(facts.dtype(0), _require_inside(facts))]


def _split_tuples(indices: Array, dims: tuple[int, ...], where: str) -> tuple[Array, ...]:
    """Return the columns of an index-tuple tensor, checked against the sizes they address."""
    return tuple(fix_indices(indices[..., i], dims[i], where) for i in range(indices.shape[-1]))


def _require_tuples(facts: Facts, batch: int = 0) -> Sizes | None:
    """Demand tuples of indices into the data behind its first ``batch`` axes, which both have.

    Returns:
        The shape of what they address, None where it is not known.
    """
    shape, indices = facts.shape(0), facts.shape(1)
    ranks = [len(sizes) for sizes in (shape, indices) if sizes is not None]
    facts.require(0 <= batch < min(ranks, default=batch + 1), "batch_dims is out of range",
                  expected=f"0 or more, and less than the ranks {ranks} of the operands", found=batch)  # fmt: skip
    depth = None if indices is None else indices[-1]
    if shape is None or indices is None:
        return None
    most = len(shape) - batch
    if isinstance(depth, int):
        facts.require(1 <= depth <= most, "the tuples of indices have a wrong length", expected=f"1 to {most}",
                      found=depth)  # fmt: skip
    elif depth is not None:
        facts.require_at_least(depth, 1, "the tuples of indices are empty")
        facts.require_at_most(depth, most, "the tuples of indices have a wrong length")
    shared = [
        facts.require_equal(b, a, f"axis {axis} of indices and data differ, which is one of batch_dims")
        for axis, (a, b) in enumerate(zip(shape[:batch], indices[:batch], strict=True))
    ]
    return (*shared, *indices[batch:-1], *shape[batch + depth :]) if isinstance(depth, int) else None


@FAMILY.op("GatherND", traits={"movement"})
def gather_nd(x: Array, indices: Array, *, batch_dims: int = 0) -> Array:
    """Return slices of ``x`` addressed by index tuples, behind ``batch_dims`` leading axes that both share.

    Raises:
        ExecutionError: If an index is out of bounds.
    """
    columns = _split_tuples(indices, x.shape[batch_dims:], "GatherND")
    batch = np.ogrid[tuple(slice(d) for d in x.shape[:batch_dims])]
    extra = indices.ndim - 1 - batch_dims
    leading = tuple(np.asarray(g).reshape(g.shape + (1,) * extra) for g in batch)
    return np.asarray(x[leading + columns])


@FAMILY.infer("GatherND")
def _gather_nd_rule(facts: Facts) -> Results:
    return [facts.tensor(facts.dtype(0), _require_tuples(facts, int(facts.attr("batch_dims", 0))))]


_REDUCTIONS: dict[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def _scatter(x: Array, index: tuple[Array, ...], updates: Array, reduction: str) -> Array:
    """Return a copy of ``x`` with ``updates`` written or accumulated at ``index``; later ones win."""
    if reduction == "none":
        out = x.copy()
        out[index] = updates
        return out
    out = x.astype(compute_dtype(x.dtype))
    with np.errstate(all="ignore"):
        _REDUCTIONS[reduction].at(out, index, updates.astype(out.dtype, copy=False))
    return out.astype(x.dtype, copy=False)


@FAMILY.op("ScatterElements", "Scatter", traits={"movement"})
def scatter_elements(x: Array, indices: Array, updates: Array, *, axis: int = 0, reduction: str = "none") -> Array:
    """Write, or accumulate, one element of a copy of ``x`` per index; the other coordinates are the index's own.

    Raises:
        ExecutionError: If an index is out of bounds.
    """
    fixed = axis % x.ndim
    return _scatter(x, _along(fix_indices(indices, x.shape[fixed], "ScatterElements"), fixed), updates, reduction)


@FAMILY.infer("ScatterElements", "Scatter")
def _scatter_elements_rule(facts: Facts) -> Results:
    facts.require_one_of("reduction", ("none", *_REDUCTIONS))
    _require_updates(facts, _require_inside(facts))
    return [facts.tensor(facts.dtype(0), facts.shape(0))]


def _require_updates(facts: Facts, wanted: Sizes | None) -> None:
    """Demand a shape of the updates."""
    updates = facts.shape(2)
    if wanted is not None and updates is not None:
        facts.require_rank(2, len(wanted), "updates")
        for axis, (found, size) in enumerate(zip(updates, wanted, strict=True)):
            facts.require_equal(found, size, f"axis {axis} of updates does not fit the indices")


@FAMILY.op("ScatterND", traits={"movement"})
def scatter_nd(x: Array, indices: Array, updates: Array, *, reduction: str = "none") -> Array:
    """Write, or accumulate, slices of a copy of ``x`` where index tuples say.

    Raises:
        ExecutionError: If an index is out of bounds.
    """
    return _scatter(x, _split_tuples(indices, x.shape, "ScatterND"), updates, reduction)


@FAMILY.infer("ScatterND")
def _scatter_nd_rule(facts: Facts) -> Results:
    facts.require_one_of("reduction", ("none", *_REDUCTIONS))
    _require_updates(facts, _require_tuples(facts))
    return [facts.tensor(facts.dtype(0), facts.shape(0))]


@FAMILY.op("TensorScatter", traits={"movement"})
def tensor_scatter(
    past: Array, update: Array, write_indices: Array | None = None, *, axis: int = -2, mode: str = "linear"
) -> Array:
    """Return a cache with ``update`` written along ``axis`` from each batch entry's write index on.

    Raises:
        ExecutionError: If a linear write passes the end of the cache.
    """
    fixed = axis % past.ndim
    length, limit = update.shape[fixed], past.shape[fixed]
    starts = np.zeros(past.shape[0], np.int64) if write_indices is None else write_indices.astype(np.int64)
    target = starts[:, None] + np.arange(length)
    if mode == "circular":
        target %= limit
    elif target.size and (target.min() < 0 or target.max() >= limit):
        raise ExecutionError(
            "the write passes the end of the cache",
            where="TensorScatter",
            expected=f"write_indices in [0, {limit - length}]",
            found=str(starts.tolist()),
        )
    out = np.moveaxis(past, fixed, 1).copy()
    out[np.arange(past.shape[0])[:, None], target] = np.moveaxis(update, fixed, 1)
    return np.moveaxis(out, 1, fixed)


@FAMILY.infer("TensorScatter")
def _tensor_scatter_rule(facts: Facts) -> Results:
    facts.require_one_of("mode", ("linear", "circular"))
    shape, update = facts.shape(0), facts.shape(1)
    axis = facts.require_axis(int(facts.attr("axis", -2)), facts.rank(0))
    facts.require(axis != 0 or shape is None, "axis is the batch", expected="an axis other than 0", found=axis)
    facts.require_vector(2, facts.dim(0, 0), "write_indices")
    if shape is None or update is None:
        return [facts.tensor(facts.dtype(0), shape)]
    facts.require_rank(1, len(shape), "the update")
    known = list(shape)
    for place, (found, size) in enumerate(zip(update, shape, strict=True)):
        if place != axis:
            known[place] = facts.require_equal(found, size, f"axis {place} of the update does not fit the cache")
        elif facts.attr("mode") != "circular":
            facts.require_at_most(found, size, "the update is longer than the cache")
        elif size is not None and found is not None:
            facts.demand(if_zero(size, minimum(found, 1), 0), "the cache is empty, and the update is not")
    return [facts.tensor(facts.dtype(0), known)]


@FAMILY.op("OneHot")
def one_hot(indices: Array, depth: Array, values: Array, *, axis: int = -1) -> Array:
    """Return ``values[1]`` where a new axis of ``depth`` elements meets the index, else ``values[0]``.

    Indices out of [-depth, depth-1] give a row of ``values[0]`` only, as ONNX says.
    """
    size = scalar_int(depth)
    fixed = axis % (indices.ndim + 1)
    reserve((indices.size, size), max(values.itemsize, 8), "OneHot")
    whole = indices.astype(np.int64)
    wrapped = np.expand_dims(np.where(whole < 0, whole + size, whole), fixed)
    classes = np.arange(size).reshape((-1,) + (1,) * (indices.ndim - fixed))
    return np.where(wrapped == classes, values[1:2].reshape(()), values[0:1].reshape(()))


@FAMILY.infer("OneHot", sizing=(1,))
def _one_hot_rule(facts: Facts) -> Results:
    facts.require_scalar(1, "the depth")
    facts.require_vector(2, 2, "values")
    indices = facts.shape(0)
    depth = _depth(facts)
    facts.require_at_least(depth, 0, "the depth is negative")
    axis = facts.require_axis(int(facts.attr("axis", -1)), None if indices is None else len(indices) + 1)
    shape = None if indices is None else (*indices[:axis], depth, *indices[axis:])
    return [facts.tensor(facts.first_dtype(2), shape)]


def _depth(facts: Facts) -> Size | None:
    """Return the depth of a OneHot, which may be a float."""
    known = facts.const(1)
    if known is None or not known.size:
        return next(iter(facts.elements(1) or ()), None)
    number = known.reshape(-1)[0]
    facts.require(bool(0 <= number < np.inf), "the depth is negative or no number", expected="0 or more", found=number)
    return int(number)


@FAMILY.op("Compress")
def compress(x: Array, condition: Array, *, axis: int | None = None) -> Array:
    """Return the slices along ``axis`` (or the elements in row-major order) whose condition holds.

    Raises:
        ExecutionError: If a condition that holds lies beyond the axis.
    """
    source = x.reshape(-1) if axis is None else x
    fixed = 0 if axis is None else axis % x.ndim
    chosen = np.flatnonzero(condition)
    if chosen.size and chosen[-1] >= source.shape[fixed]:
        raise ExecutionError(
            "index out of bounds", where="Compress", expected=f"no more than {source.shape[fixed]} conditions",
            found=str(condition.size),
        )  # fmt: skip
    return source.take(chosen, fixed)


@FAMILY.infer("Compress")
def _compress_rule(facts: Facts) -> Results:
    facts.require_rank(1, 1, "the condition")
    return [facts.tensor(facts.dtype(0), _without_count(facts))]


def _without_count(facts: Facts) -> Sizes | None:
    """Return a shape of which data decide one dimension: along ``axis``, or the only one without it."""
    shape, given = facts.shape(0), facts.attr("axis")
    axis = 0 if given is None else facts.require_axis(int(given), facts.rank(0))
    if given is None:
        return (None,)
    return None if shape is None else (*shape[:axis], None, *shape[axis + 1 :])


def _elements(node: Node) -> Size | None:
    shape = node.operand(0).sizes
    return product(shape) if shape else None


@FAMILY.op("NonZero", row_bound=_elements, row_axis=1)
def non_zero(x: Array) -> Array:
    """Return the coordinates of the elements other than zero, one column per element."""
    if x.dtype == object:
        x = x.astype(np.str_) != ""
    wide = x.astype(compute_dtype(x.dtype), copy=False)
    return np.stack(np.nonzero(wide)).astype(np.int64) if x.ndim else np.zeros((0, int(bool(wide))), np.int64)


@FAMILY.infer("NonZero")
def _non_zero_rule(facts: Facts) -> Results:
    return [facts.tensor("int64", (facts.rank(0), None))]


@FAMILY.op("GroupSlices", domain="tinycomp")
def group_slices(x: Array, *, axis: int) -> tuple[Array, Array]:
    """Return, for every slice along an axis, the first one that is equal, and how many different ones come before.

    The order is ascending, first elements first; NaN comes last and is equal to NaN. Every other result of Unique
    follows from these two.
    """
    count = x.shape[axis]
    rows = np.moveaxis(x, axis, 0).reshape(count, x.size // max(count, 1)).astype(compute_dtype(x.dtype), copy=False)
    first, rank = np.zeros(count, np.int64), np.zeros(count, np.int64)
    if count and rows.shape[1]:
        order = np.lexsort(rows.T[::-1])
        before, after = rows[order[:-1]], rows[order[1:]]
        differs = np.concatenate([[False], ((before != after) & ~((before != before) & (after != after))).any(1)])
        rank[order] = np.cumsum(differs)
        first[order] = order[np.concatenate([[0], np.flatnonzero(differs)])][rank[order]]
    return first, rank


@FAMILY.infer("GroupSlices", domain="tinycomp")
def _group_rule(facts: Facts) -> Results:
    axis = facts.require_axis(int(facts.attr("axis")), facts.rank(0))
    return [facts.tensor("int64", (facts.dim(0, axis),))] * 2


@FAMILY.op("Unique")
def unique(x: Array, *, axis: int | None = None, sorted: int = 1) -> tuple[Array, Array, Array, Array]:  # noqa: A002
    """Return distinct elements (or slices along ``axis``), their first indices, the inverse map, and the counts.

    NaN is equal to NaN, and the last.
    """
    slices, fixed = (x.reshape(-1), 0) if axis is None else (x, axis % x.ndim)
    reserve([slices.shape[fixed]], 3 * 8, "Unique")
    first_equal, group = group_slices(slices.astype(np.str_) if x.dtype == object else slices, axis=fixed)
    first = np.zeros(group.max(initial=-1) + 1, np.int64)
    first[group] = first_equal
    if not sorted:
        order = np.argsort(first)
        place = np.empty_like(order)
        place[order] = np.arange(order.size)
        first, group = first[order], place[group]
    return slices.take(first, fixed), first, group, np.bincount(group, minlength=first.size).astype(np.int64)


@FAMILY.infer("Unique")
def _unique_rule(facts: Facts) -> Results:
    shape, axis = facts.shape(0), facts.attr("axis")
    found = facts.tensor("int64", (None,))
    values = facts.tensor(facts.dtype(0), _without_count(facts))
    if axis is not None:
        return [values, found, facts.tensor("int64", (facts.dim(0, int(axis)),)), found]
    known = [] if shape is None else known_of(shape)
    whole = product(known) if shape is not None and len(known) == len(shape) else None
    return [values, found, facts.tensor("int64", (whole,)), found]


FAMILY.trait("along_axis", "Gather")
FAMILY.trait("selection", "Gather", "GatherElements", "GatherND")
