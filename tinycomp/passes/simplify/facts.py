"""Properties of nodes and values that rules ask for."""

from __future__ import annotations

from collections.abc import Sequence

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.types import Dim
from tinycomp.ops.agreement import conditions

FLOATS = frozenset({"float16", "bfloat16", "float32", "float64"})
Shape = tuple[Dim, ...]


def producer(value: Value | None, *ops: str) -> Node | None:
    """Return the unclaimed node that makes ``value`` as its first result, if its operator is one of ONNX's ``ops``."""
    node = None if value is None else value.producer
    if node is None or node.domain or node.op not in ops or node.target is not None:
        return None
    return node if node.outputs[0] is value else None


def ints(node: Node, index: int, name: str) -> list[int] | None:
    """Return integers that an operator takes as constant operand ``index`` or, in older versions, as an attribute.

    Returns:
        None where they are absent or not known.
    """
    array = node.const(index)
    if array is not None:
        return [int(v) for v in array.reshape(-1)]
    if node.optional_operand(index) is None and name in node.attrs:
        return [int(v) for v in node.attrs[name]]
    return None


def same_shape(a: Value, b: Value) -> bool:
    """Tell whether both values certainly have the same shape."""
    shape = a.shape
    return shape is not None and None not in shape and shape == b.shape


def same_shape_of_equal_size(a: Shape | None, b: Shape | None) -> bool:
    """Tell whether two shapes of tensors with equally many elements are certainly equal.

    One dimension may differ or be unknown: the number of elements decides it, unless another dimension is zero.
    """
    if a is None or b is None or len(a) != len(b):
        return False
    open_places = [i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x is None or x != y]
    if not open_places:
        return True
    at = open_places[0]
    contradiction = isinstance(a[at], int) and isinstance(b[at], int)
    return len(open_places) == 1 and not contradiction and 0 not in (*a[:at], *a[at + 1 :])


def reshape_target(dims: Shape | None, source: Shape | None = None) -> list[int] | None:
    """Return the operand of a Reshape to ``dims``; at most one dimension may be left to the Reshape, none be 0 or huge.

    Args:
        dims: The shape.
        source: That of the Reshape's operand, whose dimensions it can copy where they stay in their place.
    """
    if dims is None or any(isinstance(d, int) and not 0 < d < 2**63 for d in dims):
        return None
    if sum(not isinstance(d, int) for d in dims) > 1 and source is not None:
        copied = {i for i, (d, s) in enumerate(zip(dims, source, strict=False)) if isinstance(d, str) and d == s}
    else:
        copied = set()
    target = [0 if i in copied else d if isinstance(d, int) else -1 for i, d in enumerate(dims)]
    return target if target.count(-1) <= 1 else None


def demands_nothing(node: Node) -> bool:
    """Tell whether the shape of its result says all of a change of shape, which may be replaced for that.

    A Squeeze demands that dimensions are 1, and a shape or axes of which nothing is known before the run may not fit.
    """
    asked = node.optional_operand(1)
    is_known = asked is None or asked.is_const or asked.contents is not None
    return is_known and (node.op != "Squeeze" or not conditions(node))


def keeps_shape(array_shape: Sequence[int], value: Value) -> bool:
    """Tell whether broadcasting ``value`` with an array of ``array_shape`` certainly gives the shape of ``value``."""
    if not array_shape:
        return True
    dims = value.shape
    if dims is None or len(array_shape) > len(dims):
        return False
    aligned = dims[len(dims) - len(array_shape) :]
    return all(size in (1, dim) for size, dim in zip(array_shape, aligned, strict=True))


def is_private(graph: Graph, value: Value) -> bool:
    """Tell whether exactly one operand reads ``value``, so that its producer may be merged into the reader."""
    return graph.use_count(value) == 1
