"""What the C target runs in one kernel call, such as a product with bias, residual and activation."""

from __future__ import annotations

from tinycomp.ir.graph import Node, Value
from tinycomp.ir.types import UNKNOWN_DTYPE, tensor
from tinycomp.remark import Remark
from tinycomp.rewrite import Match, P, ValuePattern, reject
from tinycomp.target import Target
from tinycomp.targets.c.codegen.epilogue import ANCHORS
from tinycomp.targets.c.ops.attention import add_attention
from tinycomp.targets.c.ops.conv import conv_check, conv_transpose_check
from tinycomp.targets.c.ops.matmul import gemm_check, matmul_check
from tinycomp.targets.c.ops.norm import add_normalisations
from tinycomp.targets.c.ops.rotary import add_rotary
from tinycomp.targets.c.quantized.block_products import add_block_products
from tinycomp.targets.c.quantized.elements import add_elements
from tinycomp.targets.c.quantized.fixed_point import add_fixed_point
from tinycomp.targets.c.quantized.products import add_products, add_real_products
from tinycomp.targets.c.quantized.run_time_products import add_real_run_time_products, add_run_time_products
from tinycomp.targets.c.quantized.weights import add_quantized_weights
from tinycomp.targets.common.activations import any_activation
from tinycomp.targets.common.checks import channel_vector, surely_equal

_CHECKS = {
    "Conv": (conv_check, 1),
    "ConvTranspose": (conv_transpose_check, 1),
    "Gemm": (gemm_check, -1),
    "MatMul": (matmul_check, -1),
}
"""The anchor's own check, and the channel axis of its result."""


def add_composites(target: Target) -> None:
    """Add the composites to ``target``; longer ones come first because optional parts are taken where they fit."""
    add_attention(target)
    add_rotary(target)
    add_products(target)
    add_run_time_products(target)
    add_fixed_point(target)
    add_elements(target)
    add_real_products(target)
    add_real_run_time_products(target)
    add_quantized_weights(target)
    add_block_products(target)

    @target.composite(name="conv")
    def conv(x: ValuePattern, w: ValuePattern, b: ValuePattern, r: ValuePattern) -> ValuePattern:
        return _epilogue(P.Conv(x, w, b | P.absent), r)

    @target.composite(name="gemm")
    def gemm(x: ValuePattern, w: ValuePattern, b: ValuePattern, r: ValuePattern) -> ValuePattern:
        return _epilogue(P.Gemm(x, w, b | P.absent), r)

    @target.composite(name="matmul")
    def matmul(x: ValuePattern, w: ValuePattern, b: ValuePattern, r: ValuePattern) -> ValuePattern:
        return _epilogue(P.optional(P.Add, P.MatMul(x, w), b), r)

    @target.composite(name="conv_transpose")
    def conv_transpose(x: ValuePattern, w: ValuePattern, b: ValuePattern) -> ValuePattern:
        return any_activation(P.ConvTranspose(x, w, b | P.absent))

    for composite in (conv, gemm, matmul, conv_transpose):
        composite.check(_fits)
    add_normalisations(target)


def _epilogue(product: ValuePattern, residual: ValuePattern) -> ValuePattern:
    """Match ``product``, an optional addition, and an optional activation; at least one of the two must be there."""
    added = P.Add(product, residual)
    return any_activation(added | product) | added


def _fits(match: Match) -> bool | Remark:
    unknown = next((value for value in match.free if value.dtype == UNKNOWN_DTYPE), None)
    if unknown is not None:
        return reject(f'nobody knows the element type of "{unknown.name}"')
    anchor = next(n for n in match.matched if n.op in ANCHORS)
    check, axis = _CHECKS[anchor.op]
    verdict = check(anchor)
    if isinstance(verdict, Remark):
        return verdict
    factor = anchor.optional_operand(1)
    if anchor.op == "MatMul" and factor is not None and factor.rank == 1:
        return reject("the second operand is a vector, so the result has no channels")
    residuals = 0
    for name in ("b", "r") if anchor.op == "MatMul" else ("r",):
        value = match.bindings.get(name)
        if value is None:
            continue
        if value.producer in match.matched:
            return reject(f'"{value.name}" is added to itself')
        kind = _addend_kind(value, anchor.output, axis)
        if isinstance(kind, Remark):
            return kind
        residuals += kind == "residual"
    if residuals + _full_gemm_addend(anchor) > 1:
        return reject("two residuals; a kernel adds one")
    return True


def _addend_kind(value: Value, result: Value, axis: int) -> str | Remark:
    if value.const is not None and channel_vector(value.const, tensor(result.type), axis) is not None:
        return "bias"
    if surely_equal(value.shape, result.shape):
        return "residual"
    return reject(f'"{value.name}" is {value.type}: neither one constant per channel nor of the shape of {result.type}')


def _full_gemm_addend(anchor: Node) -> bool:
    """Tell whether C of a Gemm is as large as the result, and so takes the place of the one residual."""
    value = anchor.optional_operand(2) if anchor.op == "Gemm" else None
    return value is not None and _addend_kind(value, anchor.output, -1) == "residual"
