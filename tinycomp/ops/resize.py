"""Resize and its predecessor Upsample: from scales or sizes to a plan per axis, and interpolation along axes.

Every mode is a small linear map per axis: output j reads a few input cells with a few weights. Nearest reads one cell;
linear two, cubic four, and antialiasing widens them by the shrinking factor. Coordinates are computed in float32, as
runtimes do, because rounding decides which cell ``nearest`` takes. Source: ONNX operator documentation of Resize.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from tinycomp.errors import ModelError
from tinycomp.memory.budget import reserve
from tinycomp.ops.numeric import Array, compute_dtype, fix_axes, integer_range, is_float, quiet
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Facts, Results
from tinycomp.records import dataclass
from tinycomp.symbolic import Size, bounds, if_zero, maximum, minimum

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
        ModelError: If interpolation is asked of strings or bools.
    """
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
    values, regions = [float(s) for s in scales.reshape(-1)], _regions(roi, len(dims))
    return {
        dim: _axis_from_scale(x.shape[dim], scale, region)
        for dim, scale, region in zip(dims, values, regions, strict=True)
    }


def _axis_from_scale(size: int, scale: float, roi: tuple[float, float]) -> AxisScale:
    length = _length(size, scale)
    return AxisScale(size, int(length), scale, length, roi)


def _length(size: int, scale: float) -> float:
    """Return a size times a scale, of which a result has the whole part: in float32, as runtimes compute it."""
    return float(_F(size) * _F(scale))


def _regions(roi: Array | None, count: int) -> list[tuple[float, float]]:
    if roi is None or roi.size == 0:
        return [(0.0, 1.0)] * count
    starts, ends = roi.reshape(2, count).astype(np.float32)
    return [(float(s), float(e)) for s, e in zip(starts, ends, strict=True)]


def _from_sizes(
    x: Array, dims: Sequence[int], sizes: Array, roi: Array | None, policy: str, is_centred: bool
) -> dict[int, AxisScale]:
    asked, own = [int(s) for s in sizes.reshape(-1)], [x.shape[dim] for dim in dims]
    wanted, scales = _kept_ratio(own, asked, policy)
    regions = _regions(roi, len(dims))
    return {
        dim: AxisScale(size, n, scale, _length(size, scale) if is_centred else float(n), region)
        for dim, size, n, scale, region in zip(dims, own, wanted, scales, regions, strict=True)
    }


def _kept_ratio(sizes: Sequence[int], asked: Sequence[int], policy: str) -> tuple[Sequence[int], list[float]]:
    """Return the sizes of a result and the scales, given the sizes that are asked for."""
    scales = [n / max(size, 1) for size, n in zip(sizes, asked, strict=True)]
    if policy == "stretch":
        return asked, scales
    scale = min(scales) if policy == "not_larger" else max(scales)
    return [int(np.floor(_F(scale) * _F(size) + _F(0.5))) for size in sizes], [scale] * len(sizes)


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
    """Resize by ``scales`` or to ``sizes``; an empty tensor counts as absent."""
    dims = range(x.ndim) if axes is None else fix_axes(axes, x.ndim, "Resize")
    if x.ndim == 0:
        return x.copy()
    if sizes is not None and sizes.size > 0:
        is_centred = coordinate_transformation_mode == "half_pixel_symmetric" and keep_aspect_ratio_policy != "stretch"
        plan = _from_sizes(x, dims, sizes, roi, keep_aspect_ratio_policy, is_centred)
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


@FAMILY.infer("Upsample")
def _upsampled(facts: Facts) -> Results:
    facts.require_one_of("mode", ("nearest", "linear", "bilinear"))
    return _by_scales(facts, 1)


def _by_scales(facts: Facts, index: int, axes: Sequence[int] | None = None) -> Results:
    """Return the type of a result of which an operand or, in early versions, an attribute has the scales."""
    shape, scales = facts.shape(0), facts.attr("scales")
    if scales is None and (known := facts.const(index)) is not None:
        scales = known.reshape(-1).tolist()
    if scales is not None and not all(0 < scale < math.inf for scale in scales):
        facts.fail("a scale is not positive", expected="finite scales above 0", found=scales)
    if shape is None:
        return [facts.tensor(facts.dtype(0), None)]
    axes = range(len(shape)) if axes is None else axes
    facts.require_vector(index, len(axes), "scales")
    facts.require(scales is None or len(scales) == len(axes), "scales has the wrong size",
                  expected=len(axes), found=scales)  # fmt: skip
    sizes = list(shape)
    for axis, scale in zip(axes, scales or [None] * len(axes), strict=True):
        sizes[axis] = _scaled_size(facts, sizes[axis], scale)
    return [facts.tensor(facts.dtype(0), sizes)]


def _scaled_size(facts: Facts, size: Size | None, scale: float | None) -> Size | None:
    """Return a size times a scale, rounded down, as an expression where only a run knows the size."""
    if scale == 1 or size is None or scale is None:
        return size if scale == 1 else None
    if isinstance(size, int):
        length = _length(size, scale)
        facts.require(length < _LARGEST, "the result is too large", expected="sizes of up to 64 bits",
                      found=f"{size} times {scale}")  # fmt: skip
        return int(length)
    exact, most = Fraction(float(_F(scale))), bounds(size)[1] or _USUAL
    if exact >= _MOST_SCALE:
        return None
    near = exact.limit_denominator(_LARGEST_DENOMINATOR)
    if abs(exact - near) * (2 << _DIGITS) < near and 3 * (near.numerator * most + near.denominator) < 2 << _DIGITS:
        return size * near.numerator // near.denominator
    if exact < Fraction(1, 1 << _DIGITS):
        return 0
    half: Size = 0
    for power in range(_DIGITS, (exact.numerator * most).bit_length()):
        is_larger = minimum(maximum(size - ((1 << power) - 1) // exact.numerator, 0), 1)
        half = half + (1 << max(power - _DIGITS - 1, 0)) * is_larger
    return (size * exact.numerator + half) // exact.denominator


_DIGITS = 24
"""Binary digits of float32. The floor of a product rounded to them, below 2**23, is that of the exact product plus half
a unit in its last place, because whole numbers have an even last digit, so that ties round to them.

Nearly all scales are rounded fractions of small numbers. If their relative error is below 2**-25, the product next to a
whole number is rounded to it; and no other product gets as near if three times the dividend is below 2**25."""
_LARGEST_DENOMINATOR = 1000
_MOST_SCALE = 1 << 7
_USUAL = 1 << 16
"""Of a larger size without a known limit, a result may have one element more or less."""
_LARGEST = 1 << 62


@FAMILY.infer("Resize", sizing=(3,))
def _resized(facts: Facts) -> Results:
    facts.require_one_of("mode", ("nearest", "linear", "cubic"))
    if facts.version < _WITH_SIZES:
        return _by_scales(facts, 1)
    facts.require_one_of("coordinate_transformation_mode", TRANSFORM_MODES)
    facts.require_one_of("nearest_mode", NEAREST_MODES)
    policy = facts.require_one_of("keep_aspect_ratio_policy", ("stretch", "not_larger", "not_smaller"), "stretch")
    shape, dtype = facts.shape(0), facts.dtype(0)
    if not shape:  # a scalar stays as it is
        return [facts.tensor(dtype, shape)]
    axes = facts.attr("axes")
    axes = range(len(shape)) if axes is None else facts.require_axes(axes, len(shape))
    counts = [facts.dim(index, 0) if facts.has(index) else 0 for index in (2, 3)]
    given = [index for index, count in zip((2, 3), counts, strict=True) if count != 0]
    if len(given) != 1:
        facts.require(not all(isinstance(count, int) for count in counts), "the output size is not determined",
                      expected="either scales or sizes", found="both" if given else "neither")  # fmt: skip
        return [facts.tensor(dtype, (None,) * len(shape))]
    if facts.dim(1, 0) != 0:
        facts.require_vector(1, 2 * len(axes), "roi")
    if given == [2]:
        return _by_scales(facts, 2, axes)
    facts.require_vector(3, len(axes), "sizes")
    wanted = facts.elements(3) or (None,) * len(axes)
    for own, size in zip([shape[axis] for axis in axes], wanted, strict=True):
        facts.require_at_least(size, 0, "a size is negative")
        if own is not None and size is not None:
            facts.demand(if_zero(own, size, 0), f"there is nothing to make {size} of")
    if policy != "stretch":
        known = [shape[axis] for axis in axes]
        ints = [each for each in (*known, *wanted) if isinstance(each, int)]
        wanted = (None,) * len(axes)
        if len(ints) == 2 * len(axes):
            wanted = tuple(_kept_ratio(ints[: len(axes)], ints[len(axes) :], policy)[0])
    sizes = list(shape)
    for axis, size in zip(axes, wanted, strict=True):
        sizes[axis] = size
    return [facts.tensor(dtype, sizes)]


_WITH_SIZES = 11
"""Since this version the sizes of a result may be an operand."""


FAMILY.trait("checked", "Resize", "Upsample")
