"""Convolutions and matrix products of 8-bit numbers on the C target: integer sums, requantised once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tinycomp.index import named
from tinycomp.ir.graph import COMPOSITE, Node, Value
from tinycomp.ir.types import Dim, tensor
from tinycomp.ops.numeric import Array, prod
from tinycomp.ops.spatial import Window
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.quantized import patterns
from tinycomp.quantized.patterns import bias_per_channel, scaled_per_channel, spatial_pads, sums_fit
from tinycomp.quantized.reading import (
    MEAN_WEIGHT,
    PRODUCTS,
    IntegerProduct,
    Requantization,
    dequantizer,
    first,
    fixed_point,
    limits,
    scale_of,
    scale_of_sums,
    zero_point_of,
)
from tinycomp.rewrite import Composite, Match, Remark, ValuePattern, reject
from tinycomp.symbolic import Size, product
from tinycomp.target import Target
from tinycomp.targets.c.codegen.element_program import TYPES
from tinycomp.targets.c.codegen.emitter import Emitter, Params, View
from tinycomp.targets.c.codegen.images import pixels_of, pixels_to
from tinycomp.targets.c.codegen.rules import LoweringRules, taken
from tinycomp.targets.c.ops.conv import image, window_at, window_params
from tinycomp.targets.c.ops.matmul import rows_of
from tinycomp.targets.c.options import COptions
from tinycomp.targets.common.checks import Verdict, channel_vector, sized_type
from tinycomp.targets.common.composites import operands_of

FAMILY = LoweringRules()
_IMAGES = (3, 4)
"""Ranks of what the kernel convolves."""


def add_products(target: Target) -> None:
    """Add the composites whose result is requantised; they win over all that only read 8-bit numbers."""
    for pattern in (patterns.qconv, patterns.qdense):
        _add(target, pattern)
    for pattern in (patterns.qconv_scaled, patterns.qdense_scaled):
        _add(target, pattern).check(_spelled_as_kernel)
    mean = target.composite(patterns.qavgpool)
    for check in (patterns.equal_counts, _has_window, _rounds_alike):
        mean.check(check)


def add_real_products(target: Target) -> None:
    """Add the composites whose result is float32."""
    for pattern in (patterns.qconv_real, patterns.qdense_real):
        _add(target, pattern)


def _add(target: Target, pattern: Callable[..., ValuePattern]) -> Composite:
    composite = target.composite(pattern)
    for check in (bias_per_channel, scaled_per_channel, sums_fit, _fits_kernel):
        composite.check(check)
    return composite


def _spelled_as_kernel(match: Match) -> Verdict:
    """Tell whether explicit arithmetic is the kernels': one factor per channel, integer bounds and zero point."""
    anchor, last = first(match.matched, *PRODUCTS), match.outputs[0].producer
    assert last is not None
    if (scale_of_sums(anchor) != 1).any():
        return reject("the sums are scaled before they are multiplied")
    to, factors = Requantization.spelled_out(last)
    if channel_vector(factors, tensor(anchor.output.type), 1 if anchor.op == "Conv" else -1) is None:
        return reject(f"factors of shape {list(factors.shape)}, not one per channel")
    info = np.iinfo(to.dtype)
    low, high = limits(last.inputs[0])
    if not info.min <= to.zero_point <= info.max:
        return reject(f"a zero point of {to.zero_point}")
    if low < info.min or high > info.max:
        return reject(f"a range from {low} to {high}, more than {to.dtype} holds")
    return factors_fit(factors)


def _fits_kernel(match: Match) -> Verdict:
    anchor = first(match.matched, *PRODUCTS)
    rank = anchor.output.rank
    if rank is None:
        return reject("the rank is unknown")
    if anchor.op == "Conv":
        if rank not in _IMAGES:
            return reject(f"a convolution of {rank - 2} spatial axes")
        pads = spatial_pads(match.matched, rank)
        if isinstance(pads, Remark):
            return pads
        if any(pads) and anchor.attrs.get("auto_pad", "NOTSET") != "NOTSET":
            return reject("a Pad before automatic padding")
    scale = scale_of_sums(anchor)
    last = next((n for n in match.matched if n.op == "QuantizeLinear"), None)
    factors = scale.astype(np.float32) if last is None else Requantization.read(last).factors(scale)
    return factors_fit(factors)


def _has_window(match: Match) -> Verdict:
    """Tell whether channels and sizes of a mean are known, so that it is a convolution with known weights."""
    if match.x.rank not in _IMAGES:
        return reject(f"a mean over {match.x.type}")
    window = _sizes_of(first(match.matched, *named("mean")), match.x)
    if not all(isinstance(size, int) for size in (match.x.shape[1], *window)):
        return reject(f"a mean of {match.x.type} over {list(window)}, of which not all is known")
    largest = 255 * MEAN_WEIGHT * prod(window)
    return largest < 2**31 or reject(f"sums may reach {largest}, which overflows the int32 accumulator")


def _rounds_alike(match: Match, options: COptions) -> Verdict:
    """Tell whether a mean of integers is what ONNX defines, in float32: none of them is as near to a tie as its error.

    So it is where the scales are equal and the window is odd, as that of 7 x 7 numbers, and not too large.
    """
    if options.requantize == "fixed_point":
        return True
    pool, to = first(match.matched, *named("mean")), Requantization.read(first(match.matched, "QuantizeLinear"))
    source = dequantizer(pool.inputs[0])
    count = prod([int(size) for size in _sizes_of(pool, match.x) if isinstance(size, int)])
    info, point = np.iinfo(match.x.dtype), zero_point_of(source).item()
    step = scale_of(source).item() / float(to.scale)
    sums = np.arange((info.min - point) * count, (info.max - point) * count + 1)
    error = (count + 2) * 2.0**-24 * step * max(point - info.min, info.max - point)
    away = np.abs((sums * (step / count)) % 1 - 0.5).min()
    return bool(away > error) or reject("near a tie, a mean in float32, as ONNX defines it, may be another number")


def _sizes_of(pool: Node, x: Value) -> Sequence[Dim]:
    """Return the sizes of the window of a mean."""
    sizes: Sequence[Dim] = pool.attrs.get("kernel_shape") or (x.shape or ())[2:]
    return sizes


def factors_fit(factors: Array) -> Verdict:
    """Tell whether what sums are multiplied by is positive and finite in float32."""
    return bool((np.isfinite(factors) & (factors > 0)).all()) or reject("a ratio of scales leaves float32")


@dataclass(frozen=True)
class Layer:
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
    def of(cls, node: Node) -> Layer:
        """Read a composite."""
        nodes = node.body.nodes
        anchor = first(nodes, *PRODUCTS)
        product = IntegerProduct.read(anchor, nodes)
        x = operands_of(node)[dequantizer(anchor.inputs[0]).inputs[0]]
        factors, to, ratios = _result_of(node, product)
        bias = product.bias.astype(np.int32) if product.bias.any() else None
        spread = np.array(np.broadcast_to(factors, (len(product.weight),)))
        return cls(x, node.output, product.zero_point, product.weight, bias, spread, to, ratios)

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
        to = self.to
        return {
            "x_zero_point": self.zero_point,
            "weight_type": TYPES[self.weight.dtype.name],
            "type": TYPES[self.y.dtype],
            "rule": int(self._is_fixed_point(emit)),
            "y_zero_point": 0 if to is None else to.zero_point,
            "low": 0 if to is None else to.low,
            "high": 0 if to is None else to.high,
        }


def _result_of(node: Node, product: IntegerProduct) -> tuple[Array, Requantization | None, Array | None]:
    """Return what sums are multiplied by, how that becomes the numbers of the result, and the ratio of the scales."""
    last = node.body.outputs[0].producer
    assert last is not None
    if last.op == "Cast":
        to, factors = Requantization.spelled_out(last)
        stays = node.output.dtype == to.dtype
        return factors.reshape(-1).astype(np.float32), to if stays else to.unsigned(), None
    if last.op != "QuantizeLinear":
        return product.scale.astype(np.float32), None, None
    to = Requantization.read(last)
    return to.factors(product.scale), to, product.scale / np.float64(to.scale)


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
    nodes = node.body.nodes
    anchor, layer = first(nodes, *PRODUCTS), Layer.of(node)
    _, shape = sized_type(layer.x)
    around = spatial_pads(nodes, len(shape))
    assert not isinstance(around, Remark)
    own = anchor.attrs.get("pads") or [0] * len(around)
    attrs = {**anchor.attrs, "pads": [a + b for a, b in zip(own, around, strict=True)]} if any(around) else anchor.attrs
    emit_conv(emit, node, layer, window_at(anchor.op, attrs, shape, layer.weight.shape[2:]), attrs.get("group", 1))


def _mean_layout(node: Node) -> LayoutRule:
    return LayoutRule.ROW_MAJOR if _is_whole(node) else LayoutRule.CHANNELS_LAST


def _is_whole(node: Node) -> bool:
    """Tell whether a mean has one window, which is the image."""
    pool, (x,) = first(node.body.nodes, *named("mean")), operands_of(node).values()
    return tuple(_sizes_of(pool, x)) == (x.shape or ())[2:]


@FAMILY.lower("c.qavgpool", check=taken, layout=_mean_layout, domain=COMPOSITE, unsigned=True, either=True)
def qavgpool(emit: Emitter, node: Node) -> None:
    """Emit a mean as a convolution of every channel with equal weights, that of images as a product with a column."""
    pool, (x,) = first(node.body.nodes, *named("mean")), operands_of(node).values()
    source, to = dequantizer(pool.inputs[0]), Requantization.read(first(node.body.nodes, "QuantizeLinear"))
    _, shape = sized_type(x)
    kernel, channels = tuple(int(size) for size in _sizes_of(pool, x) if isinstance(size, int)), shape[1]
    assert isinstance(channels, int)
    steps = scale_of(source).reshape(1) / (MEAN_WEIGHT * prod(kernel))
    is_whole = _is_whole(node)
    weight = np.full((1, prod(kernel)) if is_whole else (channels, 1, *kernel), MEAN_WEIGHT, np.int8)
    factors = np.array(np.broadcast_to(to.factors(steps), (len(weight),)))
    ratios = steps / np.float64(to.scale)
    layer = Layer(x, node.output, zero_point_of(source).item(), weight, None, factors, to, ratios)
    if is_whole:
        emit_dense(emit, node, layer, leading=2)
    else:
        emit_conv(emit, node, layer, window_at(pool.op, pool.attrs, shape, kernel), channels)


def emit_conv(emit: Emitter, node: Node, layer: Layer, window: Window[Size], groups: int) -> None:
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
    emit_dense(emit, node, Layer.of(node))


def emit_dense(emit: Emitter, node: Node, layer: Layer, leading: int = -1) -> None:
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
