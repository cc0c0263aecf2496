"""What a quantised layer computes, in integers: the reference that targets, checks and host steps are held to.

``docs/quantised-layers.md`` has the formulas. Sums of products run in floats that hold all of them exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinycomp.ir.graph import Node, Value
from tinycomp.ops.conv import convolve
from tinycomp.ops.numeric import Array, prod
from tinycomp.ops.pool import cells, sum_in_order
from tinycomp.ops.spatial import Window, make_window, pad_for
from tinycomp.quantized import Rounding
from tinycomp.quantized.interpolation import IntegerResize, LinearAxis
from tinycomp.quantized.layer import QuantizedLayer
from tinycomp.quantized.reading import MEAN_WEIGHT, Requantization, fixed_point, geometry
from tinycomp.quantized.softmax import GUESS_BITS, GUESS_SHIFT, SHARE_SHIFT, IntegerSoftmax

Kernel = Callable[..., Array]
_LARGEST = 2**31 - 1


def kernel(layer: QuantizedLayer, inputs: Sequence[Value], rounding: Rounding) -> Kernel:
    """Return a function of the stored operands that computes a layer.

    Args:
        layer: The layer.
        inputs: The values that the function gets, in order.
        rounding: How its sums are requantised, if they are.
    """
    op = layer.core.op
    if op == "Softmax":
        return _softmax(layer)
    if op == "Resize":
        return _resize(layer)
    if op in ("AveragePool", "GlobalAveragePool"):
        return _mean(layer) if rounding == "fixed_point" else _mean_in_float(layer)
    return _product(layer, rounding) if layer.weight is not None else _run_time_product(layer, inputs, rounding)


def requantized(sums: Array, ratios: Array, to: Requantization, rounding: Rounding, factors: Array) -> Array:
    """Return whole sums, in int64, as the numbers of a result.

    Args:
        sums: The sums.
        ratios: float64, what a step of them is worth in steps of the result; it broadcasts.
        to: How they are stored.
        rounding: The rule.
        factors: What the rule of float32 multiplies by instead of the ratios.
    """
    steps = fixed(sums, ratios) if rounding == "fixed_point" else np.rint(sums.astype(np.float32) * factors)
    return to.stored(steps)


def fixed(sums: Array, ratios: Array) -> Array:
    """Return sums times ratios as TFLite rounds them, int64 (MultiplyByQuantizedMultiplier, with two roundings)."""
    pairs = fixed_point(ratios.reshape(-1)).astype(np.int64).reshape(*ratios.shape, 2)
    multiplier, shift = pairs[..., 0], pairs[..., 1]
    # What leaves int32 on the way is beyond every result, whichever way it is cut off.
    whole = np.clip(sums << np.maximum(shift, 0), -_LARGEST - 1, _LARGEST) * multiplier
    high = _divided(whole + np.where(whole >= 0, 1 << 30, 1 - (1 << 30)))
    right = np.maximum(-shift, 0)
    mask = (np.int64(1) << right) - 1
    up = (high & mask) > (mask >> 1) + (high < 0)
    return np.asarray((high >> right) + up)


def _divided(products: Array) -> Array:
    """Return numbers divided by 2^31, towards 0."""
    return np.asarray(np.where(products >= 0, products >> 31, -(-products >> 31)))


def _exact(most: int) -> Any:
    """Return the float that holds all whole numbers up to one."""
    return np.float32 if most < 1 << 24 else np.float64


# Products -------------------------------------------------------------------------------------------------------------


def _product(layer: QuantizedLayer, rounding: Rounding) -> Kernel:
    product, to, core = layer.product, layer.to, layer.core
    exact = _exact(product.largest_sum)
    weight = product.weight.astype(exact)
    spread = (-1, *[1] * (weight.ndim - 2)) if core.op == "Conv" else (-1,)
    bias, factors = product.bias.reshape(spread), layer.factors.reshape(spread)
    ratios = factors.astype(np.float64) if to is None or layer.is_spelled_out else layer.ratios().reshape(spread)
    rule: Rounding = "float" if layer.is_spelled_out else rounding
    around = layer.around

    def multiply(x: Array) -> Array:
        data = x.astype(exact) - product.zero_point
        if core.op != "Conv":
            return np.asarray(data @ weight.T)
        data = np.pad(data, around) if around else data
        window = make_window("Conv", data.shape[2:], weight.shape[2:], **geometry(core))
        return convolve(data, weight, window, int(core.attrs.get("group", 1)))

    def compute(x: Array) -> Array:
        sums = multiply(x).astype(np.int64) + bias
        if to is None:
            return np.asarray(sums.astype(np.float32) * factors)
        return requantized(sums, ratios, to, rule, factors)

    return compute


def _run_time_product(layer: QuantizedLayer, inputs: Sequence[Value], rounding: Rounding) -> Kernel:
    stored, points = [layer.stored(i) for i in (0, 1)], [layer.zero_point(i) for i in (0, 1)]
    to, factors = layer.to, layer.factors
    ratios = factors.astype(np.float64) if to is None else layer.ratios()

    def compute(*operands: Array) -> Array:
        given = dict(zip(inputs, operands, strict=True))
        factored = [given[v] if v.const is None else v.const for v in stored]
        most = factored[0].shape[-1] * prod([255 + abs(p) for p in points])
        a, b = (v.astype(_exact(most)) - p for v, p in zip(factored, points, strict=True))
        sums = np.matmul(a, b).astype(np.int64)
        if to is None:
            return np.asarray(sums.astype(np.float32) * factors)
        return requantized(sums, ratios, to, rounding, factors)

    return compute


# With fixed-point factors alone ---------------------------------------------------------------------------------------


def _mean(layer: QuantizedLayer) -> Kernel:
    core, to, point = layer.core, layer.result, layer.zero_point()

    def compute(x: Array) -> Array:
        window = window_of_mean(core, x.shape)
        weight = np.full((x.shape[1], 1, *window.kernel), MEAN_WEIGHT, np.float64)
        sums = convolve(x.astype(np.float64) - point, weight, window, x.shape[1]).astype(np.int64)
        steps = np.array(layer.scale() / (MEAN_WEIGHT * prod(window.kernel)))
        return to.stored(fixed(sums, layer.ratios(steps)))

    return compute


def _mean_in_float(layer: QuantizedLayer) -> Kernel:
    """Return the definition of a mean, whose float32 sums go from the first cell of a window to the last."""
    core, to, point, scale = layer.core, layer.result, layer.zero_point(), np.float32(layer.scale())

    def compute(x: Array) -> Array:
        window = window_of_mean(core, x.shape)
        total = sum_in_order(pad_for((x.astype(np.float32) - np.float32(point)) * scale, window), window)
        counts = np.maximum(cells(window, bool(core.attrs.get("count_include_pad", 0))), 1)
        steps = np.rint(total / counts.astype(np.float32) / to.scale)
        return to.stored(steps)

    return compute


def window_of_mean(node: Node, shape: Sequence[int]) -> Window[int]:
    """Return the windows of an AveragePool or GlobalAveragePool on data of a shape."""
    kernel = node.attrs.get("kernel_shape") or shape[2:]
    ceil_mode = bool(node.attrs.get("ceil_mode", 0))
    return make_window(node.op, shape[2:], kernel, ceil_mode=ceil_mode, **geometry(node))


def _softmax(layer: QuantizedLayer) -> Kernel:
    tables = IntegerSoftmax.of(layer)

    def compute(x: Array) -> Array:
        lines = np.moveaxis(x, tables.axis, -1).astype(np.int64)
        powers = tables.powers[lines.max(axis=-1, keepdims=True, initial=np.iinfo(x.dtype).min) - lines].astype(
            np.int64
        )
        total = powers.sum(axis=-1, keepdims=True)
        left = 31 - np.frexp(total.astype(np.float64))[1].astype(np.int64)
        scaled = total << left
        place = np.minimum((scaled - (1 << 30) + (1 << 21)) >> 22, 255)
        guess = tables.inverses[place].astype(np.int64) << GUESS_BITS
        rest = (1 << 30) - _shifted(scaled * guess, GUESS_SHIFT)
        inverse = _shifted(rest * guess, tables.inverse_shift) << left
        shares = np.moveaxis(_shifted(powers * inverse, SHARE_SHIFT), -1, tables.axis)
        return tables.to.stored(fixed(shares, np.array(tables.ratio)))

    return compute


def _shifted(numbers: Array, bits: int) -> Array:
    return np.asarray((numbers + (np.int64(1) << (bits - 1))) >> bits)


def _resize(layer: QuantizedLayer) -> Kernel:
    resize = IntegerResize.of(layer)

    def compute(x: Array) -> Array:
        sums = x.astype(np.int64) - resize.zero_point
        for axis, line in ((2, resize.lines), (3, resize.columns)):
            sums = _interpolated(sums, axis, line)
        return resize.to.stored(fixed(sums, np.array(resize.ratio)))

    return compute


def _interpolated(x: Array, axis: int, line: LinearAxis) -> Array:
    first, second, weight = line.taps().astype(np.int64).T
    weight = weight.reshape([-1 if d == axis else 1 for d in range(x.ndim)])
    return np.asarray(x.take(first, axis) * (line.numerator - weight) + x.take(second, axis) * weight)
