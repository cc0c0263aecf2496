"""Operators that return or combine booleans: comparisons, logic, IsNaN and IsInf, and Where."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tinycomp.ops.elementwise import legacy_broadcast
from tinycomp.ops.numeric import Array, compute_dtype
from tinycomp.ops.registry import OpFamily

FAMILY = OpFamily("comparison")


def _binary(function: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    def run(a: Array, b: Array) -> Array:
        wide = compute_dtype(a.dtype)
        if wide is not a.dtype:
            a, b = a.astype(wide), b.astype(wide)
        return np.asarray(function(a, b)).astype(np.bool_, copy=False)

    return run


for _name, _function, _traits in (
    ("Equal", np.equal, {"commutative"}),
    ("Less", np.less, set()),
    ("Greater", np.greater, set()),
    ("LessOrEqual", np.less_equal, set()),
    ("GreaterOrEqual", np.greater_equal, set()),
    ("And", np.logical_and, {"commutative"}),
    ("Or", np.logical_or, {"commutative"}),
    ("Xor", np.logical_xor, {"commutative"}),
):
    _kernel = _binary(_function)
    FAMILY.op(_name, since=7, traits={"elementwise", "cheap"} | _traits)(_kernel)
    if not _name.endswith("OrEqual"):
        FAMILY.op(_name, since=1, traits={"elementwise", "cheap"})(legacy_broadcast(_kernel))


@FAMILY.op("Not", traits={"elementwise", "cheap"})
def not_(x: Array) -> Array:
    """Logical negation."""
    return np.asarray(np.logical_not(x))


@FAMILY.op("IsNaN", traits={"elementwise", "cheap"})
def is_nan(x: Array) -> Array:
    """Whether each element is NaN."""
    return np.asarray(np.isnan(x.astype(compute_dtype(x.dtype), copy=False)))


@FAMILY.op("IsInf", traits={"elementwise", "cheap"})
def is_inf(x: Array, *, detect_negative: int = 1, detect_positive: int = 1) -> Array:
    """Whether each element is an infinity of a sign that is asked for."""
    wide = x.astype(compute_dtype(x.dtype), copy=False)
    negative = np.isneginf(wide) if detect_negative else np.zeros(x.shape, np.bool_)
    positive = np.isposinf(wide) if detect_positive else np.zeros(x.shape, np.bool_)
    return np.asarray(negative | positive)


@FAMILY.op("Where", traits={"elementwise", "cheap"})
def where(condition: Array, x: Array, y: Array) -> Array:
    """Elements of ``x`` where the condition holds, else of ``y``, all three broadcast."""
    return np.where(condition, x, y)
