"""Pooling. Windows are reduced one axis after the other, since max and sum are separable.

A pooling of kernel k1 x k2 so costs k1 + k2 vector operations, not k1 * k2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinycomp.errors import ExecutionError, ModelError
from tinycomp.ir.graph import Node
from tinycomp.ir.infer import infer_types
from tinycomp.ir.types import TensorType, Type, tensor
from tinycomp.memory.budget import reserve
from tinycomp.ops.facts import Facts, Operand, known_sizes, one_of
from tinycomp.ops.numeric import Array, compute_dtype, integer_range, is_float, prod, widened
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Sizes
from tinycomp.ops.spatial import (
    AUTO_PADS,
    Window,
    attempt,
    make_window,
    pad_for,
    require_space,
    spatial_tuple,
    split_pads,
    window_attributes,
)
from tinycomp.symbolic import dimension

FAMILY = OpFamily("pool")

Ints = Sequence[int] | None


def _pool_types(node: Node) -> list[Type]:
    """Count windows as the kernels do: onnx's inference also counts a last one that would start in the padding."""
    types: list[Type] = list(infer_types(node))
    shape = node.operand(0).static_shape
    if not node.attrs.get("ceil_mode", 0) or shape is None or len(shape) < 3:
        return types
    window = make_window(node.op, shape[2:], node.attrs["kernel_shape"], ceil_mode=True, **window_attributes(node))
    return [TensorType(tensor(t).dtype, (*shape[:2], *window.output)) for t in types]


def _pool_window(op: str, x: Array, kernel: Sequence[int], ceil_mode: int, **attrs: Any) -> Window[int]:
    """Return the checked geometry; a window may not lie wholly in the padding, where a pool has no value."""
    window = make_window(op, _spatial_sizes(op, x), kernel, ceil_mode=bool(ceil_mode), **attrs)
    for before, after, extent in zip(window.before, window.after, window.extents, strict=True):
        if max(before, after) >= extent:
            raise ModelError(
                f"{op}: a window would see only padding",
                expected=f"pads below the window's extents {list(window.extents)}",
                found=str(list(window.before + window.after)),
            )
    return window


def _spatial_sizes(op: str, x: Array) -> tuple[int, ...]:
    if x.ndim < 3:
        raise ModelError(f"{op}: the input has no spatial axis", expected="rank >= 3", found=f"shape {list(x.shape)}")
    return x.shape[2:]


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


@FAMILY.op("MaxPool", traits={"output_count"}, type_rule=_pool_types)
def max_pool(
    x: Array,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Ints = None,
    kernel_shape: Sequence[int],
    pads: Ints = None,
    storage_order: int = 0,
    strides: Ints = None,
    outputs: int = 1,
) -> Array | tuple[Array, Array]:
    """Return the maximum of each window and, if asked for, its flat index in ``x`` (row- or column-major in an image).

    NaN is greater than everything, as in numpy and PyTorch.

    Raises:
        ModelError: If the window does not fit the input.
    """
    shape = {"strides": strides, "dilations": dilations, "pads": pads, "auto_pad": auto_pad}
    window = _pool_window("MaxPool", x, kernel_shape, ceil_mode, **shape)
    wide = x.astype(compute_dtype(x.dtype), copy=False)
    padded = pad_for(wide, window, _lowest(x.dtype))
    if outputs == 1:
        return window_reduce(padded, window, np.maximum).astype(x.dtype, copy=False)
    best, coords = max_with_indices(padded, window)
    return best.astype(x.dtype, copy=False), _flat_indices(coords, window, x.shape[0], x.shape[1], storage_order)


def _indices_types(node: Node) -> list[Type]:
    x = tensor(node.operand(0).type)
    if x.sizes is None or len(x.sizes) < 3:
        return [TensorType(x.dtype, None), TensorType("int64", None)]
    keys = ("strides", "dilations", "pads", "auto_pad")
    given = {key: node.attrs[key] for key in keys if key in node.attrs}
    window = make_window(
        node.op, x.sizes[2:], node.attrs["kernel_shape"], ceil_mode=bool(node.attrs.get("ceil_mode", 0)), **given
    )
    shape = tuple([dimension(size) for size in (*x.sizes[:2], *window.output)])
    return [TensorType(x.dtype, shape), TensorType("int64", shape)]


@FAMILY.op("MaxPoolIndices", domain="tinycomp", type_rule=_indices_types)
def max_pool_indices(x: Array, **attrs: Any) -> Any:
    """Return what MaxPool does of which both results are asked for."""
    return max_pool(x, **attrs, outputs=2)


def _counts(window: Window[int], count_include_pad: bool) -> Array:
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


@FAMILY.op("AveragePool", type_rule=_pool_types)
@widened
def average_pool(
    x: Array,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Ints = None,
    kernel_shape: Sequence[int],
    pads: Ints = None,
    strides: Ints = None,
) -> Array:
    """Return the mean of each window.

    Raises:
        ModelError: If the window does not fit the input.
    """
    shape = {"strides": strides, "dilations": dilations, "pads": pads, "auto_pad": auto_pad}
    window = _pool_window("AveragePool", x, kernel_shape, ceil_mode, **shape)
    total = window_reduce(pad_for(x, window), window, np.add)
    # A dilated window can fall between the cells and count none; its sum is zero, and so is its mean.
    counts = np.maximum(_counts(window, bool(count_include_pad)), 1)
    return np.asarray(total / counts.astype(x.dtype))


@FAMILY.op("LpPool", type_rule=_pool_types)
@widened
def lp_pool(
    x: Array,
    *,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Ints = None,
    kernel_shape: Sequence[int],
    p: float = 2,
    pads: Ints = None,
    strides: Ints = None,
) -> Array:
    """Return the Lp norm of each window.

    Raises:
        ModelError: If the window does not fit the input.
    """
    shape = {"strides": strides, "dilations": dilations, "pads": pads, "auto_pad": auto_pad}
    window = _pool_window("LpPool", x, kernel_shape, ceil_mode, **shape)
    powers = window_reduce(pad_for(_power(x, p), window), window, np.add)
    return _root(powers, p)


FAMILY.check("AveragePool", "LpPool", "MaxPool")(one_of(auto_pad=AUTO_PADS))


@FAMILY.check("AveragePool", "LpPool", "MaxPool")
def _check_pool(facts: Facts) -> None:
    require_space(facts, 3)
    shape, kernel = facts.shape(0), facts.attr("kernel_shape")
    sizes = None if shape is None else known_sizes(shape[2:])
    if sizes is not None and kernel is not None:
        ceil_mode = bool(facts.attr("ceil_mode", 0))
        attempt(facts, make_window, sizes, kernel, ceil_mode=ceil_mode, **window_attributes(facts.node))


@FAMILY.plain_type("AveragePool", "MaxPool", since=10)
def _plain_pool_type(node: Node, operands: Sequence[Operand]) -> Operand | None:
    ((dtype, x),) = operands
    space, kernel, attrs = known_sizes(x[2:]), node.attrs.get("kernel_shape"), window_attributes(node)
    if kernel is None or space is None or node.attrs.get("ceil_mode") or ("auto_pad" in attrs and "pads" in attrs):
        return None
    return dtype, (*x[:2], *make_window(node.op, space, kernel, **attrs).output)


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


@FAMILY.check("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool")
def _check_global_pool(facts: Facts) -> None:
    require_space(facts, 2)


@FAMILY.plain_type("GlobalAveragePool")
def _global_pool_type(node: Node, operands: Sequence[Operand]) -> Operand | None:
    ((dtype, x),) = operands
    return dtype, (*x[:2], *(1,) * (len(x) - 2))


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
        ExecutionError: If an index lies outside that tensor, or ``output_shape`` is smaller.
    """
    sizes = _spatial_sizes("MaxUnpool", x)
    rank = len(sizes)
    kernel = spatial_tuple("MaxUnpool", "kernel_shape", kernel_shape, rank, 1, 1)
    steps = spatial_tuple("MaxUnpool", "strides", strides, rank, 1, 1)
    before, after = split_pads("MaxUnpool", pads, rank)
    natural = x.shape[:2] + tuple(
        (n - 1) * s + k - b - a for n, s, k, b, a in zip(sizes, steps, kernel, before, after, strict=True)
    )
    wanted = natural if output_shape is None else tuple(int(v) for v in output_shape)
    if len(wanted) != x.ndim or any(w < n for w, n in zip(wanted, natural, strict=True)):
        raise ExecutionError(
            "MaxUnpool: output_shape is too small", expected=f"at least {list(natural)}", found=str(list(wanted))
        )
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


@FAMILY.check("MaxUnpool")
def _check_unpool(facts: Facts) -> None:
    rank = facts.rank(0)
    if rank is not None:
        for name in ("kernel_shape", "strides"):
            attempt(facts, spatial_tuple, name, facts.attr(name), rank - 2, 1, 1)
    if facts.sizes(0) is not None and facts.sizes(1) is not None and facts.sizes(0) != facts.sizes(1):
        facts.fail("indices and input differ in shape", expected=str(list(facts.sizes(0) or ())), found=facts.sizes(1))


@FAMILY.op("LRN")
@widened
def lrn(x: Array, *, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0, size: int) -> Array:
    """Normalise local responses over a window of ``size`` channels.

    Raises:
        ModelError: If ``size`` is not positive.
    """
    if size <= 0:
        raise ModelError("LRN: size is out of range", expected="size > 0", found=str(size))
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


@FAMILY.check("LRN")
def _check_lrn(facts: Facts) -> None:
    if int(facts.attr("size", 1)) < 1:
        facts.fail("size is out of range", expected="1 or more", found=facts.attr("size"))


@FAMILY.sizes("AveragePool", "MaxPool", "LpPool")
def _pool_sizes(node: Node, shapes: Sequence[Sizes | None]) -> list[Sizes | None]:
    x, kernel = shapes[0], node.attrs.get("kernel_shape")
    if x is None or kernel is None or None in x[2:]:
        return []
    space, ceil_mode = [size for size in x[2:] if size is not None], bool(node.attrs.get("ceil_mode", 0))
    window = make_window(node.op, space, kernel, ceil_mode=ceil_mode, **window_attributes(node))
    return [(*x[:2], *window.output)] * len(node.outputs)


FAMILY.trait("window", "AveragePool", "LpPool", "MaxPool")
FAMILY.trait("pool", "AveragePool", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "LpPool", "MaxPool")
FAMILY.trait("mean", "AveragePool", "GlobalAveragePool")
FAMILY.trait(
    "per_image", "AveragePool", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "LRN", "LpPool", "MaxPool",
)  # fmt: skip
