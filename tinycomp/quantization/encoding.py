"""Turn the range of a value into its scale and zero point, and floats into 8-bit integers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinycomp.records import dataclass

Array = np.ndarray
LEAST_SCALE = float(np.finfo(np.float32).tiny)
"""Below this a scale would be a denormal number, which processors may take for 0."""
LARGEST_BIAS = 1 << 30
"""What a bias may be in steps of the sums: half of what int32 holds; the other half is for the products."""
WEIGHT_LIMIT, REDUCED_LIMIT = 127, 64
"""The largest magnitude of a weight; with 7 bits two products of uint8 and int8 fit into 16 bits together."""


@dataclass(frozen=True)
class Affine:
    """``real = scale * (number - zero_point)``.

    Attributes:
        scale: float32.
        zero_point: Of the type of the numbers.
    """

    scale: np.float32
    zero_point: np.integer[Any]

    def quantize(self, x: Array) -> Array:
        """Return the numbers as ONNX's QuantizeLinear defines them."""
        limits = np.iinfo(self.zero_point.dtype)
        steps: Array = np.rint(np.asarray(x, np.float32) / self.scale) + np.float32(self.zero_point)
        numbers: Array = np.clip(steps, limits.min, limits.max).astype(self.zero_point.dtype)
        return numbers

    def dequantize(self, numbers: Array) -> NDArray[np.float32]:
        """Return what the numbers stand for, float32."""
        return (numbers.astype(np.int32) - np.int32(self.zero_point)).astype(np.float32) * self.scale


@dataclass(frozen=True)
class Encoding:
    """How ranges become scales.

    Attributes:
        dtype: An integer of 8 or 16 bits.
        symmetric: Whether the zero point is the middle: 128 of uint8, 0 of int8.
        power_of_two: Whether scales are powers of two.
        least_scale: The least scale.
    """

    dtype: str
    symmetric: bool
    power_of_two: bool = False
    least_scale: float = 0.0

    @property
    def levels(self) -> int:
        """How many different numbers there are in a range; the symmetric one leaves one out."""
        return int(2 ** (8 * np.dtype(self.dtype).itemsize)) - self.symmetric

    def affine(self, low: float, high: float) -> Affine:
        """Return scale and zero point that span ``low`` to ``high``, and 0, which is represented exactly.

        >>> Encoding("uint8", symmetric=False).affine(-1.0, 4.1)
        Affine(scale=np.float32(0.02), zero_point=np.uint8(50))
        >>> Encoding("int8", symmetric=True).affine(-1.0, 4.0)
        Affine(scale=np.float32(0.031496063), zero_point=np.int8(0))
        >>> Encoding("int16", symmetric=True, power_of_two=True).affine(-1.0, 3.9)
        Affine(scale=np.float32(0.00012207031), zero_point=np.int16(0))
        """
        dtype = np.dtype(self.dtype)
        least, steps = np.iinfo(dtype).min, self.levels - 1
        low, high = min(low, 0.0), max(high, 0.0)
        if self.symmetric:
            half = steps // 2
            return Affine(self.scale(max(-low, high) / half), dtype.type(least + half + 1))
        scale = self.scale((high - low) / steps)
        return Affine(scale, dtype.type(least + np.clip(np.rint(-low / float(scale)), 0, steps)))

    def scale(self, step: float) -> np.float32:
        """Return the least scale that is allowed and is no less than a step."""
        return np.float32(allowed_scales(np.asarray(step, np.float64), self.power_of_two, self.least_scale))


def allowed_scales(steps: Array, power_of_two: bool = False, least: float = 0.0) -> Array:
    """Return the least scales that are allowed and no less than steps, float64; for a step of 0 it may be any, so 1."""
    scales = np.where(steps > 0, np.maximum(steps, max(least, LEAST_SCALE)), 1.0)
    return np.exp2(np.ceil(np.log2(scales))) if power_of_two else scales


@dataclass(frozen=True)
class Weights:
    """A quantised constant with one scale, or one for every index of an axis; the zero point is 0.

    Attributes:
        numbers: int8, or int32 for a bias.
        scale: float32, ``[]`` or ``[channels]``.
        axis: Where the channels lie; None for one scale.
    """

    numbers: Array
    scale: NDArray[np.float32]
    axis: int | None

    def dequantize(self) -> NDArray[np.float32]:
        """Return what the numbers stand for, float32."""
        floats: Array = self.numbers.astype(np.float32) * spread(self.scale, self.axis, self.numbers.ndim)
        return floats


def spread(scale: Array, axis: int | None, rank: int) -> Array:
    """Return a scale in a shape that broadcasts with a tensor."""
    return scale if axis is None else scale.reshape([-1 if i == axis else 1 for i in range(rank)])


def quantize_weight(
    weight: Array, axis: int | None, limit: int, bias: Array | None = None, data_scale: np.float32 | None = None,
    power_of_two: bool = False, least_scale: float = 0.0,
) -> Weights:  # fmt: skip
    """Quantise a weight to int8, symmetrically.

    Args:
        weight: float32.
        axis: The axis with a scale for every index; None for one scale.
        limit: The largest magnitude of a number.
        bias: What is added to the sums; a channel whose weights are tiny beside it gets a larger scale, because the
            bias would not fit into int32.
        data_scale: Scale of the data, which with that of the weight is what a step of the bias is worth.
        power_of_two: Whether scales are powers of two.
        least_scale: The least scale.
    """
    others = None if axis is None else tuple(i for i in range(weight.ndim) if i != axis)
    step = np.abs(weight).max(axis=others, initial=0.0).astype(np.float64) / limit
    if bias is not None and data_scale is not None:
        worst = np.abs(bias.astype(np.float64))
        step = np.maximum(step, (worst.max(initial=0.0) if axis is None else worst) / float(data_scale) / LARGEST_BIAS)
    scale = allowed_scales(step, power_of_two, least_scale).astype(np.float32)
    numbers = np.clip(np.rint(weight / spread(scale, axis, weight.ndim)), -limit, limit)
    return Weights(numbers.astype(np.int8), scale, axis)


def quantize_bias(bias: Array, data_scale: np.float32, weight: Weights, channels: int) -> Weights:
    """Quantise a bias to int32, in steps of the sums: the scale of the data times that of the weight.

    ``bias`` is float32, ``[channels]`` or one element.
    """
    scale = np.float32(data_scale) * weight.scale
    wide = np.broadcast_to(bias.astype(np.float64).reshape(-1), channels)
    numbers = np.rint(wide / scale.astype(np.float64)).clip(-(2**31) + 1, 2**31 - 1).astype(np.int32)
    return Weights(numbers, np.asarray(scale, np.float32), 0 if scale.ndim else None)
