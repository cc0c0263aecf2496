"""Resize and its predecessor Upsample: from scales or sizes to a plan per axis, which ``interpolation`` carries out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tinycomp.errors import ExecutionError, ModelError
from tinycomp.ops.interpolation import AxisScale, Mode, check_choice, resize_axes
from tinycomp.ops.numeric import Array, fix_axes, quiet
from tinycomp.ops.registry import OpFamily

FAMILY = OpFamily("resize")

_F = np.float32


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


@FAMILY.op("Upsample")
@quiet
def upsample_1(x: Array, *, height_scale: float, mode: str = "nearest", width_scale: float) -> Array:
    """Enlarge the last two axes of a 4-d tensor."""
    return _upsample(x, np.array([1, 1, height_scale, width_scale], dtype=_F), mode)


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
