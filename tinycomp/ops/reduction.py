"""Reductions along axes: the Reduce* operators, ArgMax, ArgMin, TopK, and the running CumSum and CumProd."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinycomp.ops.cast import cast_array
from tinycomp.ops.contents import reduced
from tinycomp.ops.numeric import Array, compute_dtype, fix_axes, fix_axis, ints, is_float, scalar_int, widened
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Facts, Results, Sizes, known_of, same_as_first
from tinycomp.symbolic import Size, if_zero, marked_axes, maximum, minimum, product

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
    """Compute an irrational function of integers in float64; of what a Cast to uint64 gives, keep the low bits."""

    def run(x: Array, axes: Axes, keep: bool) -> Array:
        if x.dtype.kind == "f":
            return reducer(x, axes, keep)
        return cast_array(reducer(x.astype(np.float64), axes, keep), np.dtype(np.uint64)).astype(x.dtype)

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


def _register_arg(name: str, function: Callable[..., Any]) -> None:
    def run(x: Array, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0) -> Array:
        fixed = fix_axis(axis, x.ndim, name)
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
    """Return the K largest or smallest elements along an axis, and their indices."""
    return _top(x, scalar_int(k), axis, bool(largest), bool(sorted))


@FAMILY.op("TopK", since=10)
def top_k_largest(x: Array, k: Array, *, axis: int = -1) -> tuple[Array, Array]:
    """Compute TopK as at opset 10: always the largest, in order."""
    return _top(x, scalar_int(k), axis, True, True)


@FAMILY.op("TopK", since=1)
def top_k_attribute(x: Array, *, k: int, axis: int = -1) -> tuple[Array, Array]:
    """Compute TopK as before opset 10, with K as an attribute."""
    return _top(x, k, axis, True, True)


@FAMILY.infer("TopK", sizing=(1,))
def _selected(facts: Facts) -> Results:
    facts.require_scalar(1, "k")
    x, given = facts.shape(0), facts.elements(1)
    k = facts.attr("k") if not facts.has(1) else given[0] if given else None
    facts.require_at_least(k, 0, "k is negative")
    sizes = None
    if x is not None:
        axis = facts.require_axis(int(facts.attr("axis", -1)), len(x))
        size = x[axis]
        if k is not None and size is not None:
            facts.demand(minimum(size - k, 0), f"k is larger than the axis: {k} of {size}")
        sizes = (*x[:axis], k, *x[axis + 1 :])
    return [facts.tensor(facts.dtype(0), sizes), facts.tensor("int64", sizes)]


@FAMILY.infer("ArgMax", "ArgMin")
def _extreme(facts: Facts) -> Results:
    x, axis = facts.shape(0), int(facts.attr("axis", 0))
    if x is None:
        return [facts.tensor("int64", None)]
    axis = facts.require_axis(axis, len(x))
    facts.require_at_least(x[axis], 1, "the reduced axis is empty")
    return [facts.tensor("int64", (*x[:axis], *[1] * (facts.attr("keepdims", 1) == 1), *x[axis + 1 :]))]


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


@FAMILY.infer("CumProd", "CumSum", sizing=(1,))
def _running(facts: Facts) -> Results:
    facts.require_scalar(1, "axis")
    _marked(facts, facts.elements(1))
    return same_as_first(facts)


def _marked(facts: Facts, axes: Sequence[Size | None] | None) -> list[Size] | None:
    """Demand that axes lie in the first operand and differ; return how many of them name each of its dimensions.

    None where that is not known.
    """
    rank, known = facts.rank(0), known_of(axes or ())
    if axes is None or rank is None or len(known) < len(axes):
        return None
    ints = [axis for axis in known if isinstance(axis, int)]
    facts.require_axes(ints, rank)
    marks = marked_axes(known, rank)
    if len(ints) < len(known):
        named: Size = 0
        for mark in marks:
            named = named + if_zero(mark, 0, 1)
        facts.demand(len(known) - named, f"an axis is named twice, or is out of range for rank {rank}")
    return marks


def _reduced(facts: Facts) -> Results:
    x, dtype, keepdims = facts.shape(0), facts.dtype(0), facts.attr("keepdims", 1) == 1
    held: Sizes | None = tuple(facts.attr("axes") or ())
    if facts.has(1):
        facts.require_rank(1, 1, "axes")
        held = facts.elements(1)
    if x is None:
        return [facts.tensor(dtype, () if held == () and not keepdims and not _is_noop(facts) else None)]
    if held == ():
        whole = x if _is_noop(facts) else (1,) * len(x) if keepdims else ()
        return [facts.tensor(dtype, whole)]
    marks = _marked(facts, held)
    if marks is None or held is None:
        return [facts.tensor(dtype, _some_reduced(x, None if held is None else len(held), keepdims))]
    if keepdims:
        return [facts.tensor(dtype, [_if_marked(mark, size) for mark, size in zip(marks, x, strict=True)])]
    if all(isinstance(mark, int) for mark in marks):
        return [facts.tensor(dtype, [size for mark, size in zip(marks, x, strict=True) if not mark])]
    places = kept_places(marks)
    sizes = [_at_place(place, x, marks, places, len(held)) for place in range(len(x) - len(held))]
    return [facts.tensor(dtype, sizes)]


def _is_noop(facts: Facts) -> bool:
    """Tell whether a reduction along no axes leaves its operand as it is."""
    return bool(facts.attr("noop_with_empty_axes", 0))


_OF_SIZES: dict[str, Callable[[Sequence[Size]], Size]] = {
    "ReduceProd": product,
    "ReduceSum": lambda sizes: sum(sizes[1:], start=sizes[0]),
    "ReduceMax": lambda sizes: maximum(*sizes),
    "ReduceMin": lambda sizes: minimum(*sizes),
}
for _name in _REDUCERS:
    FAMILY.infer(_name, sizing=(1,), contents=reduced(_OF_SIZES[_name]) if _name in _OF_SIZES else None)(_reduced)


def kept_places(marks: Sequence[Size]) -> list[Size]:
    """Return for every dimension how many before it are not marked."""
    places: list[Size] = [0]
    for mark in marks[:-1]:
        places.append(places[-1] + if_zero(mark, 1, 0))
    return places


def _some_reduced(x: Sizes, count: int | None, keepdims: bool) -> Sizes | None:
    """Return what is certain of a shape reduced over axes of which only the number may be known."""
    if keepdims:
        return tuple([1 if size == 1 else None for size in x])
    return (None,) * (len(x) - count) if count and count <= len(x) else None


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
