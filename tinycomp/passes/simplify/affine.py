"""Operators that can take a per-channel scale and shift of their result into their constant parameters.

Everything is computed in float64 and rounded once, to the dtype of the parameter.

Rules that take a per-channel scale and shift into the operator before: batch normalisation, Mul, Div, Add, Sub.

The operator before is a Conv, ConvTranspose, Gemm or BatchNormalization with constant parameters that nobody else
reads. A BatchNormalization behind anything else stays one node: as Mul and Add it would read and write memory twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.types import tensor
from tinycomp.passes.edits import absorb_node, joined_sources, take_over
from tinycomp.passes.simplify.facts import (
    FLOATS,
    constant,
    dtype,
    is_private,
    operand,
    producer,
    reshape_target,
    same_shape_of_equal_size,
    shape,
)
from tinycomp.rewrite import rule
from tinycomp.rewrite.traits import attribute

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


_ARITHMETIC = ("Mul", "Div", "Add", "Sub")
_COMMUTATIVE = frozenset({"Mul", "Add"})


@rule("BatchNormalization")
def merge_batch_norm(graph: Graph, node: Node) -> bool:
    """A batch normalisation with constant parameters goes into the weights and bias before it."""
    found = normalisation(node)
    x = operand(node, 0)
    return found is not None and x is not None and _merge(graph, node, Affine(x, *found))


@rule(*_ARITHMETIC)
def merge_per_channel(graph: Graph, node: Node) -> bool:
    """A scale or shift by one constant, or one per channel, goes into the weights and bias before it."""
    if node.version < 7:
        return False
    at = 0 if node.op in _COMMUTATIVE and constant(node, 0) is not None else 1
    x, array = operand(node, 1 - at), constant(node, at)
    if x is None or array is None or dtype(x) not in FLOATS:
        return False
    numbers = per_channel(array, x)
    return numbers is not None and _merge(graph, node, _affine(node.op, x, numbers))


def per_channel(array: np.ndarray, x: Value) -> np.ndarray | None:
    """Return ``array`` as one float64 number per channel of ``x``, or None where it differs within a channel."""
    dims, count = shape(x), channels(x)
    if dims is None or count is None or array.ndim > len(dims):
        return None
    full = (1,) * (len(dims) - array.ndim) + array.shape
    if any(size != 1 for axis, size in enumerate(full) if axis != 1) or full[1] not in (1, count):
        return None
    return np.broadcast_to(array.astype(np.float64).reshape(-1), (count,))


def _affine(op: str, x: Value, numbers: np.ndarray) -> Affine:
    ones, zeros = np.ones_like(numbers), np.zeros_like(numbers)
    with np.errstate(all="ignore"):
        match op:
            case "Mul":
                return Affine(x, numbers, zeros)
            case "Div":
                return Affine(x, 1 / numbers, zeros)
            case "Add":
                return Affine(x, ones, numbers)
    return Affine(x, ones, -numbers)


def _merge(graph: Graph, node: Node, affine: Affine) -> bool:
    host = host_of(affine)
    if host is None or not is_private(graph, affine.x):
        return False
    if not (np.isfinite(affine.scale).all() and np.isfinite(affine.shift).all()):
        return False
    found = absorb(host, affine)
    if found is None:
        return False
    _replace_params(graph, node, host, found)
    return True


def _replace_params(graph: Graph, node: Node, host: Node, found: Absorbed) -> None:
    """Give the host its new parameters, under the names of the old ones where nobody else reads those."""
    host.inputs += (None,) * (max(found.params) + 1 - len(host.inputs))
    for index, array in found.params.items():
        old = host.inputs[index]
        name = old.name if old is not None else f"{host.output.name}_bias"
        value = graph.add_const(array, name)
        graph.set_input(host, index, value)
        if old is not None and not graph.use_count(old):
            graph.erase_unused(old)
            graph.rename(value, name)
    host.attrs = dict(found.attrs)
    absorb_node(graph, node, host)


@rule("Reshape")
def gemm_of_rows(graph: Graph, node: Node) -> bool:
    """``Reshape(Gemm(Reshape(x, [rows, k]), w, b), [..., n])`` is ``x w + b`` with x in the shape ``[..., k]``.

    The shapes no longer stand between the product and what follows it: residuals and activations can be fused.
    """
    gemm = producer(node.inputs[0], "Gemm")
    if gemm is None or not is_private(graph, gemm.output) or not _is_plain(gemm):
        return False
    flatten = producer(gemm.inputs[0], "Reshape")
    rows = None if flatten is None else _with_leading_dims(graph, flatten, gemm, node)
    if flatten is None or rows is None:
        return False
    sources, bias = joined_sources(flatten, gemm, node), operand(gemm, 2)
    names = [graph.fresh(gemm.output.name)]
    new = graph.add("MatMul", [rows, gemm.inputs[1]], at=node, outputs=names, sources=sources)
    if bias is not None:
        names = [graph.fresh(node.output.name)]
        new = graph.add("Add", [new.output, bias], at=node, outputs=names, sources=sources)
    return take_over(graph, node, new)


def _with_leading_dims(graph: Graph, flatten: Node, gemm: Node, node: Node) -> Value | None:
    """Return what ``flatten`` makes rows of in the shape that makes ``node`` superfluous, or None if there is none."""
    flat, product, final = shape(flatten.output), shape(gemm.output), shape(node.output)
    if flat is None or product is None or final is None or len(final) < 3:
        return None
    wanted = (*final[:-1], flat[1])
    target = reshape_target(wanted)
    if not isinstance(final[-1], int) or final[-1] != product[1] or target is None or not isinstance(flat[1], int):
        return None
    source = flatten.inputs[0]
    if source is None or same_shape_of_equal_size(shape(source), wanted):
        return source
    name = f"{flatten.output.name}_shape"
    operands = [source, graph.add_const(np.array(target, np.int64), name)]
    return graph.add("Reshape", operands, at=node, sources=flatten.sources).output


def _is_plain(gemm: Node) -> bool:
    """Whether a Gemm is ``x w + b`` with b constant and the same for every row."""
    scales = [attribute(gemm, name) for name in ("alpha", "beta")]
    turned = [attribute(gemm, name) for name in ("transA", "transB")]
    bias = constant(gemm, 2)
    if gemm.version < 7 or any(turned) or scales[0] != 1 or (bias is None and operand(gemm, 2) is not None):
        return False
    return bias is None or (scales[1] == 1 and bias.size == bias.shape[-1] if bias.ndim else scales[1] == 1)


RULES = (
    merge_batch_norm,
    merge_per_channel,
    gemm_of_rows,
)
