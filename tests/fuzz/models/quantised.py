"""Quantised layers. All scales are powers of two, so that results are exact, ties included."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.fuzz.models.build import Builder, UnsuitableError, Value

SCALES = (0.125, 0.25, 0.5, 0.0625)


def _parameters(b: Builder, dtype: str, scale: float) -> list[Value]:
    point = b.rng.randint(0, 8) if dtype == "uint8" else b.rng.choice((0, 0, -3, 5))
    return [b.constant(np.array(scale, np.float32), scale, scale), b.constant(np.array(point, dtype))]


def _scale_for(x: Value) -> float:
    """Return a power of two that brings most of ``x`` into eight bits."""
    return 2.0 ** math.ceil(math.log2(max(x.bound, 1.0) / 100))


def quantize(b: Builder) -> Value:
    """QuantizeLinear of exact values, followed by its inverse most of the time."""
    x = b.pick_float(lambda v: v.exact, ("float32",))
    return _round_trip(b, x, b.rng.choice(("int8", "uint8")))


def _round_trip(b: Builder, x: Value, dtype: str) -> Value:
    parameters = _parameters(b, dtype, b.rng.choice((_scale_for(x), b.rng.choice(SCALES))))
    q = b.add("QuantizeLinear", [x, *parameters], bound=255.0)
    return q if b.rng.random() < 0.15 else _dequantized(b, q, parameters)


def _dequantized(b: Builder, q: Value, parameters: list[Value], **attrs: Any) -> Value:
    scale = parameters[0].bound
    least = parameters[0].step or scale
    return b.add("DequantizeLinear", [q, *parameters], bound=260 * scale, step=least, **attrs)


def _weights(b: Builder, shape: tuple[int, ...], axis: int) -> Value:
    """Return dequantised constants, with one scale for all or one per channel."""
    q = b.constant(b.arrays.integers(-20, 21, shape).astype(np.int8))
    if b.rng.random() < 0.5:
        return _dequantized(b, q, [b.constant(np.array(0.0625, np.float32), 0.0625, 0.0625)])
    scales = b.arrays.choice([0.0625, 0.125, 0.03125], shape[axis]).astype(np.float32)
    points = b.constant(np.zeros(shape[axis], np.int8))
    return _dequantized(b, q, [b.constant(scales, 0.125, 0.03125), points], axis=axis)


def layer(b: Builder) -> Value:
    """A convolution or product between its conversions, as quantisers write it."""
    x = b.pick_float(lambda v: v.exact and v.rank in (2, 4), ("float32",))
    dtype = b.rng.choice(("int8", "uint8"))
    parameters = _parameters(b, dtype, _scale_for(x))
    x = _dequantized(b, b.add("QuantizeLinear", [x, *parameters], bound=255.0), parameters)
    columns = b.rng.randint(1, 40)
    if x.rank == 2:
        w = _weights(b, (x.shape[1], columns), 1)
        y = b.add("MatMul", [x, w], bound=x.shape[1] * x.bound * w.bound, step=x.step * w.step)
    else:
        group = b.rng.choice((1, 1, x.shape[1]))
        size = b.rng.choice((1, 1, 3))
        w = _weights(b, (columns if group == 1 else group, x.shape[1] // group, size, size), 0)
        bound = w.size // w.shape[0] * x.bound * w.bound
        attrs = {"pads": [size // 2] * 4, "strides": [b.rng.randint(1, 2)] * 2, "group": group}
        y = b.add("Conv", [x, w], bound=bound, step=x.step * w.step, **attrs)
    if not y.exact:
        raise UnsuitableError
    if b.rng.random() < 0.5:
        y = b.add("Relu", [y], bound=y.bound, step=y.step)
    return _round_trip(b, y, dtype)


def residual(b: Builder) -> Value:
    """A sum, product, pool or join of dequantised values, quantised again."""
    x = _round_trip(b, b.pick_float(lambda v: v.exact, ("float32",)), "int8")
    if x.dtype != "float32":
        raise UnsuitableError
    y = b.pick(lambda v: v.dtype == "float32" and v.exact and v.shape == x.shape)
    op = b.rng.choice(("Add", "Mul", "Concat"))
    if op == "Mul":
        z = b.add(op, [x, y], bound=x.bound * y.bound, step=x.step * y.step)
    elif op == "Add":
        z = b.add(op, [x, y], bound=x.bound + y.bound, step=min(x.step, y.step))
    else:
        z = b.add(op, [x, y], bound=max(x.bound, y.bound), step=min(x.step, y.step), axis=0)
    if not z.exact:
        raise UnsuitableError
    return _round_trip(b, z, "int8")


FAMILIES = {quantize: 1.5, layer: 4, residual: 2}
