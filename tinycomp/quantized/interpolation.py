"""Linear Resize of 8-bit images in integers: the weights of two lines and two columns are whole numbers.

A place of the result lies at ``(place * denominator + offset) / numerator`` of the operand, exactly. So ``numerator``
times the weights of the two neighbours along an axis are integers, the sum of four products is exact, and it is
requantised as sums are with TFLite's rounding.
"""

from __future__ import annotations

from math import gcd

import numpy as np

from tinycomp.ir.graph import Node
from tinycomp.ops.numeric import Array
from tinycomp.quantized.layer import QuantizedLayer
from tinycomp.quantized.reading import Requantization, first
from tinycomp.records import dataclass
from tinycomp.remark import Remark, Verdict, reject
from tinycomp.rewrite import Match

STEPS = 1 << 11
"""How great a numerator may be: so products of two weights and a byte fit into int32."""
_FARTHEST = 16
"""How many pixels off a place may lie, and how much smaller a result may be, as TOSA's RESIZE has it."""


@dataclass(frozen=True)
class LinearAxis:
    """Say where places of a result lie along one axis.

    Attributes:
        size: Of the operand.
        output: Of the result.
        numerator: How many steps a pixel of the operand has.
        denominator: How many steps apart places are.
        offset: Where the first one lies.
    """

    size: int
    output: int
    numerator: int
    denominator: int
    offset: int

    @classmethod
    def of(cls, size: int, output: int, mode: str) -> LinearAxis | Remark:
        """Return the steps of a coordinate transformation."""
        if size == 1:
            numerator, denominator, offset = output, 1, 0
        elif mode == "align_corners" or (mode == "pytorch_half_pixel" and output == 1):
            numerator, denominator, offset = max(output - 1, 1), size - 1 if output > 1 else 1, 0
        elif mode == "asymmetric":
            numerator, denominator, offset = output, size, 0
        elif mode in ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel"):
            numerator, denominator, offset = 2 * output, 2 * size, size - output
        else:
            return reject(f"places of mode {mode} are not fixed fractions")
        common = gcd(numerator, denominator, offset)
        axis = cls(size, output, numerator // common, denominator // common, offset // common)
        fits = axis.numerator <= STEPS and axis.denominator < _FARTHEST * axis.numerator
        near = -_FARTHEST * axis.numerator <= axis.border < axis.numerator
        far = -axis.numerator <= axis.offset < _FARTHEST * axis.numerator
        return axis if fits and near and far else reject(
            f"from {size} to {output} pixels has steps of {axis.denominator}/{axis.numerator} of a pixel, "
            f"not of up to {STEPS} parts and {_FARTHEST} pixels"
        )  # fmt: skip

    @property
    def border(self) -> int:
        """How far the last place lies behind the last pixel."""
        return (self.output - 1) * self.denominator + self.offset - (self.size - 1) * self.numerator

    def taps(self) -> Array:
        """Return the two pixels of each place, and the weight of the second one: int32 ``[output, 3]``."""
        pixel, weight = np.divmod(np.arange(self.output) * self.denominator + self.offset, self.numerator)
        ends = np.clip([pixel, pixel + 1], 0, self.size - 1)
        return np.stack([*ends, weight], axis=1).astype(np.int32)


@dataclass(frozen=True)
class IntegerResize:
    """Hold the steps of a linear Resize.

    Attributes:
        lines: Those of the height.
        columns: Those of the width.
        zero_point: Of the data.
        ratio: What a step of the sums is worth in steps of the result.
        to: How the results are stored.
    """

    lines: LinearAxis
    columns: LinearAxis
    zero_point: int
    ratio: float
    to: Requantization

    @property
    def parts(self) -> int:
        """How great the weights of four pixels are together."""
        return self.lines.numerator * self.columns.numerator

    @property
    def largest(self) -> int:
        """How great a sum may be."""
        return 255 * self.parts

    @classmethod
    def of(cls, layer: QuantizedLayer) -> IntegerResize:
        """Return the steps of a layer that :func:`interpolates` accepts."""
        axes, to = _axes(layer.core), layer.result
        assert not isinstance(axes, Remark), layer.core
        lines, columns = axes
        ratio = layer.scale() / (lines.numerator * columns.numerator) / float(to.scale)
        return cls(lines, columns, layer.zero_point(), ratio, to)


def interpolates(match: Match) -> Verdict:
    """Tell whether a Resize interpolates images of known sizes at places that are fixed fractions of pixels."""
    axes = _axes(first(match.matched, "Resize"))
    return axes if isinstance(axes, Remark) else True


def _axes(node: Node) -> tuple[LinearAxis, LinearAxis] | Remark:
    before, after = node.operand(0).shape, node.output.shape
    if before is None or after is None or len(before) != 4 or before[:2] != after[:2]:
        return reject("it has images, and resizes no channels")
    height, width, out_height, out_width = *before[2:], *after[2:]
    if not (isinstance(height, int) and isinstance(width, int)):
        return reject(f"from {list(before)}, whose sizes are not known")
    if (
        not (isinstance(out_height, int) and isinstance(out_width, int))
        or min(height, width, out_height, out_width) < 1
    ):
        return reject(f"to {list(after)}, whose sizes are not known")
    if node.attrs.get("antialias", 0) or node.attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return reject("it filters, or keeps a ratio")
    given = node.const(2)
    if given is None and node.optional_operand(2) is not None:
        return reject("scales are not known")
    if given is not None and given.size:
        axes = node.attrs.get("axes") or range(len(before))
        scales = {axis % len(before): float(scale) for axis, scale in zip(axes, given, strict=True)}
        for axis, (size, output) in ((2, (height, out_height)), (3, (width, out_width))):
            scale = np.float32(scales.get(axis, 1.0))
            if scale != np.float32(output / size):
                return reject(f"a scale of {scale} is not that of {size} and {output} pixels")
    mode = str(node.attrs.get("coordinate_transformation_mode", "half_pixel"))
    found = LinearAxis.of(height, out_height, mode), LinearAxis.of(width, out_width, mode)
    lines, columns = found
    if isinstance(lines, Remark):
        return lines
    return columns if isinstance(columns, Remark) else (lines, columns)
