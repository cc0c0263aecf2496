"""Activation functions, Softmax and its relatives among them.

Formulas follow the ONNX operator text; each rounds once, to the type of its input, but for Softmax and LogSoftmax:
ONNX defines them as functions of simpler operators, so half precision is rounded to after every step.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tinycomp.ops.elementwise import erf
from tinycomp.ops.numeric import Array, compute_dtype, fix_axis, prod, quiet, rounder, widened
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Facts, Results, broadcasting, same_as_first

FAMILY = OpFamily("activation")
_SELU_ALPHA = 1.67326319217681884765625
_SELU_GAMMA = 1.05070102214813232421875


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + exp(-x)); where the exponential overflows to infinity, the result is rightly 0."""
    return np.asarray(1 / (1 + np.exp(-x)))


def softplus(x: Array) -> Array:
    """Return log(1 + exp(x)), without overflow."""
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


FAMILY.op("Sigmoid", traits={"elementwise"})(widened(sigmoid))
FAMILY.op("Softplus", traits={"elementwise", "inexact_definition"})(widened(softplus))


@FAMILY.op("Relu", traits={"elementwise", "cheap"})
@widened
def relu(x: Array) -> Array:
    """Return max(x, 0)."""
    return np.asarray(np.maximum(x, x.dtype.type(0)))


@FAMILY.op("LeakyRelu", traits={"elementwise", "cheap"})
@widened
def leaky_relu(x: Array, *, alpha: float = 0.01) -> Array:
    """Return ``x``, or ``alpha * x`` below zero."""
    return np.asarray(np.maximum(x, 0) + x.dtype.type(alpha) * np.minimum(x, 0))


@widened
def prelu(x: Array, slope: Array) -> Array:
    """Return ``x``, or ``slope * x`` below zero."""
    return np.asarray(np.maximum(x, 0) + slope * np.minimum(x, 0))


FAMILY.op("PRelu", since=7, traits={"elementwise", "cheap"})(prelu)


@FAMILY.op("PRelu", since=1, traits={"elementwise", "cheap"})
def prelu_channels(x: Array, slope: Array) -> Array:
    """Compute PRelu before opset 7, where a slope per channel belongs to axis 1."""
    if slope.ndim == 1 and slope.size > 1 and x.ndim > 2:
        slope = slope.reshape((-1,) + (1,) * (x.ndim - 2))
    return np.asarray(prelu(x, slope))


@FAMILY.infer("PRelu")
def _prelu(facts: Facts) -> Results:
    shape = facts.shape(0)
    if facts.version < _BROADCASTING and shape is not None and len(shape) > 2 and facts.rank(1) == 1:
        facts.require_broadcast(1, (shape[1],), "the slope")
    else:
        facts.require_broadcast(1, shape, "the slope")
    return [facts.tensor(facts.first_dtype(), shape)]


_BROADCASTING = 7
"""Since this version a slope broadcasts from behind; before, one per channel belongs to axis 1."""


@FAMILY.op("Elu", traits={"elementwise"})
@widened
def elu(x: Array, *, alpha: float = 1.0) -> Array:
    """Return ``x``, or ``alpha (exp(x) - 1)`` below zero."""
    return np.asarray(np.maximum(x, 0) + x.dtype.type(alpha) * np.expm1(np.minimum(x, 0)))


@FAMILY.op("Celu", traits={"elementwise"})
@widened
def celu(x: Array, *, alpha: float = 1.0) -> Array:
    """Return max(0, x) + min(0, alpha (exp(x / alpha) - 1))."""
    a = x.dtype.type(alpha)
    return np.asarray(np.maximum(x, 0) + np.minimum(a * np.expm1(x / a), 0))


@FAMILY.op("Selu", since=6, traits={"elementwise"})
@widened
def selu(x: Array, *, alpha: float = _SELU_ALPHA, gamma: float = _SELU_GAMMA) -> Array:
    """Return ``gamma x``, or ``gamma alpha (exp(x) - 1)`` at and below zero."""
    below = x.dtype.type(alpha) * np.expm1(np.minimum(x, 0))
    return np.asarray(x.dtype.type(gamma) * (np.maximum(x, 0) + below))


@FAMILY.op("Selu", since=1, traits={"elementwise"})
def selu_1(x: Array, *, alpha: float = 1.6732, gamma: float = 1.0507) -> Array:
    """Compute Selu before opset 6, whose defaults had fewer digits."""
    return np.asarray(selu(x, alpha=alpha, gamma=gamma))


@FAMILY.op("HardSigmoid", traits={"elementwise", "cheap"})
@widened
def hard_sigmoid(x: Array, *, alpha: float = 0.2, beta: float = 0.5) -> Array:
    """Return ``alpha x + beta`` limited to [0, 1]."""
    return np.asarray(np.clip(x.dtype.type(alpha) * x + x.dtype.type(beta), 0, 1))


@FAMILY.op("HardSwish", traits={"elementwise", "cheap"})
@widened
def hard_swish(x: Array) -> Array:
    """Return ``x`` times HardSigmoid with slope 1/6 and offset 1/2."""
    return np.asarray(x * np.clip(x / 6 + x.dtype.type(0.5), 0, 1))


@FAMILY.op("Softsign", traits={"elementwise", "cheap"})
@widened
def softsign(x: Array) -> Array:
    """Return x / (1 + |x|)."""
    return np.asarray(x / (1 + np.abs(x)))


@FAMILY.op("Gelu", traits={"elementwise"})
@widened
def gelu(x: Array, *, approximate: str = "none") -> Array:
    """Return ``x Φ(x)``, with the error function or the tanh approximation."""
    if approximate == "none":
        return np.asarray(x / 2 * (1 + erf(x * x.dtype.type(math.sqrt(0.5)))))
    inner = x.dtype.type(math.sqrt(2 / math.pi)) * (x + x.dtype.type(0.044715) * x * x * x)
    return np.asarray(x / 2 * (1 + np.tanh(inner)))


@FAMILY.infer("Gelu")
def _gelu(facts: Facts) -> Results:
    facts.require_one_of("approximate", ("none", "tanh"))
    return same_as_first(facts)


@FAMILY.op("Mish", traits={"elementwise"})
@widened
def mish(x: Array) -> Array:
    """Return x tanh(softplus(x))."""
    return np.asarray(x * np.tanh(softplus(x)))


@FAMILY.op("ThresholdedRelu", traits={"elementwise", "cheap"})
@widened
def thresholded_relu(x: Array, *, alpha: float = 1.0) -> Array:
    """Return ``x`` above ``alpha``, else 0."""
    return np.where(x > x.dtype.type(alpha), x, x.dtype.type(0))


@FAMILY.op("Swish", traits={"elementwise"})
@widened
def swish(x: Array, *, alpha: float = 1.0) -> Array:
    """Return x sigmoid(alpha x)."""
    return np.asarray(x * sigmoid(x.dtype.type(alpha) * x))


@FAMILY.op("SwiGLU", traits={"elementwise"})
@widened
def swiglu(a: Array, b: Array, *, alpha: float = 1.0) -> Array:
    """Return Swish of the gate ``a`` times ``b``."""
    return np.asarray(a * sigmoid(a.dtype.type(alpha) * a) * b)


@FAMILY.op("Shrink", traits={"elementwise", "cheap"})
@widened
def shrink(x: Array, *, bias: float = 0.0, lambd: float = 0.5) -> Array:
    """Return ``x + bias`` below ``-lambd``, ``x - bias`` above ``lambd``, else 0."""
    return np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0))


def softmax_along(x: Array, axis: int) -> Array:
    """Return exp(x) over its sum along ``axis``, for an array of any shape and float type."""
    step, x, dtype = rounder(x.dtype), x.astype(compute_dtype(x.dtype), copy=False), x.dtype
    y = step(np.exp(step(x - x.max(axis=axis, keepdims=True, initial=-np.inf))))
    y /= step(y.sum(axis=axis, keepdims=True))
    return y.astype(dtype, copy=False)


def log_softmax_along(x: Array, axis: int) -> Array:
    """Return the logarithm of the softmax along ``axis`` without overflow."""
    step, x, dtype = rounder(x.dtype), x.astype(compute_dtype(x.dtype), copy=False), x.dtype
    y = step(x - x.max(axis=axis, keepdims=True, initial=-np.inf))
    y -= step(np.log(step(step(np.exp(y)).sum(axis=axis, keepdims=True))))
    return y.astype(dtype, copy=False)


def hardmax_along(x: Array, axis: int) -> Array:
    """Return 1 at the first maximum along ``axis`` and 0 elsewhere."""
    y = np.zeros_like(x)
    if x.size:
        np.put_along_axis(y, np.expand_dims(x.argmax(axis=axis), axis), 1, axis=axis)
    return y


def _flattened(function: Callable[[Array, int], Array], x: Array, axis: int, op: str) -> Array:
    # The old operators accept axis == rank, which makes every element a row of its own.
    split = axis if axis == x.ndim else fix_axis(axis, x.ndim, op)
    matrix = x.reshape(prod(x.shape[:split]), prod(x.shape[split:]))
    return function(matrix, 1).reshape(x.shape)


@FAMILY.op("Softmax")
@quiet
def softmax_1(x: Array, *, axis: int = 1) -> Array:
    """Return the softmax of the matrix whose rows are the axes before ``axis``."""
    return _flattened(softmax_along, x, axis, "Softmax")


@FAMILY.op("Softmax", since=13)
@quiet
def softmax(x: Array, *, axis: int = -1) -> Array:
    """Return the softmax along one axis."""
    return softmax_along(x, fix_axis(axis, x.ndim, "Softmax"))


@FAMILY.op("LogSoftmax")
@quiet
def log_softmax_1(x: Array, *, axis: int = 1) -> Array:
    """Return the logarithm of the softmax of the matrix whose rows are the axes before ``axis``."""
    return _flattened(log_softmax_along, x, axis, "LogSoftmax")


@FAMILY.op("LogSoftmax", since=13)
@quiet
def log_softmax(x: Array, *, axis: int = -1) -> Array:
    """Return the logarithm of the softmax along one axis."""
    return log_softmax_along(x, fix_axis(axis, x.ndim, "LogSoftmax"))


@FAMILY.op("Hardmax")
@quiet
def hardmax_1(x: Array, *, axis: int = 1) -> Array:
    """Return the one-hot maximum of the matrix whose rows are the axes before ``axis``."""
    return _flattened(hardmax_along, x, axis, "Hardmax")


@FAMILY.op("Hardmax", since=13)
@quiet
def hardmax(x: Array, *, axis: int = -1) -> Array:
    """Return the one-hot maximum along one axis."""
    return hardmax_along(x, fix_axis(axis, x.ndim, "Hardmax"))


@FAMILY.infer("Hardmax", "LogSoftmax", "Softmax")
def _along_axis(facts: Facts) -> Results:
    rank, is_one = facts.rank(0), facts.version >= _ONE_AXIS
    axis = int(facts.attr("axis", -1 if is_one else 1))
    if is_one or axis != rank:
        facts.require_axis(axis, rank)
    return same_as_first(facts)


_ONE_AXIS = 13
"""Since this version the axis is that of the rows; before, all axes from there on were, of which there may be none."""

FAMILY.infer(
    "Celu", "Elu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "Relu", "Selu", "Shrink", "Sigmoid", "Softplus",
    "Softsign", "Swish", "ThresholdedRelu",
)(same_as_first)  # fmt: skip
FAMILY.infer("SwiGLU")(broadcasting)
FAMILY.trait("along_axis", "Hardmax", "LogSoftmax", "Softmax")
FAMILY.trait(
    "function", "Celu", "Elu", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "Relu", "Selu", "Sigmoid",
    "Softplus", "Swish",
)  # fmt: skip
FAMILY.trait("clamp", "Relu")
