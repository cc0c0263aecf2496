"""Rules on linear layers: merge scales and shifts into the operator before, and keep the leading dimensions of rows.

A per-channel scale and shift (batch normalisation, Mul, Div, Add, Sub) goes into a Conv, ConvTranspose, Gemm or
BatchNormalization with constant parameters that nobody else reads. Everything is computed in float64 and rounded once,
to the dtype of the parameter. A BatchNormalization behind anything else stays one node: as Mul and Add it would read
and write memory twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.memory.blocks import empty
from tinycomp.passes.simplify.facts import FLOATS, is_private, producer, reshape_target, same_shape_of_equal_size
from tinycomp.rewrite import GraphBuilder, Match, P, replaces, rule
from tinycomp.rewrite.edits import bypass, joined_sources
from tinycomp.rewrite.traits import attribute, has_trait

Array = np.ndarray
Params = dict[int, Array]
"""New arrays of an operator's parameters, by operand."""


# Scales and shifts --------------------------------------------------------------------------------------------------


@rule("BatchNormalization")
def merge_batch_norm(graph: Graph, node: Node) -> bool:
    """Merge a batch normalisation with constant parameters into the weights and bias before it."""
    host = _host(graph, node.operand(0))
    affine = None if host is None else normalisation(node)
    return host is not None and affine is not None and _merge(graph, node, host, *affine)


@rule("Mul", "Div", "Add", "Sub")
def merge_per_channel(graph: Graph, node: Node) -> bool:
    """Merge a scale or shift by one constant, or one per channel, into the weights and bias before it."""
    at = 0 if has_trait(node, "commutative") and node.const(0) is not None else 1
    array = node.const(at)
    if array is None or node.version < 7:
        return False
    x = node.operand(1 - at)
    host = _host(graph, x)
    factors = None if host is None else per_channel(array, x)
    if host is None or factors is None:
        return False
    ones, zeros = np.ones_like(factors), np.zeros_like(factors)
    with np.errstate(all="ignore"):
        match node.op:
            case "Mul":
                return _merge(graph, node, host, factors, zeros)
            case "Div":
                return _merge(graph, node, host, 1 / factors, zeros)
            case "Add":
                return _merge(graph, node, host, ones, factors)
    return _merge(graph, node, host, ones, -factors)


def per_channel(array: Array, x: Value) -> Array | None:
    """Return ``array`` as one float64 per channel of ``x``, or None where it differs within a channel."""
    dims = x.shape
    if dims is None or len(dims) < 2 or array.ndim > len(dims) or not isinstance(dims[1], int):
        return None
    full = (1,) * (len(dims) - array.ndim) + array.shape
    if any(size != 1 for axis, size in enumerate(full) if axis != 1) or full[1] not in (1, dims[1]):
        return None
    return np.broadcast_to(array.astype(np.float64).reshape(-1), (dims[1],))


def is_inference(node: Node) -> bool:
    """Tell whether a BatchNormalization uses its running statistics per channel."""
    if any(value.name for value in node.outputs[1:]) or attribute(node, "spatial") not in (None, 1):
        return False
    return bool(node.attrs.get("is_test", 0)) if node.version < 7 else not node.attrs.get("training_mode", 0)


def normalisation(node: Node) -> tuple[Array, Array] | None:
    """Return scale and shift of a BatchNormalization at inference with constant parameters, in float64."""
    params = [node.const(index) for index in (1, 2, 3, 4)]
    if not is_inference(node) or any(p is None for p in params):
        return None
    gamma, beta, mean, variance = (np.asarray(p, np.float64).reshape(-1) for p in params)
    with np.errstate(all="ignore"):
        scale = gamma / np.sqrt(variance + attribute(node, "epsilon"))
        return scale, beta - mean * scale


def _host(graph: Graph, x: Value) -> Node | None:
    """Return the node that makes ``x`` for one reader only, if it can absorb a scale and shift of floats."""
    host = producer(x, *ABSORBERS)
    return host if host is not None and is_private(graph, x) and x.dtype in FLOATS else None


def _merge(graph: Graph, node: Node, host: Node, scale: Array, shift: Array) -> bool:
    """Let ``host`` do the work of ``node``, unless its parameters are not constant or the results overflow."""
    if not (np.isfinite(scale).all() and np.isfinite(shift).all()):
        return False
    with np.errstate(all="ignore"):
        params = ABSORBERS[host.op](host, scale, shift)
    if params is None or not all(np.isfinite(array).all() for array in params.values()):
        return False
    host.inputs += (None,) * (max(params) + 1 - len(host.inputs))
    for index, array in params.items():
        old = host.inputs[index]
        name = old.name if old is not None else f"{host.output.name}_bias"
        value = graph.add_const(array, name)
        graph.set_input(host, index, value)
        if old is not None and not graph.use_count(old):
            graph.erase_unused(old)
            graph.rename(value, name)
    host.attrs = {key: value for key, value in host.attrs.items() if key != "beta"}  # is in the bias of a Gemm now
    host.sources = joined_sources(host, node)
    host.position = node.position
    name = node.output.name
    bypass(graph, node, host.output)
    graph.erase(node)
    graph.rename(host.output, name)
    return True


def _conv(host: Node, scale: Array, shift: Array) -> Params | None:
    weight = host.const(1)
    if weight is None or weight.shape[0] != scale.size:
        return None
    return _with_bias(host, _scaled(weight, scale.reshape(-1, *[1] * (weight.ndim - 1))), scale, shift)


def _conv_transpose(host: Node, scale: Array, shift: Array) -> Params | None:
    """Return the new weight, (channels in, channels out per group, …) with groups on axis 0, and the new bias."""
    weight, groups = host.const(1), int(host.attrs.get("group", 1))
    if weight is None or weight.shape[1] * groups != scale.size:
        return None
    grouped = weight.reshape(groups, -1, *weight.shape[1:])
    factors = scale.reshape(groups, 1, weight.shape[1], *[1] * (weight.ndim - 2))
    return _with_bias(host, _scaled(grouped, factors).reshape(weight.shape), scale, shift)


def _with_bias(host: Node, weight: Array, scale: Array, shift: Array) -> Params | None:
    bias = host.const(2)
    if bias is None and host.optional_operand(2) is not None:
        return None
    total = shift if bias is None else bias.astype(np.float64) * scale + shift
    return {1: weight, 2: total.astype(weight.dtype)} if bias is not None or np.any(total) else {1: weight}


def _gemm(host: Node, scale: Array, shift: Array) -> Params | None:
    weight, bias, transposed = host.const(1), host.const(2), bool(host.attrs.get("transB", 0))
    if weight is None or (bias is None and host.optional_operand(2) is not None) or host.version < 7:
        return None
    if weight.shape[0 if transposed else 1] != scale.size:
        return None
    beta = float(host.attrs.get("beta", 1.0))
    total = shift if bias is None else beta * bias.astype(np.float64) * scale + shift
    return {1: _scaled(weight, scale.reshape(-1, 1) if transposed else scale), 2: total.astype(weight.dtype)}


def _batch_norm(host: Node, scale: Array, shift: Array) -> Params | None:
    gamma, beta = host.const(1), host.const(2)
    if gamma is None or beta is None or not is_inference(host) or gamma.shape != scale.shape:
        return None
    wide = gamma.astype(np.float64) * scale, beta.astype(np.float64) * scale + shift
    return {1: wide[0].astype(gamma.dtype), 2: wide[1].astype(beta.dtype)}


def _scaled(weight: Array, factors: Array) -> Array:
    """Return float64 products rounded once to the weight's dtype, without a float64 copy of a large weight."""
    if weight.dtype.isbuiltin != 1:
        product: Array = (weight.astype(np.float64) * factors).astype(weight.dtype)
        return product
    result = empty(weight.shape, weight.dtype)
    np.multiply(weight, factors, out=result, dtype=np.float64, casting="unsafe")
    return result


ABSORBERS: Mapping[str, Callable[[Node, Array, Array], Params | None]] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "Gemm": _gemm,
    "BatchNormalization": _batch_norm,
}
"""By operator, a function that merges a scale and shift into the parameters; None where they are not constant."""


# Matrix products of flattened rows, which is how PyTorch's exporters write a linear layer ---------------------------


@replaces(
    lambda x, w, b=P.const | None: P.Reshape(
        P.Gemm(P.Reshape(x, ...), w, b, alpha=lambda alpha: alpha == 1, transA=0, transB=0).where(uses=1), ...
    )
)
def gemm_of_rows(op: GraphBuilder, x: Value, w: Value, b: Value | None, match: Match) -> Value | None:
    """Replace ``Reshape(Gemm(Reshape(x, [rows, k]), w, b), [..., n])`` by ``x w + b`` with x of shape ``[..., k]``.

    The bias must be the same for every row. The shapes no longer stand between the product and what follows it:
    residuals and activations can be fused.
    """
    node, gemm, flatten = match.matched
    if gemm.version < 7 or not (b is None or (attribute(gemm, "beta") == 1 and _is_one_row(b))):
        return None
    rows = _with_leading_dims(op, x, flatten, gemm, node)
    if rows is None:
        return None
    product: Value = op.emit("MatMul", rows, w, outputs=[op.graph.fresh(gemm.output.name)])
    return product if b is None else op.Add(product, b)


def _is_one_row(bias: Value) -> bool:
    return bias.const is not None and (bias.const.ndim == 0 or bias.const.size == bias.const.shape[-1])


def _with_leading_dims(op: GraphBuilder, x: Value, flatten: Node, gemm: Node, node: Node) -> Value | None:
    """Return the operand of ``flatten`` in a shape that makes ``node`` superfluous, or None if there is none."""
    flat, product, final = flatten.output.shape, gemm.output.shape, node.output.shape
    if flat is None or product is None or final is None or len(final) < 3:
        return None
    wanted = (*final[:-1], flat[1])
    target = reshape_target(wanted, x.shape)
    if not isinstance(final[-1], int) or final[-1] != product[1] or target is None or not isinstance(flat[1], int):
        return None
    if same_shape_of_equal_size(x.shape, wanted):
        return x
    shape = op.graph.add_const(np.array(target, np.int64), f"{flatten.output.name}_shape")
    return op.graph.add("Reshape", [x, shape], at=node, sources=flatten.sources).output


RULES = (merge_batch_norm, merge_per_channel, gemm_of_rows)
