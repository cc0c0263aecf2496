"""Reading quantised layers in the QuantizeLinear/DequantizeLinear form, for checks and code generators of any target.

The functions work on the nodes of a match and on those of a composite's body alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tinycomp.index import named
from tinycomp.ir.graph import Node, Value
from tinycomp.ops.numeric import Array
from tinycomp.ops.spatial import window_attributes
from tinycomp.records import dataclass
from tinycomp.rewrite.traits import is_structural

PRODUCTS = named("product")
MEAN_WEIGHT = 64
"""What every element of a mean counts where it is summed in integers and rounded as TFLite does.

Of the two roundings the first is to whole sums, which would be too coarse for sums of ones.
"""


def first(nodes: Iterable[Node], *ops: str) -> Node:
    """Return the first node of one of these operators; there must be one."""
    return next(node for node in nodes if node.op in ops)


def constant(value: Value | None) -> Array:
    """Return the array of a value that is known to be a constant."""
    assert value is not None
    assert value.const is not None, value
    return value.const


def source(value: Value | None) -> Node | None:
    """Return the node that computes a value, behind paddings and no-ops; None for a graph input or constant."""
    while value is not None and value.producer is not None:
        if value.producer.op != "Pad" and not is_structural(value.producer):
            return value.producer
        value = value.producer.inputs[0]
    return None


def dequantizer(value: Value | None) -> Node:
    """Return the DequantizeLinear that a value comes from; there must be one."""
    node = source(value)
    assert node is not None
    assert node.op == "DequantizeLinear", node
    return node


def scale_of(node: Node) -> Array:
    """Return the scale of a QuantizeLinear or DequantizeLinear in float64, so that products of scales are exact."""
    return constant(node.inputs[1]).astype(np.float64)


def zero_point_of(node: Node) -> Array:
    """Return the zero point of a QuantizeLinear or DequantizeLinear in int64; it is 0 where the node has none."""
    given = len(node.inputs) > 2 and node.inputs[2] is not None
    return constant(node.inputs[2]).astype(np.int64) if given else np.zeros((), np.int64)


def channel_axis(product: Node) -> int:
    """Return the axis of the weight of a Conv, ConvTranspose, Gemm or MatMul that output channels lie along."""
    if product.op == "Conv" or product.attrs.get("transB", 0):
        return 0
    return 1 if product.op == "ConvTranspose" else (product.operand(1).rank or 2) - 1


def bias_of(product: Node, nodes: Iterable[Node]) -> Value | None:
    """Return the bias of a product: its third operand, or what an Add among ``nodes`` adds to a MatMul."""
    if product.op != "MatMul":
        return product.inputs[2] if len(product.inputs) > 2 else None
    add = next((n for n in nodes if n.op == "Add"), None)
    return None if add is None else next(v for v in add.inputs if v is not None and source(v) is not product)


def scale_of_sums(product: Node) -> Array:
    """Return, in float64, what one step of the sums of dequantised data and weight is worth: one number or a vector."""
    of_data, of_weights = (scale_of(dequantizer(value)) for value in product.inputs[:2])
    steps: Array = of_data.item() * of_weights.reshape(-1)
    return steps


def real(value: Value) -> Array:
    """Return the numbers, in float64, that a constant stands for; a dequantised one has one scale, or one per row."""
    if value.is_const:
        return constant(value).astype(np.float64)
    node = dequantizer(value)
    stored = constant(node.inputs[0])
    spread = (-1, *[1] * (stored.ndim - 1)) if scale_of(node).size > 1 else ()
    return (stored - zero_point_of(node).reshape(spread)) * scale_of(node).reshape(spread)


def geometry(node: Node) -> dict[str, Any]:
    """Return the attributes of a convolution or pooling that say where its windows lie."""
    return window_attributes(node.attrs)


def limits(value: Value | None) -> tuple[float, float]:
    """Return the range that the activation at ``value`` leaves: that of a Relu or Clip, else everything."""
    node = source(value)
    if node is None or node.op not in ("Relu", "Clip"):
        return -np.inf, np.inf
    if node.op == "Relu":
        return 0.0, np.inf
    given = [None if v is None else constant(v).item() for v in node.inputs[1:]]
    low, high = [*given, None, None][:2]
    low, high = node.attrs.get("min", low), node.attrs.get("max", high)
    return -np.inf if low is None else low, np.inf if high is None else high


@dataclass(frozen=True)
class IntegerProduct:
    """A quantised Conv, Gemm or MatMul as integers; output channels come first.

    Attributes:
        weight: ``[channels, …]`` without zero point, int8 where that holds it, else int16.
        bias: int64 ``[channels]``, in steps of the sums.
        scale: float64, what one step of the sums is worth: one number, or one per channel.
        zero_point: Of the data.
    """

    weight: Array
    bias: Array
    scale: Array
    zero_point: int

    @classmethod
    def read(cls, product: Node, nodes: Iterable[Node]) -> IntegerProduct:
        """Read a product of dequantised data and weight.

        Args:
            product: The Conv, Gemm or MatMul.
            nodes: The nodes of its match or composite, in which a bias may be added.
        """
        data, weights = dequantizer(product.inputs[0]), dequantizer(product.inputs[1])
        weight = np.moveaxis(constant(weights.inputs[0]), channel_axis(product), 0)
        weight = without_zero_point(weight, zero_point_of(weights).reshape(-1, *[1] * (weight.ndim - 1)))
        scale = scale_of_sums(product)
        bias = bias_of(product, nodes)
        numbers = np.zeros(len(weight), np.int64) if bias is None else _bias(bias, scale, len(weight))
        return cls(weight, numbers, scale, zero_point_of(data).item())

    @property
    def largest_sum(self) -> int:
        """Return the greatest magnitude that a sum can reach, whatever the 8-bit data."""
        terms = np.abs(self.weight.astype(np.int16)).reshape(len(self.weight), -1).sum(axis=1, dtype=np.int64)
        return int((255 * terms + np.abs(self.bias)).max(initial=0))


def without_zero_point(stored: Array, zero_point: Array) -> Array:
    """Return 4- or 8-bit weights without their zero point: int8 where that holds them, else int16."""
    if stored.dtype == np.int8 and not zero_point.any():
        return stored
    whole = stored.astype(np.int16) - zero_point.astype(np.int16)
    narrow = whole.astype(np.int8)
    return narrow if np.array_equal(narrow, whole) else whole


def fixed_point(ratios: Array) -> Array:
    """Return positive float64 ratios as TFLite has them: int32 ``[channels, 2]``, a multiplier of 31 bits and a shift.

    A ratio is ``multiplier * 2**(shift - 31)``, and 0 where that needs a shift below -31.
    """
    fraction, shift = np.frexp(ratios.astype(np.float64))
    # Halves are rounded away from 0, as C's round does.
    multiplier = np.floor(fraction * 2.0**31 + 0.5).astype(np.int64)
    full = multiplier == 1 << 31
    multiplier[full] //= 2
    shift = shift + full
    multiplier[shift < -31] = 0
    return np.stack([multiplier, np.where(shift < -31, 0, shift)], axis=-1).astype(np.int32)


def _bias(bias: Value, scale: Array, channels: int) -> Array:
    """Return a bias in steps of the sums, which are worth ``scale``: as stored where it has their scale."""
    numbers = real(bias).reshape(-1) / scale
    if not bias.is_const:
        node = dequantizer(bias)
        same = (scale_of(node).astype(np.float32) == scale.astype(np.float32)).all()
        if same and not zero_point_of(node).any():
            numbers = constant(node.inputs[0]).reshape(-1)
    return np.array(np.broadcast_to(np.rint(numbers), (channels,)), np.int64)


@dataclass(frozen=True)
class Requantization:
    """How floats become 8-bit ones: ``clamp(round(x / scale) + zero_point, low, high)``.

    Attributes:
        scale: float32.
        zero_point: What stands for 0.
        low: The least result: that of the dtype, or what an activation in front leaves.
        high: The greatest.
        dtype: int8 or uint8.
    """

    scale: np.float32
    zero_point: int
    low: int
    high: int
    dtype: str

    @classmethod
    def read(cls, node: Node) -> Requantization:
        """Read a QuantizeLinear with one scale; a Relu or Clip in front of it narrows the range.

        Rounding is monotone, so an activation in front of it is a clamp behind it.
        """
        step, zero_point = np.float32(constant(node.inputs[1]).item()), zero_point_of(node).item()
        dtype = node.output.dtype
        info = np.iinfo(dtype)
        ends = [np.clip(np.rint(np.float32(v) / step) + zero_point, info.min, info.max) for v in limits(node.inputs[0])]
        return cls(step, zero_point, int(ends[0]), int(ends[1]), dtype)

    @classmethod
    def spelled_out(cls, node: Node) -> tuple[Requantization, Array]:
        """Read the Cast that ends ``Cast(Clip(Round(sums * factors) + zero_point))``; also return the factors.

        The scale is 1, for what it is worth is in the factors.
        """
        clip = source(node.inputs[0])
        assert clip is not None
        low, high = limits(node.inputs[0])
        dtype = node.output.dtype
        info = np.iinfo(dtype)
        inner = source(clip.inputs[0])
        assert inner is not None
        point = 0
        if inner.op == "Add":
            added = next(v for v in inner.inputs if v is not None and v.is_const)
            rounding = source(next(v for v in inner.inputs if v is not added))
            point = constant(added).item()
        else:
            rounding = inner
        assert rounding is not None
        product = source(rounding.inputs[0])
        assert product is not None
        factors = constant(next(v for v in product.inputs if v is not None and v.is_const))
        ends = max(int(np.ceil(low)), info.min), min(int(np.floor(high)), info.max)
        return cls(np.float32(1), int(point), *ends, dtype), factors

    def stored(self, steps: Array) -> Array:
        """Return whole numbers of steps as they are stored."""
        return np.asarray(np.clip(steps + self.zero_point, self.low, self.high).astype(self.dtype))

    def unsigned(self) -> Requantization:
        """Return the same with numbers of int8 as uint8, 128 greater."""
        return Requantization(self.scale, self.zero_point + 128, self.low + 128, self.high + 128, "uint8")

    def factors(self, scale: Array) -> Array:
        """Return, in float32, what sums in steps of ``scale`` (float64) are multiplied by."""
        with np.errstate(all="ignore"):
            return scale.astype(np.float32) / self.scale
