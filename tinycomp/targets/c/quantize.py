"""Quantise and dequantise on the C target."""

from __future__ import annotations

import math

import numpy as np

from tinycomp.ir.graph import Node, Value
from tinycomp.ir.types import numpy_dtype, tensor
from tinycomp.ops.integers import integer_range
from tinycomp.rewrite import reject
from tinycomp.targets.c.element_program import TYPES
from tinycomp.targets.c.emit import Emitter, View
from tinycomp.targets.c.quantized_elements import VALUES, emit_lookup
from tinycomp.targets.c.reduction import around
from tinycomp.targets.c.rules import Rules, known_rank
from tinycomp.targets.common.checks import Verdict, all_of, first, operand, static_type

FAMILY = Rules()

_STORED = frozenset({"int8", "uint8", "int16", "uint16"})
_PARTS = {"int2": "int8", "int4": "int8", "uint2": "uint8", "uint4": "uint8"}
"""Integers of part of a byte that each take a whole one in memory, and the type of the whole."""
_TINY_FLOATS = frozenset({"float4_e2m1fn", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"})


def _quantised_value(node: Node) -> Value:
    return first(node) if node.op == "DequantizeLinear" else node.output


def _quantisation_check(node: Node) -> Verdict:
    allowed = _STORED | _PARTS.keys()
    if node.op == "DequantizeLinear":
        allowed |= {"int32"} | _TINY_FLOATS
    value = _quantised_value(node)
    dtype = tensor(value.type).dtype
    if dtype not in allowed:
        return reject(f'"{value.name}" is {value.type}, not {" or ".join(sorted(allowed))}')
    other = node.output if node.op == "DequantizeLinear" else first(node)
    scale, zero = operand(node, 1), operand(node, 2)
    if tensor(other.type).dtype != "float32" or scale is None or tensor(scale.type).dtype != "float32":
        return reject("the real numbers are not float32")
    if node.attrs.get("block_size", 0) or (tensor(scale.type).rank or 0) > 1:
        return reject("one scale per block")
    if scale.const is not None and not (np.isfinite(scale.const) & (scale.const > 0)).all():
        return reject("a scale is not a positive finite number")
    if zero is not None and tensor(zero.type).dtype != dtype:
        return reject("the zero point has another dtype")
    if dtype not in _STORED | {"int32"}:
        if any(v is not None and not v.is_const for v in (scale, zero)):
            return reject(f"scale or zero point of {dtype} come in at run time")
        if tensor(scale.type).size() != 1:
            return reject(f"one scale per slice of {dtype}")
    return _counts_fit(node)


def _counts_fit(node: Node) -> Verdict:
    """Whether there is one scale, or one per slice of a known number, and as many zero points."""
    counts = [tensor(v.type).static_shape for v in node.inputs[1:] if v is not None]
    if None in counts:
        return reject("the number of scales is unknown")
    sizes = {math.prod(count or ()) for count in counts}
    shape, axis = tensor(_quantised_value(node).type).shape or (), int(node.attrs.get("axis", 1))
    slices = shape[axis] if -len(shape) <= axis < len(shape) else None
    return sizes in ({1}, {slices}) or reject(f"{sizes} scales and zero points for {slices} slices")


@FAMILY.lower("QuantizeLinear", "DequantizeLinear", check=all_of(known_rank, _quantisation_check))
def quantisation(emit: Emitter, node: Node) -> None:
    """Emit a quantisation or dequantisation, per tensor or per slice of one axis."""
    if tensor(_quantised_value(node).type).dtype not in TYPES:
        _emit_by_table(emit, node)
        return
    type_, shape = static_type(node.output)
    scale = operand(node, 1)
    assert scale is not None
    sizes: tuple[int, int, int] | None = (1, 1, math.prod(shape))
    if tensor(scale.type).size() > 1:
        sizes = around(type_, [int(node.attrs.get("axis", 1)) % len(shape)])
    assert sizes is not None
    params = {
        **dict(zip(("outer", "axis", "inner"), sizes, strict=True)),
        "type": TYPES[tensor(_quantised_value(node).type).dtype],
    }
    kernel = "dequantize_f32" if node.op == "DequantizeLinear" else "quantize_f32"
    emit.call(kernel, [node.output, first(node), scale, operand(node, 2)], params, node)


def _emit_by_table(emit: Emitter, node: Node) -> None:
    """Emit a conversion from or to numbers of less than a byte, or from tiny floats, by a table of all bytes."""
    scale, point, value = operand(node, 1), operand(node, 2), _quantised_value(node)
    assert scale is not None
    assert scale.const is not None
    dtype = numpy_dtype(tensor(value.type).dtype)
    every = np.arange(VALUES, dtype=np.uint8)
    zero = np.zeros((), dtype) if point is None or point.const is None else point.const.reshape(())
    if node.op == "DequantizeLinear":
        with np.errstate(invalid="ignore"):
            real = every.view(dtype).astype(np.float32) - zero.astype(np.float32)
            emit_lookup(emit, node, first(node), real * scale.const.reshape(()).astype(np.float32))
        return
    whole = _PARTS[tensor(value.type).dtype]
    wide = emit.scratch(math.prod(static_type(value)[1]))
    params = {"outer": 1, "axis": 1, "inner": math.prod(static_type(value)[1]), "type": TYPES[whole]}
    operands: list[Value | View] = [wide, first(node), emit.constant(scale.const), emit.constant(zero.astype(whole))]
    emit.call("quantize_f32", operands, params, node)
    narrow = np.clip(every.view(whole), *integer_range(dtype)).astype(dtype)
    emit_lookup(emit, node, wide, narrow.view(np.uint8))
