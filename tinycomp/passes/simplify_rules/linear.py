"""Operators that can take a per-channel scale and shift of their result into their constant parameters.

Everything is computed in float64 and rounded once, to the dtype of the parameter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tinycomp.ir.graph import Node, Value
from tinycomp.ir.types import tensor
from tinycomp.passes.simplify_rules.facts import FLOATS, constant, dtype, operand, producer
from tinycomp.rewrite.constraints import attribute

Array = np.ndarray


@dataclass(frozen=True)
class Affine:
    """``scale[c] * x + shift[c]`` for every channel c of axis 1.

    Attributes:
        x: The operand.
        scale: float64, one entry per channel.
        shift: The same.
    """

    x: Value
    scale: Array
    shift: Array


@dataclass(frozen=True)
class Absorbed:
    """How an operator looks with the affine map inside.

    Attributes:
        params: New arrays by operand index.
        attrs: Its attributes.
    """

    params: Mapping[int, Array]
    attrs: Mapping[str, Any] = field(default_factory=dict)


def host_of(affine: Affine) -> Node | None:
    """Return the node that makes the operand, if its operator can absorb an affine map."""
    return producer(affine.x, *_ABSORBERS)


def absorb(host: Node, affine: Affine) -> Absorbed | None:
    """Return ``host`` with the map inside, or None where its parameters are not constant or the numbers overflow."""
    if dtype(host.output) not in FLOATS:
        return None
    with np.errstate(all="ignore"):
        found = _ABSORBERS[host.op](host, affine.scale, affine.shift)
    if found is None or not all(np.isfinite(array).all() for array in found.params.values()):
        return None
    return found


def _scaled(weight: Array, factors: Array) -> Array:
    """Return float64 products rounded once to the weight's dtype, without a float64 copy of a large weight."""
    if weight.dtype.isbuiltin != 1:
        product: Array = (weight.astype(np.float64) * factors).astype(weight.dtype)
        return product
    result = np.empty(weight.shape, weight.dtype)
    np.multiply(weight, factors, out=result, dtype=np.float64, casting="unsafe")
    return result


def is_inference(node: Node) -> bool:
    """Whether a BatchNormalization uses its running statistics per channel."""
    if any(value.name for value in node.outputs[1:]) or attribute(node, "spatial") not in (None, 1):
        return False
    return bool(node.attrs.get("is_test", 0)) if node.version < 7 else not node.attrs.get("training_mode", 0)


def normalisation(node: Node) -> tuple[Array, Array] | None:
    """Return scale and shift of a BatchNormalization at inference with constant parameters, in float64."""
    params = [constant(node, index) for index in (1, 2, 3, 4)]
    if not is_inference(node) or any(p is None for p in params):
        return None
    gamma, beta, mean, variance = (np.asarray(p, np.float64).reshape(-1) for p in params)
    with np.errstate(all="ignore"):
        scale = gamma / np.sqrt(variance + attribute(node, "epsilon"))
        return scale, beta - mean * scale


def _conv(host: Node, scale: Array, shift: Array) -> Absorbed | None:
    weight = constant(host, 1)
    if weight is None or weight.shape[0] != scale.size:
        return None
    return _with_bias(host, weight, _scaled(weight, scale.reshape(-1, *[1] * (weight.ndim - 1))), scale, shift)


def _conv_transpose(host: Node, scale: Array, shift: Array) -> Absorbed | None:
    """The weight is (channels in, channels out per group, …); groups stand one after the other on axis 0."""
    weight, groups = constant(host, 1), int(host.attrs.get("group", 1))
    if weight is None or weight.shape[1] * groups != scale.size:
        return None
    grouped = weight.reshape(groups, -1, *weight.shape[1:])
    factors = scale.reshape(groups, 1, weight.shape[1], *[1] * (weight.ndim - 2))
    return _with_bias(host, weight, _scaled(grouped, factors).reshape(weight.shape), scale, shift)


def _with_bias(host: Node, weight: Array, scaled: Array, scale: Array, shift: Array) -> Absorbed | None:
    bias = constant(host, 2)
    if bias is None and operand(host, 2) is not None:
        return None
    total = shift if bias is None else bias.astype(np.float64) * scale + shift
    params = {1: scaled}
    if bias is not None or np.any(total):
        params[2] = total.astype(weight.dtype)
    return Absorbed(params, host.attrs)


def _gemm(host: Node, scale: Array, shift: Array) -> Absorbed | None:
    weight, bias = constant(host, 1), constant(host, 2)
    if weight is None or (bias is None and operand(host, 2) is not None) or host.version < 7:
        return None
    factors = scale.reshape(-1, 1) if host.attrs.get("transB", 0) else scale
    if weight.shape[0 if host.attrs.get("transB", 0) else 1] != scale.size:
        return None
    beta = float(host.attrs.get("beta", 1.0))
    total = shift if bias is None else beta * bias.astype(np.float64) * scale + shift
    attrs = {key: value for key, value in host.attrs.items() if key != "beta"}
    return Absorbed({1: _scaled(weight, factors), 2: total.astype(weight.dtype)}, attrs)


def _batch_norm(host: Node, scale: Array, shift: Array) -> Absorbed | None:
    gamma, beta = constant(host, 1), constant(host, 2)
    if gamma is None or beta is None or not is_inference(host) or gamma.shape != scale.shape:
        return None
    wide = gamma.astype(np.float64) * scale, beta.astype(np.float64) * scale + shift
    return Absorbed({1: wide[0].astype(gamma.dtype), 2: wide[1].astype(beta.dtype)}, host.attrs)


_ABSORBERS: Mapping[str, Callable[[Node, Array, Array], Absorbed | None]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "BatchNormalization": _batch_norm,
}


def channels(value: Value | None) -> int | None:
    """Return the size of axis 1, or None where it is not known."""
    dims = None if value is None else tensor(value.type).shape
    return dims[1] if dims is not None and len(dims) > 1 and isinstance(dims[1], int) else None
