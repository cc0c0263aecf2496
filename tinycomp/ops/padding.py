"""Pad, in all its modes and forms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinycomp.errors import ExecutionError
from tinycomp.memory.budget import reserve
from tinycomp.ops.numeric import Array, fix_axes, ints
from tinycomp.ops.registry import OpFamily

FAMILY = OpFamily("padding")


def _fold_back(position: Array, size: int) -> Array:
    """Map positions outside [0, size) into it by reflection at the border elements, as often as needed."""
    if size == 1:
        return np.zeros_like(position)
    period = 2 * (size - 1)
    position = position % period
    return np.where(position < size, position, period - position)


_SOURCES: dict[str, Callable[[Array, int], Array]] = {
    "edge": lambda position, size: np.clip(position, 0, size - 1),
    "reflect": _fold_back,
    "wrap": lambda position, size: position % size,
}


def _pad_axis(x: Array, axis: int, before: int, after: int, mode: str) -> Array:
    size = x.shape[axis]
    if before == after == 0:
        return x
    if not size:
        raise ExecutionError("nothing to pad from", where="Pad", expected=f"axis {axis} not empty", found=str(x.shape))
    position = np.arange(-before, max(size + after, -before))
    return x.take(_SOURCES[mode](position, size), axis)


def _pad_constant(x: Array, begins: Sequence[int], ends: Sequence[int], fill: Any) -> Array:
    shape = [d + b + e for d, b, e in zip(x.shape, begins, ends, strict=True)]
    out = np.full(shape, fill, x.dtype)
    inner = tuple(slice(max(b, 0), n - max(e, 0)) for b, e, n in zip(begins, ends, shape, strict=True))
    kept = tuple(slice(max(-b, 0), d - max(-e, 0)) for b, e, d in zip(begins, ends, x.shape, strict=True))
    out[inner] = x[kept]
    return out


def _pad(x: Array, pads: Sequence[int], axes: Sequence[int] | None, mode: str, value: Any) -> Array:
    chosen = tuple(range(x.ndim)) if axes is None else fix_axes(axes, x.ndim, "Pad")
    if len(pads) != 2 * len(chosen):
        raise ExecutionError("bad pads", where="Pad", expected=f"{2 * len(chosen)} values", found=str(list(pads)))
    begins, ends = [0] * x.ndim, [0] * x.ndim
    for i, axis in enumerate(chosen):
        begins[axis], ends[axis] = pads[i], pads[i + len(chosen)]
    if any(d + b + e < 0 for d, b, e in zip(x.shape, begins, ends, strict=True)):
        raise ExecutionError("negative pads remove more than there is", where="Pad", expected=f"pads for {x.shape}",
                             found=str(list(pads)))  # fmt: skip
    reserve([d + b + e for d, b, e in zip(x.shape, begins, ends, strict=True)], x.itemsize, "Pad")
    if mode == "constant":
        return _pad_constant(x, begins, ends, value)
    if mode not in _SOURCES:
        raise ExecutionError("unknown mode", where="Pad", expected=f"constant or one of {list(_SOURCES)}",
                             found=repr(mode))  # fmt: skip
    for axis, (before, after) in enumerate(zip(begins, ends, strict=True)):
        x = _pad_axis(x, axis, before, after, mode)
    return x


@FAMILY.op("Pad", since=11, traits={"movement"})
def pad(
    x: Array, pads: Array, constant_value: Array | None = None, axes: Array | None = None, *, mode: str = "constant"
) -> Array:
    """Add elements around the input (negative pads remove some): a constant, or copies of its own.

    A reflection or wrap wider than the input goes on periodically.

    Raises:
        ExecutionError: If the pads do not fit the shape, or the mode is unknown.
    """
    fill: Any = "" if x.dtype == object else 0
    if constant_value is not None and constant_value.size:
        fill = constant_value.reshape(-1)[0]
    return _pad(x, ints(pads), None if axes is None else ints(axes), mode, fill)


@FAMILY.op("Pad", since=2, traits={"movement"})
def pad_attributes(x: Array, *, pads: Sequence[int], mode: str = "constant", value: float = 0.0) -> Array:
    """Pad before opset 11, with attributes."""
    return _pad(x, pads, None, mode, value)


@FAMILY.op("Pad", since=1, traits={"movement"})
def pad_1(x: Array, *, paddings: Sequence[int], mode: str = "constant", value: float = 0.0) -> Array:
    """Pad at opset 1, where the pads had another name."""
    return _pad(x, paddings, None, mode, value)
