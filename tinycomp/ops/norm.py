"""Normalisations. Statistics of narrow floats are computed in float32 and rounded once, at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from tinycomp.errors import ModelError
from tinycomp.ir.graph import Node
from tinycomp.ir.types import Type
from tinycomp.ops.facts import Facts, axis_in_range, one_of, type_of_first
from tinycomp.ops.numeric import Array, compute_dtype, fix_axes, fix_axis, quiet, widened
from tinycomp.ops.record import OpFamily

FAMILY = OpFamily("norm")
_SHORT = 8
"""numpy adds up lines of fewer numbers one by one."""


def _type_of_first(node: Node) -> list[Type]:
    """Return the type of the first operand; onnx infers nothing for operators that it defines as functions."""
    return [node.operand(0).type]


def _wide(x: Array) -> Array:
    return x.astype(compute_dtype(x.dtype), copy=False)


def _per_channel(op: str, name: str, parameter: Array, x: Array, channels: int | None = None) -> Array:
    """Return a per-channel parameter in a shape that broadcasts with ``x`` (N, C, …), in its working type."""
    size = channels if channels is not None else (x.shape[1] if x.ndim > 1 else 1)
    if parameter.shape != (size,):
        raise ModelError(
            f"{op}: {name} does not fit the channels", expected=f"shape {[size]}", found=str(list(parameter.shape))
        )
    return _wide(parameter).astype(compute_dtype(x.dtype), copy=False).reshape(-1, *[1] * max(x.ndim - 2, 0))


def _scale_and_shift(
    x: Array, scale: Array, bias: Array, mean: Array, var: Array, epsilon: float, op: str = "BatchNormalization"
) -> Array:
    named = {"scale": scale, "B": bias, "mean": mean, "var": var}
    wide = {name: _per_channel(op, name, p, x) for name, p in named.items()}
    factor = wide["scale"] / np.sqrt(wide["var"] + np.asarray(epsilon, dtype=wide["var"].dtype))
    y: Array = _wide(x) * factor
    y += wide["B"] - wide["mean"] * factor
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
    _require_spatial(spatial)
    return _training(x, scale, bias, mean, var, epsilon, momentum)[:outputs]


def _require_spatial(spatial: int) -> None:
    if not spatial:
        raise ModelError(
            "BatchNormalization: training per activation is not possible",
            expected="spatial = 1 where batch statistics are used",
            found="spatial = 0",
        )


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
        _require_spatial(spatial)
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
    """Normalise; in training mode also return the running mean and variance.

    Raises:
        ModelError: If a parameter does not have one entry per channel.
    """
    if not training_mode:
        return _scale_and_shift(x, scale, bias, input_mean, input_var, epsilon)
    return _training(x, scale, bias, input_mean, input_var, epsilon, momentum)[:outputs]


FAMILY.plain_type("BatchNormalization", least=5, since=9)(type_of_first)


@FAMILY.check("BatchNormalization")
def _check_batch_norm(facts: Facts) -> None:
    for index, what in ((1, "the scale"), (2, "the bias"), (3, "the mean"), (4, "the variance")):
        facts.require_vector(index, facts.dim(0, 1), what)


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
    op = "InstanceNormalization"
    y, _, _ = _standardise(x, tuple(range(2, x.ndim)), epsilon)
    y *= _per_channel(op, "scale", scale, x)
    y += _per_channel(op, "B", bias, x)
    return y


@FAMILY.check("InstanceNormalization")
def _check_instance_norm(facts: Facts) -> None:
    for index, what in ((1, "the scale"), (2, "the bias")):
        facts.require_vector(index, facts.dim(0, 1), what)


@FAMILY.op("GroupNormalization", type_rule=_type_of_first, traits={"inexact_definition"})
@widened
def group_normalization_18(x: Array, scale: Array, bias: Array, *, epsilon: float = 1e-5, num_groups: int) -> Array:
    """Normalise groups of channels; scale and bias have one entry per group."""
    return _group_normalization(x, scale, bias, epsilon, num_groups, per_group=True)


@FAMILY.op("GroupNormalization", since=21, type_rule=_type_of_first, traits={"inexact_definition"})
@widened
def group_normalization(
    x: Array, scale: Array, bias: Array, *, epsilon: float = 1e-5, num_groups: int, stash_type: int = 1
) -> Array:
    """Normalise groups of channels; scale and bias have one entry per channel.

    ``stash_type`` (float32) is the least precision of the statistics, which are always computed at least so.
    """
    return _group_normalization(x, scale, bias, epsilon, num_groups, per_group=False)


@FAMILY.check("GroupNormalization")
def _check_groups(facts: Facts) -> None:
    groups, channels = int(facts.attr("num_groups", 1)), facts.dim(0, 1)
    if groups < 1 or (channels is not None and channels % groups):
        facts.fail("num_groups does not divide the channels", expected=f"a divisor of {channels}", found=groups)


def _group_normalization(x: Array, scale: Array, bias: Array, epsilon: float, groups: int, *, per_group: bool) -> Array:
    op = "GroupNormalization"
    channels = x.shape[1]
    if groups <= 0 or channels % groups:
        raise ModelError(
            f"{op}: num_groups does not divide the channels",
            expected=f"a positive divisor of {channels}",
            found=str(groups),
        )
    parameters = []
    for name, p in (("scale", scale), ("bias", bias)):
        checked = _per_channel(op, name, p, x, groups if per_group else channels)
        parameters.append(np.repeat(checked, channels // groups, axis=0) if per_group else checked)
    split = x.reshape(x.shape[0], groups, channels // groups, *x.shape[2:])
    y = _standardise(split, tuple(range(2, split.ndim)), epsilon)[0].reshape(x.shape)
    y *= parameters[0]
    y += parameters[1]
    return y


def _stash_dtype(x: Array, stash_type: int) -> np.dtype[Any]:
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(stash_type)) if stash_type else x.dtype


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
    if y.shape != x.shape:
        raise ModelError(
            "LayerNormalization: scale or bias do not broadcast to the input",
            expected=str(list(x.shape)),
            found=str(list(y.shape)),
        )
    stash = _stash_dtype(x, stash_type)
    return (y.astype(x.dtype, copy=False), mean.astype(stash), inverse.astype(stash))[:outputs]


FAMILY.plain_type("LayerNormalization", least=2, most=3)(type_of_first)


@FAMILY.check("LayerNormalization", "RMSNormalization")
def _check_layer_norm(facts: Facts) -> None:
    shape = facts.shape(0)
    if shape is None:
        return
    facts.require_axis(int(facts.attr("axis", -1)), len(shape))
    facts.require_broadcast(1, shape, "the scale")
    facts.require_broadcast(2, shape, "the bias")


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
    """Divide by the L1 or L2 norm along ``axis``; where the norm is zero the result is zero.

    Raises:
        ModelError: If ``p`` is neither 1 nor 2.
    """
    if p not in (1, 2):
        raise ModelError("LpNormalization: unknown norm", expected="p = 1 or p = 2", found=str(p))
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


FAMILY.check("LpNormalization")(one_of(p=(1, 2)))
FAMILY.check("LpNormalization")(axis_in_range(-1))


@FAMILY.op("MeanVarianceNormalization", type_rule=_type_of_first, traits={"inexact_definition"})
@widened
def mean_variance_normalization(x: Array, *, axes: Sequence[int] = (0, 2, 3)) -> Array:
    """Subtract the mean over ``axes`` and divide by the standard deviation plus 1e-9."""
    over = fix_axes(axes, x.ndim, "MeanVarianceNormalization")
    centred = x - x.mean(axis=over, keepdims=True)
    deviation = np.sqrt(np.mean(centred * centred, axis=over, keepdims=True))
    return np.asarray(centred / (deviation + np.asarray(1e-9, dtype=x.dtype)))


FAMILY.trait("per_image", "BatchNormalization", "GroupNormalization", "InstanceNormalization")
FAMILY.trait("along_axis", "LayerNormalization", "LpNormalization", "RMSNormalization")
