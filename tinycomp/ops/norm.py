"""Normalisations. Statistics of narrow floats are computed in float32 and rounded once, at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tinycomp.ir.proto import DTYPE_BY_NUMBER
from tinycomp.ir.types import numpy_dtype
from tinycomp.ops.numeric import Array, compute_dtype, fix_axes, fix_axis, quiet, widened
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Facts, Results, same_as_first

FAMILY = OpFamily("norm")
_SHORT = 8
"""numpy adds up lines of fewer numbers one by one."""


def _wide(x: Array) -> Array:
    return x.astype(compute_dtype(x.dtype), copy=False)


def _per_channel(parameter: Array, x: Array) -> Array:
    """Return a per-channel parameter in a shape that broadcasts with ``x`` (N, C, …), in its working type."""
    return _wide(parameter).astype(compute_dtype(x.dtype), copy=False).reshape(-1, *[1] * max(x.ndim - 2, 0))


def _scale_and_shift(x: Array, scale: Array, bias: Array, mean: Array, var: Array, epsilon: float) -> Array:
    scale, bias, mean, var = (_per_channel(parameter, x) for parameter in (scale, bias, mean, var))
    factor = scale / np.sqrt(var + np.asarray(epsilon, dtype=var.dtype))
    y: Array = _wide(x) * factor
    y += bias - mean * factor
    return y.astype(x.dtype, copy=False)


def _batch_statistics(x: Array) -> tuple[Array, Array]:
    axes = (0, *range(2, x.ndim))
    wide = _wide(x)
    return wide.mean(axis=axes), wide.var(axis=axes)


def _running(old: Array, current: Array, momentum: float) -> Array:
    return (_wide(old) * momentum + current * (1 - momentum)).astype(old.dtype)


def _training(
    x: Array, scale: Array, bias: Array, mean: Array, var: Array, epsilon: float, momentum: float
) -> tuple[Array, Array, Array, Array, Array]:
    batch_mean, batch_var = _batch_statistics(x)
    y = _scale_and_shift(x, scale, bias, batch_mean, batch_var, epsilon)
    saved = batch_mean.astype(mean.dtype), batch_var.astype(var.dtype)
    return y, _running(mean, batch_mean, momentum), _running(var, batch_var, momentum), *saved


@FAMILY.op("BatchNormalization", traits={"output_count"})
@quiet
def batch_normalization_1(
    x: Array,
    scale: Array,
    bias: Array,
    mean: Array,
    var: Array,
    *,
    consumed_inputs: Sequence[int] = (),
    epsilon: float = 1e-5,
    is_test: int = 0,
    momentum: float = 0.9,
    spatial: int = 1,
    outputs: int = 1,
) -> Any:
    """Normalise in the mode of the attribute ``is_test``; ``consumed_inputs`` was only ever a hint."""
    if is_test:
        return batch_normalization_7(
            x, scale, bias, mean, var, epsilon=epsilon, momentum=momentum, spatial=spatial, outputs=1
        )
    return _training(x, scale, bias, mean, var, epsilon, momentum)[:outputs]


@FAMILY.op("BatchNormalization", since=7, traits={"output_count"})
@quiet
def batch_normalization_7(
    x: Array,
    scale: Array,
    bias: Array,
    mean: Array,
    var: Array,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: int = 1,
    outputs: int = 1,
) -> Any:
    """Normalise in the mode of the number of outputs; without ``spatial``, parameters are per activation."""
    if outputs > 1:
        return _training(x, scale, bias, mean, var, epsilon, momentum)[:outputs]
    if spatial:
        return _scale_and_shift(x, scale, bias, mean, var, epsilon)
    flat = x.reshape(x.shape[0], -1)
    return _scale_and_shift(
        flat, scale.reshape(-1), bias.reshape(-1), mean.reshape(-1), var.reshape(-1), epsilon
    ).reshape(x.shape)


@FAMILY.op("BatchNormalization", since=14, traits={"output_count"})
@quiet
def batch_normalization(
    x: Array,
    scale: Array,
    bias: Array,
    input_mean: Array,
    input_var: Array,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    outputs: int = 1,
) -> Any:
    """Normalise; in training mode also return the running mean and variance."""
    if not training_mode:
        return _scale_and_shift(x, scale, bias, input_mean, input_var, epsilon)
    return _training(x, scale, bias, input_mean, input_var, epsilon, momentum)[:outputs]


_PARAMETERS = ((1, "the scale"), (2, "the bias"), (3, "the mean"), (4, "the variance"))


@FAMILY.infer("BatchNormalization")
def _batch_norm(facts: Facts) -> Results:
    facts.require_rank_from(0, 1, "the input")
    shape = facts.shape(0)
    if not facts.attr("spatial", 1):
        trains = len(facts.node.outputs) > 1 or (facts.version < _BY_OUTPUTS and not facts.attr("is_test", 0))
        facts.require(not trains, "training per activation is not possible",
                      expected="spatial = 1 where batch statistics are used", found="spatial = 0")  # fmt: skip
        if shape is not None:
            for index, what in _PARAMETERS:
                facts.require_same(facts.dims(index, len(shape) - 1), shape[1:], f"{what} does not fit the input")
        return [facts.tensor(facts.dtype(0), shape)]
    channels = None if shape is None else 1 if len(shape) == 1 else shape[1]
    for index, what in _PARAMETERS:
        facts.require_vector(index, channels, what)
        channels = (
            facts.dim(index, 0) if not isinstance(channels, int) and facts.dim(index, 0) is not None else channels
        )
    running = [facts.tensor(facts.first_dtype(index, 1, 2), (channels,)) for index in (3, 4, 3, 4)]
    whole = shape if shape is None or len(shape) < 2 else (shape[0], channels, *shape[2:])
    return [facts.tensor(facts.dtype(0), whole), *running]


_BY_OUTPUTS = 7
"""Since this version the number of results tells whether a BatchNormalization trains, before it was an attribute."""


def _standardise(x: Array, axes: tuple[int, ...], epsilon: float) -> tuple[Array, Array, Array]:
    """Return (x - mean) / sqrt(var + epsilon), the mean, and 1 / sqrt(var + epsilon), axes kept."""
    mean = x.mean(axis=axes, keepdims=True)
    centred = x - mean
    var = np.mean(centred * centred, axis=axes, keepdims=True)
    inverse = np.asarray(1 / np.sqrt(var + np.asarray(epsilon, dtype=x.dtype)), dtype=x.dtype)
    centred *= inverse
    return centred, mean, inverse


@FAMILY.op("InstanceNormalization")
@widened
def instance_normalization(
    x: Array, scale: Array, bias: Array, *, consumed_inputs: Sequence[int] = (), epsilon: float = 1e-5
) -> Array:
    """Normalise each channel of each image over its spatial axes."""
    y, _, _ = _standardise(x, tuple(range(2, x.ndim)), epsilon)
    y *= _per_channel(scale, x)
    y += _per_channel(bias, x)
    return y


@FAMILY.infer("InstanceNormalization")
def _instance_norm(facts: Facts) -> Results:
    facts.require_rank_from(0, 2, "the input")
    facts.require_vector(1, facts.dim(0, 1), "the scale")
    facts.require_vector(2, facts.dim(0, 1), "the bias")
    return same_as_first(facts)


@FAMILY.op("GroupNormalization", traits={"inexact_definition"})
@widened
def group_normalization_18(x: Array, scale: Array, bias: Array, *, epsilon: float = 1e-5, num_groups: int) -> Array:
    """Normalise groups of channels; scale and bias have one entry per group."""
    return _group_normalization(x, scale, bias, epsilon, num_groups, per_group=True)


@FAMILY.op("GroupNormalization", since=21, traits={"inexact_definition"})
@widened
def group_normalization(
    x: Array, scale: Array, bias: Array, *, epsilon: float = 1e-5, num_groups: int, stash_type: int = 1
) -> Array:
    """Normalise groups of channels; scale and bias have one entry per channel.

    ``stash_type`` (float32) is the least precision of the statistics, which are always computed at least so.
    """
    return _group_normalization(x, scale, bias, epsilon, num_groups, per_group=False)


@FAMILY.infer("GroupNormalization")
def _group_norm(facts: Facts) -> Results:
    facts.require_rank_from(0, 2, "the input")
    groups, channels = int(facts.attr("num_groups", 1)), facts.dim(0, 1)
    facts.require(groups > 0, "num_groups is out of range", expected="1 or more", found=groups)
    facts.require_divisible(channels, groups, "num_groups does not divide the channels")
    count = channels if facts.version >= _BY_CHANNEL else groups
    facts.require_vector(1, count, "the scale")
    facts.require_vector(2, count, "the bias")
    return same_as_first(facts)


_BY_CHANNEL = 21
"""Since this version a GroupNormalization has a scale for every channel, not for every group."""


def _group_normalization(x: Array, scale: Array, bias: Array, epsilon: float, groups: int, *, per_group: bool) -> Array:
    channels = x.shape[1]
    parameters = [np.repeat(p, channels // groups) if per_group else p for p in (scale, bias)]
    split = x.reshape(x.shape[0], groups, channels // groups, *x.shape[2:])
    y = _standardise(split, tuple(range(2, split.ndim)), epsilon)[0].reshape(x.shape)
    y *= _per_channel(parameters[0], x)
    y += _per_channel(parameters[1], x)
    return y


def _stash_dtype(x: Array, stash_type: int) -> np.dtype[Any]:
    return numpy_dtype(DTYPE_BY_NUMBER[stash_type]) if stash_type else x.dtype


@FAMILY.op("LayerNormalization", traits={"output_count", "inexact_definition"})
@quiet
def layer_normalization(
    x: Array,
    scale: Array,
    bias: Array | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    outputs: int = 1,
) -> tuple[Array, ...]:
    """Normalise over the axes from ``axis`` on; also return mean and inverse standard deviation, in ``stash_type``.

    float64 inputs keep their precision throughout, except in the two statistics if ``stash_type`` is narrower.
    """
    first = fix_axis(axis, x.ndim, "LayerNormalization")
    wide = _wide(x)
    y, mean, inverse = _standardise(wide, tuple(range(first, x.ndim)), epsilon)
    y = y * scale.astype(wide.dtype, copy=False)
    if bias is not None:
        y += bias.astype(wide.dtype, copy=False)
    stash = _stash_dtype(x, stash_type)
    return (y.astype(x.dtype, copy=False), mean.astype(stash), inverse.astype(stash))[:outputs]


def _whole_rows(facts: Facts) -> int:
    """Demand that an axis, a scale and a bias fit the first operand; return the axis."""
    axis = facts.require_axis(int(facts.attr("axis", -1)), facts.rank(0))
    facts.require_broadcast(1, facts.shape(0), "the scale")
    facts.require_broadcast(2, facts.shape(0), "the bias")
    return axis


@FAMILY.infer("LayerNormalization")
def _layer_norm(facts: Facts) -> Results:
    axis, shape, dtype = _whole_rows(facts), facts.shape(0), facts.dtype(0)
    stash = DTYPE_BY_NUMBER.get(facts.attr("stash_type", 1), dtype)
    rows = facts.tensor(stash, None if shape is None else (*shape[:axis], *[1] * (len(shape) - axis)))
    return [facts.tensor(dtype, shape), rows, rows]


@FAMILY.infer("RMSNormalization")
def _rms_norm(facts: Facts) -> Results:
    _whole_rows(facts)
    return [facts.tensor(facts.first_dtype(1, 0), facts.shape(0))]


@FAMILY.op("RMSNormalization")
@quiet
def rms_normalization(x: Array, scale: Array, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1) -> Array:
    """Divide by the root of the mean square over the axes from ``axis`` on; the result has the type of ``scale``."""
    first = fix_axis(axis, x.ndim, "RMSNormalization")
    wide = _wide(x)
    square = np.mean(wide * wide, axis=tuple(range(first, x.ndim)), keepdims=True)
    normalised = wide / np.sqrt(square + np.asarray(epsilon, dtype=wide.dtype))
    return np.asarray(normalised.astype(x.dtype).astype(wide.dtype) * _wide(scale)).astype(scale.dtype)


@FAMILY.op("LpNormalization", traits={"silent"})
@widened
def lp_normalization(x: Array, *, axis: int = -1, p: int = 2) -> Array:
    """Divide by the L1 or L2 norm along ``axis``; where the norm is zero the result is zero."""
    axis = fix_axis(axis, x.ndim, "LpNormalization")
    norm = _sum_along(np.abs(x), axis) if p == 1 else np.sqrt(_sum_along(x * x, axis))
    norm[norm == 0] = np.inf
    return x / norm


def _sum_along(x: Array, axis: int) -> Array:
    """Add up along an axis, whose size becomes 1; the order of the additions is that of numpy's own sum.

    That takes as long for a line of three numbers as for one of thirty: of short lines, all first numbers are added to
    all second ones, and so on.
    """
    if x.shape[axis] >= _SHORT:
        return np.asarray(np.add.reduce(x, axis, keepdims=True))
    return np.asarray(np.add.reduce(np.ascontiguousarray(x.swapaxes(axis, 0)), 0, keepdims=True).swapaxes(axis, 0))


@FAMILY.infer("LpNormalization")
def _lp_norm(facts: Facts) -> Results:
    facts.require_one_of("p", (1, 2))
    facts.require_axis(int(facts.attr("axis", -1)), facts.rank(0))
    return same_as_first(facts)


@FAMILY.op("MeanVarianceNormalization", traits={"inexact_definition"})
@widened
def mean_variance_normalization(x: Array, *, axes: Sequence[int] = (0, 2, 3)) -> Array:
    """Subtract the mean over ``axes`` and divide by the standard deviation plus 1e-9."""
    over = fix_axes(axes, x.ndim, "MeanVarianceNormalization")
    centred = x - x.mean(axis=over, keepdims=True)
    deviation = np.sqrt(np.mean(centred * centred, axis=over, keepdims=True))
    return np.asarray(centred / (deviation + np.asarray(1e-9, dtype=x.dtype)))


@FAMILY.infer("MeanVarianceNormalization")
def _mean_variance(facts: Facts) -> Results:
    facts.require_axes(facts.attr("axes", (0, 2, 3)), facts.rank(0))
    return same_as_first(facts)


FAMILY.trait("per_image", "BatchNormalization", "GroupNormalization", "InstanceNormalization")
FAMILY.trait("along_axis", "LayerNormalization", "LpNormalization", "RMSNormalization")
