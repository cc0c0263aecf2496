"""Interpolation of tensors along axes: the arithmetic of Resize.

Every mode is a small linear map per axis: output j reads a few input cells with a few weights. Nearest reads one cell;
linear two, cubic four, and antialiasing widens them by the shrinking factor. Coordinates are computed in float32, as
runtimes do, because rounding decides which cell ``nearest`` takes. Source: ONNX operator documentation of Resize.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tinycomp.errors import ModelError
from tinycomp.memory.budget import reserve
from tinycomp.ops.integers import integer_range
from tinycomp.ops.numeric import Array, compute_dtype, is_float

_F = np.float32


@dataclass(frozen=True)
class AxisScale:
    """How one axis is resized.

    Attributes:
        size: Input size.
        output: Output size.
        scale: Output size over input size, as given or computed.
        length: Scale times size, which may be a fraction where ``output`` is rounded down; ONNX's reference and its
            conformance tests stretch ``align_corners`` and ``tf_crop_and_resize`` over it.
        roi: Start and end of the region of interest, as fractions of the input.
    """

    size: int
    output: int
    scale: float
    length: float
    roi: tuple[float, float] = (0.0, 1.0)


@dataclass(frozen=True)
class Mode:
    """The attributes of Resize that decide how a coordinate becomes cells and weights."""

    mode: str = "nearest"
    transform: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    cubic_a: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    extrapolation: float = 0.0


def _half_pixel(j: Array, a: AxisScale) -> Array:
    return (j + _F(0.5)) / _F(a.scale) - _F(0.5)


def _half_pixel_symmetric(j: Array, a: AxisScale) -> Array:
    # The true output size may be a fraction; the crop to a whole one is centred.
    adjustment = _F(a.output) / _F(a.length)
    return _F(a.size / 2) * (1 - adjustment) + _half_pixel(j, a)


def _pytorch_half_pixel(j: Array, a: AxisScale) -> Array:
    return _half_pixel(j, a) if a.output > 1 else np.zeros_like(j)


def _align_corners(j: Array, a: AxisScale) -> Array:
    return j * _F(a.size - 1) / _F(a.length - 1) if a.output > 1 else np.zeros_like(j)


def _asymmetric(j: Array, a: AxisScale) -> Array:
    # Whole-number ratios must hit their cells exactly, so this quotient alone is taken in float64.
    return (j.astype(np.float64) / a.scale).astype(_F)


def _tf_half_pixel_for_nn(j: Array, a: AxisScale) -> Array:
    return (j + _F(0.5)) / _F(a.scale)


def _tf_crop_and_resize(j: Array, a: AxisScale) -> Array:
    start, end = _F(a.roi[0]), _F(a.roi[1])
    last = _F(a.size - 1)
    if a.output > 1:
        return start * last + j * (end - start) * last / _F(a.length - 1)
    return np.full_like(j, 0.5) * (start + end) * last


_TRANSFORMS = {
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "align_corners": _align_corners,
    "asymmetric": _asymmetric,
    "tf_half_pixel_for_nn": _tf_half_pixel_for_nn,
    "tf_crop_and_resize": _tf_crop_and_resize,
}


def _floor_unless_shrinking(x: Array, a: AxisScale) -> Array:
    # Before opset 11 the rounding was not specified; runtimes round up where they shrink.
    return np.ceil(x) if a.scale < 1 else np.floor(x)


_ROUNDINGS = {
    "round_prefer_floor": lambda x, a: np.ceil(x - _F(0.5)),
    "round_prefer_ceil": lambda x, a: np.floor(x + _F(0.5)),
    "floor": lambda x, a: np.floor(x),
    "ceil": lambda x, a: np.ceil(x),
    "simple": _floor_unless_shrinking,
}


TRANSFORM_MODES = tuple(_TRANSFORMS)
NEAREST_MODES = tuple(_ROUNDINGS)


def check_choice(name: str, value: str, known: Sequence[str]) -> None:
    """Raise a ModelError unless ``value`` is one of ``known``."""
    if value not in known:
        raise ModelError(f"Resize: unknown {name}", expected=f"one of {sorted(known)}", found=repr(value))


def _coordinates(axis: AxisScale, mode: Mode) -> Array:
    return _TRANSFORMS[mode.transform](np.arange(axis.output, dtype=_F), axis).astype(_F)


def _triangle(distance: Array, mode: Mode) -> Array:
    return np.asarray(np.clip(1 - np.abs(distance), 0, 1))


def _keys_cubic(distance: Array, mode: Mode) -> Array:
    """Keys' cubic convolution kernel (IEEE ASSP 29(6), 1981) with free parameter ``cubic_a``."""
    a, x = mode.cubic_a, np.abs(distance)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


_FILTERS = {"linear": (1, _triangle), "cubic": (2, _keys_cubic)}


def _cells_and_weights(axis: AxisScale, mode: Mode) -> tuple[Array, Array]:
    """Return the input cells that each output reads and their weights, both of shape (output, taps)."""
    radius, filter_ = _FILTERS[mode.mode]
    stretch = min(axis.scale, 1.0) if mode.antialias else 1.0
    at = _coordinates(axis, mode).astype(np.float64)
    reach = int(np.ceil(radius / stretch))
    cells = np.floor(at).astype(np.int64)[:, None] + np.arange(1 - reach, reach + 1)
    weights = filter_((cells - at[:, None]) * stretch, mode)
    if mode.exclude_outside:
        weights = np.where((cells >= 0) & (cells < axis.size), weights, 0)
    if mode.exclude_outside or mode.antialias:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return np.clip(cells, 0, axis.size - 1), weights


def _interpolate(x: Array, dim: int, axis: AxisScale, mode: Mode) -> Array:
    cells, weights = _cells_and_weights(axis, mode)
    shape = [1] * x.ndim
    shape[dim] = axis.output
    used = np.flatnonzero(np.any(weights != 0, axis=0))
    total = np.zeros((*x.shape[:dim], axis.output, *x.shape[dim + 1 :]), dtype=x.dtype)
    for tap in used:
        total += np.take(x, cells[:, tap], axis=dim) * weights[:, tap].astype(x.dtype).reshape(shape)
    return total


def _nearest(x: Array, dim: int, axis: AxisScale, mode: Mode) -> Array:
    cells = _ROUNDINGS[mode.nearest](_coordinates(axis, mode), axis).astype(np.int64)
    return np.asarray(np.take(x, np.clip(cells, 0, axis.size - 1), axis=dim))


def _changes(axis: AxisScale, mode: Mode) -> bool:
    return mode.transform == "tf_crop_and_resize" or axis.output != axis.size or axis.scale != 1


def _outside(axes: dict[int, AxisScale], mode: Mode, shape: tuple[int, ...]) -> Array:
    """Return a mask of the outputs whose coordinate lies outside the input on some axis."""
    mask = np.zeros([1] * len(shape), dtype=bool)
    for dim, axis in axes.items():
        at = _coordinates(axis, mode)
        outside = (at < 0) | (at > axis.size - 1)
        mask = mask | outside.reshape([-1 if i == dim else 1 for i in range(len(shape))])
    return np.broadcast_to(mask, shape)


def resize_axes(x: Array, axes: dict[int, AxisScale], mode: Mode) -> Array:
    """Resize some axes of a tensor.

    Args:
        x: The input.
        axes: What to do per axis.
        mode: How.

    Raises:
        ModelError: If an attribute has an unknown value, or interpolation is asked of strings or bools.
    """
    check_choice("mode", mode.mode, ("nearest", "linear", "cubic"))
    check_choice("coordinate_transformation_mode", mode.transform, list(_TRANSFORMS))
    check_choice("nearest_mode", mode.nearest, list(_ROUNDINGS))
    changed = {dim: axis for dim, axis in axes.items() if _changes(axis, mode)}
    reserve([axes[i].output if i in axes else n for i, n in enumerate(x.shape)], x.itemsize, "Resize")
    if mode.mode == "nearest" or not changed:
        y = x
        for dim, axis in changed.items():
            y = _nearest(y, dim, axis, mode)
    else:
        y = _interpolated(x, changed, mode)
    if mode.transform == "tf_crop_and_resize":
        y = np.where(_outside(changed, mode, y.shape), np.asarray(mode.extrapolation).astype(x.dtype), y)
    return y.copy() if y is x else y


def _interpolated(x: Array, axes: dict[int, AxisScale], mode: Mode) -> Array:
    if x.dtype.kind in "OUSb":
        raise ModelError("Resize: only numbers can be interpolated", expected="a number type", found=str(x.dtype))
    keeps = is_float(x.dtype) or x.dtype.kind == "c"
    y = x.astype(compute_dtype(x.dtype) if keeps else np.float64 if x.dtype.itemsize > 2 else np.float32, copy=False)
    # Shrinking axes first makes the intermediate tensors smallest; the result is the same.
    for dim, axis in sorted(axes.items(), key=lambda item: item[1].scale):
        y = _interpolate(y, dim, axis, mode)
    if keeps:
        return y.astype(x.dtype, copy=False)
    low, high = integer_range(x.dtype)
    # Runtimes truncate, except when antialiasing. Rounding noise must not pull a whole number below itself.
    y = np.clip(np.rint(y) if mode.antialias else np.trunc(np.round(y, 4)), low, high)
    return np.asarray(y, dtype=x.dtype)
