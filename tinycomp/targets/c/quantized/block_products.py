"""MatMulNBits of com.microsoft with accuracy level 4 on the C target: integer products of codes in blocks.

At this level a model allows data to be rounded to 8 bits, with a scale for each block of a row. Blocks are then
multiplied as integers, several times as fast as floats, and what has been rounded serves all products that read it.
Nodes that ask for more accuracy are products of floats and a weight that :mod:`weights` keeps in its bits.
"""

from __future__ import annotations

import numpy as np

from tinycomp.ir.graph import COMPOSITE, Node, Value
from tinycomp.ir.types import tensor
from tinycomp.ops.numeric import Array
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.quantized.reading import constant, first
from tinycomp.rewrite import Match, P, ValuePattern, reject
from tinycomp.symbolic import product, rounded_up
from tinycomp.target import Target
from tinycomp.targets.c.codegen.element_program import TYPES
from tinycomp.targets.c.codegen.emitter import Emitter, View
from tinycomp.targets.c.codegen.epilogue import take_apart
from tinycomp.targets.c.codegen.rules import LoweringRules, taken
from tinycomp.targets.c.ops.matmul import rows_of
from tinycomp.targets.common.activations import any_activation
from tinycomp.targets.common.checks import Verdict, channel_vector, sized_type

FAMILY = LoweringRules()
DOMAIN = "com.microsoft"
INTEGERS = 4
"""The accuracy level that allows 8-bit data."""
_ALIGNMENT = 64
_CRITICAL = 2048
"""Rows that are a multiple of so many bytes apart compete for the same places of a cache."""


def add_block_products(target: Target) -> None:
    """Add the composite of a product with what is added to it and an activation."""

    @target.composite(name="blocks_dense")
    def blocks_dense(x: ValuePattern, w: ValuePattern = P.const, s: ValuePattern = P.const) -> ValuePattern:
        zeros, order, bias = (P.const | P.absent for _ in range(3))
        sums = P[DOMAIN].MatMulNBits(x, w, s, zeros, order, bias)
        added = P.Add(sums, P.const)
        return any_activation(added | sums) | added

    @blocks_dense.check
    def fits(match: Match) -> Verdict:
        anchor = first(match.matched, "MatMulNBits")
        verdict = _takes(anchor)
        addends = [v for n in match.matched if n.op == "Add" for v in n.inputs if v is not None and v.const is not None]
        if verdict is True and any(
            channel_vector(constant(v), tensor(anchor.output.type), -1) is None for v in addends
        ):
            return reject("the addend is not one number per column")
        return verdict


def _takes(node: Node) -> Verdict:
    level, block = node.attrs.get("accuracy_level", 0), int(node.attrs["block_size"])
    if level != INTEGERS:
        return reject(f"accuracy level {level} asks for products of floats")
    if block % 16 or not 0 < block <= 256:
        return reject(f"blocks of {block}, no multiple of 16 up to 256")
    x, *weights = (*node.inputs, None, None, None)[:6]
    assert x is not None
    if x.dtype != "float32":
        return reject(f"data of type {x.dtype}, not float32")
    if x.rank is None or x.rank < 2:
        return reject("the data have no known number of rows")
    if weights[3] is not None:
        return reject("the rows of the weight are in an order of their own")
    if any(v is not None and v.const is None for v in weights):
        return reject("the weight is not a constant")
    return True


def _stored_scales(scales: Array) -> Array:
    """Return scales in float16 where that loses nothing: there is half as much of them to read."""
    with np.errstate(over="ignore"):
        halves = scales.astype(np.float16)
    return halves if np.array_equal(halves.astype(np.float32), scales) else np.ascontiguousarray(scales)


def _quantized_rows(
    emit: Emitter, x: Value, node: Node, depth: int, block: int, bits: int, pitch: int
) -> tuple[View, View]:
    """Return where bytes and figures of ``x`` lie; the products that read it share them."""
    key = ("quantize_blocks_f32", x, block, bits)
    if key not in emit.derived:
        rows, blocks = product(sized_type(x)[1][:-1]), -(-depth // block)
        left = rows_of(emit, x, rows, depth)
        views = emit.scratch(rounded_up(rows * pitch, _ALIGNMENT)), emit.scratch(rows * (3 * blocks * 4))
        params = {
            "m": rows, "k": depth, "ldx": left.strides[0], "block": block, "pitch": pitch, "middle": 1 << (bits - 1),
        }  # fmt: skip
        emit.call("quantize_blocks_f32", [*views, left.view], params, node)
        emit.derived[key] = views
    first_view, second_view = emit.derived[key]
    return first_view, second_view


@FAMILY.lower("c.blocks_dense", check=taken, layout=LayoutRule.ROW_MAJOR, domain=COMPOSITE)
def blocks_dense(emit: Emitter, node: Node) -> None:
    """Emit a product with its epilogue."""
    matmul_nbits(emit, node)


@FAMILY.lower("MatMulNBits", check=_takes, layout=LayoutRule.ROW_MAJOR, domain=DOMAIN)
def matmul_nbits(emit: Emitter, node: Node) -> None:
    """Emit the rounding of the data, unless another product has, and the product."""
    fused = take_apart(node)
    attrs = fused.anchor.attrs
    depth, columns, bits, block = (int(attrs.get(name, 4)) for name in ("K", "N", "bits", "block_size"))
    x, codes, scales, zeros, _, bias = (*fused.operands, None, None, None)[:6]
    assert x is not None
    pitch = -(-depth // block) * block
    pitch += 0 if pitch % _CRITICAL else _ALIGNMENT
    bytes_view, figures = _quantized_rows(emit, x, node, depth, block, bits, pitch)
    addends = [constant(v).reshape(-1) for v in (bias, *fused.addends) if v is not None]
    added = np.ascontiguousarray(np.broadcast_to(sum(addends[1:], addends[0]), columns)) if addends else None
    stored = _stored_scales(constant(scales))
    points = None if zeros is None else constant(zeros)
    params = {
        "m": product(sized_type(x)[1][:-1]),
        "n": columns,
        "k": depth,
        "pitch": pitch,
        "ldc": columns,
        "bits": bits,
        "block": block,
        "scale_type": TYPES[stored.dtype.name],
        "zero_type": -1 if points is None else TYPES[points.dtype.name],
        **fused.activation.params(),
    }
    constants = [constant(codes), stored, points, added]
    views = [None if array is None else emit.constant(array) for array in constants]
    emit.call("gemm_blocks_f32", [fused.output, bytes_view, figures, *views], params, node)
