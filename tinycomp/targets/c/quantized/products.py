"""Convolutions and matrix products of 8-bit numbers on the C target: integer sums, requantised once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tinycomp.ir.graph import COMPOSITE, Node, Value
from tinycomp.ops.numeric import prod
from tinycomp.ops.spatial import Window
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.quantized.layer import QuantizedLayer
from tinycomp.quantized.layers import KINDS
from tinycomp.quantized.reading import IntegerProduct, fixed_point
from tinycomp.rewrite import Match, reject
from tinycomp.symbolic import Size
from tinycomp.symbolic import product as size_of
from tinycomp.target import Target
from tinycomp.targets.c.codegen.element_program import TYPES
from tinycomp.targets.c.codegen.emitter import Emitter, Params, View
from tinycomp.targets.c.codegen.images import pixels_of, pixels_to
from tinycomp.targets.c.codegen.rules import LoweringRules, known_rank, taken
from tinycomp.targets.c.ops.conv import image, window_at, window_params
from tinycomp.targets.c.ops.matmul import rows_of
from tinycomp.targets.c.options import COptions
from tinycomp.targets.common.checks import Verdict, sized_type
from tinycomp.targets.common.composites import operands_of

FAMILY = LoweringRules()


def add_layers(target: Target, *names: str) -> None:
    """Add composites of kinds of quantised layers."""
    for name in names:
        kind = KINDS[name]
        composite = target.composite(kind.pattern)
        for check in (_has_known_rank, *kind.checks):
            composite.check(check)
        if kind.fixed_point:
            composite.check(_rounds_alike if name == "qavgpool" else _is_fixed_point)


def _has_known_rank(match: Match) -> Verdict:
    return known_rank(QuantizedLayer.of(match).core)


def _is_fixed_point(match: Match, options: COptions) -> Verdict:
    return options.requantize == "fixed_point" or reject("it is computed in float32, as ONNX defines it")


def _rounds_alike(match: Match, options: COptions) -> Verdict:
    """Tell whether a mean of integers is what ONNX defines, in float32: none of them is as near to a tie as its error.

    So it is where the scales are equal and the window is odd, as that of 7 x 7 numbers, and not too large.
    """
    if options.requantize == "fixed_point":
        return True
    layer = QuantizedLayer.of(match)
    count = prod(layer.kernel)
    info, point = np.iinfo(match.x.dtype), layer.zero_point()
    step = layer.scale() / float(layer.result.scale)
    sums = np.arange((info.min - point) * count, (info.max - point) * count + 1)
    error = (count + 2) * 2.0**-24 * step * max(point - info.min, info.max - point)
    away = np.abs((sums * (step / count)) % 1 - 0.5).min()
    return bool(away > error) or reject("near a tie, a mean in float32, as ONNX defines it, may be another number")


def layer_of(node: Node) -> QuantizedLayer:
    """Return the layer that a composite is."""
    return QuantizedLayer.of(node.body.nodes)


def finish(emit: Emitter, node: Node, layer: QuantizedLayer | None, channels: int = 1) -> tuple[View | None, Params]:
    """Return what a kernel multiplies sums by, and the parameters that say what becomes of them.

    Args:
        emit: Where factors are stored.
        node: The node, whose result may be unsigned where that of the layer is not.
        layer: What the node computes; None where it gives the sums.
        channels: How many factors the kernel takes.
    """
    to, factors, fixed = None, None, False
    if layer is not None:
        to = layer.to
        # Where the model itself spells out the float rule, there is no other.
        fixed = to is not None and not layer.is_spelled_out and emit.settings.requantize == "fixed_point"
        each = fixed_point(layer.ratios()) if fixed else layer.factors
        factors = emit.constant(np.array(np.broadcast_to(each, (channels, *each.shape[1:]))))
    if to is not None and node.output.dtype != to.dtype:
        to = to.unsigned()
    ends = {} if to is None else {"y_zero_point": to.zero_point, "low": to.low, "high": to.high}
    type_ = TYPES[node.output.dtype]
    return factors, {"type": type_, "rule": int(fixed), "y_zero_point": 0, "low": 0, "high": 0, **ends}


def _packed(
    emit: Emitter, node: Node, product: IntegerProduct, layer: QuantizedLayer | None, zero_point: Value | None
) -> tuple[list[Value | View | None], Params]:
    """Return bias, factors and zero point of a product with constant weights, and the parameters of its numbers."""
    bias = product.bias.astype(np.int32)
    factors, params = finish(emit, node, layer, len(bias))
    numbers = {"x_zero_point": product.zero_point, "weight_type": TYPES[product.weight.dtype.name]}
    return [emit.constant(bias) if bias.any() else None, factors, zero_point], {**numbers, **params}


@FAMILY.lower(
    "c.qconv",
    "c.qconv_scaled",
    "c.qconv_real",
    check=taken,
    layout=LayoutRule.CHANNELS_LAST,
    domain=COMPOSITE,
    unsigned=True,
    either=True,
)
def qconv(emit: Emitter, node: Node) -> None:
    """Emit a convolution of 8-bit images."""
    _emit_windows(emit, node, layer_of(node))


def _emit_windows(emit: Emitter, node: Node, layer: QuantizedLayer) -> None:
    x = operands_of(node)[layer.stored()]
    window = window_at(layer.core.op, layer.geometry, sized_type(x)[1], layer.product.weight.shape[2:])
    emit_conv(emit, node, x, layer.product, window, layer.groups, layer)


def _mean_layout(node: Node) -> LayoutRule:
    return LayoutRule.ROW_MAJOR if _is_whole(node) else LayoutRule.CHANNELS_LAST


def _is_whole(node: Node) -> bool:
    """Tell whether a mean has one window, which is the image."""
    (x,) = operands_of(node).values()
    return layer_of(node).kernel == (x.shape or ())[2:]


@FAMILY.lower("c.qavgpool", check=taken, layout=_mean_layout, domain=COMPOSITE, unsigned=True, either=True)
def qavgpool(emit: Emitter, node: Node) -> None:
    """Emit a mean as a convolution of every channel with equal weights, that of images as a product with a column."""
    layer = layer_of(node)
    if _is_whole(node):
        column = replace(layer.product, weight=layer.product.weight[:1].reshape(1, -1), bias=layer.product.bias[:1])
        emit_dense(emit, node, operands_of(node)[layer.stored()], column, layer, leading=2)
    else:
        _emit_windows(emit, node, layer)


def emit_conv(
    emit: Emitter,
    node: Node,
    x: Value,
    product: IntegerProduct,
    window: Window[Size],
    groups: int,
    layer: QuantizedLayer | None = None,
    zero_point: Value | None = None,
) -> None:
    """Emit the kernel call of a convolution; depthwise ones have a kernel of their own.

    A ``zero_point`` that comes in at run time takes the place of that of the product.
    """
    source, channels = image(x), len(product.weight)
    to, of = pixels_to(emit, node.output), pixels_of(emit, x)
    constants, results = _packed(emit, node, product, layer, zero_point)
    params = {
        "batch": source.batch,
        "channels": source.channels,
        **window_params(window),
        "x_pixel_stride": of.stride,
        "y_pixel_stride": to.stride,
        **results,
    }
    depthwise = groups == source.channels == channels
    if not depthwise:
        params |= {"out_channels": channels, "groups": groups, "algorithm": 0, "block_rows": 0}
    operands = [to.view, of.view, emit.constant(product.weight), *constants]
    emit.call("qdwconv2d" if depthwise else "qconv2d", operands, params, node)


@FAMILY.lower(
    "c.qdense", "c.qdense_scaled", "c.qdense_real",
    check=taken, layout=LayoutRule.ROW_MAJOR, domain=COMPOSITE, unsigned=True, either=True,
)  # fmt: skip
def qdense(emit: Emitter, node: Node) -> None:
    """Emit a matrix product of 8-bit rows."""
    layer = layer_of(node)
    emit_dense(emit, node, operands_of(node)[layer.stored()], layer.product, layer)


def emit_dense(
    emit: Emitter,
    node: Node,
    x: Value,
    product: IntegerProduct,
    layer: QuantizedLayer | None = None,
    leading: int = -1,
    zero_point: Value | None = None,
) -> None:
    """Emit the kernel call of a matrix product; rows of the weight are output channels.

    Rows of the data are what follows their ``leading`` axes. A ``zero_point`` that comes in at run time takes the place
    of that of the product.
    """
    weight = product.weight
    columns, depth = weight.shape
    rows = size_of(sized_type(x)[1][:leading])
    left = rows_of(emit, x, rows, depth)
    constants, results = _packed(emit, node, product, layer, zero_point)
    # Output channels are the columns of a MatMul's weight; seen from there no copy is made.
    trans_b = weight.flags.c_contiguous
    params = {
        "m": rows,
        "n": columns,
        "k": depth,
        "x_row_stride": left.strides[0],
        "y_row_stride": columns,
        "trans_b": int(trans_b),
        **results,
        "block_rows": 0,
    }
    stored = emit.constant(weight if trans_b else weight.T)
    emit.call("qgemm", [node.output, left.view, stored, *constants], params, node)
