"""Rules that take a per-channel scale and shift into the operator before: batch normalisation, Mul, Div, Add, Sub.

The operator before is a Conv, ConvTranspose, Gemm or BatchNormalization with constant parameters that nobody else
reads. A BatchNormalization behind anything else stays one node: as Mul and Add it would read and write memory twice.
"""

from __future__ import annotations

import numpy as np

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.passes.edits import absorb_node
from tinycomp.passes.simplify_rules.facts import FLOATS, constant, dtype, is_private, operand, shape
from tinycomp.passes.simplify_rules.linear import Absorbed, Affine, absorb, channels, host_of, normalisation
from tinycomp.rewrite import rule

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


RULES = (merge_batch_norm, merge_per_channel)
