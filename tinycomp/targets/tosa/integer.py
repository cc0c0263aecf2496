"""What TOSA computes in 8-bit integers: one row for each quantised layer and each operator that moves stored numbers.

Layers are refused where the results are not those of ``docs/quantised-layers.md`` with TFLite's rounding, to the bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tinycomp.index import named
from tinycomp.ir.graph import Node, Value
from tinycomp.ops.numeric import Array, prod
from tinycomp.ops.spatial import Window, make_window, window_attributes
from tinycomp.quantized import patterns, rescale
from tinycomp.quantized.interpolation import IntegerResize, interpolates
from tinycomp.quantized.layer import QuantizedLayer
from tinycomp.quantized.layers import has_window, is_image_or_matrix
from tinycomp.quantized.reading import (
    MEAN_WEIGHT,
    PRODUCTS,
    first,
)
from tinycomp.quantized.rescale import Scale, ScaledSum
from tinycomp.quantized.softmax import (
    GUESS_BITS,
    GUESS_SHIFT,
    POWER_DIGIT,
    SHARE_SHIFT,
    IntegerSoftmax,
    has_lines,
)
from tinycomp.quantized.tables import looked_up, one_variable, table_of
from tinycomp.records import dataclass
from tinycomp.rewrite import ValuePattern, reject
from tinycomp.target.quantization import QuantizationCheck, QuantizationRule, Rules
from tinycomp.targets.common.checks import Check, Verdict
from tinycomp.targets.common.composites import operands_of
from tinycomp.targets.tosa.emitter import OFFSET, Emitter, Order, last_axis, offset_of, row_major, shape_of
from tinycomp.targets.tosa.program import Tensor

Emit = Callable[[Emitter, Node], None]
MatchCheck = Callable[..., Verdict]
"""Judges a match, and may have the options of the target as a second parameter."""


@dataclass(frozen=True)
class Row:
    """Hold the row of a composite.

    Attributes:
        pattern: What it looks like.
        checks: What the pattern cannot say.
        emit: Emits one.
    """

    pattern: Callable[..., ValuePattern]
    checks: tuple[MatchCheck, ...]
    emit: Emit


@dataclass(frozen=True)
class Rule:
    """Hold the row of an operator.

    Attributes:
        emit: Emits one.
        check: Which ones, beside their dtypes.
    """

    emit: Emit
    check: Check = lambda _: True


# Products with constants ----------------------------------------------------------------------------------------------


def _product_fits(layer: QuantizedLayer) -> Verdict:
    if layer.weight is None:
        return _run_time_scale(layer) is not None or reject(
            "sums may leave int32, or a ratio of scales the range of RESCALE"
        )
    if layer.product.weight.dtype != np.int8:
        return reject("weights without their zero point leave int8")
    if layer.product.largest_sum >= 2**31:
        return reject(f"sums may reach {layer.product.largest_sum}, which overflows the int32 accumulator")
    scale, _ = _scale_of_product(layer)
    return scale is not None or reject("a ratio of scales leaves the range of RESCALE")


def _scale_of_product(layer: QuantizedLayer) -> tuple[Scale | None, Array]:
    """Return what sums are multiplied by, and biases, int32."""
    product = layer.product
    ratios = np.broadcast_to(layer.ratios(), product.bias.shape)
    terms = 255 * np.abs(product.weight.astype(np.int64)).reshape(len(product.weight), -1).sum(axis=1)
    bias = rescale.bounded(product.bias, terms, ratios)
    largest = terms + np.abs(bias)
    one = product.scale.size == 1
    scale = rescale.by_fixed_point(ratios[:1] if one else ratios, largest.max(initial=0) if one else largest)
    return scale, bias.astype(np.int32)


def _emit_product(emit: Emitter, node: Node) -> None:
    layer = QuantizedLayer.of(node.body.nodes)
    core, product = layer.core, layer.product
    x = operands_of(node)[layer.stored()]
    is_image = core.op == "Conv"
    images, weight = (emit.image(x), product.weight) if is_image else (emit.matrix(x), product.weight[:, :, None, None])
    window = plane(core, images, weight.shape[2:], layer.geometry)
    point = product.zero_point - offset_of(x.dtype)
    scale, bias = _scale_of_product(layer)
    assert scale is not None
    y = emit.convolve(
        images, weight, bias, window, layer.groups, point,
        lambda sums, channels: emit.requantize(sums, scale.of(channels), layer.result),
    )  # fmt: skip
    if is_image:
        emit.write_image(node.output, y)
    else:
        emit.write(node.output, emit.reshape(y, shape_of(node.output)))


def plane(node: Node, images: Tensor, kernel: Sequence[int], geometry: Mapping[str, Any] | None = None) -> Window[int]:
    """Return where the windows of a node lie on images, by other attributes if given; a line has a height of 1."""
    attrs = window_attributes(node.attrs if geometry is None else geometry)
    if len(kernel) == 1:
        attrs |= {name: [1, *attrs[name]] for name in ("strides", "dilations") if attrs.get(name)}
        attrs |= {"pads": [0, attrs["pads"][0], 0, attrs["pads"][1]]} if attrs.get("pads") else {}
        kernel = (1, *kernel)
    return make_window(node.op, images.shape[1:3], kernel, ceil_mode=node.attrs.get("ceil_mode", 0), **attrs)


# Products of two tensors ----------------------------------------------------------------------------------------------


def batches_are_equal(first: Value, second: Value) -> Verdict:
    """Tell whether two tensors are batches of equally many matrices, or the second is one matrix."""
    a, b = first.shape, second.shape
    if a is None or b is None or len(a) < 2 or len(b) < 2:
        return reject("ranks are not known, or there is a vector")
    same = a[:-2] == b[:-2] or all(size == 1 for size in b[:-2])
    return same or reject(f"batches {list(a[:-2])} and {list(b[:-2])} are not equal")


def _points(layer: QuantizedLayer) -> list[int]:
    """Return the zero points of both operands as they are stored in int8."""
    return [layer.zero_point(i) - offset_of(layer.stored(i).dtype) for i in (0, 1)]


def _run_time_scale(layer: QuantizedLayer) -> Scale | None:
    """Return the scale of a product of two tensors; None if it, or the sums, leave their range."""
    depth = layer.core.operand(0).shape
    terms = depth[-1] if depth and isinstance(depth[-1], int) else 1
    largest = terms * prod([128 + abs(point) for point in _points(layer)])
    return rescale.by_fixed_point(layer.ratios(), largest) if largest < 2**31 else None


def _emit_matmul(emit: Emitter, node: Node) -> None:
    layer, outer = QuantizedLayer.of(node.body.nodes), operands_of(node)
    a, b = (outer[layer.stored(i)] for i in (0, 1))
    scale = _run_time_scale(layer)
    assert scale is not None
    sums = matmul(emit, a, b, [emit.point(point, "int8") for point in _points(layer)])
    y = emit.requantize(sums, scale, layer.result)
    emit.write(node.output, emit.reshape(y, shape_of(node.output)))


def matmul(emit: Emitter, a: Value, b: Value, points: list[Any]) -> Any:
    """Emit a product of batches of matrices, of which the second operand may have one, and return the sums."""
    (*batch, rows, depth), columns = shape_of(a), shape_of(b)[-1]
    count = prod(batch)
    if prod(shape_of(b)[:-2]) != count:
        rows, count = rows * count, 1
    operands = [emit.reshape(emit.read(a), (count, rows, depth)), emit.reshape(emit.read(b), (count, depth, columns))]
    kind = "int32" if operands[0].dtype == "int8" else operands[0].dtype
    return emit.add("MATMUL", [*operands, *points], (count, rows, columns), kind)


# Element by element ---------------------------------------------------------------------------------------------------

_COMBINE: dict[str, Callable[..., Array]] = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}
_BYTES = np.arange(256)


def _factors(layer: QuantizedLayer) -> ScaledSum | Scale | None:
    """Return the integers that combine all pairs of bytes as float32 does; None if there are none."""
    op, to = layer.core.op, layer.result
    a, b = (_BYTES + np.iinfo(layer.stored(i).dtype).min - layer.zero_point(i) for i in (0, 1))
    of_a, of_b = layer.scale(0), layer.scale(1)
    first, second = (x.astype(np.float32) * np.float32(s) for x, s in ((a, of_a), (b, of_b)))
    low, high = to.low - to.zero_point, to.high - to.zero_point
    with np.errstate(all="ignore"):
        rounded = np.rint(_COMBINE[op](first[:, None], second) / to.scale)
    results = np.clip(rounded, low, high).astype(np.int64)
    if op == "Mul":
        return rescale.product(np.multiply.outer(a, b), results, low, high)
    step, sign = float(to.scale), -1 if op == "Sub" else 1
    return rescale.scaled_sum(a, b, (of_a / step, sign * of_b / step), results, low, high)


def _factors_exist(layer: QuantizedLayer) -> Verdict:
    return len(layer.data) < 2 or _factors(layer) is not None or reject(
        "no integer factors round all pairs of bytes as float32 does, which ONNX asks for"
    )  # fmt: skip


def ranks_are_known(node: Node) -> Verdict:
    """Tell whether it is known how many axes the operands have."""
    return all(v is None or v.rank is not None for v in node.inputs) or reject("a rank is unknown")


def _emit_binary(emit: Emitter, node: Node) -> None:
    layer, outer = QuantizedLayer.of(node.body.nodes), operands_of(node)
    values = [outer[layer.stored(i)] for i in (0, 1)]
    order = common_order(emit, values, node.output)
    shape = [shape_of(node.output)[axis] for axis in order]
    found = _factors(layer)
    assert found is not None
    if isinstance(found, Scale):
        factors, kind, scale = [1, 1], "MUL", found
    else:
        kind = "ADD" if found.second >= 0 else "SUB"
        factors, scale = [found.first, abs(found.second)], found.scale
    operands = [
        emit.rescale(emit.read_wide(v, order), Scale.whole(factor), point, dtype="int32")
        for v, factor, point in zip(values, factors, _points(layer), strict=True)
    ]
    shift = [emit.point(0, "int8")] if kind == "MUL" else []
    sums = emit.add(kind, [*operands, *shift], shape)
    if isinstance(found, ScaledSum):
        sums = emit.plus(sums, found.offset)
    emit.write(node.output, emit.requantize(sums, scale, layer.result), order)


def common_order(emit: Emitter, values: list[Value], result: Value) -> Order:
    """Return the order of the first operand that is as wide as the result and no constant; else row-major."""
    rank = len(shape_of(result))
    wide = (v for v in values if v.const is None and len(shape_of(v)) == rank)
    return next((emit.order(v) for v in wide), row_major(rank))


def _emit_table(emit: Emitter, node: Node) -> None:
    x, table = looked_up(node), table_of(node)
    if x.dtype == "int8":
        table = np.roll(table, 128)  # in the order of the stored numbers
    stored = (table.astype(np.int16) - offset_of(node.output.dtype)).astype(np.int8)
    order = emit.order(x)
    source = emit.read(x, order)
    emit.write(node.output, emit.table(source, stored), order)


# Pools ----------------------------------------------------------------------------------------------------------------


def _scale_of_mean(layer: QuantizedLayer) -> Scale | None:
    return rescale.by_fixed_point(layer.ratios(), 255 * MEAN_WEIGHT * prod(layer.kernel))


def _mean_fits(layer: QuantizedLayer) -> Verdict:
    """Tell whether sums and their scale are what RESCALE defines; if sizes are unknown, the match says so."""
    if not all(isinstance(size, int) for size in layer.kernel):
        return True
    return _scale_of_mean(layer) is not None or reject("sums, or a ratio of scales, leave the range of RESCALE")


def _divides_alike(count: int, scale: Scale, low: int, high: int) -> bool:
    """Tell whether AVG_POOL2D, which divides by ``reciprocal_scale`` of the count, has the results of a scale.

    Args:
        count: Of the elements of a window.
        scale: What the sums of weighted elements are multiplied by otherwise.
        low: The least element, without zero point.
        high: The greatest.
    """
    bits = (count - 1).bit_length()
    pool = Scale(np.array([(((1 << 30) + 1) << bits) // count], np.int32), np.array([30 + bits], np.int8))
    sums = np.arange(low * count, high * count + 1, dtype=np.int64)
    return bool((pool.applied(sums) == scale.applied(MEAN_WEIGHT * sums)).all())


def _emit_mean(emit: Emitter, node: Node) -> None:
    """Emit a mean: an AVG_POOL2D where that has the same bits, else a convolution of every channel."""
    layer, (x,) = QuantizedLayer.of(node.body.nodes), operands_of(node).values()
    images, to, product, scale = emit.image(x), layer.result, layer.product, _scale_of_mean(layer)
    window = plane(layer.core, images, product.weight.shape[2:], layer.geometry)
    assert scale is not None
    zero_point, less = layer.zero_point(), offset_of(x.dtype)
    low, high = (end - zero_point for end in (np.iinfo(x.dtype).min, np.iinfo(x.dtype).max))
    if (layer.scale(), zero_point) == (float(to.scale), to.zero_point) and _divides_alike(
        prod(window.kernel), scale, low, high
    ):
        images, pads = emit.windows(images, window)
        y = emit.average(images, window, pads, zero_point - less)
        emit.write_image(node.output, emit.clamp(y, to.low - less, to.high - less))
        return
    bias = product.bias.astype(np.int32)
    sums = emit.convolve(images, product.weight, bias, window, layer.groups, zero_point - less)
    emit.write_image(node.output, emit.requantize(sums, scale, to))


def _emit_arg_max(emit: Emitter, node: Node) -> None:
    """Emit the place of the greatest number, which TOSA counts in int32, along the last axis, as hardware has it."""
    value = next(iter(operands_of(node).values()))
    rank = len(shape_of(value))
    x = emit.read(value, last_axis(rank, node.body.nodes[-1].attrs.get("axis", 0)))
    y = emit.add("ARGMAX", [x], x.shape[:-1], "int32", axis=rank - 1, nan_mode="PROPAGATE")
    emit.write(node.output, emit.reshape(y, shape_of(node.output)))


def max_pool_fits(node: Node) -> Verdict:
    """Tell whether a maximum has one or two axes, no gaps, and no indices."""
    kernel = node.attrs["kernel_shape"]
    if node.operand(0).rank not in (3, 4):
        return reject(f"a pool of {len(kernel)} spatial axes, not 1 or 2")
    if any(d != 1 for d in node.attrs.get("dilations", ())):
        return reject("MAX_POOL2D has no dilations")
    return len(node.used_outputs()) == 1 or reject("MAX_POOL2D returns no indices")


def emit_max_pool(emit: Emitter, node: Node) -> None:
    """Emit the maximum of every window."""
    images = emit.image(node.operand(0))
    window = plane(node, images, node.attrs["kernel_shape"])
    x, pads = emit.windows(images, window)
    shape = (x.shape[0], *window.output, x.shape[3])
    attributes = {"kernel": list(window.kernel), "stride": list(window.strides), "pad": pads, "nan_mode": "PROPAGATE"}
    emit.write_image(node.output, emit.add("MAX_POOL2D", [x], shape, **attributes))


# Softmax and interpolation --------------------------------------------------------------------------------------------

_TO_BYTE = Scale(np.array([1 << 30], np.int32), np.array([52], np.int8))
"""Makes 8 bits of 30."""
_PLACES = 256
"""How far apart in a table the entries of neighbouring bytes are where each has two."""
_FEW = 1024
"""Of so many numbers the powers are found sooner in three tables of bytes, which hardware loads in less time."""


def _scale_of(layer: IntegerSoftmax | IntegerResize) -> Scale | None:
    return rescale.by_fixed_point(np.array([layer.ratio]), layer.largest)


def _rescales(kind: type[IntegerSoftmax] | type[IntegerResize]) -> MatchCheck:
    return lambda match: (
        _scale_of(kind.of(QuantizedLayer.of(match))) is not None
        or reject("a ratio of scales leaves the range of RESCALE")
    )


def _emit_softmax(emit: Emitter, node: Node) -> None:
    """Emit the powers of differences, their sum, its inverse, and the products."""
    layer, (value,) = IntegerSoftmax.of(QuantizedLayer.of(node.body.nodes)), operands_of(node).values()
    order = last_axis(len(shape_of(value)), layer.axis)
    x = emit.read(value, order)
    axis, line = [len(order) - 1], (*x.shape[:-1], 1)
    powers = (_powers_by_bytes if prod(x.shape) <= _FEW else _powers_at_once)(emit, x, layer.powers[::-1])
    total = emit.reduce("REDUCE_SUM", powers, axis)
    left = emit.plus(emit.add("CLZ", [total], line), -1)
    scaled = emit.add("LOGICAL_LEFT_SHIFT", [total, left], line)
    guess = emit.table(emit.rescale(emit.plus(scaled, -3 << 29), _TO_BYTE), layer.inverses.astype(np.int16) - OFFSET)
    guess = emit.rescale(guess, Scale.whole(1 << GUESS_BITS), -OFFSET, dtype="int32")
    twice = emit.program.const(np.full([1] * len(line), 1 << 30, np.int32))
    rest = emit.add("SUB", [twice, emit.multiply(scaled, guess, GUESS_SHIFT)], line)
    inverse = emit.add("LOGICAL_LEFT_SHIFT", [emit.multiply(rest, guess, layer.inverse_shift), left], line)
    scale = _scale_of(layer)
    assert scale is not None
    emit.write(node.output, emit.requantize(emit.multiply(powers, inverse, SHARE_SHIFT), scale, layer.to), order)


def _behind_greatest(emit: Emitter, x: Tensor, factor: int, last: int) -> Tensor:
    """Emit ``last`` less the multiplied differences from the greatest number of each line, int32."""
    line = emit.rescale(emit.reduce("REDUCE_MAX", x, [len(x.shape) - 1]), Scale.whole(factor), dtype="int32")
    return emit.add("SUB", [emit.rescale(x, Scale.whole(factor), dtype="int32"), emit.plus(line, -last)], x.shape)


def _powers_at_once(emit: Emitter, x: Tensor, powers: Array) -> Tensor:
    """Emit a table of int16.

    Between two entries a TABLE counts 128 places. The first one behind an entry has 127 times that entry and once the
    next, the two digits of a power.
    """
    places = _behind_greatest(emit, x, _PLACES, 1 - (1 << 15) + 255 * _PLACES)
    digits = np.append(np.transpose(np.divmod(powers, POWER_DIGIT)), 0)
    return emit.table(emit.rescale(places, Scale.whole(1), dtype="int16"), digits, "int32")


def _powers_by_bytes(emit: Emitter, x: Tensor, powers: Array) -> Tensor:
    """Emit a table for each byte of the powers, and add them up."""
    places = emit.rescale(_behind_greatest(emit, x, 1, 127), Scale.whole(1))
    parts = [
        emit.rescale(
            emit.table(places, (powers >> bits & 255) - OFFSET), Scale.whole(1 << bits), -OFFSET, dtype="int32"
        )
        for bits in (0, 8, 16)
    ]
    return emit.add("ADD", [emit.add("ADD", parts[:2], x.shape), parts[2]], x.shape)


def _emit_resize(emit: Emitter, node: Node) -> None:
    layer, (value,) = IntegerResize.of(QuantizedLayer.of(node.body.nodes)), operands_of(node).values()
    sums, scale = emit.resize(emit.image(value), (layer.lines, layer.columns), "BILINEAR"), _scale_of(layer)
    assert scale is not None
    sums = emit.plus(sums, -layer.parts * (layer.zero_point - offset_of(value.dtype)))
    emit.write_image(node.output, emit.requantize(sums, scale, layer.to))


LAYERS: dict[str, Row] = {
    "qconv": Row(patterns.qconv, (patterns.bias_per_channel, is_image_or_matrix), _emit_product),
    "qdense": Row(patterns.qdense, (patterns.bias_per_channel,), _emit_product),
    "qmatmul": Row(patterns.qmatmul, (lambda match: batches_are_equal(match.a, match.b),), _emit_matmul),
    "qbinary": Row(patterns.qbinary, (lambda match: ranks_are_known(first(match.matched, *_COMBINE)),), _emit_binary),
    "qavgpool": Row(patterns.qavgpool, (patterns.equal_counts, has_window), _emit_mean),
    "qsoftmax": Row(patterns.qsoftmax, (has_lines, _rescales(IntegerSoftmax)), _emit_softmax),
    "qresize": Row(patterns.qresize, (interpolates, _rescales(IntegerResize)), _emit_resize),
    "qargmax": Row(patterns.qargmax, (), _emit_arg_max),
    "qtable": Row(patterns.qtable, (one_variable,), _emit_table),
}
"""The quantised layers, in order of precedence."""

QUANTIZATION: Rules = {
    **dict.fromkeys(PRODUCTS, QuantizationRule(
        weights=("int8", "uint8", "int4", "uint4"), bias=("int32", "float32"), symmetric=(),
        checks=(QuantizationCheck(_product_fits, "quantise the weight symmetrically, or the result in larger steps"),),
    )),
    **dict.fromkeys(_COMBINE, QuantizationRule(checks=(QuantizationCheck(_factors_exist),))),
    **dict.fromkeys(("AveragePool", "GlobalAveragePool", "ReduceMean"), QuantizationRule(
        equal_scales="preferred", checks=(QuantizationCheck(_mean_fits),),
    )),
    **dict.fromkeys(named("function"), QuantizationRule()),
    "Softmax": QuantizationRule(fused=()),
}  # fmt: skip
"""How layers of operators are quantised."""
