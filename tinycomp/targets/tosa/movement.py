"""Operators that move numbers and change none: the same for stored integers and for floats."""

from __future__ import annotations

import numpy as np

from tinycomp.ir.graph import Node, Value
from tinycomp.quantized.interpolation import LinearAxis
from tinycomp.quantized.reading import constant as array_of
from tinycomp.rewrite import reject
from tinycomp.target.quantization import QuantizationRule, Rules
from tinycomp.targets.common.checks import Verdict, all_of, constant
from tinycomp.targets.tosa.emitter import Emitter, offset_of, shape_of
from tinycomp.targets.tosa.integer import Rule, common_order, emit_max_pool, max_pool_fits


def _emit_reshape(emit: Emitter, node: Node) -> None:
    emit.write(node.output, emit.reshape(emit.read(node.operand(0)), shape_of(node.output)))


def _emit_transpose(emit: Emitter, node: Node) -> None:
    """Say that the axes have changed places, which moves nothing."""
    x = node.operand(0)
    rank = len(shape_of(x))
    perm = list(node.attrs.get("perm") or range(rank)[::-1])
    order = emit.order(x)
    emit.write(node.output, emit.read(x, order), tuple(perm.index(axis) for axis in order))


def _emit_concat(emit: Emitter, node: Node) -> None:
    values = [v for v in node.inputs if v is not None]
    order = common_order(emit, values, node.output)
    axis = order.index(node.attrs["axis"] % len(order))
    emit.write(node.output, emit.concat([emit.read(v, order) for v in values], axis), order)


def _ranges(node: Node) -> list[range]:
    """Return the indices that a Slice takes along every axis."""
    shape = shape_of(node.operand(0))
    if len(node.inputs) == 1:
        starts, ends, axes = node.attrs["starts"], node.attrs["ends"], node.attrs.get("axes")
    else:
        starts, ends = (array_of(v).tolist() for v in node.inputs[1:3])
        given = node.optional_operand(3)
        axes = None if given is None else array_of(given).tolist()
    taken = [range(size) for size in shape]
    for axis, start, end in zip(axes or range(len(starts)), starts, ends, strict=True):
        taken[axis] = range(shape[axis])[start:end]
    return taken


def _steps_are_one(node: Node) -> Verdict:
    steps = node.const(4)
    return steps is None or bool((steps == 1).all()) or reject(f"SLICE has no steps, got {steps.tolist()}")


def _emit_slice(emit: Emitter, node: Node) -> None:
    _emit_part(emit, node.operand(0), node.output, _ranges(node))


def _emit_part(emit: Emitter, x: Value, result: Value, taken: list[range]) -> None:
    order = emit.order(x)
    starts, sizes = [taken[axis].start for axis in order], [len(taken[axis]) for axis in order]
    emit.write(result, emit.cut(emit.read(x, order), starts, sizes), order)


def _emit_split(emit: Emitter, node: Node) -> None:
    x = node.operand(0)
    axis, start = node.attrs.get("axis", 0) % len(shape_of(x)), 0
    for result in node.outputs:
        taken = [range(size) for size in shape_of(x)]
        taken[axis] = range(start, start + shape_of(result)[axis])
        start = taken[axis].stop
        _emit_part(emit, x, result, taken)


def _pads_with_constant(node: Node) -> Verdict:
    widths = node.const(1)
    if node.attrs.get("mode", "constant") != "constant":
        return reject(f"PAD has constants around, not mode {node.attrs['mode']}")
    if node.optional_operand(3) is not None:
        return reject("a Pad of some axes")
    return widths is None or bool((widths >= 0).all()) or reject("negative pads")


def _emit_pad(emit: Emitter, node: Node) -> None:
    x, given = node.operand(0), node.optional_operand(2)
    order, rank = emit.order(x), len(shape_of(x))
    widths = array_of(node.inputs[1]) if len(node.inputs) > 1 else np.array(node.attrs["pads"])
    value = node.attrs.get("value", 0) if given is None else array_of(given).item()
    source = emit.read(x, order)
    pads = [int(widths[side * rank + axis]) for axis in order for side in (0, 1)]
    shape = [shape_of(node.output)[axis] for axis in order]
    operands = [source, emit.program.sizes(pads), emit.point(value - offset_of(x.dtype), source.dtype)]
    emit.write(node.output, emit.add("PAD", operands, shape), order)


def _repeats_whole(node: Node) -> Verdict:
    """Tell whether a Resize repeats every pixel a whole number of times, which all coordinate systems agree about."""
    before, after = node.operand(0).static_shape, node.output.static_shape
    if before is None or after is None or len(before) != 4 or before[:2] != after[:2]:
        return reject("RESIZE has images of known sizes, and resizes no channels")
    if node.attrs.get("mode", "nearest") != "nearest":
        return reject(f"mode {node.attrs['mode']} would round other numbers than the operator defines")
    mode, rounding = node.attrs.get("coordinate_transformation_mode", "half_pixel"), node.attrs.get("nearest_mode")
    nearest = rounding in (None, "round_prefer_floor", "round_prefer_ceil")
    agrees = rounding == "floor" if mode == "asymmetric" else nearest and mode in ("half_pixel", "pytorch_half_pixel")
    if not agrees or any(a % b for a, b in zip(after, before, strict=True)):
        return reject(f"from {list(before)} to {list(after)} in mode {mode} does not repeat every pixel equally often")
    return True


def _emit_resize(emit: Emitter, node: Node) -> None:
    """Emit a RESIZE whose nearest pixel is the quotient of the place and the factor, rounded down."""
    x = emit.image(node.operand(0))
    sizes = zip(x.shape[1:3], shape_of(node.output)[2:], strict=True)
    axes = [axis for size in sizes if isinstance(axis := LinearAxis.of(*size, "half_pixel"), LinearAxis)]
    emit.write_image(node.output, emit.resize(x, axes, "NEAREST"))


def _emit_extreme(emit: Emitter, node: Node) -> None:
    values = [v for v in node.inputs if v is not None]
    order = common_order(emit, values, node.output)
    result = emit.read_wide(values[0], order)
    for value in values[1:]:
        other = emit.read_wide(value, order)
        shape = np.broadcast_shapes(result.shape, other.shape)
        result = emit.add(_EXTREMES[node.op], [result, other], shape, nan_mode="PROPAGATE")
    emit.write(node.output, result, order)


_EXTREMES = {"Max": "MAXIMUM", "Min": "MINIMUM"}

RULES: dict[str, Rule] = {
    **dict.fromkeys(("Flatten", "Reshape", "Squeeze", "Unsqueeze"), Rule(_emit_reshape)),
    "Concat": Rule(_emit_concat),
    "Max": Rule(_emit_extreme),
    "MaxPool": Rule(emit_max_pool, max_pool_fits),
    "Min": Rule(_emit_extreme),
    "Pad": Rule(_emit_pad, all_of(constant(1, 2), _pads_with_constant)),
    "Resize": Rule(_emit_resize, _repeats_whole),
    "Slice": Rule(_emit_slice, all_of(constant(1, 2, 3, 4), _steps_are_one)),
    "Split": Rule(_emit_split),
    "Transpose": Rule(_emit_transpose),
}
"""The operators, by their names in ONNX."""
QUANTIZATION: Rules = {op: QuantizationRule(equal_scales=op in _EXTREMES) for op in RULES}
"""How they are quantised: a maximum compares stored numbers, other operators only move them."""
