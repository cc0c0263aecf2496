"""Reductions along axes: the Reduce* operators, ArgMax, ArgMin, TopK, and the running CumSum and CumProd."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinycomp.errors import ExecutionError
from tinycomp.ir.graph import Node, Value
from tinycomp.ops.facts import Facts, axes_in_range
from tinycomp.ops.numeric import Array, compute_dtype, fix_axes, fix_axis, ints, is_float, scalar_int, widened
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Sizes
from tinycomp.symbolic import Size, if_zero, marked_axes

FAMILY = OpFamily("reduction")
Axes = tuple[int, ...]
Reducer = Callable[[Array, Axes, bool], Array]


def _limits(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """Return the least and the greatest value of a dtype: the results of reducing nothing."""
    if dtype.kind == "b":
        return False, True
    if dtype.kind in "iu":
        return np.iinfo(dtype).min, np.iinfo(dtype).max
    return -math.inf, math.inf


def _sum(x: Array, axes: Axes, keep: bool) -> Array:
    return np.asarray(np.sum(x, axis=axes, keepdims=keep, dtype=x.dtype))


def _mean(x: Array, axes: Axes, keep: bool) -> Array:
    if is_float(x.dtype):
        return np.asarray(np.sum(x, axis=axes, keepdims=keep) / x.dtype.type(math.prod(x.shape[a] for a in axes)))
    count = math.prod(x.shape[a] for a in axes)
    total = np.asarray(np.sum(x, axis=axes, keepdims=keep))
    return np.asarray((total - np.fmod(total, count)) // count if count else total)


def _l2(x: Array, axes: Axes, keep: bool) -> Array:
    return np.asarray(np.sqrt(_sum(x * x, axes, keep)))


def _log_sum_exp(x: Array, axes: Axes, keep: bool) -> Array:
    top = np.max(x, axis=axes, keepdims=True, initial=-math.inf)
    top = np.where(np.isfinite(top), top, 0)
    total = np.log(np.sum(np.exp(x - top), axis=axes, keepdims=keep))
    return np.asarray(total + (top if keep else np.squeeze(top, axes)))


def _max(x: Array, axes: Axes, keep: bool) -> Array:
    return np.asarray(np.max(x, axis=axes, keepdims=keep, initial=_limits(x.dtype)[0]))


def _min(x: Array, axes: Axes, keep: bool) -> Array:
    return np.asarray(np.min(x, axis=axes, keepdims=keep, initial=_limits(x.dtype)[1]))


def _in_float(reducer: Reducer) -> Reducer:
    """Compute an irrational function of integers in float64; the caller truncates."""

    def run(x: Array, axes: Axes, keep: bool) -> Array:
        return reducer(x if x.dtype.kind == "f" else x.astype(np.float64), axes, keep)

    return run


_REDUCERS: dict[str, Reducer] = {
    "ReduceSum": _sum,
    "ReduceMean": _mean,
    "ReduceProd": lambda x, axes, keep: np.asarray(np.prod(x, axis=axes, keepdims=keep, dtype=x.dtype)),
    "ReduceMax": _max,
    "ReduceMin": _min,
    "ReduceL1": lambda x, axes, keep: _sum(np.abs(x), axes, keep),
    "ReduceL2": _in_float(_l2),
    "ReduceSumSquare": lambda x, axes, keep: _sum(x * x, axes, keep),
    "ReduceLogSum": _in_float(lambda x, axes, keep: np.asarray(np.log(_sum(x, axes, keep)))),
    "ReduceLogSumExp": _in_float(_log_sum_exp),
}
_INPUT_AXES_SINCE = {name: 13 if name == "ReduceSum" else 18 for name in _REDUCERS}


def _register(name: str, reducer: Reducer) -> None:
    @widened
    def reduce(x: Array, *, axes: Sequence[int] | None, keepdims: int) -> Array:
        chosen = tuple(range(x.ndim)) if axes is None else fix_axes(axes, x.ndim, name)
        return reducer(x, chosen, keepdims == 1)

    def by_attribute(x: Array, *, axes: Sequence[int] | None = None, keepdims: int = 1) -> Array:
        return np.asarray(reduce(x, axes=axes or None, keepdims=keepdims))

    def by_input(x: Array, axes: Array | None = None, *, keepdims: int = 1, noop_with_empty_axes: int = 0) -> Array:
        wanted = ints(axes) if axes is not None else []
        if not wanted and noop_with_empty_axes:
            return np.asarray(reduce(x, axes=(), keepdims=keepdims))
        return np.asarray(reduce(x, axes=wanted or None, keepdims=keepdims))

    traits = {"inexact_definition"} if name == "ReduceLogSumExp" else set()
    FAMILY.op(name, since=1, traits=traits)(by_attribute)
    FAMILY.op(name, since=_INPUT_AXES_SINCE[name], traits=traits)(by_input)


for _name, _reducer in _REDUCERS.items():
    _register(_name, _reducer)

FAMILY.check(*_REDUCERS)(axes_in_range(1))


def _register_arg(name: str, function: Callable[..., Any]) -> None:
    def run(x: Array, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Array:
        fixed = fix_axis(axis, x.ndim, name)
        if not x.shape[fixed]:
            raise ExecutionError("the reduced axis is empty", where=name, expected="one element or more")
        wide = x.astype(compute_dtype(x.dtype), copy=False)
        if not select_last_index:
            return np.asarray(function(wide, axis=fixed, keepdims=keepdims == 1)).astype(np.int64, copy=False)
        from_end = function(np.flip(wide, fixed), axis=fixed, keepdims=keepdims == 1)
        return np.asarray(x.shape[fixed] - 1 - from_end).astype(np.int64, copy=False)

    FAMILY.op(name)(run)


_register_arg("ArgMax", np.argmax)
_register_arg("ArgMin", np.argmin)


def _top(x: Array, count: int, axis: int, largest: bool, in_order: bool) -> tuple[Array, Array]:
    """Return the ``count`` extreme elements along an axis and their indices; of equals the first comes first."""
    fixed = fix_axis(axis, x.ndim, "TopK")
    size = x.shape[fixed]
    if not 0 <= count <= size:
        raise ExecutionError("K does not fit the axis", where="TopK", expected=f"K in [0, {size}]", found=str(count))
    wide = np.moveaxis(x.astype(compute_dtype(x.dtype), copy=False), fixed, -1)
    order = _smallest(_descending(wide) if largest else wide, count)
    if not in_order:
        order = np.sort(order, axis=-1)
    indices = np.moveaxis(order, -1, fixed).astype(np.int64)
    return np.take_along_axis(x, indices, fixed), indices


def _smallest(keys: Array, count: int) -> Array:
    """Return the indices of the ``count`` smallest keys of each row, in order, the first of equals first."""
    if keys.shape[-1] < 4 * count or not count:
        return np.argsort(keys, axis=-1, kind="stable")[..., :count]
    limit = np.partition(keys, count - 1)[..., count - 1 : count]
    if limit.dtype.kind == "f" and np.isnan(limit).any():
        return np.argsort(keys, axis=-1, kind="stable")[..., :count]
    below, equal = keys < limit, keys == limit
    needed = count - below.sum(-1, keepdims=True)
    chosen = below | (equal & (np.cumsum(equal, -1) <= needed))
    candidates = np.nonzero(chosen)[-1].reshape(*keys.shape[:-1], count)
    order = np.argsort(np.take_along_axis(keys, candidates, -1), axis=-1, kind="stable")
    return np.take_along_axis(candidates, order, -1)


def _descending(x: Array) -> Array:
    """Return keys whose ascending order is the descending order of ``x``."""
    if x.dtype.kind == "f":
        return np.asarray(-x)
    return np.asarray(np.invert(x))  # -x would overflow at the least integer, and unsigned has no negative


@FAMILY.op("TopK", since=11)
def top_k(x: Array, k: Array, *, axis: int = -1, largest: int = 1, sorted: int = 1) -> tuple[Array, Array]:  # noqa: A002
    """Return the K largest or smallest elements along an axis, and their indices.

    Raises:
        ExecutionError: If K is negative or exceeds the axis.
    """
    return _top(x, scalar_int(k), axis, bool(largest), bool(sorted))


@FAMILY.op("TopK", since=10)
def top_k_largest(x: Array, k: Array, *, axis: int = -1) -> tuple[Array, Array]:
    """Compute TopK as at opset 10: always the largest, in order."""
    return _top(x, scalar_int(k), axis, True, True)


@FAMILY.op("TopK", since=1)
def top_k_attribute(x: Array, *, k: int, axis: int = -1) -> tuple[Array, Array]:
    """Compute TopK as before opset 10, with K as an attribute."""
    return _top(x, k, axis, True, True)


@FAMILY.check("TopK")
def _check_k(facts: Facts) -> None:
    k = facts.ints(1, "k_") if facts.node.version >= 10 else [int(facts.attr("k", 0))]
    size = facts.dim(0, int(facts.attr("axis", -1)))
    if k and k[0] < 0:
        facts.fail("k is negative", expected="0 or more", found=k[0])
    if k and size is not None and k[0] > size:
        facts.fail("k is larger than the axis", expected=f"at most {size}", found=k[0])


@FAMILY.sizes("TopK")
def _selected_sizes(node: Node, shapes: Sequence[Sizes | None]) -> list[Sizes | None]:
    x, given = shapes[0], node.optional_operand(1)
    count: Sequence[Size | None] | None = [node.attrs.get("k")] if given is None else given.contents
    if not x or not count:
        return [None]
    axis = int(node.attrs.get("axis", -1)) % len(x)
    return [(*x[:axis], count[0], *x[axis + 1 :])] * len(node.outputs)


def _register_running(name: str, function: Callable[..., Any], start: int) -> None:
    @widened
    def run(x: Array, axis: Array, *, exclusive: int = 0, reverse: int = 0) -> Array:
        fixed = fix_axis(scalar_int(axis), x.ndim, name)
        source = np.flip(x, fixed) if reverse else x
        if exclusive and source.shape[fixed]:
            first = np.full_like(np.take(source, [0], fixed), start)
            source = np.concatenate([first, np.delete(source, -1, fixed)], fixed)
        total = function(source, axis=fixed, dtype=x.dtype)
        return np.asarray(np.flip(total, fixed) if reverse else total)

    FAMILY.op(name)(run)


_register_running("CumSum", np.cumsum, 0)
_register_running("CumProd", np.cumprod, 1)


@FAMILY.check("CumProd", "CumSum")
def _check_running_axis(facts: Facts) -> None:
    axis = facts.const(1)
    if axis is not None and axis.size == 1:
        facts.require_axis(int(axis.reshape(-1)[0]), facts.rank(0))


@FAMILY.sizes(
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
)  # fmt: skip
def _reduced_sizes(node: Node, shapes: Sequence[Sizes | None]) -> list[Sizes | None]:
    x, given = shapes[0], node.optional_operand(1)
    if x is None:
        return [None]
    held: Sequence[Size | None] | None = node.attrs.get("axes", ()) if given is None else given.contents
    if given is not None and (held is None or None in held):
        return [_some_reduced(x, given, bool(node.attrs.get("keepdims", 1)))]
    axes: Sequence[Size] = [axis for axis in held or () if axis is not None]
    if not axes:
        if node.attrs.get("noop_with_empty_axes", 0):
            return [x]
        axes = range(len(x))
    marks = marked_axes(axes, len(x))
    if node.attrs.get("keepdims", 1):
        return [tuple([_if_marked(mark, size) for mark, size in zip(marks, x, strict=True)])]
    if all(isinstance(mark, int) for mark in marks):
        return [tuple([size for mark, size in zip(marks, x, strict=True) if not mark])]
    places = kept_places(marks)
    return [tuple([_at_place(place, x, marks, places, len(axes)) for place in range(len(x) - len(axes))])]


def kept_places(marks: Sequence[Size]) -> list[Size]:
    """Return for every dimension how many before it are not marked."""
    places: list[Size] = [0]
    for mark in marks[:-1]:
        places.append(places[-1] + if_zero(mark, 1, 0))
    return places


def _some_reduced(x: Sizes, axes: Value, keepdims: bool) -> Sizes | None:
    """Return what is certain of a shape reduced over axes of which only the number may be known."""
    if keepdims:
        return tuple([1 if size == 1 else None for size in x])
    count = axes.static_shape
    return (None,) * (len(x) - count[0]) if count and 0 < count[0] <= len(x) else None


def _if_marked(mark: Size, size: Size | None) -> Size | None:
    if isinstance(mark, int):
        return 1 if mark else size
    return None if size is None else if_zero(mark, size, 1)


def _at_place(place: int, x: Sizes, marks: Sequence[Size], places: Sequence[Size], removed: int) -> Size | None:
    """Return the size that comes to lie at a place once the marked ones are removed."""
    total: Size = 0
    for axis in range(place, place + removed + 1):
        size = x[axis]
        if size is None:
            return None
        total = total + if_zero(marks[axis], if_zero(places[axis] - place, size, 0), 0)
    return total


FAMILY.trait("mean", "ReduceMean")
FAMILY.trait(
    "reduction", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin",
    "ReduceProd", "ReduceSum", "ReduceSumSquare",
)  # fmt: skip
FAMILY.trait("along_axis", "ArgMax", "ArgMin")
