"""What the C target runs in one kernel call, such as a product with bias, residual and activation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tinycomp.ir.graph import Node, Value
from tinycomp.ir.types import UNKNOWN_DTYPE, tensor
from tinycomp.lazy import LazyModule
from tinycomp.ops.record import heads
from tinycomp.remark import Remark
from tinycomp.rewrite import Match, P, ValuePattern, reject
from tinycomp.target import Target
from tinycomp.target.target import add_on_demand
from tinycomp.targets.c.codegen.epilogue import ANCHORS
from tinycomp.targets.common.activations import any_activation
from tinycomp.targets.common.checks import Check, Verdict, channel_vector, surely_equal

if TYPE_CHECKING:
    from tinycomp.targets.c.ops import attention, conv, matmul, norm, rotary
    from tinycomp.targets.c.quantized import (
        block_products,
        elements,
        products,
        weights,
    )
else:
    attention, conv, matmul, norm, rotary = (
        LazyModule(f"{__package__}.ops.{name}") for name in ("attention", "conv", "matmul", "norm", "rotary")
    )
    block_products, elements, products, weights = (
        LazyModule(f"{__package__}.quantized.{name}") for name in ("block_products", "elements", "products", "weights")
    )

_QUANTIZED = "DequantizeLinear QuantizeLinear"


def add_composites(target: Target) -> None:
    """Add the composites to ``target``; longer ones come first because optional parts are taken where they fit.

    Each group is described, and what lowers it imported, once a graph has one of the operators that are named, or of
    those on each side of an ``&``.
    """

    def add(names: str, needs: str, described: Callable[[Target], object]) -> None:
        add_on_demand(target, names, [heads(either) for either in needs.split("&")], described)

    add("grouped_attention attention", "MatMul & Softmax", lambda c: attention.add_attention(c))
    add("rotary", "Neg", lambda c: rotary.add_rotary(c))

    def add_layers(names: str) -> None:
        add(names, _QUANTIZED, lambda c: products.add_layers(c, *names.split()))

    add_layers("qconv qdense qconv_scaled qdense_scaled qavgpool qmatmul qsoftmax qresize")
    add("qbinary qtable", _QUANTIZED, lambda c: elements.add_elements(c))
    add_layers("qconv_real qdense_real qmatmul_real")
    add("wdense", _QUANTIZED, lambda c: weights.add_quantized_weights(c))
    add("blocks_dense", "com.microsoft::MatMulNBits", lambda c: block_products.add_block_products(c))
    add("conv", "Conv", _add_conv)
    add("gemm", "Gemm", _add_gemm)
    add("matmul", "MatMul", _add_matmul)
    add("conv_transpose", "ConvTranspose", _add_conv_transpose)
    add("norm_of_sum rms_norm", "LayerNormalization RMSNormalization Sqrt", lambda c: norm.add_normalisations(c))


def _add_conv(target: Target) -> None:
    @target.composite(name="conv")
    def pattern(x: ValuePattern, w: ValuePattern, b: ValuePattern, r: ValuePattern) -> ValuePattern:
        return _epilogue(P.Conv(x, w, b | P.absent), r)

    pattern.check(_fits(conv.conv_check, channel_axis=1))


def _add_gemm(target: Target) -> None:
    @target.composite(name="gemm")
    def pattern(x: ValuePattern, w: ValuePattern, b: ValuePattern, r: ValuePattern) -> ValuePattern:
        return _epilogue(P.Gemm(x, w, b | P.absent), r)

    pattern.check(_fits(matmul.gemm_check))


def _add_matmul(target: Target) -> None:
    @target.composite(name="matmul")
    def pattern(x: ValuePattern, w: ValuePattern, b: ValuePattern, r: ValuePattern) -> ValuePattern:
        return _epilogue(P.optional(P.Add, P.MatMul(x, w), b), r)

    pattern.check(_fits(matmul.matmul_check))


def _add_conv_transpose(target: Target) -> None:
    @target.composite(name="conv_transpose")
    def pattern(x: ValuePattern, w: ValuePattern, b: ValuePattern) -> ValuePattern:
        return any_activation(P.ConvTranspose(x, w, b | P.absent))

    pattern.check(_fits(conv.conv_transpose_check, channel_axis=1))


def _epilogue(product: ValuePattern, residual: ValuePattern) -> ValuePattern:
    """Match ``product``, an optional addition, and an optional activation; at least one of the two must be there."""
    added = P.Add(product, residual)
    return any_activation(added | product) | added


def _fits(check: Check, channel_axis: int = -1) -> Callable[[Match], Verdict]:
    """Return the check of a composite, given that of its anchor and where the anchor's result has its channels."""

    def fits(match: Match) -> Verdict:
        unknown = next((value for value in match.free if value.dtype == UNKNOWN_DTYPE), None)
        if unknown is not None:
            return reject(f'the element type of "{unknown.name}" is unknown')
        anchor = next(n for n in match.matched if n.op in ANCHORS)
        verdict = check(anchor)
        return verdict if isinstance(verdict, Remark) else _adds(match, anchor, channel_axis)

    return fits


def _adds(match: Match, anchor: Node, channel_axis: int) -> Verdict:
    """Tell whether the addends of a product are at most a bias per channel and one residual."""
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
        kind = _addend_kind(value, anchor.output, channel_axis)
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
