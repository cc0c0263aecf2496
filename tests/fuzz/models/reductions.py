"""Reductions, softmax, normalisations, and searches along an axis."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.fuzz.models.build import Builder, UnsuitableError, Value
from tests.fuzz.models.elementwise import positive

_SINCE_INPUT = 18
"""From this opset on all reductions take their axes as an operand; ReduceSum does since 13."""


def reduce(b: Builder) -> Value:
    """A reduction over some axes, or all."""
    ops = ("Sum", "Sum", "Mean", "Mean", "Max", "Min", "L1", "L2", "SumSquare", "LogSumExp", "LogSum", "Prod")
    op = f"Reduce{b.rng.choice(ops)}"
    dtypes = ("float32", "float64", "int32", "int64") if op in ("ReduceSum", "ReduceMax", "ReduceMin") else ("float32",)
    x = b.pick(lambda v: v.dtype in dtypes and v.rank >= 1)
    axes = b.rng.sample(range(x.rank), b.rng.randint(1, x.rank))
    count = math.prod(x.shape[a] for a in axes)
    axes = [a - x.rank if b.rng.random() < 0.3 else a for a in axes]
    if op == "ReduceLogSum":
        x = positive(b, x)
    if op == "ReduceProd":
        if count > 12:
            raise UnsuitableError
        x = b.add("Tanh", [x], bound=1.0)
    attrs: dict[str, Any] = {"keepdims": b.rng.randint(0, 1)}
    operands: list[Value | None] = [x]
    if b.rng.random() < 0.85:
        if b.opset >= _SINCE_INPUT or op == "ReduceSum":
            operands.append(b.constant(axes))
        else:
            attrs["axes"] = axes
    else:
        count = x.size
        if op == "ReduceProd":
            raise UnsuitableError
    bound = {"ReduceMax": x.bound, "ReduceMin": x.bound, "ReduceMean": x.bound, "ReduceProd": 1.0}.get(op)
    if bound is None:
        bound = x.bound + math.log(count) if "Log" in op else count * max(x.bound, x.bound**2)
    return b.add(
        op, operands, bound=bound, step=x.step if op in ("ReduceSum", "ReduceMax", "ReduceMin") else 0.0, **attrs
    )


def extremum(b: Builder) -> Value:
    """ArgMax, ArgMin, TopK, CumSum, Hardmax; which of equal elements wins is part of it."""
    x = b.pick(lambda v: v.exact and v.dtype in ("float32", "int64", "int32") and v.rank >= 1)
    op = b.rng.choice(("ArgMax", "ArgMin", "TopK", "CumSum", "Hardmax"))
    axis = b.rng.randrange(-x.rank, x.rank)
    if op == "TopK":
        k = b.constant([b.rng.randint(1, x.shape[axis])])
        attrs = {"axis": axis, "largest": b.rng.randint(0, 1)}
        return b.rng.choice(b.add_all(op, [x, k], bound=max(x.bound, x.size), step=x.step, outputs=2, **attrs))
    if op == "CumSum":
        attrs = {"exclusive": b.rng.randint(0, 1), "reverse": b.rng.randint(0, 1)}
        return b.add(op, [x, b.constant(np.array(axis))], bound=x.bound * x.shape[axis], step=x.step, **attrs)
    if op == "Hardmax":
        if not x.is_float:
            raise UnsuitableError
        return b.add(op, [x], bound=1.0, step=1.0, axis=axis)
    attrs = {"axis": axis, "keepdims": b.rng.randint(0, 1), "select_last_index": b.rng.randint(0, 1)}
    return b.add(op, [x], bound=x.size, **attrs)


def softmax(b: Builder) -> Value:
    """Softmax and its logarithm along any axis."""
    x = b.pick_float(lambda v: v.rank >= 1, ("float32", "float32", "float64"))
    attrs = {"axis": b.rng.randrange(-x.rank, x.rank)} if b.rng.random() < 0.8 else {}
    if b.rng.random() < 0.75:
        return b.add("Softmax", [x], bound=1.0, **attrs)
    return b.add("LogSoftmax", [x], bound=2 * x.bound + 10, **attrs)


def _spread(v: Value, first: int) -> bool:
    """Whether enough is normalised together that the variance is not near zero."""
    return v.rank > first and math.prod(v.shape[first:]) >= 6


def layer_norm(b: Builder) -> Value:
    """LayerNormalization and RMSNormalization over the last axes."""
    if b.opset < 17:
        raise UnsuitableError
    op = "RMSNormalization" if b.opset >= 23 and b.rng.random() < 0.4 else "LayerNormalization"
    x = b.pick_float(lambda v: v.rank >= 2, ("float32",))
    axis = b.rng.randint(1, x.rank - 1)
    if not _spread(x, axis):
        raise UnsuitableError
    scale = b.weights("float32", x.shape[axis:])
    operands = [x, scale]
    if op == "LayerNormalization" and b.rng.random() < 0.7:
        operands.append(b.weights("float32", x.shape[axis:]))
    given = axis - x.rank if b.rng.random() < 0.5 else axis
    return b.add(op, operands, bound=3 * math.sqrt(math.prod(x.shape[axis:])) + 3, axis=given, epsilon=1e-3)


def instance_norm(b: Builder) -> Value:
    """InstanceNormalization and GroupNormalization."""
    x = b.pick_float(lambda v: v.rank >= 3 and _spread(v, 2), ("float32",))
    channels = x.shape[1]
    scale, bias = (b.weights("float32", (channels,)) for _ in range(2))
    bound = 3 * math.sqrt(x.size) + 3
    if b.opset >= 21 and b.rng.random() < 0.4:
        groups = b.rng.choice([d for d in range(1, channels + 1) if channels % d == 0])
        return b.add("GroupNormalization", [x, scale, bias], bound=bound, num_groups=groups, epsilon=1e-3)
    return b.add("InstanceNormalization", [x, scale, bias], bound=bound, epsilon=1e-3)


def lp_norm(b: Builder) -> Value:
    """LpNormalization and MeanVarianceNormalization."""
    x = b.pick_float(lambda v: v.rank == 4 and v.shape[0] * v.shape[2] * v.shape[3] >= 6, ("float32",))
    if b.rng.random() < 0.5:
        return b.add("LpNormalization", [positive(b, x)], bound=1.0, axis=b.rng.randrange(-4, 4), p=b.rng.randint(1, 2))
    axes = b.rng.choice(([0, 2, 3], [2, 3], [0, 1, 2, 3]))
    if math.prod(x.shape[a] for a in axes) < 6:
        raise UnsuitableError
    return b.add("MeanVarianceNormalization", [x], bound=math.sqrt(x.size), axes=axes)


FAMILIES = {reduce: 4, extremum: 1.5, softmax: 2, layer_norm: 1.5, instance_norm: 1, lp_norm: 0.3}
