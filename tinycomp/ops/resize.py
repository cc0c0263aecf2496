"""Resize and its predecessor Upsample: from scales or sizes to a plan per axis, and interpolation along axes.

Every mode is a small linear map per axis: output j reads a few input cells with a few weights. Nearest reads one cell;
linear two, cubic four, and antialiasing widens them by the shrinking factor. Coordinates are computed in float32, as
runtimes do, because rounding decides which cell ``nearest`` takes. Source: ONNX operator documentation of Resize.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tinycomp.errors import ExecutionError, ModelError
from tinycomp.ir.graph import Node
from tinycomp.memory.budget import reserve
from tinycomp.ops.facts import Facts, one_of
from tinycomp.ops.numeric import Array, compute_dtype, fix_axes, integer_range, is_float, quiet
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Sizes
from tinycomp.symbolic import Size

FAMILY = OpFamily("resize")
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
    """Return Keys' cubic convolution kernel (IEEE ASSP 29(6), 1981) with free parameter ``cubic_a``."""
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
    reach = min(int(np.ceil(radius / stretch)), 2 * radius * max(axis.size, 1))  # bounds a tiny scale without outputs
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
    # Rounded as in ONNX's reference. Noise of float32 must not decide where a number lies between two others.
    y = np.clip(np.rint(np.round(y, 4)), low, high)
    return np.asarray(y, dtype=x.dtype)


def _from_scales(x: Array, dims: Sequence[int], scales: Array, roi: Array | None) -> dict[int, AxisScale]:
    if scales.size != len(dims):
        raise ModelError("Resize: scales have the wrong length", expected=str(len(dims)), found=str(scales.size))
    values = [float(s) for s in scales.reshape(-1)]
    if not all(0 < s < np.inf for s in values):
        raise ExecutionError("Resize: a scale is not positive", expected="positive finite scales", found=str(values))
    regions = _regions(roi, len(dims))
    return {
        dim: _axis_from_scale(x.shape[dim], scale, region)
        for dim, scale, region in zip(dims, values, regions, strict=True)
    }


def _axis_from_scale(size: int, scale: float, roi: tuple[float, float]) -> AxisScale:
    length = float(_F(size) * _F(scale))
    return AxisScale(size, int(length), scale, length, roi)


def _regions(roi: Array | None, count: int) -> list[tuple[float, float]]:
    if roi is None or roi.size == 0:
        return [(0.0, 1.0)] * count
    if roi.size != 2 * count:
        raise ModelError("Resize: roi has the wrong length", expected=str(2 * count), found=str(roi.size))
    starts, ends = roi.reshape(2, count).astype(np.float32)
    return [(float(s), float(e)) for s, e in zip(starts, ends, strict=True)]


def _from_sizes(x: Array, dims: Sequence[int], sizes: Array, roi: Array | None, policy: str) -> dict[int, AxisScale]:
    wanted = [int(s) for s in sizes.reshape(-1)]
    if len(wanted) != len(dims) or min(wanted, default=0) < 0:
        raise ExecutionError(
            "Resize: bad sizes", expected=f"{len(dims)} sizes that are not negative", found=str(wanted)
        )
    check_choice("keep_aspect_ratio_policy", policy, ("stretch", "not_larger", "not_smaller"))
    scales = [n / max(x.shape[dim], 1) for dim, n in zip(dims, wanted, strict=True)]
    if policy != "stretch":
        scale = min(scales) if policy == "not_larger" else max(scales)
        scales = [scale] * len(dims)
        wanted = [int(np.floor(_F(scale) * _F(x.shape[dim]) + _F(0.5))) for dim in dims]
    regions = _regions(roi, len(dims))
    return {
        dim: AxisScale(x.shape[dim], n, scale, float(n), region)
        for dim, n, scale, region in zip(dims, wanted, scales, regions, strict=True)
    }


@FAMILY.op("Upsample", since=7)
@quiet
def upsample_7(x: Array, *, mode: str = "nearest", scales: Sequence[float]) -> Array:
    """Enlarge every axis by its scale."""
    return _upsample(x, np.asarray(scales, dtype=_F), mode)


@FAMILY.op("Upsample", since=9)
@FAMILY.op("Resize")
@quiet
def upsample_9(x: Array, scales: Array, *, mode: str = "nearest") -> Array:
    """Resize every axis by its scale, with asymmetric coordinates (Upsample 9 and Resize 10)."""
    return _upsample(x, scales, mode)


def _upsample(x: Array, scales: Array, mode: str) -> Array:
    axes = _from_scales(x, range(x.ndim), scales, None)
    # "bilinear" was a spelling of early exporters.
    linear = "linear" if mode == "bilinear" else mode
    return resize_axes(x, axes, Mode(mode=linear, transform="asymmetric", nearest="simple"))


@FAMILY.op("Resize", since=11)
@quiet
def resize(
    x: Array,
    roi: Array | None = None,
    scales: Array | None = None,
    sizes: Array | None = None,
    *,
    antialias: int = 0,
    axes: Sequence[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Array:
    """Resize by ``scales`` or to ``sizes``; an empty tensor counts as absent.

    Raises:
        ModelError: If an attribute is unknown, or not exactly one of scales and sizes is given.
        ExecutionError: If scales or sizes are out of range.
    """
    dims = range(x.ndim) if axes is None else fix_axes(axes, x.ndim, "Resize")
    has_sizes, has_scales = sizes is not None and sizes.size > 0, scales is not None and scales.size > 0
    if x.ndim == 0:
        return x.copy()
    if has_sizes == has_scales:
        raise ModelError(
            "Resize: the output size is not determined",
            expected="either scales or sizes",
            found="both" if has_sizes else "neither",
        )
    if has_sizes:
        assert sizes is not None
        plan = _from_sizes(x, dims, sizes, roi, keep_aspect_ratio_policy)
    else:
        assert scales is not None
        plan = _from_scales(x, dims, scales, roi)
    how = Mode(
        mode=mode,
        transform=coordinate_transformation_mode,
        nearest=nearest_mode,
        cubic_a=cubic_coeff_a,
        exclude_outside=bool(exclude_outside),
        antialias=bool(antialias),
        extrapolation=extrapolation_value,
    )
    return resize_axes(x, plan, how)


FAMILY.check("Upsample")(one_of(mode=("nearest", "linear", "bilinear")))
FAMILY.check("Resize")(
    one_of(
        mode=("nearest", "linear", "cubic"),
        coordinate_transformation_mode=TRANSFORM_MODES,
        nearest_mode=NEAREST_MODES,
        keep_aspect_ratio_policy=("stretch", "not_larger", "not_smaller"),
    )
)


@FAMILY.check("Resize")
def _check_resize(facts: Facts) -> None:
    if facts.node.version < 11:
        _check_scales(facts, 1)
        return
    axes, rank = facts.attr("axes"), facts.rank(0)
    if not rank:  # a scalar stays as it is
        return
    given = [i for i in (2, 3) if facts.node.optional_operand(i) is not None and facts.dim(i, 0) != 0]
    if len(given) != 1 and all(facts.dim(i, 0) is not None for i in given):
        facts.fail("the output size is not determined", expected="either scales or sizes",
                   found="both" if given else "neither")  # fmt: skip
    if axes is not None:
        for axis in axes:
            facts.require_axis(axis, rank, "an entry of axes")
        facts.require_distinct(axes, rank)
    count = len(axes) if axes is not None else rank
    for index in given:
        facts.require_vector(index, count, "scales" if index == 2 else "sizes")
    _check_scales(facts, 2)
    sizes = facts.const(3)
    if sizes is not None and sizes.size and int(sizes.min()) < 0:
        facts.fail("a size is negative", expected="sizes of 0 or more", found=sizes.tolist())


def _check_scales(facts: Facts, index: int) -> None:
    scales = facts.const(index)
    if scales is not None and not (np.isfinite(scales) & (scales > 0)).all():
        facts.fail("a scale is not positive", expected="finite scales above 0", found=scales.tolist())


@FAMILY.sizes("Resize", "Upsample")
def _resized_sizes(node: Node, shapes: Sequence[Sizes | None]) -> list[Sizes | None]:
    x = shapes[0]
    newer = node.op == "Resize" and node.version >= 11
    scales = node.attrs.get("scales") or node.const(2 if newer else 1)
    wanted = node.optional_operand(3) if newer else None
    if x is None or node.attrs.get("keep_aspect_ratio_policy", "stretch") not in ("stretch", b"stretch"):
        return [None]
    axes = [axis % len(x) for axis in node.attrs.get("axes") or range(len(x))]
    result = list(x)
    factors = None if scales is None else np.asarray(scales, np.float64)
    if wanted is not None and wanted.contents and len(wanted.contents) == len(axes):
        for axis, size in zip(axes, wanted.contents, strict=True):
            result[axis] = size
    elif factors is not None and factors.shape == (len(axes),) and np.isfinite(factors).all():
        for axis, scale in zip(axes, factors.tolist(), strict=True):
            result[axis] = _scaled_size(result[axis], scale)
    else:
        return [None]
    return [tuple(result)]


def _scaled_size(size: Size | None, scale: float) -> Size | None:
    """Return a size times a scale, rounded down, for scales whose products with sizes are exact in float32."""
    if size is None or scale == 1:
        return size
    top, bottom = float(scale).as_integer_ratio()
    return size * top // bottom if top < _EXACT else None


_EXACT = 1 << 8
"""Sizes up to 65536 times smaller numbers are exact."""
