"""Matrix products of real data and quantised weights on the C target: the weights stay in 8 or 4 bits.

Language models are often quantised like this: a DequantizeLinear with a scale per output channel, or per block of some
numbers along the depth, stands between the stored weight and the product. The kernel multiplies by the stored numbers
and applies the scales on the way, so that a fourth or an eighth of the bytes have to be kept and read.
"""

from __future__ import annotations

import math

import numpy as np

from tinycomp.ir.graph import COMPOSITE, Node
from tinycomp.ops.numeric import Array
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.quantized.patterns import WEIGHTS, bias_per_channel, finite, product
from tinycomp.quantized.reading import PRODUCTS, channel_axis, constant, dequantizer, first
from tinycomp.records import dataclass
from tinycomp.rewrite import Match, P, ValuePattern, reject
from tinycomp.target import Target
from tinycomp.targets.c.codegen.element_program import TYPES
from tinycomp.targets.c.codegen.emitter import Emitter
from tinycomp.targets.c.codegen.epilogue import take_apart
from tinycomp.targets.c.codegen.rules import LoweringRules, taken
from tinycomp.targets.c.ops.matmul import rows_of
from tinycomp.targets.common.activations import any_activation
from tinycomp.targets.common.checks import Verdict, sized_type

FAMILY = LoweringRules()


def add_quantized_weights(target: Target) -> None:
    """Add the composite; it has to come behind those whose data are quantised, too."""

    @target.composite(name="wdense")
    def wdense(x: ValuePattern, w: ValuePattern = P.const, b: ValuePattern = P.const) -> ValuePattern:
        stored = P.DequantizeLinear(w.where(dtype=WEIGHTS), P.const(finite), P.const | P.absent)
        sums = product(x.where(dtype="float32", const=False), stored.where(dtype="float32"), b)
        return any_activation(sums) | sums

    for check in (bias_per_channel, _has_rows, _scaled_along_depth):
        wdense.check(check)


def _has_rows(match: Match) -> Verdict:
    rank = match.x.rank
    return reject("the data have no known number of rows") if rank is None or rank < 2 else True


def _scaled_along_depth(match: Match) -> Verdict:
    """Tell whether scales are one for all, one per output channel, or one per channel and block of the depth."""
    anchor = first(match.matched, *PRODUCTS)
    weights, channels = dequantizer(anchor.inputs[1]), channel_axis(anchor)
    rank, block = constant(match.w).ndim, weights.attrs.get("block_size", 0) or 0
    axis = weights.attrs.get("axis", 1) % rank
    if block:
        if axis == channels:
            return reject("the blocks of the scales lie along the output channels")
        return block % 2 == 0 or reject(f"blocks of {block}, an odd number")
    several = max(constant(v).size for v in weights.inputs[1:] if v is not None) > 1
    return not several or axis == channels or reject(f"weights have one scale per output channel, got one along {axis}")


@dataclass(frozen=True)
class Codes:
    """A quantised weight as the kernel takes it, output channels first.

    Attributes:
        numbers: int8 or uint8 ``[channels, depth]``, one number in a byte.
        bits: How many of each count: 8 or 4.
        scales: float32 ``[channels, blocks]``.
        zero_points: ``[channels, blocks]`` of the dtype of ``numbers``, or None for 0.
        block: Numbers of the depth that share a scale; 0 for all of them.
    """

    numbers: Array
    bits: int
    scales: Array
    zero_points: Array | None
    block: int

    @classmethod
    def read(cls, anchor: Node) -> Codes:
        """Read the weight of a Gemm or MatMul."""
        weights = dequantizer(anchor.inputs[1])
        turned = channel_axis(anchor) == 1
        stored, scale, *others = (None if v is None else constant(v) for v in weights.inputs)
        assert stored is not None
        assert scale is not None
        dtype = np.dtype(np.uint8 if stored.dtype.name.startswith("u") else np.int8)
        numbers = (stored.T if turned else stored).astype(dtype, copy=False)
        block = int(weights.attrs.get("block_size", 0) or 0)

        def spread(values: Array) -> Array:
            if block:
                return values.T if turned else values
            return np.array(np.broadcast_to(values.reshape(-1, 1), (len(numbers), 1)))

        point = others[0] if others else None
        zero_points = None if point is None or not point.any() else spread(point.astype(dtype))
        return cls(numbers, 4 if stored.dtype.name.endswith("int4") else 8, spread(scale), zero_points, block)


@FAMILY.lower("c.wdense", check=taken, layout=LayoutRule.ROW_MAJOR, domain=COMPOSITE)
def wdense(emit: Emitter, node: Node) -> None:
    """Emit a matrix product with a quantised weight."""
    fused = take_apart(node)
    codes = Codes.read(fused.anchor)
    channels, depth = codes.numbers.shape
    x = fused.operands[0]
    assert x is not None
    rows = math.prod(sized_type(x)[1][:-1])
    left = rows_of(emit, x, rows, depth)
    added = [*fused.operands[2:], *fused.addends]
    bias = next((constant(v).reshape(-1) for v in added if v is not None), None)
    params = {
        "m": rows,
        "n": channels,
        "k": depth,
        "lda": left.strides[0],
        "ldc": channels,
        "bits": codes.bits,
        "code_type": TYPES[codes.numbers.dtype.name],
        "block": codes.block,
        **fused.activation.params(),
    }
    constants = [codes.numbers, codes.scales, codes.zero_points, bias]
    views = [None if array is None else emit.constant(np.ascontiguousarray(array)) for array in constants]
    emit.call("gemm_dequant_f32", [fused.output, left.view, *views], params, node)
