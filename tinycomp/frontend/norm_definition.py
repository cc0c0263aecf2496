"""What norms and normalisations compute: the statistics they give besides, and the norms of windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import MappingProxyType

import numpy as np

from tinycomp.frontend.definition_body import Body, Definition, is_float32, shape_of
from tinycomp.ir.graph import Node, Value
from tinycomp.ops.spatial import POOLING, make_window, window_attributes


def _moments(body: Body, x: Value, axes: Sequence[int]) -> tuple[Value, Value, Value]:
    """Return the mean over axes, what is left of ``x`` without it, and the variance."""
    over = body.ints(*axes)
    mean = body("ReduceMean", x, over)
    centred = body("Sub", x, mean)
    return mean, centred, body("ReduceMean", body("Mul", centred, centred), over)


def _inverse_deviation(body: Body, variance: Value, epsilon: float) -> Value:
    return body("Reciprocal", body("Sqrt", body("Add", variance, body.float32(epsilon))))


def _layer_norm(body: Body, node: Node, operands: Sequence[Value | None]) -> Sequence[Value] | None:
    """Define the results one by one: the first is what most targets have a kernel for."""
    x = operands[0]
    if x is None or x.rank is None:
        return None
    axes = range(int(node.attrs.get("axis", -1)) % x.rank, x.rank)
    mean, _, variance = _moments(body, x, axes)
    deviation = _inverse_deviation(body, variance, float(node.attrs.get("epsilon", 1e-5)))
    whole = body("LayerNormalization", *operands[:3], **node.attrs)
    return [v for v, result in zip((whole, mean, deviation), node.outputs, strict=False) if result.name]


def _batch_norm(body: Body, node: Node, operands: Sequence[Value | None]) -> Sequence[Value] | None:
    """Define it by a factor and a shift per channel, which come from the batch itself in training."""
    x, scale, bias, mean, variance = operands[:5]
    if x is None or scale is None or bias is None or mean is None or variance is None or not x.rank:
        return None
    behind = [1] * (x.rank - 2)
    running = []
    if node.attrs.get("training_mode", 0):
        axes = [0, *range(2, x.rank)]
        means, _, variances = _moments(body, x, axes)
        momentum = float(np.float32(node.attrs.get("momentum", 0.9)))
        for old, new in ((mean, means), (variance, variances)):
            kept = body("Mul", old, body.float32(momentum))
            running.append(body("Add", kept, body("Mul", body.reshape(new, [-1]), body.float32(1 - momentum))))
        mean, variance = (body.reshape(v, [-1]) for v in (means, variances))
    factor = body("Mul", scale, _inverse_deviation(body, variance, float(node.attrs.get("epsilon", 1e-5))))
    factor, shift = (body.reshape(v, [-1, *behind]) for v in (factor, body("Sub", bias, body("Mul", mean, factor))))
    results = [body("Add", body("Mul", x, factor), shift), *running]
    return [v for v, result in zip(results, node.outputs, strict=False) if result.name]


def _batch_norm_needs_it(node: Node) -> bool:
    if not is_float32(node) or node.attrs.get("spatial", 1) != 1:
        return False
    in_training = node.version >= 14 and bool(node.attrs.get("training_mode", 0))
    return in_training or (len(node.used_outputs()) == 1 and not all(v is None or v.is_const for v in node.inputs[1:]))


def _mean_variance_norm(body: Body, node: Node, operands: Sequence[Value | None]) -> Value | None:
    x = operands[0]
    if x is None or x.rank is None:
        return None
    axes = [int(axis) for axis in node.attrs.get("axes", (0, 2, 3))]
    _, centred, variance = _moments(body, x, axes)
    return body("Div", centred, body("Add", body("Sqrt", variance), body.float32(1e-9)))


def _length(body: Body, x: Value, axes: Sequence[int], p: int) -> Value:
    if p in (1, 2):
        return body(f"ReduceL{p}", x, body.ints(*axes))
    return _root(body, body("ReduceSum", _power(body, x, p), body.ints(*axes)), p)


def _power(body: Body, x: Value, p: int) -> Value:
    if p == 2:
        return body("Mul", x, x)
    return body("Abs", x) if p == 1 else body("Pow", body("Abs", x), body.float32(p))


def _root(body: Body, x: Value, p: int) -> Value:
    if p == 2:
        return body("Sqrt", x)
    return x if p == 1 else body("Pow", x, body.float32(1 / p))


def _lp_norm(body: Body, node: Node, operands: Sequence[Value | None]) -> Value | None:
    """Divide by the norm along an axis; where that is 0, by infinity, which leaves 0."""
    x = operands[0]
    if x is None or not x.rank:
        return None
    norm = _length(body, x, [int(node.attrs.get("axis", -1))], int(node.attrs.get("p", 2)))
    divisor = body("Where", body("Equal", norm, body.float32(0)), body.float32(math.inf), norm)
    return body("Div", x, divisor)


def _global_lp_pool(body: Body, node: Node, operands: Sequence[Value | None]) -> Value | None:
    x = operands[0]
    if x is None or not x.rank or x.rank < 3 or node.attrs.get("p", 2) < 1:
        return None
    return _length(body, x, range(2, x.rank), int(node.attrs.get("p", 2)))


def _lp_pool(body: Body, node: Node, operands: Sequence[Value | None]) -> Value | None:
    """Define the norms of windows by means, each of which counts all of its window, padding and beyond."""
    x, p = operands[0], int(node.attrs.get("p", 2))
    if x is None or not x.rank or p < 1:
        return None
    kernel = [int(n) for n in node.attrs["kernel_shape"]]
    given = window_attributes(node.attrs, POOLING)
    powers = _power(body, x, p)
    if given.get("ceil_mode"):
        shape = shape_of(x)
        if shape is None:
            return None
        window = make_window(node.op, shape[2:], kernel, **given)
        reach = [(n - 1) * s + size for n, s, size in zip(window.output, window.strides, window.extents, strict=True)]
        after = [max(r - n - b, 0) for r, n, b in zip(reach, window.sizes, window.before, strict=True)]
        powers = body("Pad", powers, body.ints(0, 0, *window.before, 0, 0, *after))
        given = {"strides": list(window.strides), "dilations": list(window.dilations)}
    mean = body("AveragePool", powers, kernel_shape=kernel, count_include_pad=1, **given)
    return _root(body, body("Mul", mean, body.float32(math.prod(kernel))), p)


DEFINITIONS = MappingProxyType({
    "BatchNormalization": Definition(_batch_norm, _batch_norm_needs_it),
    "GlobalLpPool": Definition(_global_lp_pool, is_float32),
    "LayerNormalization": Definition(
        _layer_norm, lambda node: is_float32(node) and len(node.used_outputs()) > 1 and bool(node.outputs[0].name)
    ),
    "LpNormalization": Definition(_lp_norm, is_float32),
    "LpPool": Definition(_lp_pool, is_float32),
    "MeanVarianceNormalization": Definition(_mean_variance_norm, is_float32),
})  # fmt: skip
