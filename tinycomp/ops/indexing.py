"""Operators that read or write elements at indices: Gather and Scatter, OneHot, Compress, NonZero and Unique."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinycomp.errors import ExecutionError
from tinycomp.ir.graph import Node
from tinycomp.ir.types import TensorType, Type, tensor
from tinycomp.memory.budget import reserve
from tinycomp.ops.facts import Facts, Operand, axis_in_range, one_of
from tinycomp.ops.numeric import Array, compute_dtype, fix_axis, fix_indices, scalar_int
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Sizes
from tinycomp.symbolic import Size, product

FAMILY = OpFamily("indexing")
_objects: Any = importlib.import_module("tinycomp.ops._objects")


@FAMILY.op("Gather", traits={"movement", "silent"})
def gather(x: Array, indices: Array, *, axis: int = 0) -> Array:
    """Return slices of ``x`` along ``axis``, arranged in the shape of ``indices``.

    Raises:
        ExecutionError: If an index is out of bounds.
    """
    fixed = fix_axis(axis, x.ndim, "Gather")
    if not indices.size:
        return np.empty(x.shape[:fixed] + indices.shape + x.shape[fixed + 1 :], x.dtype)
    try:
        found = x.take(indices, fixed)
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


@FAMILY.plain_type("Gather", least=2, dtypes=None)
def _gathered_type(node: Node, operands: Sequence[Operand]) -> Operand | None:
    (dtype, x), (kind, indices) = operands
    axis = node.attrs.get("axis", 0)
    if kind not in ("int32", "int64") or not -len(x) <= axis < len(x):
        return None
    axis %= len(x)
    return dtype, (*x[:axis], *indices, *x[axis + 1 :])


def _along(indices: Array, axis: int) -> tuple[Array, ...]:
    """Return an index tuple that addresses (i, j, …) with axis ``axis`` replaced by ``indices[i, j, …]``."""
    grid = np.ogrid[tuple(slice(d) for d in indices.shape)]
    return tuple(indices if i == axis else g for i, g in enumerate(grid))


def _check_inside(indices: Array, x: Array, axis: int, where: str) -> None:
    if indices.ndim != x.ndim or any(
        i > d for a, (i, d) in enumerate(zip(indices.shape, x.shape, strict=False)) if a != axis
    ):
        raise ExecutionError(
            "indices do not fit the data",
            where=where,
            expected=f"a shape within {x.shape} outside axis {axis}",
            found=str(indices.shape),
        )


@FAMILY.op("GatherElements", traits={"movement"})
def gather_elements(x: Array, indices: Array, *, axis: int = 0) -> Array:
    """Return one element of ``x`` per index; the other coordinates are the index's own.

    Raises:
        ExecutionError: If an index is out of bounds or the shapes do not fit.
    """
    fixed = fix_axis(axis, x.ndim, "GatherElements")
    _check_inside(indices, x, fixed, "GatherElements")
    return np.asarray(x[_along(fix_indices(indices, x.shape[fixed], "GatherElements"), fixed)])


FAMILY.check("GatherElements")(axis_in_range(0))


def _split_tuples(indices: Array, dims: tuple[int, ...], where: str) -> tuple[Array, ...]:
    """Return the columns of an index-tuple tensor, checked against the sizes they address."""
    width = indices.shape[-1] if indices.ndim else 0
    if not 1 <= width <= len(dims):
        raise ExecutionError(
            "bad width of the index tuples", where=where, expected=f"last dimension in [1, {len(dims)}]",
            found=str(indices.shape),
        )  # fmt: skip
    return tuple(fix_indices(indices[..., i], dims[i], where) for i in range(width))


@FAMILY.op("GatherND", traits={"movement"})
def gather_nd(x: Array, indices: Array, *, batch_dims: int = 0) -> Array:
    """Return slices of ``x`` addressed by index tuples, behind ``batch_dims`` leading axes that both share.

    Raises:
        ExecutionError: If an index is out of bounds or the shapes do not fit.
    """
    shared = x.shape[:batch_dims]
    if not 0 <= batch_dims < min(x.ndim, indices.ndim) or indices.shape[:batch_dims] != shared:
        raise ExecutionError(
            "batch dimensions differ", where="GatherND", expected=f"{batch_dims} equal leading dimensions",
            found=f"{x.shape} and {indices.shape}",
        )  # fmt: skip
    columns = _split_tuples(indices, x.shape[batch_dims:], "GatherND")
    batch = np.ogrid[tuple(slice(d) for d in shared)]
    extra = indices.ndim - 1 - batch_dims
    leading = tuple(np.asarray(g).reshape(g.shape + (1,) * extra) for g in batch)
    return np.asarray(x[leading + columns])


@FAMILY.check("GatherND")
def _check_index_tuples(facts: Facts) -> None:
    batch, rank, depth = int(facts.attr("batch_dims", 0)), facts.rank(0), facts.dim(1, -1)
    ranks = [r for r in (rank, facts.rank(1)) if r is not None]
    if batch < 0 or any(batch >= r for r in ranks):
        facts.fail(
            "batch_dims is out of range", expected=f"0 or more, and less than the ranks {ranks} of the operands",
            found=batch,
        )  # fmt: skip
    if rank is not None and depth is not None and not 1 <= depth <= rank - batch:
        facts.fail("the tuples of indices have a wrong length", expected=f"1 to {rank - batch}", found=depth)


_REDUCTIONS: dict[str, np.ufunc] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def _scatter(x: Array, index: tuple[Array, ...], updates: Array, reduction: str, where: str) -> Array:
    """Return a copy of ``x`` with ``updates`` written or accumulated at ``index``; later ones win."""
    if reduction == "none":
        out = x.copy()
        out[index] = updates
        return out
    if reduction not in _REDUCTIONS:
        raise ExecutionError(
            "unknown reduction", where=where, expected=f"none or one of {list(_REDUCTIONS)}", found=repr(reduction)
        )
    out = x.astype(compute_dtype(x.dtype))
    with np.errstate(all="ignore"):
        _REDUCTIONS[reduction].at(out, index, updates.astype(out.dtype, copy=False))
    return out.astype(x.dtype, copy=False)


@FAMILY.op("ScatterElements", "Scatter", traits={"movement"})
def scatter_elements(x: Array, indices: Array, updates: Array, *, axis: int = 0, reduction: str = "none") -> Array:
    """Write, or accumulate, one element of a copy of ``x`` per index; the other coordinates are the index's own.

    Raises:
        ExecutionError: If an index is out of bounds or the shapes do not fit.
    """
    where = "ScatterElements"
    fixed = fix_axis(axis, x.ndim, where)
    _check_inside(indices, x, fixed, where)
    if updates.shape != indices.shape:
        raise ExecutionError(
            "updates do not fit the indices", where=where, expected=str(indices.shape), found=str(updates.shape)
        )
    return _scatter(x, _along(fix_indices(indices, x.shape[fixed], where), fixed), updates, reduction, where)


FAMILY.check("ScatterElements")(one_of(reduction=("none", *_REDUCTIONS)))
FAMILY.check("Scatter", "ScatterElements")(axis_in_range(0))


@FAMILY.check("Scatter", "ScatterElements")
def _check_updates(facts: Facts) -> None:
    indices, updates = facts.sizes(1), facts.sizes(2)
    if indices is not None and updates is not None and indices != updates:
        facts.fail("updates and indices differ in shape", expected=str(list(indices)), found=list(updates))


@FAMILY.op("ScatterND", traits={"movement"})
def scatter_nd(x: Array, indices: Array, updates: Array, *, reduction: str = "none") -> Array:
    """Write, or accumulate, slices of a copy of ``x`` where index tuples say.

    Raises:
        ExecutionError: If an index is out of bounds or the shapes do not fit.
    """
    columns = _split_tuples(indices, x.shape, "ScatterND")
    wanted = indices.shape[:-1] + x.shape[len(columns) :]
    if updates.shape != wanted:
        raise ExecutionError(
            "updates do not fit the indices", where="ScatterND", expected=str(wanted), found=str(updates.shape)
        )
    return _scatter(x, columns, updates, reduction, "ScatterND")


FAMILY.check("ScatterND")(one_of(reduction=("none", *_REDUCTIONS)))


@FAMILY.check("ScatterND")
def _check_update_blocks(facts: Facts) -> None:
    shape, indices, updates = facts.sizes(0), facts.sizes(1), facts.sizes(2)
    if shape is None or indices is None or updates is None or not indices or indices[-1] > len(shape):
        return
    wanted = indices[:-1] + shape[indices[-1] :]
    if updates != wanted:
        facts.fail("updates has the wrong shape", expected=f"{list(wanted)}", found=list(updates))


@FAMILY.op("TensorScatter", traits={"movement"})
def tensor_scatter(
    past: Array, update: Array, write_indices: Array | None = None, *, axis: int = -2, mode: str = "linear"
) -> Array:
    """Return a cache with ``update`` written along ``axis`` from each batch entry's write index on.

    Raises:
        ExecutionError: If a linear write passes the end of the cache.
    """
    fixed = fix_axis(axis, past.ndim, "TensorScatter")
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


@FAMILY.op("OneHot")
def one_hot(indices: Array, depth: Array, values: Array, *, axis: int = -1) -> Array:
    """Return ``values[1]`` where a new axis of ``depth`` elements meets the index, else ``values[0]``.

    Indices out of [-depth, depth-1] give a row of ``values[0]`` only, as ONNX says.

    Raises:
        ExecutionError: If the depth is negative.
    """
    wanted = depth.reshape(-1)[0]
    if not 0 <= wanted < np.inf:
        raise ExecutionError("negative depth", where="OneHot", expected="0 or more", found=str(wanted))
    size = scalar_int(depth)
    fixed = fix_axis(axis, indices.ndim + 1, "OneHot")
    reserve((indices.size, size), max(values.itemsize, 8), "OneHot")
    whole = indices.astype(np.int64)
    wrapped = np.expand_dims(np.where(whole < 0, whole + size, whole), fixed)
    classes = np.arange(size).reshape((-1,) + (1,) * (indices.ndim - fixed))
    return np.where(wrapped == classes, values[1:2].reshape(()), values[0:1].reshape(()))


@FAMILY.check("OneHot")
def _check_depth(facts: Facts) -> None:
    depth = facts.const(1)
    if depth is not None and depth.size and not float(depth.reshape(-1)[0]) >= 0:
        facts.fail("the depth is negative", expected="0 or more", found=depth.reshape(-1)[0])


@FAMILY.op("Compress")
def compress(x: Array, condition: Array, *, axis: int | None = None) -> Array:
    """Return the slices along ``axis`` (or the elements in row-major order) whose condition holds.

    Raises:
        ExecutionError: If a condition that holds lies beyond the axis.
    """
    source = x.reshape(-1) if axis is None else x
    fixed = 0 if axis is None else fix_axis(axis, x.ndim, "Compress")
    chosen = np.flatnonzero(condition)
    if chosen.size and chosen[-1] >= source.shape[fixed]:
        raise ExecutionError(
            "index out of bounds", where="Compress", expected=f"no more than {source.shape[fixed]} conditions",
            found=str(condition.size),
        )  # fmt: skip
    return source.take(chosen, fixed)


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


def _group_types(node: Node) -> list[Type]:
    shape = tensor(node.operand(0).type).shape
    type_ = TensorType("int64", None if shape is None else (shape[int(node.attrs["axis"])],))
    return [type_, type_]


@FAMILY.op("GroupSlices", domain="tinycomp", type_rule=_group_types)
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


@FAMILY.op("Unique")
def unique(x: Array, *, axis: int | None = None, sorted: int = 1) -> tuple[Array, Array, Array, Array]:  # noqa: A002
    """Return distinct elements (or slices along ``axis``), their first indices, the inverse map, and the counts.

    NaN is equal to NaN, and the last.
    """
    slices, fixed = (x.reshape(-1), 0) if axis is None else (x, fix_axis(axis, x.ndim, "Unique"))
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


@FAMILY.sizes("OneHot")
def _one_hot_sizes(node: Node, shapes: Sequence[Sizes | None]) -> list[Sizes | None]:
    indices, depth = shapes[0], node.operand(1).contents
    if indices is None or not depth:
        return [None]
    axis = int(node.attrs.get("axis", -1)) % (len(indices) + 1)
    return [(*indices[:axis], depth[0], *indices[axis:])]


@FAMILY.sizes("GatherND")
def _gathered_sizes(node: Node, shapes: Sequence[Sizes | None]) -> list[Sizes | None]:
    data, indices = shapes[:2]
    if data is None or not indices or not isinstance(indices[-1], int):
        return [None]
    return [(*indices[:-1], *data[int(node.attrs.get("batch_dims", 0)) + indices[-1] :])]


FAMILY.trait("along_axis", "Gather")
FAMILY.trait("selection", "Gather", "GatherElements", "GatherND")
