"""Convolutions and matrix products of 8-bit numbers on the C target: integer sums, requantised once."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tinycomp.ir.graph import COMPOSITE, Node, Value
from tinycomp.ops.numeric import Array, prod
from tinycomp.ops.spatial import Window
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.quantized.layer import QuantizedLayer
from tinycomp.quantized.layers import KINDS
from tinycomp.quantized.reading import Requantization, fixed_point
from tinycomp.rewrite import Match, reject
from tinycomp.symbolic import Size, product
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
    return known_rank(QuantizedLayer.of(match.matched).core)


def _is_fixed_point(match: Match, options: COptions) -> Verdict:
    return options.requantize == "fixed_point" or reject("it is computed in float32, as ONNX defines it")


def _rounds_alike(match: Match, options: COptions) -> Verdict:
    """Tell whether a mean of integers is what ONNX defines, in float32: none of them is as near to a tie as its error.

    So it is where the scales are equal and the window is odd, as that of 7 x 7 numbers, and not too large.
    """
    if options.requantize == "fixed_point":
        return True
    layer = QuantizedLayer.of(match.matched)
    count = prod(layer.kernel)
    info, point = np.iinfo(match.x.dtype), layer.zero_point()
    step = layer.scale() / float(layer.result.scale)
    sums = np.arange((info.min - point) * count, (info.max - point) * count + 1)
    error = (count + 2) * 2.0**-24 * step * max(point - info.min, info.max - point)
    away = np.abs((sums * (step / count)) % 1 - 0.5).min()
    return bool(away > error) or reject("near a tie, a mean in float32, as ONNX defines it, may be another number")


@dataclass(frozen=True)
class PackedProduct:
    """A product of 8-bit numbers and constants, as the kernels take it.

    Attributes:
        x: The data in the region, uint8.
        y: The result in the region.
        zero_point: Of the data.
        weight: int8 or int16 without zero point, output channels first.
        bias: int32, one per channel, or None.
        factors: float32, what sums are multiplied by, one per channel; None where ``y`` are the sums.
        to: How floats become those of ``y``; None where ``y`` is float.
        ratios: The same as ``factors`` in float64 for the fixed-point rule; None where the model itself spells out the
            float rule, or ``y`` is not quantised.
    """

    x: Value
    y: Value
    zero_point: int
    weight: Array
    bias: Array | None
    factors: Array | None
    to: Requantization | None
    ratios: Array | None = None

    @classmethod
    def of(cls, node: Node, layer: QuantizedLayer) -> PackedProduct:
        """Return what the kernels take of a composite's layer."""
        product, to = layer.product, layer.to
        bias = product.bias.astype(np.int32) if product.bias.any() else None
        factors = np.array(np.broadcast_to(layer.factors, (len(product.weight),)))
        ratios = None if to is None or layer.is_spelled_out else layer.ratios()
        if to is not None and node.output.dtype != to.dtype:
            to = to.unsigned()
        x = operands_of(node)[layer.stored()]
        return cls(x, node.output, product.zero_point, product.weight, bias, factors, to, ratios)

    def _is_fixed_point(self, emit: Emitter) -> bool:
        return self.ratios is not None and emit.settings.requantize == "fixed_point"

    def constants(self, emit: Emitter) -> tuple[View | None, View | None]:
        """Return where bias and factors lie."""
        factors = self.factors
        if self._is_fixed_point(emit):
            assert self.ratios is not None
            factors = fixed_point(np.broadcast_to(self.ratios, (len(self.weight),)))
        bias = None if self.bias is None else emit.constant(self.bias)
        return bias, None if factors is None else emit.constant(factors)

    def params(self, emit: Emitter) -> Params:
        """Return the parameters that say how sums become results."""
        return {
            "x_zero_point": self.zero_point,
            "weight_type": TYPES[self.weight.dtype.name],
            "type": TYPES[self.y.dtype],
            **rounding(self.to, fixed=self._is_fixed_point(emit)),
        }


def rounding(to: Requantization | None, *, fixed: bool) -> Params:
    """Return the parameters of kernels that say how multiplied sums are stored; None for sums and floats."""
    ends = {} if to is None else {"y_zero_point": to.zero_point, "low": to.low, "high": to.high}
    return {"rule": int(fixed), "y_zero_point": 0, "low": 0, "high": 0, **ends}


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
    record = QuantizedLayer.of(node.body.nodes)
    emit_windows(emit, node, record, PackedProduct.of(node, record))


def emit_windows(emit: Emitter, node: Node, record: QuantizedLayer, layer: PackedProduct) -> None:
    """Emit the kernel call of a convolution or mean of images."""
    window = window_at(record.core.op, record.geometry, sized_type(layer.x)[1], layer.weight.shape[2:])
    emit_conv(emit, node, layer, window, record.groups)


def _mean_layout(node: Node) -> LayoutRule:
    return LayoutRule.ROW_MAJOR if _is_whole(node) else LayoutRule.CHANNELS_LAST


def _is_whole(node: Node) -> bool:
    """Tell whether a mean has one window, which is the image."""
    (x,) = operands_of(node).values()
    return QuantizedLayer.of(node.body.nodes).kernel == (x.shape or ())[2:]


@FAMILY.lower("c.qavgpool", check=taken, layout=_mean_layout, domain=COMPOSITE, unsigned=True, either=True)
def qavgpool(emit: Emitter, node: Node) -> None:
    """Emit a mean as a convolution of every channel with equal weights, that of images as a product with a column."""
    record = QuantizedLayer.of(node.body.nodes)
    layer = PackedProduct.of(node, record)
    if _is_whole(node):
        column = replace(layer, weight=layer.weight[:1].reshape(1, -1), factors=record.factors)
        emit_dense(emit, node, column, leading=2)
    else:
        emit_windows(emit, node, record, layer)


def emit_conv(emit: Emitter, node: Node, layer: PackedProduct, window: Window[Size], groups: int) -> None:
    """Emit the kernel call of a convolution; depthwise ones have a kernel of their own."""
    source, channels = image(layer.x), len(layer.weight)
    to, of = pixels_to(emit, layer.y), pixels_of(emit, layer.x)
    params = {
        "batch": source.batch,
        "channels": source.channels,
        **window_params(window),
        "x_pixel_stride": of.stride,
        "y_pixel_stride": to.stride,
        **layer.params(emit),
    }
    depthwise = groups == source.channels == channels
    if not depthwise:
        params |= {"out_channels": channels, "groups": groups, "algorithm": 0, "block_rows": 0}
    bias, factors = layer.constants(emit)
    operands = [to.view, of.view, emit.constant(layer.weight), bias, factors]
    emit.call("qdwconv2d" if depthwise else "qconv2d", operands, params, node)


@FAMILY.lower(
    "c.qdense", "c.qdense_scaled", "c.qdense_real",
    check=taken, layout=LayoutRule.ROW_MAJOR, domain=COMPOSITE, unsigned=True, either=True,
)  # fmt: skip
def qdense(emit: Emitter, node: Node) -> None:
    """Emit a matrix product of 8-bit rows."""
    emit_dense(emit, node, PackedProduct.of(node, QuantizedLayer.of(node.body.nodes)))


def emit_dense(emit: Emitter, node: Node, layer: PackedProduct, leading: int = -1) -> None:
    """Emit the kernel call of a matrix product; rows of the weight are output channels.

    Rows of the data are what follows their ``leading`` axes.
    """
    columns, depth = layer.weight.shape
    rows = product(sized_type(layer.x)[1][:leading])
    left = rows_of(emit, layer.x, rows, depth)
    weight = layer.weight
    # Output channels are the columns of a MatMul's weight; seen from there no copy is made.
    trans_b = weight.flags.c_contiguous
    params = {
        "m": rows,
        "n": columns,
        "k": depth,
        "x_row_stride": left.strides[0],
        "y_row_stride": columns,
        "trans_b": int(trans_b),
        **layer.params(emit),
        "block_rows": 0,
    }
    bias, factors = layer.constants(emit)
    stored = emit.constant(weight if trans_b else weight.T)
    emit.call("qgemm", [layer.y, left.view, stored, bias, factors], params, node)
