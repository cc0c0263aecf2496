"""What a quantised layer computes, in integers: the reference that targets, checks and host steps are held to.

``docs/quantised-layers.md`` has the formulas. Sums of products run in floats that hold all of them exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinycomp.ir.graph import Value
from tinycomp.ops.conv import convolve
from tinycomp.ops.numeric import Array, prod
from tinycomp.ops.pool import cells, sum_in_order
from tinycomp.ops.spatial import make_window, pad_for
from tinycomp.quantized import Rounding
from tinycomp.quantized.interpolation import IntegerResize, LinearAxis
from tinycomp.quantized.layer import QuantizedLayer
from tinycomp.quantized.reading import fixed_point
from tinycomp.quantized.softmax import GUESS_BITS, GUESS_SHIFT, SHARE_SHIFT, IntegerSoftmax
from tinycomp.rewrite.traits import has_trait

Kernel = Callable[..., Array]
_LARGEST = 2**31 - 1


def kernel(layer: QuantizedLayer, inputs: Sequence[Value], rounding: Rounding) -> Kernel:
    """Return a function of the stored operands that computes a layer.

    Args:
        layer: The layer.
        inputs: The values that the function gets, in order.
        rounding: How its sums are requantised, if they are.
    """
    op, is_mean = layer.core.op, has_trait(layer.core, "mean")
    if op == "Softmax":
        return _softmax(layer)
    if op == "Resize":
        return _resize(layer)
    if is_mean and rounding == "float":
        return _mean_in_float(layer)
    is_packed = is_mean or layer.weight is not None
    return _product(layer, rounding) if is_packed else _run_time_product(layer, inputs, rounding)


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
    product, geometry = layer.product, layer.geometry
    exact = _exact(product.largest_sum)
    weight = product.weight.astype(exact)
    spread = (-1, *[1] * (weight.ndim - 2))
    bias, finish = product.bias.reshape(spread), _finish(layer, rounding, spread)

    def compute(x: Array) -> Array:
        data = x.astype(exact) - product.zero_point
        if weight.ndim == 2:
            sums = data @ weight.T
        else:
            window = make_window(layer.core.op, data.shape[2:], weight.shape[2:], **geometry)
            sums = convolve(data, weight, window, layer.groups)
        return finish(sums.astype(np.int64) + bias)

    return compute


def _run_time_product(layer: QuantizedLayer, inputs: Sequence[Value], rounding: Rounding) -> Kernel:
    stored, points = [layer.stored(i) for i in (0, 1)], [layer.zero_point(i) for i in (0, 1)]
    finish = _finish(layer, rounding, (-1,))

    def compute(*operands: Array) -> Array:
        given = dict(zip(inputs, operands, strict=True))
        factored = [given[v] if v.const is None else v.const for v in stored]
        most = factored[0].shape[-1] * prod([255 + abs(p) for p in points])
        a, b = (v.astype(_exact(most)) - p for v, p in zip(factored, points, strict=True))
        return finish(np.matmul(a, b).astype(np.int64))

    return compute


def _finish(layer: QuantizedLayer, rounding: Rounding, spread: tuple[int, ...]) -> Callable[[Array], Array]:
    """Return what makes results of sums in int64, whose channels ``spread`` lays factors along."""
    to, factors = layer.to, layer.factors.reshape(spread)
    if to is None:
        return lambda sums: np.asarray(sums.astype(np.float32) * factors)
    if rounding == "fixed_point" and not layer.is_spelled_out:
        ratios = layer.ratios().reshape(spread)
        return lambda sums: to.stored(fixed(sums, ratios))
    return lambda sums: to.stored(np.rint(sums.astype(np.float32) * factors))


# Pools, softmax and interpolation -------------------------------------------------------------------------------------


def _mean_in_float(layer: QuantizedLayer) -> Kernel:
    """Return the definition of a mean, whose float32 sums go from the first cell of a window to the last."""
    core, to, point, scale = layer.core, layer.result, layer.zero_point(), np.float32(layer.scale())
    geometry = layer.geometry

    def compute(x: Array) -> Array:
        kernel = core.attrs.get("kernel_shape") or x.shape[2:]
        window = make_window(core.op, x.shape[2:], kernel, **geometry)
        total = sum_in_order(pad_for((x.astype(np.float32) - np.float32(point)) * scale, window), window)
        counts = np.maximum(cells(window, bool(core.attrs.get("count_include_pad", 0))), 1)
        steps = np.rint(total / counts.astype(np.float32) / to.scale)
        return to.stored(steps)

    return compute


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
