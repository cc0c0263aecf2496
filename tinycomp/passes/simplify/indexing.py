"""Rules on what moves elements by their indices: gathers, scatters, and the search for places."""

from __future__ import annotations

import math

import numpy as np

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ops.movement import slices_of
from tinycomp.ops.rule import Facts
from tinycomp.passes.simplify.facts import Shape, producer, reshape_target
from tinycomp.passes.simplify.movement import put_reshape
from tinycomp.rewrite import rule
from tinycomp.rewrite.edits import joined_sources, take_over, version_of
from tinycomp.symbolic import FARTHEST


@rule("GatherND")
def gather_all_to_reshape(graph: Graph, node: Node) -> bool:
    """Replace a GatherND whose constant indices name every element, or row, once and in order by a Reshape.

    PyTorch's dynamo exporter ends so where a mask is indexed by ranges of its own sizes.
    """
    indices, dims = node.const(1), node.operand(0).shape
    if indices is None or dims is None or node.attrs.get("batch_dims", 0):
        return False
    rows = [dim for dim in dims[: indices.shape[-1]] if isinstance(dim, int)]
    if not 1 <= len(rows) == indices.shape[-1] or not 0 < indices.size == math.prod(rows) * len(rows):
        return False
    in_order = np.indices(rows).reshape(len(rows), -1).T
    if not np.array_equal(indices.reshape(-1, len(rows)), in_order):
        return False
    return put_reshape(graph, node, node.inputs[0], [])


@rule("GatherElements")
def gather_elements_to_slices(graph: Graph, node: Node) -> bool:
    """Replace a GatherElements whose indices are the same behind its axis by a Gather or GatherND of whole slices.

    ``torch.gather`` of rows is exported so, with indices that are repeated for every column.
    """
    data, axis = node.operand(0), _axis(node)
    if axis is None or (axis and version_of(graph, "GatherND") < 12):
        return False
    if not _alike(data.shape, node.output.shape, but=axis):
        return False
    tuples = _repeated_indices(graph, node, axis)
    if tuples is None:
        return False
    if axis:
        slices = graph.add("GatherND", [data, tuples], {"batch_dims": axis}, at=node, sources=node.sources)
        return take_over(graph, node, slices)
    rows = graph.add_const(np.array([-1], np.int64), f"{tuples.name}_shape")
    flat = graph.add("Reshape", [tuples, rows], at=node, sources=node.sources)
    return take_over(graph, node, graph.add("Gather", [data, flat.output], {"axis": 0}, at=node, sources=node.sources))


@rule("ScatterElements")
def scatter_elements_to_slices(graph: Graph, node: Node) -> bool:
    """Replace a ScatterElements along the first axis whose indices are the same behind it by a ScatterND of slices.

    Sums of messages in graph networks are exported so: ``out.scatter_add_(0, index.expand_as(messages), messages)``.
    """
    data, updates = node.operand(0), node.operand(2)
    if _axis(node) != 0 or not _alike(data.shape, updates.shape, but=0):
        return False
    tuples = _repeated_indices(graph, node, 0)
    if tuples is None:
        return False
    attrs = {name: value for name, value in node.attrs.items() if name == "reduction"}
    slices = graph.add("ScatterND", [data, tuples, updates], attrs, at=node, sources=node.sources)
    return take_over(graph, node, slices)


def _axis(node: Node) -> int | None:
    """Return the axis along which elements are indexed, from the front; None where that is not known."""
    rank, axis = node.operand(0).rank, int(node.attrs.get("axis", 0))
    return axis % rank if rank and -rank <= axis < rank else None


def _alike(a: Shape | None, b: Shape | None, but: int) -> bool:
    """Tell whether two shapes certainly have the same rank and the same dimensions except for one."""
    if a is None or b is None or len(a) != len(b):
        return False
    return all(x is not None and x == y for i, (x, y) in enumerate(zip(a, b, strict=True)) if i != but)


def _repeated_indices(graph: Graph, node: Node, axis: int) -> Value | None:
    """Return operand 1 as tuples of one index, ``[..., axis, 1]``, if it is the same along all dimensions behind that.

    Returns:
        None where it is not, or has no dimension to spare.
    """
    indices = node.operand(1)
    rank = indices.rank
    if rank is None or rank < axis + 2:
        return None
    name = f"{indices.name}_slices"
    if indices.const is not None:
        if indices.const.size == 0:
            return None
        rows = indices.const.reshape(*indices.const.shape[: axis + 1], -1)
        return graph.add_const(rows[..., :1].copy(), name) if (rows == rows[..., :1]).all() else None
    expand = producer(indices, "Expand")
    source = None if expand is None else expand.operand(0)
    if source is None or source.shape is None or indices.shape is None:
        return None
    if source.shape[: axis + 1] != indices.shape[: axis + 1] or set(source.shape[axis + 1 :]) != {1}:
        return None
    wanted = (*source.shape[: axis + 1], 1)
    if len(source.shape) == len(wanted):
        return source
    target = reshape_target(wanted, source.shape)
    if target is None:
        return None
    shape = graph.add_const(np.array(target, np.int64), f"{name}_shape")
    return graph.add("Reshape", [source, shape], outputs=[graph.fresh(name)], at=node, sources=node.sources).output


@rule("NonZero")
def places_of_ones(graph: Graph, node: Node) -> bool:
    """Replace the places of what is not 0 in a vector that is nowhere 0 by a Range: its length follows from sizes.

    PyTorch's older exporter counts so where it indexes by several tensors, or views by strides.
    """
    ones = producer(node.inputs[0], "ConstantOfShape")
    length = None if ones is None else ones.operand(0)
    if ones is None or length is None or length.static_shape != (1,) or version_of(graph, "Range") < 11:
        return False
    value = ones.attrs.get("value")
    if value is None or not np.asarray(value).reshape(-1)[0]:
        return False
    sources = joined_sources(ones, node)

    def add(op: str, *inputs: Value, **attrs: int) -> Node:
        name = graph.fresh(f"{node.output.name}_{op.lower()}")
        return graph.add(op, list(inputs), attrs, outputs=[name], at=node, sources=sources)

    limit = add("Reshape", length, graph.add_const(np.zeros(0, np.int64), "scalar")).output
    zero, one = (graph.add_const(np.array(number, np.int64), name) for number, name in ((0, "zero"), (1, "one")))
    places = add("Range", zero, limit, one).output
    return take_over(graph, node, add("Reshape", places, graph.add_const(np.array([1, -1], np.int64), "row")))


@rule("Slice")
def slice_of_range(graph: Graph, node: Node) -> bool:
    """Replace a Slice of a Range of integers by the Range of what it takes."""
    ranged, parts = producer(node.inputs[0], "Range"), slices_of(Facts(node), 1)
    if ranged is None or parts is None or node.output.dtype != "int64" or version_of(graph, "Min") < _MIN_OF_INTEGERS:
        return False
    first, step, ((start, stop, by),) = ranged.const(0), ranged.const(2), parts
    if first is None or step is None or not (isinstance(start, int) and isinstance(stop, int) and isinstance(by, int)):
        return False
    origin, each = int(first.reshape(-1)[0]), int(step.reshape(-1)[0])
    last = origin + stop * each
    is_whole = stop >= FARTHEST
    if (
        each < 1
        or by < 1
        or min(start, stop) < 0
        or max(origin + start * each, each * by, 0 if is_whole else last) >= FARTHEST
    ):
        return False
    limit, sources = ranged.operand(1), joined_sources(ranged, node)
    begin, end, pace = (
        graph.add_const(np.array(n, np.int64), f"{node.output.name}_{name}")
        for n, name in ((origin + start * each, "start"), (0 if is_whole else last, "limit"), (each * by, "delta"))
    )
    if not is_whole:
        limit = graph.add("Min", [limit, end], at=node, sources=sources).output
    return take_over(graph, node, graph.add("Range", [begin, limit, pace], at=node, sources=sources))


_MIN_OF_INTEGERS = 12
"""Since this version Min takes integers."""
RULES = (gather_all_to_reshape, gather_elements_to_slices, scatter_elements_to_slices, places_of_ones, slice_of_range)
