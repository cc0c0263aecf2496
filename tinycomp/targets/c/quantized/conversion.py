"""Quantise and dequantise on the C target."""

from __future__ import annotations

import math

from tinycomp.ir.graph import Node, Value
from tinycomp.ir.proto import DTYPE_BY_NUMBER, NUMBER_BY_DTYPE
from tinycomp.quantized.patterns import finite, positive
from tinycomp.rewrite import reject
from tinycomp.symbolic import Size, product
from tinycomp.targets.c.codegen.element_program import TYPES
from tinycomp.targets.c.codegen.emitter import Emitter
from tinycomp.targets.c.codegen.rules import LoweringRules, known_rank
from tinycomp.targets.c.ops.reduction import around
from tinycomp.targets.common.checks import Verdict, all_of, sized_type

FAMILY = LoweringRules()

_STORED = frozenset({"int8", "uint8", "int16", "uint16"})


def _quantised_value(node: Node) -> Value:
    return node.operand(0) if node.op == "DequantizeLinear" else node.output


def _quantisation_check(node: Node) -> Verdict:
    allowed = _STORED | {"int32"} if node.op == "DequantizeLinear" else _STORED
    value = _quantised_value(node)
    dtype = value.dtype
    if dtype not in allowed:
        return reject(f'"{value.name}" is {value.type}, not {" or ".join(sorted(allowed))}')
    other = node.output if node.op == "DequantizeLinear" else node.operand(0)
    scale, zero = node.optional_operand(1), node.optional_operand(2)
    if other.dtype != "float32" or scale is None or scale.dtype != "float32":
        return reject("the real numbers are not float32")
    precision = DTYPE_BY_NUMBER[int(node.attrs.get("precision", 0)) or NUMBER_BY_DTYPE["float32"]]
    if precision != "float32":
        return reject(f"the quotient is rounded to {precision}")
    if node.attrs.get("block_size", 0) or (scale.rank or 0) > 1:
        return reject("one scale per block")
    if scale.const is not None and not (positive if node.op == "QuantizeLinear" else finite)(scale.const):
        return reject("a scale is not finite, or one to divide by is not positive")
    if zero is not None and zero.dtype != dtype:
        return reject("the zero point has another dtype")
    return _counts_fit(node)


def _counts_fit(node: Node) -> Verdict:
    """Tell whether there is one scale, or one per slice of a known number, and as many zero points."""
    counts = [v.static_shape for v in node.inputs[1:] if v is not None]
    if None in counts:
        return reject("the number of scales is unknown")
    sizes = {math.prod(count or ()) for count in counts}
    shape, axis = _quantised_value(node).shape or (), int(node.attrs.get("axis", 1))
    slices = shape[axis] if -len(shape) <= axis < len(shape) else None
    # Where only a run knows the slices, the operator's rule has it compare them.
    fits = sizes in ({1}, {slices}) or (len(sizes) == 1 and isinstance(slices, str))
    return fits or reject(f"{sizes} scales and zero points for {slices} slices")


@FAMILY.lower("QuantizeLinear", "DequantizeLinear", check=all_of(known_rank, _quantisation_check))
def quantisation(emit: Emitter, node: Node) -> None:
    """Emit a quantisation or dequantisation, per tensor or per slice of one axis."""
    type_, shape = sized_type(node.output)
    scale = node.operand(1)
    sizes: tuple[Size, Size, Size] | None = (1, 1, product(shape))
    if product(sized_type(scale)[1]) != 1:
        sizes = around(type_, [int(node.attrs.get("axis", 1)) % len(shape)])
    assert sizes is not None
    params = {
        **dict(zip(("outer", "axis", "inner"), sizes, strict=True)),
        "type": TYPES[_quantised_value(node).dtype],
    }
    kernel = "dequantize_f32" if node.op == "DequantizeLinear" else "quantize_f32"
    emit.call(kernel, [node.output, node.operand(0), scale, node.optional_operand(2)], params, node)
