"""Pooling. Windows are reduced one axis after the other, since max and sum are separable.

A pooling of kernel k1 x k2 so costs k1 + k2 vector operations, not k1 * k2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinycomp.errors import ExecutionError
from tinycomp.ir.graph import TINYCOMP
from tinycomp.memory.budget import reserve
from tinycomp.ops.numeric import Array, compute_dtype, integer_range, is_float, prod, widened
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Facts, Results, same_as_first
from tinycomp.ops.spatial import (
    POOLING,
    Window,
    attempt,
    make_window,
    pad_for,
    spatial_tuple,
    split_pads,
    window_counts,
)

FAMILY = OpFamily("pool")

Ints = Sequence[int] | None


def _axis_slice(window: Window[int], axis: int, tap: int) -> tuple[Any, ...]:
    start = tap * window.dilations[axis]
    step = window.strides[axis]
    cells = slice(start, start + (window.output[axis] - 1) * step + 1, step)
    return (slice(None),) * (2 + axis) + (cells,)


def window_reduce(padded: Array, window: Window[int], reduce: np.ufunc) -> Array:
    """Reduce every window of a padded input with a commutative ufunc such as ``np.add``."""
    result = padded
    for axis in range(window.rank):
        total = result[_axis_slice(window, axis, 0)].copy()
        for tap in range(1, window.kernel[axis]):
            reduce(total, result[_axis_slice(window, axis, tap)], out=total)
        result = total
    return result


def sum_in_order(padded: Array, window: Window[int]) -> Array:
    """Return the sum of every window of a padded input, added from its first cell to its last."""
    total = np.zeros((*padded.shape[:2], *window.output), padded.dtype)
    for tap in window.taps():
        total += padded[window.tap_index(tap)]
    return total


def _lowest(dtype: np.dtype[Any]) -> Any:
    return -np.inf if is_float(dtype) else integer_range(dtype)[0]


def max_with_indices(padded: Array, window: Window[int]) -> tuple[Array, list[Array]]:
    """Return the maximum of every window and, per spatial axis, its coordinate in the padded input.

    Of equal maxima the first in row-major order wins: the innermost axis is reduced first and only a greater value
    replaces an earlier one.
    """
    best = padded
    coords: list[Array] = []
    for axis in reversed(range(window.rank)):
        starts = np.arange(window.output[axis]) * window.strides[axis]
        starts = starts.reshape(-1, *[1] * (window.rank - axis - 1))
        first = _axis_slice(window, axis, 0)
        total = best[first].copy()
        chosen = [c[first].copy() for c in coords]
        where = np.broadcast_to(starts, total.shape).copy()
        for tap in range(1, window.kernel[axis]):
            cells = _axis_slice(window, axis, tap)
            # NaN compares false and so would be lost; numpy's maximum, used without indices, keeps it.
            greater = (best[cells] > total) | (np.isnan(best[cells]) & ~np.isnan(total))
            np.copyto(total, best[cells], where=greater)
            np.copyto(where, starts + tap * window.dilations[axis], where=greater)
            for kept, c in zip(chosen, coords, strict=True):
                np.copyto(kept, c[cells], where=greater)
        best, coords = total, [where, *chosen]
    return best, coords


def _flat_indices(coords: list[Array], window: Window[int], batch: int, channels: int, storage_order: int) -> Array:
    sizes = window.sizes
    places = [np.clip(c - b, 0, n - 1) for c, b, n in zip(coords, window.before, sizes, strict=True)]
    order = range(window.rank) if storage_order == 0 else reversed(range(window.rank))
    flat = np.zeros_like(places[0])
    for axis in order:
        flat = flat * sizes[axis] + places[axis]
    images = np.arange(batch * channels).reshape(batch, channels, *[1] * window.rank)
    return np.asarray(flat + images * prod(sizes), dtype=np.int64)


@FAMILY.op("MaxPool", traits={"output_count"}, passed=POOLING)
def max_pool(
    x: Array,
    *,
    kernel_shape: Sequence[int],
    storage_order: int = 0,
    outputs: int = 1,
    **given: Any,
) -> Array | tuple[Array, Array]:
    """Return the maximum of each window and, if asked for, its flat index in ``x`` (row- or column-major in an image).

    NaN is greater than everything, as in numpy and PyTorch.
    """
    window = make_window("MaxPool", x.shape[2:], kernel_shape, **given)
    wide = x.astype(compute_dtype(x.dtype), copy=False)
    padded = pad_for(wide, window, _lowest(x.dtype))
    if outputs == 1:
        return window_reduce(padded, window, np.maximum).astype(x.dtype, copy=False)
    best, coords = max_with_indices(padded, window)
    return best.astype(x.dtype, copy=False), _flat_indices(coords, window, x.shape[0], x.shape[1], storage_order)


@FAMILY.op("MaxPoolIndices", domain=TINYCOMP)
def max_pool_indices(x: Array, **attrs: Any) -> Any:
    """Return what MaxPool does of which both results are asked for."""
    return max_pool(x, **attrs, outputs=2)


def cells(window: Window[int], count_include_pad: bool) -> Array:
    """Return how many cells each window counts: those of the input and, if asked for, of the padding.

    Cells beyond the padding behind, which ``ceil_mode`` can reach, never count.
    """
    count = np.ones([1] * window.rank)
    for axis in range(window.rank):
        cells = np.arange(window.output[axis])[:, None] * window.strides[axis]
        cells = cells + np.arange(window.kernel[axis]) * window.dilations[axis] - window.before[axis]
        first = -window.before[axis] if count_include_pad else 0
        end = window.sizes[axis] + (window.after[axis] if count_include_pad else 0)
        inside = ((cells >= first) & (cells < end)).sum(axis=1)
        count = count * inside.reshape(-1, *[1] * (window.rank - axis - 1))
    return count


@FAMILY.op("AveragePool", passed=POOLING)
@widened
def average_pool(x: Array, *, count_include_pad: int = 0, kernel_shape: Sequence[int], **given: Any) -> Array:
    """Return the mean of each window."""
    window = make_window("AveragePool", x.shape[2:], kernel_shape, **given)
    total = window_reduce(pad_for(x, window), window, np.add)
    # A dilated window can fall between the cells and count none; its sum is zero, and so is its mean.
    counts = np.maximum(cells(window, bool(count_include_pad)), 1)
    return np.asarray(total / counts.astype(x.dtype))


@FAMILY.op("LpPool", passed=POOLING)
@widened
def lp_pool(x: Array, *, kernel_shape: Sequence[int], p: float = 2, **given: Any) -> Array:
    """Return the Lp norm of each window."""
    window = make_window("LpPool", x.shape[2:], kernel_shape, **given)
    powers = window_reduce(pad_for(_power(x, p), window), window, np.add)
    return _root(powers, p)


@FAMILY.infer("AveragePool", "LpPool", "MaxPool")
def _pool(facts: Facts) -> Results:
    facts.require_rank_from(0, 3, "the input")
    given = facts.attr("kernel_shape", ())
    shape = facts.shape(0) or (None,) * (2 + len(given))
    facts.require(len(given) == len(shape) - 2, "attribute kernel_shape has the wrong length",
                  expected=f"{len(shape) - 2} entries", found=list(given))  # fmt: skip
    kernel = attempt(facts, spatial_tuple, "kernel_shape", given, len(given), 1, 1)
    counts = window_counts(facts, shape[2:], kernel, ceil_mode=facts.attr("ceil_mode", 0))
    dilations = facts.attr("dilations") or (1,) * len(kernel)
    pads = () if facts.attr("auto_pad", "NOTSET") != "NOTSET" else facts.attr("pads", ())
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    facts.require(all(pad < extent for pad, extent in zip(pads, extents * 2, strict=False)),
                  "a window would see only padding", expected=f"pads below the window's extents {extents}",
                  found=list(pads))  # fmt: skip
    whole = (*shape[:2], *counts)
    return [facts.tensor(facts.dtype(0), whole), facts.tensor("int64", whole)]


FAMILY.infer("MaxPoolIndices", domain=TINYCOMP)(_pool)


def _power(x: Array, p: float) -> Array:
    return np.abs(x) if p == 1 else x * x if p == 2 else np.asarray(np.abs(x) ** p)


def _root(x: Array, p: float) -> Array:
    return x if p == 1 else np.sqrt(x) if p == 2 else np.asarray(x ** (1 / p))


def _spatial_axes(x: Array) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


@FAMILY.op("GlobalAveragePool")
@widened
def global_average_pool(x: Array) -> Array:
    """Return the mean over all spatial axes, which stay with size 1."""
    return np.asarray(x.mean(axis=_spatial_axes(x), keepdims=True))


@FAMILY.op("GlobalMaxPool")
@widened
def global_max_pool(x: Array) -> Array:
    """Return the maximum over all spatial axes, which stay with size 1."""
    return np.asarray(x.max(axis=_spatial_axes(x), keepdims=True, initial=-np.inf))


@FAMILY.op("GlobalLpPool")
@widened
def global_lp_pool(x: Array, *, p: float = 2) -> Array:
    """Return the Lp norm over all spatial axes, which stay with size 1."""
    return _root(_power(x, p).sum(axis=_spatial_axes(x), keepdims=True), p)


@FAMILY.infer("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool")
def _global_pool(facts: Facts) -> Results:
    facts.require_rank_from(0, 2, "the input")
    shape = facts.shape(0)
    return [facts.tensor(facts.dtype(0), None if shape is None else (*shape[:2], *[1] * (len(shape) - 2)))]


@FAMILY.op("MaxUnpool")
def max_unpool(
    x: Array,
    indices: Array,
    output_shape: Array | None = None,
    *,
    kernel_shape: Sequence[int],
    pads: Ints = None,
    strides: Ints = None,
) -> Array:
    """Put each value back at the flat index that MaxPool reported; every other element is zero.

    The indices count in the tensor that the pooling read, whose spatial sizes follow from the attributes; a larger
    ``output_shape`` takes that tensor in its leading corner.

    Raises:
        ExecutionError: If an index lies outside that tensor.
    """
    natural = (*x.shape[:2], *_unpooled("MaxUnpool", x.shape[2:], kernel_shape, strides, pads))
    wanted = natural if output_shape is None else tuple(int(v) for v in output_shape)
    if indices.size and (indices.min() < 0 or indices.max() >= prod(natural)):
        raise ExecutionError(
            "MaxUnpool: index out of bounds",
            expected=f"indices in [0, {prod(natural) - 1}]",
            found=f"{int(indices.min())} to {int(indices.max())}",
        )
    reserve(wanted, x.itemsize, "MaxUnpool")
    flat = np.zeros(prod(natural), dtype=x.dtype)
    flat[indices.reshape(-1)] = x.reshape(-1)
    result = np.zeros(wanted, dtype=x.dtype)
    result[tuple(slice(n) for n in natural)] = flat.reshape(natural)
    return result


def _unpooled(op: str, sizes: Sequence[Any], kernel: Sequence[int], strides: Ints, pads: Ints) -> list[Any]:
    """Return the spatial sizes of what a pooling has read that gave ``sizes``."""
    rank = len(sizes)
    kernel = spatial_tuple(op, "kernel_shape", kernel, rank, 1, 1)
    steps = spatial_tuple(op, "strides", strides, rank, 1, 1)
    before, after = split_pads(op, pads, rank)
    return [(n - 1) * s + k - b - a for n, s, k, b, a in zip(sizes, steps, kernel, before, after, strict=True)]


@FAMILY.infer("MaxUnpool", sizing=(2,))
def _max_unpool(facts: Facts) -> Results:
    facts.require_rank_from(0, 3, "the input")
    shape, dtype, wanted = facts.shape(0) or facts.shape(1), facts.dtype(0), facts.elements(2)
    if shape is None:
        return [facts.tensor(dtype, wanted)]
    shape = facts.require_same(
        facts.dims(0, len(shape)), facts.dims(1, len(shape)), "indices and input differ in shape"
    )
    facts.require_vector(2, len(shape), "output_shape")
    space = [0 if size is None else size for size in shape[2:]]
    sizes = attempt(facts, _unpooled, space, facts.attr("kernel_shape"), facts.attr("strides"), facts.attr("pads"))
    natural = [*shape[:2], *[None if known is None else size for known, size in zip(shape[2:], sizes, strict=True)]]
    for size in natural:
        facts.require_at_least(size, 0, "pads are wider than what they are cut from")
    if not facts.has(2):
        return [facts.tensor(dtype, natural)]
    for asked, size in zip(wanted or (), natural, strict=False):
        if asked is not None and size is not None:
            facts.require_at_least(asked - size, 0, "output_shape is too small", found=f"{asked} for {size}")
    return [facts.tensor(dtype, wanted or (None,) * len(shape))]


@FAMILY.op("LRN")
@widened
def lrn(x: Array, *, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, size: int) -> Array:
    """Normalise local responses over a window of ``size`` channels."""
    channels = x.shape[1]
    before, after = min((size - 1) // 2, channels), min(size // 2, channels)
    total = np.zeros_like(x)
    square = x * x
    for shift in range(-before, after + 1):
        to = slice(max(0, -shift), min(channels, channels - shift))
        source = slice(max(0, shift), min(channels, channels + shift))
        if to.start < to.stop:
            total[:, to] += square[:, source]
    return np.asarray(x / (bias + alpha / size * total) ** beta)


@FAMILY.infer("LRN")
def _lrn(facts: Facts) -> Results:
    facts.require_rank_from(0, 2, "the input")
    size = int(facts.attr("size", 1))
    facts.require(size > 0, "size is out of range", expected="1 or more", found=size)
    return same_as_first(facts)


FAMILY.trait("window", "AveragePool", "LpPool", "MaxPool")
FAMILY.trait("pool", "AveragePool", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "LpPool", "MaxPool")
FAMILY.trait("mean", "AveragePool", "GlobalAveragePool")
FAMILY.trait(
    "per_image", "AveragePool", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "LRN", "LpPool", "MaxPool",
)  # fmt: skip
