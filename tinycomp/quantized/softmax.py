"""Softmax of 8-bit numbers in integers of 32 bits: two tables, one sum, three products.

With ``power[i] = rint(exp(-scale * i) * unit)`` for the 256 differences from the greatest number of a line, a share is
``power / sum``. The sum is moved to the left until its highest bit is the last but one, a table of bytes and one step
of Newton's method give its inverse, and the product of power and inverse is requantised as sums are with TFLite's
rounding. No more is needed than what NPUs have; the results are within two steps of 1/256 of float32's, and within one
for lines of up to 2048 numbers. ``tinycomp_kernels.h`` has the formulas (qsoftmax).
"""

from __future__ import annotations

import numpy as np

from tinycomp.ops.numeric import Array
from tinycomp.quantized.layer import QuantizedLayer
from tinycomp.quantized.reading import Requantization, first
from tinycomp.records import dataclass
from tinycomp.remark import Verdict, reject
from tinycomp.rewrite import Match

LONGEST = 4096
"""How many numbers a line may have: the more, the fewer bits are left to each power."""
POWER_DIGIT = 127
"""Powers have two digits of this base, of which the first is an int16: so one table of int16 holds them."""
GUESS_BITS = 14
"""How far an entry of the table of inverses is moved to the left."""
GUESS_SHIFT = 23
"""How far the product of a sum and the guess of its inverse is shifted to the right, after which 2^30 is twice one."""
SHARE_SHIFT = 22
"""How far the product of a power and an inverse is shifted to the right."""
_LARGEST = 2**31 - 1
_INVERSE_SHIFT, _INVERSE_ROOM = 29, 9
"""How far inverses are shifted, and how far a sum may be moved to the left before that must be more."""


@dataclass(frozen=True)
class IntegerSoftmax:
    """Hold the tables of a softmax.

    Attributes:
        powers: int32 ``[256]``, by how much less a number is than the greatest of its line.
        inverses: uint8 ``[256]``, of sums from 2^30 to 2^31.
        inverse_shift: How far a product of two guesses is shifted to the right.
        ratio: What a step of a share is worth in steps of the result.
        axis: Along which lines lie.
        to: How the results are stored.
    """

    powers: Array
    inverses: Array
    inverse_shift: int
    ratio: float
    axis: int
    to: Requantization

    @property
    def largest(self) -> int:
        """How great a share may be."""
        return 1 << 30

    @classmethod
    def of(cls, layer: QuantizedLayer) -> IntegerSoftmax:
        """Return the tables of a layer whose line is of known length."""
        core = layer.core
        shape = core.operand(0).shape or ()
        axis = int(core.attrs.get("axis", -1)) % len(shape)
        length, to = shape[axis], layer.result
        assert isinstance(length, int), core
        unit = min(POWER_DIGIT * (2**15 - 1), _LARGEST // max(length, 1))
        powers = np.rint(np.exp(-layer.scale() * np.arange(256)) * unit)
        inverses = np.minimum(np.rint(256 / (1 + np.arange(256) / 256)), 255)
        more = max(31 - unit.bit_length() - _INVERSE_ROOM, 0)  # a sum is as great as the unit at least
        ratio = 2.0 ** (more - 30) / float(to.scale)
        return cls(powers.astype(np.int32), inverses.astype(np.uint8), _INVERSE_SHIFT + more, ratio, axis, to)


def has_lines(match: Match) -> Verdict:
    """Tell whether a softmax is one of lines whose length is known."""
    core = first(match.matched, "Softmax")
    if core.version < 13:
        return reject("before opset 13 it is a Softmax of rows")
    shape, axis = match.x.shape, int(core.attrs.get("axis", -1))
    length = shape[axis] if shape else None
    if not isinstance(length, int) or length > LONGEST:
        return reject(f"lines of {length or 'unknown length'}, not of up to {LONGEST} numbers")
    return True
