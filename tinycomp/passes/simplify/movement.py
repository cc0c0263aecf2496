"""Rules on what moves all elements: transpositions, changes of shape, and padding."""

from __future__ import annotations

import numpy as np

from tinycomp.errors import ModelError
from tinycomp.index import named
from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ops import factors
from tinycomp.ops.spatial import make_window
from tinycomp.passes.simplify.facts import demands_nothing, ints, producer, reshape_target
from tinycomp.rewrite import GraphBuilder, Match, P, replaces, rule
from tinycomp.rewrite.edits import joined_sources, take_over, version_of
from tinycomp.rewrite.traits import has_trait

VIEWS = named("view")


@replaces(lambda x: P.Transpose(P.Transpose(x)))
def merge_transposes(op: GraphBuilder, x: Value, match: Match) -> Value | None:
    """Replace ``Transpose(Transpose(x))`` by one Transpose, or none; the inner one stays for its other readers."""
    second, first = map(_perm, match.matched)
    return None if first is None or second is None else op.Transpose(x, perm=[first[i] for i in second])


def _perm(node: Node) -> list[int] | None:
    """Return the order of the axes; None where it is not known, or is none of a rank that became known only now."""
    rank = node.operand(0).rank
    perm = node.attrs.get("perm", None if rank is None else range(rank)[::-1])
    return None if perm is None or rank not in (None, len(perm)) or sorted(perm) != [*range(len(perm))] else [*perm]


@rule("Transpose")
def transpose_to_reshape(graph: Graph, node: Node) -> bool:
    """Replace a Transpose that moves only axes of size one, and so copies nothing, by a Reshape."""
    dims, perm = node.operand(0).shape, _perm(node)
    if dims is None or perm is None:
        return False
    moving = [axis for axis in perm if dims[axis] != 1]
    return moving == sorted(moving) and put_reshape(graph, node, node.inputs[0], [])


@rule(*VIEWS)
def merge_views(graph: Graph, node: Node) -> bool:
    """Replace changes of shape in a row by one Reshape to the last shape; give a single one an explicit shape.

    It takes a last shape with at most one unknown dimension, which the Reshape then finds by itself.
    """
    source, merged = node.inputs[0], []
    if not demands_nothing(node):
        return False
    while (inner := producer(source, *VIEWS)) is not None and demands_nothing(inner):
        source = inner.inputs[0]
        merged.append(inner)
    return put_reshape(graph, node, source, merged[::-1])


def put_reshape(graph: Graph, node: Node, source: Value | None, merged: list[Node]) -> bool:
    """Replace ``node``, and the ``merged`` ones before it, by a Reshape of ``source``, unless that is what it is."""
    target = reshape_target(node.output.shape, None if source is None else source.shape)
    if target is None or source is None or version_of(graph, "Reshape") < 5:
        return False
    wanted = np.array(target, np.int64)
    is_same = node.op == "Reshape" and source is node.inputs[0]
    current = node.const(1) if is_same else None
    if current is not None and np.array_equal(current, wanted):
        return False
    shape = graph.add_const(wanted, f"{node.output.name}_shape")
    if is_same and len(node.inputs) == 2:
        graph.set_input(node, 1, shape)
        node.attrs = {}  # a zero is a dimension that is copied
        return True
    names, sources = [graph.fresh(node.output.name)], joined_sources(*merged, node)
    return take_over(graph, node, graph.add("Reshape", [source, shape], outputs=names, at=node, sources=sources))


@replaces(lambda x: P.Reshape(P.Transpose(P.Reshape(x, ...)), ...))
def transpose_of_matrices(op: GraphBuilder, x: Value, match: Match) -> Value | None:
    """Replace a Transpose of matrices whose batches are merged before and parted again after it by one of all axes.

    PyTorch's dynamo exporter transposes the keys of attention so.
    """
    after, transpose, before = match.matched
    whole, merged = x.shape, before.output.shape
    if whole is None or merged is None or len(merged) != 3 or _perm(transpose) != [0, 2, 1]:
        return None
    if len(whole) < 3 or None in whole or merged[1:] != whole[-2:]:
        return None
    if after.output.shape != (*whole[:-2], whole[-1], whole[-2]):
        return None
    rank = len(whole)
    result: Value = op.Transpose(x, perm=[*range(rank - 2), rank - 1, rank - 2])
    return result


@rule("Expand")
def constant_expand(graph: Graph, node: Node) -> bool:
    """Give an Expand a constant shape: 1, which leaves a dimension as it is, wherever nothing is repeated."""
    before, after = node.operand(0).shape, node.output.shape
    if node.const(1) is not None or before is None or after is None or not demands_nothing(node):
        return False
    ahead = len(after) - len(before)
    target = [1 if i >= ahead and size == before[i - ahead] else size for i, size in enumerate(after)]
    if None in after or not all(isinstance(size, int) for size in target):
        return False
    shape = graph.add_const(np.array(target, np.int64), f"{node.output.name}_shape")
    graph.set_input(node, 1, shape)
    return True


@rule(*named("window"))
def explicit_pads(graph: Graph, node: Node) -> bool:
    """Replace ``auto_pad`` by ``pads`` where these are the same whatever the run's sizes."""
    auto = node.attrs.get("auto_pad", "NOTSET")
    if auto == "NOTSET" or node.attrs.get("ceil_mode", 0):
        return False
    attrs = {key: value for key, value in node.attrs.items() if key not in ("auto_pad", "pads")}
    pads = _automatic_pads(node, auto)
    if pads is None:
        return False
    node.attrs = attrs | {"pads": pads}
    return True


def _automatic_pads(node: Node, auto: str) -> list[int] | None:
    kernel, spatial = kernel_of(node), (node.operand(0).sizes or ())[2:]
    if kernel is not None and auto == "VALID":
        return [0] * (2 * len(kernel))
    sizes = [size for size in spatial if size is not None]
    if kernel is None or len(sizes) < len(kernel):
        return None
    strides, dilations = node.attrs.get("strides"), node.attrs.get("dilations")
    try:
        window = make_window(node.op, sizes, kernel, strides=strides, dilations=dilations, auto_pad=auto)
    except ModelError:
        return None
    pads = [pad for pad in (*window.before, *window.after) if isinstance(pad, int)]
    return pads if len(pads) == 2 * len(kernel) else None


def kernel_of(node: Node) -> list[int] | None:
    """Return the spatial extent of a convolution's or pool's kernel, or None where it is not known."""
    if "kernel_shape" in node.attrs:
        return list(node.attrs["kernel_shape"])
    if not has_trait(node, "product") and not has_trait(node, "integer_product"):
        return None
    sizes = node.operand(factors(node)[1]).static_shape
    return None if sizes is None else list(sizes[2:])


@replaces(lambda x: P.op(("AveragePool", "Conv", "MaxPool"), P.Pad(x, ...).where(uses=1), ...))
def merge_pad(op: GraphBuilder, x: Value, match: Match) -> Value | None:
    """Merge a Pad of spatial axes into the ``pads`` of the Conv or pool behind it.

    It fills with zeros before a Conv, and before an AveragePool, which then counts its pads, so it must not have any
    that it does not count. Before a MaxPool, which never sees them, but whose indices would change, it fills with minus
    infinity.
    """
    node, pad = match.matched
    attrs = dict(node.attrs)
    if attrs.get("auto_pad", "NOTSET") != "NOTSET" or (node.op != "Conv" and attrs.get("ceil_mode", 0)):
        return None
    if node.op == "AveragePool":
        if node.version < 7 or (any(attrs.get("pads", ())) and not attrs.get("count_include_pad", 0)):
            return None
        attrs["count_include_pad"] = 1
    if node.op == "MaxPool" and any(value.name for value in node.outputs[1:]):
        return None
    outer, kernel = pads_of(pad, -np.inf if node.op == "MaxPool" else 0.0), kernel_of(node)
    if outer is None or kernel is None or len(outer) != 2 * len(kernel):
        return None
    own = attrs.get("pads") or [0] * len(outer)
    attrs["pads"] = [a + b for a, b in zip(outer, own, strict=True)]
    if node.op != "Conv" and not _sees_input(node, kernel, attrs["pads"]):
        return None
    result: Value = op.emit(node.op, x, *node.inputs[1:], version=node.version, **attrs)
    return result


def _sees_input(node: Node, kernel: list[int], pads: list[int]) -> bool:
    """Tell whether no window of a pool can lie wholly in the padding, which ONNX forbids."""
    dilations = node.attrs.get("dilations") or [1] * len(kernel)
    extents = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    return all(pad < extent for pad, extent in zip(pads, extents * 2, strict=True))


def pads_of(pad: Node, fill: float) -> list[int] | None:
    """Return the spatial pads of a Pad that fills batch and channels not at all and the rest with ``fill``."""
    dims = pad.operand(0).shape
    pads = ints(pad, 1, "pads" if pad.version > 1 else "paddings")
    if dims is None or pads is None or pad.attrs.get("mode", "constant") != "constant" or _fill(pad) != fill:
        return None
    axes = ints(pad, 3, "")
    if axes is None:
        if pad.optional_operand(3) is not None:
            return None
        axes = list(range(len(dims)))
    both = [[0] * len(dims), [0] * len(dims)]
    for index, axis in enumerate(axes):
        both[0][axis], both[1][axis] = pads[index], pads[index + len(axes)]
    if min(*both[0], *both[1]) < 0 or any(both[0][:2] + both[1][:2]):
        return None
    return both[0][2:] + both[1][2:]


def _fill(pad: Node) -> float | None:
    if pad.version < 11:
        return float(pad.attrs.get("value", 0.0))
    if pad.optional_operand(2) is None:
        return 0.0
    value = pad.const(2)
    return float(value.reshape(-1)[0]) if value is not None and value.size == 1 else None


RULES = (
    merge_transposes, transpose_to_reshape, merge_views, transpose_of_matrices, constant_expand, explicit_pads,
    merge_pad,
)  # fmt: skip
