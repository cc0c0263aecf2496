"""Multipliers of TOSA's RESCALE, which turns int32 sums into 8-bit numbers: ``(sum * multiplier + half) >> shift``.

TFLite's requantisation, which the C target has with ``requantize="fixed_point"``, is what RESCALE does with a
multiplier of 31 bits and ``DOUBLE_ROUND``: ``±2**30`` in front of the shift is the first rounding, of a number that is
then rounded half away from 0. ONNX's, ``rint(fl(fl(sum) * M))``, rounds twice in float32 and ties to even. A multiplier
with the same results for all sums exists for about 92 % of random channels, and so for hardly any layer of many.

Sums, differences and products of two bytes have one definition, in float32. :func:`scaled_sum` and :func:`product` look
for integer factors with the same results for all pairs of bytes; 97 % of random scales have them.
"""

from __future__ import annotations

import numpy as np

from tinycomp.ops.numeric import Array
from tinycomp.quantized.reading import fixed_point
from tinycomp.records import dataclass

SHIFTS = range(2, 63)
"""What the specification allows."""
_BITS = 31
_FAR = np.int64(1) << 31


@dataclass(frozen=True)
class Scale:
    """Hold the operands of a RESCALE.

    Attributes:
        multipliers: int32, one, or one per channel.
        shifts: int8, as many.
        double: Whether it rounds twice.
    """

    multipliers: Array
    shifts: Array
    double: bool = False

    @classmethod
    def whole(cls, factor: int) -> Scale:
        """Return the scale that multiplies by a whole number, which rounds nothing."""
        shift = _BITS - factor.bit_length()
        return cls(np.array([factor << shift], np.int32), np.array([shift], np.int8))

    def of(self, channels: slice) -> Scale:
        """Return the scale of some of the channels."""
        one = self.multipliers.size == 1
        return self if one else Scale(self.multipliers[channels], self.shifts[channels], self.double)

    def applied(self, sums: Array) -> Array:
        """Return what becomes of int64 sums, by the specification's ``apply_scale_32``, for one multiplier."""
        shift = self.shifts.astype(np.int64)
        away = np.where(sums >= 0, 1 << 30, -(1 << 30)) if self.double and shift > _BITS else 0
        scaled: Array = (sums * self.multipliers.astype(np.int64) + (1 << (shift - 1)) + away) >> shift
        return scaled


def by_fixed_point(ratios: Array, largest: Array | int) -> Scale | None:
    """Return TFLite's multipliers; None where they, or the sums, leave the range that RESCALE defines.

    Args:
        ratios: float64, what a step of the sums is worth in steps of the result.
        largest: How great the sums may be, in all or of each channel.
    """
    multipliers, shift = fixed_point(ratios.reshape(-1)).astype(np.int64).T
    shifts = np.where(multipliers == 0, SHIFTS.stop - 1, _BITS - shift)
    if not ((shifts >= SHIFTS.start) & (shifts < SHIFTS.stop)).all() or (largest >> (shifts - 1)).any():
        return None
    return Scale(multipliers.astype(np.int32), shifts.astype(np.int8), double=True)


def bounded(bias: Array, terms: Array, ratios: Array) -> Array:
    """Return biases as small as they may be without a change of any result, int64.

    Channels whose weights are next to 0 may have biases near the end of int32, whatever is added: then the result is
    the end of its range, as it is for a lesser bias. RESCALE defines nothing for sums as great.

    Args:
        bias: Of each channel.
        terms: How great a sum may be without it.
        ratios: What a step of the sums is worth in steps of the result.
    """
    enough = (terms + np.minimum(np.ceil(512 / ratios), _FAR)).astype(np.int64)
    return np.clip(bias, -enough, enough)


def _slope(sums: Array, bounds: Array, reaches: Array, largest: int) -> tuple[int, int] | None:
    """Return a multiplier and a shift; None if there are none.

    Args:
        sums: int64.
        bounds: Halves, which a scaled sum reaches or stays below.
        reaches: Which of the two.
        largest: Sums beyond do not occur.
    """
    counts = (np.abs(sums) <= largest) & (sums != 0)
    sums, bounds, reaches = sums[counts], bounds[counts], reaches[counts]
    quotients = bounds / sums
    least = reaches == (sums > 0)
    low = quotients[least].max(initial=0.0)
    high = quotients[~least].min(initial=np.inf)
    if not low <= high or high == np.inf:
        return None
    shift = _BITS - 1 - int(np.floor(np.log2(high)))
    multiplier = int(np.rint(np.ldexp((low + high) / 2, shift)))
    if shift not in SHIFTS or not 0 < multiplier < _FAR:
        return None
    wanted = (2 * bounds).astype(np.int64)  # halves, doubled: exact
    scaled = Scale(np.array([multiplier]), np.array([shift])).applied(sums)
    return (multiplier, shift) if ((2 * scaled > wanted) == reaches).all() else None


def product(pairs: Array, results: Array, low: int, high: int) -> Scale | None:
    """Return the multiplier that turns products of two bytes into results, without zero point, or None."""
    pairs, results = pairs.reshape(-1).astype(np.int64), results.reshape(-1).astype(np.int64)
    above, below = results > low, results < high
    sums = np.r_[pairs[above], pairs[below]]
    bounds = np.r_[results[above] - 0.5, results[below] + 0.5]
    found = _slope(sums, bounds, np.arange(len(sums)) < above.sum(), int(np.abs(pairs).max()))
    return None if found is None else Scale(np.array([found[0]], np.int32), np.array([found[1]], np.int8))


@dataclass(frozen=True)
class ScaledSum:
    """Hold ``rescale(a * first + b * second + offset)``, where the sums are exact in int32.

    Attributes:
        first: Factor of the first operand without its zero point.
        second: Of the other; negative in a difference.
        scale: What becomes of the sums.
        offset: Less than a step of the result by far; it moves sums away from the wrong side of their ties.
    """

    first: int
    second: int
    scale: Scale
    offset: int = 0


_GREATEST = 2**15 - 1
"""Of the factors: Ethos-U multiplies the operands of an addition by 16 bits on the way."""
_TRIED = 256
_FINER = 6
"""Bits more that factors have where an offset is needed; the multiplication by them then is an operation of its own."""
_OFFSETS = np.arange(-60, 61, 2)
_CRITICAL = 512


def scaled_sum(
    a: Array, b: Array, scales: tuple[float, float], results: Array, low: int, high: int
) -> ScaledSum | None:
    """Return the factors that turn sums of two bytes into results, without zero point; None if none are found.

    The quotient of the factors is a fraction near that of the scales; the last multiplier makes up for the rest.

    Args:
        a: int64, what the first operand may be, without zero point.
        b: The same of the second.
        scales: What a step of each is worth in steps of the result; negative for one that is subtracted.
        results: ``[len(a), len(b)]``.
        low: The least result.
        high: The greatest.
    """
    firsts, seconds, error = _fractions(*scales)
    reached, missed = results > low, results < high
    of_a = np.r_[np.nonzero(reached)[0], np.nonzero(missed)[0]]
    of_b = np.r_[np.nonzero(reached)[1], np.nonzero(missed)[1]]
    of_a, of_b = a[of_a], b[of_b]
    bounds = np.r_[results[reached] - 0.5, results[missed] + 0.5]
    reaches = np.arange(len(bounds)) < reached.sum()
    # Only sums that are as near to a bound as the fractions are wrong can end on its other side.
    room = 4 * error * max(np.abs(a).max(), np.abs(b).max()) + 1e-4
    apart = np.abs(of_a * scales[0] + of_b * scales[1] - bounds)
    count = max(int((apart < room).sum()), 64)
    if len(bounds) <= count:
        return None
    near = np.argpartition(apart, count)[:count]
    products = np.multiply.outer(firsts, of_a[near]) + np.multiply.outer(seconds, of_b[near])
    for finer, offsets, tried in ((0, np.zeros(1, np.int64), _TRIED), (_FINER, _OFFSETS, _TRIED // 4)):
        if finer and count > _CRITICAL:
            break  # with so many sums next to a tie, there is no way out
        sums = (products[:tried, None] << finer) + offsets[:, None]
        with np.errstate(divide="ignore"):
            slopes = bounds[near] / sums
        least = reaches[near] == (sums > 0)
        spread = np.where(least, np.inf, slopes).min(axis=2) - np.where(least, slopes, -np.inf).max(axis=2)
        # In relation to the slope itself, which is the less the greater the factors are.
        wide = (spread * np.abs(firsts)[:tried, None]).reshape(-1)
        for best in np.argsort(-wide, kind="stable")[:4]:
            at, offset = divmod(int(best), len(offsets))
            first, second = (int(factors[at]) << finer for factors in (firsts, seconds))
            whole = of_a * first + of_b * second + offsets[offset]
            found = _slope(whole, bounds, reaches, int(np.abs(whole).max())) if wide[best] > 0 else None
            if found is not None:
                scale = Scale(np.array([found[0]], np.int32), np.array([found[1]], np.int8))
                return ScaledSum(first, second, scale, int(offsets[offset]))
    return None


def _fractions(first: float, second: float) -> tuple[Array, Array, float]:
    """Return numerators and denominators of the fractions next to ``first / second``, and the error of the worst."""
    greater = np.arange(1, _GREATEST + 1)
    small, great = sorted((abs(first), abs(second)))
    lesser = np.maximum(np.rint(greater * (small / great)), 1).astype(np.int64)
    errors = np.abs(lesser * great / greater - small)
    best = np.argsort(errors, kind="stable")[:_TRIED]
    ordered = (lesser, greater) if abs(first) < abs(second) else (greater, lesser)
    numerators, denominators = (x[best] * int(np.sign(sign)) for x, sign in zip(ordered, (first, second), strict=True))
    return numerators, denominators, float(errors[best].max())
