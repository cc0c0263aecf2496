"""Products of 8-bit numbers in exact integer arithmetic, and both rules of requantisation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.runtime_c.helpers import Weight
from tests.runtime_c.windows import output_size

TYPES = {"float32": 0, "int8": 4, "uint8": 5, "int16": 6, "int32": 8}
FLOAT, FIXED_POINT = 0, 1


@dataclass(frozen=True)
class Result:
    """What a product stores, and how.

    Attributes:
        type: Of y.
        rule: ``FLOAT`` or ``FIXED_POINT``.
        x_zero_point: Of x.
        zero_point: Of y.
        low: The least number.
        high: The greatest number.
        weight_type: ``int8`` or ``int16``.
        greatest: The greatest weight, or 0 for that of the type.
        is_given: Whether the zero point of x is an operand of the run.
    """

    type: str = "uint8"
    rule: int = FLOAT
    x_zero_point: int = 3
    zero_point: int = 100
    low: int = 0
    high: int = 255
    weight_type: str = "int8"
    greatest: int = 0
    is_given: bool = False

    def params(self) -> dict[str, int]:
        """The parameters of a kernel."""
        return {
            "x_zero_point": 0 if self.is_given else self.x_zero_point,
            "weight_type": TYPES[self.weight_type],
            "type": TYPES[self.type],
            "rule": self.rule,
            "y_zero_point": self.zero_point,
            "low": self.low,
            "high": self.high,
            "block_rows": 0,
        }

    def weights(self, rng: np.random.Generator, *shape: int) -> np.ndarray:
        """Random weights, the extremes among them."""
        info = np.iinfo(self.weight_type)
        bound = self.greatest or (255 if self.weight_type == "int16" else info.max)
        values = rng.integers(-bound - (bound == info.max), bound, shape, self.weight_type, endpoint=True)
        values.reshape(-1)[::7] = bound
        return values

    def factors(self, rng: np.random.Generator, sums: np.ndarray) -> np.ndarray:
        """Factors that spread the sums, one column for each channel, somewhat wider than the range of y."""
        spread = np.abs(sums).max(tuple(range(sums.ndim - 1)), initial=1) + 1
        factors = (rng.uniform(100, 300, spread.shape) / spread).astype(np.float32)
        factors[::4] = np.exp2(np.rint(np.log2(factors[::4]))) / 2  # so that there are ties
        if self.rule == FLOAT:
            return factors
        mantissa, exponent = np.frexp(factors.astype(np.float64))
        return np.stack([np.minimum(np.rint(mantissa * 2**31), 2**31 - 1), exponent], axis=-1).astype(np.int32)

    def expected(self, sums: np.ndarray, factors: np.ndarray) -> np.ndarray:
        """What becomes of exact sums (int64, channels last)."""
        if self.type == "int32":
            return sums.astype(np.int32)
        if self.rule == FIXED_POINT:
            scaled = by_fixed_point(sums, factors[..., 0], factors[..., 1])
        else:
            scaled = sums.astype(np.float32) * factors
        if self.type == "float32":
            return scaled
        return np.clip(np.rint(scaled) + self.zero_point, self.low, self.high).astype(self.type)


def by_fixed_point(sums: np.ndarray, multiplier: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """gemmlowp's two roundings, as its reference code does them: half away from zero but for the first of negatives."""
    left, right = np.maximum(shift, 0).astype(np.int64), np.maximum(-shift, 0).astype(np.int64)
    product = (sums << left) * multiplier.astype(np.int64)
    nudged = product + np.where(product >= 0, 1 << 30, 1 - (1 << 30))
    high = np.where(nudged >= 0, nudged >> 31, -(-nudged >> 31))  # division towards zero
    mask = (1 << right) - 1
    return (high >> right) + ((high & mask) > (mask >> 1) + (high < 0))


RESULTS = {
    "uint8": Result(),
    "int8": Result("int8", zero_point=-7, low=-128, high=127),
    "clamped": Result(x_zero_point=255, zero_point=0, low=0, high=90),
    "fixed point": Result("int8", FIXED_POINT, 128, -20, -128, 127),
    "sums": Result("int32", x_zero_point=0),
    "zero point of the run": Result("int32", x_zero_point=201, is_given=True),
    "float": Result("float32", x_zero_point=128),
    "small weights": Result("int8", zero_point=5, low=-128, high=127, greatest=64),
    "wide weights": Result(x_zero_point=7, weight_type="int16"),
}


def activations(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Random numbers, the extremes among them."""
    x = rng.integers(0, 255, shape, np.uint8, endpoint=True)
    x.reshape(-1)[::5] = 255
    x.reshape(-1)[::11] = 0
    return x


def conv2d(
    x: np.ndarray,
    w: np.ndarray,
    strides: tuple[int, int] = (1, 1),
    dilations: tuple[int, int] = (1, 1),
    pads: tuple[int, int, int, int] = (0, 0, 0, 0),
    groups: int = 1,
) -> np.ndarray:
    """Convolve an NHWC array with OIHW weights in int64; pads are top, left, bottom, right."""
    top, left, bottom, right = pads
    x = np.pad(x.astype(np.int64), ((0, 0), (top, bottom), (left, right), (0, 0)))
    height = output_size(x.shape[1], w.shape[2], strides[0], dilations[0], (0, 0))
    width = output_size(x.shape[2], w.shape[3], strides[1], dilations[1], (0, 0))
    y = np.zeros((x.shape[0], height, width, groups, w.shape[0] // groups), np.int64)
    xg = x.reshape(*x.shape[:3], groups, x.shape[3] // groups)
    wg = w.reshape(groups, w.shape[0] // groups, *w.shape[1:]).astype(np.int64)
    for i in range(w.shape[2]):
        for j in range(w.shape[3]):
            rows = slice(i * dilations[0], i * dilations[0] + (height - 1) * strides[0] + 1, strides[0])
            columns = slice(j * dilations[1], j * dilations[1] + (width - 1) * strides[1] + 1, strides[1])
            y += np.einsum("nhwgc,goc->nhwgo", xg[:, rows, columns], wg[..., i, j])
    return y.reshape(*y.shape[:3], w.shape[0])


def constants(
    result: Result, w: np.ndarray, bias: np.ndarray | None, factors: np.ndarray
) -> list[Weight | np.ndarray | None]:
    """The operands of a product behind x."""
    return [
        Weight(w),
        None if bias is None else Weight(bias),
        None if result.type == "int32" else Weight(factors),
        np.array([result.x_zero_point], np.uint8) if result.is_given else None,
    ]
