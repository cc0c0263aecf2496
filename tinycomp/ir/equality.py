"""Whether two graphs say the same, and where they first differ.

Two graphs are equal when their texts would be, apart from the order of nodes, unused constants, and (unless asked for)
the source names. Values match by name, nodes by the names of their results.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.text.literals import raw_bytes
from tinycomp.ir.types import dtype_name
from tinycomp.lazy import LazyModule

if TYPE_CHECKING:
    from tinycomp.ir.text import printer
else:
    printer = LazyModule("tinycomp.ir.text.printer")


def equal(a: Graph, b: Graph, *, sources: bool = False) -> bool:
    """Tell whether the two graphs are equal; ``sources`` asks for equal source names too."""
    return difference(a, b, sources=sources) is None


def difference(a: Graph, b: Graph, *, sources: bool = False) -> str | None:
    """Return the first difference as one clause, or None when the graphs are equal.

    With ``sources``, the names of source nodes must agree as well.
    """
    work = [(a, b, "")]
    while work:
        left, right, path = work.pop()
        where = f"{path}graph {left.name}"
        found = next(_graph_differences(left, right, sources), None)
        if found is not None:
            return f"{where}: {found}"
        for node, other in _pairs(left, right):
            step = f"{where}, node {node.label}, "
            work += [(body, other.bodies[key], f"{step}{key} ") for key, body in node.bodies.items()]
    return None


def arrays_equal(a: np.ndarray, b: np.ndarray) -> bool:
    """Tell whether dtype, shape and every element agree; NaN equals NaN, and -0.0 does not equal 0.0."""
    if a is b:
        return True
    if dtype_name(a.dtype) != dtype_name(b.dtype) or a.shape != b.shape:
        return False
    if dtype_name(a.dtype) == "string":
        return all(str(x) == str(y) for x, y in zip(a.reshape(-1), b.reshape(-1), strict=True))
    if _same_bytes(a, b):
        return True
    if "float" not in dtype_name(a.dtype) and a.dtype.kind != "c":
        return False
    known = ~np.isnan(a)
    return np.array_equal(known, ~np.isnan(b)) and raw_bytes(a[known]) == raw_bytes(b[known])


def _same_bytes(a: np.ndarray, b: np.ndarray) -> bool:
    """Compare elements by their bytes, a part at a time: views of memory are compared byte by byte."""
    one, other = (np.frombuffer(raw_bytes(array), np.uint8) for array in (a, b))
    return all(np.array_equal(one[i : i + _PART], other[i : i + _PART]) for i in range(0, len(one), _PART))


_PART = 1 << 18


def attrs_equal(a: Any, b: Any) -> bool:
    """Tell whether two attribute values agree in kind and content; lists and tuples are one kind, NaN equals NaN."""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(attrs_equal, a, b))
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return arrays_equal(a, b)
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return np.float64(a).tobytes() == np.float64(b).tobytes() or (a != a and b != b)
    return bool(a == b)


def _pairs(a: Graph, b: Graph) -> Iterator[tuple[Node, Node]]:
    """Pair the nodes of two graphs that are known to have the same keys."""
    others: dict[Hashable, list[Node]] = {}
    for node in b.nodes:
        others.setdefault(_key(node), []).append(node)
    for queue in others.values():
        queue.reverse()
    return ((node, others[_key(node)].pop()) for node in a.nodes)


def _key(node: Node) -> Hashable:
    """Return what names a node: its results; if all are skipped, its operator, in order."""
    names = tuple(v.name for v in node.outputs)
    return names if any(names) else (node.qualified_op, len(names), tuple(v and v.name for v in node.inputs))


def _graph_differences(a: Graph, b: Graph, sources: bool) -> Iterator[str]:
    yield from _unequal("the names", a.name, b.name)
    yield from _unequal("the opsets", a.opsets, b.opsets)
    yield from _unequal("the metadata", a.metadata, b.metadata)
    yield from _unequal("the inputs", _signature(a.inputs), _signature(b.inputs))
    yield from _unequal("the outputs", [v.name for v in a.outputs], [v.name for v in b.outputs])
    yield from _unequal("the output names", a.output_names, b.output_names)
    yield from _dict_differences("the default of input", a.defaults, b.defaults)
    yield from _const_differences(a.outputs, b.outputs, set())
    yield from _key_differences(a, b)
    checked: set[Value] = set()
    for node, other in _pairs(a, b):
        for found in _node_differences(node, other, checked):
            yield f"node {node.label} ({node.qualified_op}): {found}"
        if sources:
            yield from _unequal(f"the sources of node {node.label}", node.sources, other.sources)


def _unequal(what: str, a: object, b: object) -> Iterator[str]:
    if a != b:
        yield f"{what} differ: {a} and {b}"


def _signature(values: Sequence[Value]) -> list[str]:
    return [f"{v.name}: {v.type}" for v in values]


def _key_differences(a: Graph, b: Graph) -> Iterator[str]:
    ours, theirs = ([_key(n) for n in g.nodes] for g in (a, b))
    if sorted(map(repr, ours)) == sorted(map(repr, theirs)):
        return
    for only, side, nodes in ((set(ours) - set(theirs), "first", a), (set(theirs) - set(ours), "second", b)):
        for node in nodes.nodes:
            if _key(node) in only:
                yield f"only the {side} graph has node {node.label} ({node.qualified_op})"
    yield f"the graphs have {len(ours)} and {len(theirs)} nodes"


def _node_differences(a: Node, b: Node, checked: set[Value]) -> Iterator[str]:
    yield from _unequal("the operators", a.qualified_op, b.qualified_op)
    yield from _unequal("the versions", a.version, b.version)
    yield from _unequal("the operands", [v and v.name for v in a.inputs], [v and v.name for v in b.inputs])
    yield from _unequal("the numbers of captures", a.captures, b.captures)
    yield from _const_differences(a.inputs, b.inputs, checked)
    yield from _unequal("the results", _signature(a.used_outputs()), _signature(b.used_outputs()))
    yield from _unequal("the targets", a.target, b.target)
    yield from _unequal("the regions", a.region, b.region)
    yield from _dict_differences("attribute", a.attrs, b.attrs)
    yield from _unequal("the bodies", sorted(a.bodies), sorted(b.bodies))


def _const_differences(
    ours: Sequence[Value | None], theirs: Sequence[Value | None], checked: set[Value]
) -> Iterator[str]:
    """Compare constants; names agree already. ``checked`` remembers those that need no second look."""
    for a, b in zip(ours, theirs, strict=True):
        if a is None or b is None or a in checked:
            continue
        checked.add(a)
        if (a.const is None) != (b.const is None):
            yield f'value "{a.name}" is a constant in one graph only'
        elif a.const is not None and b.const is not None:
            yield from _unequal(f'the types of constant "{a.name}"', str(a.type), str(b.type))
            if not arrays_equal(a.const, b.const):
                yield f'the elements of constant "{a.name}" differ'


def _dict_differences(what: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[str]:
    for key in sorted(a.keys() | b.keys()):
        if key not in a or key not in b:
            yield f'{what} "{key}" is in the {"first" if key in a else "second"} graph only'
        elif not attrs_equal(a[key], b[key]):
            yield f'{what} "{key}" differs: {printer.attr_text(a[key])} and {printer.attr_text(b[key])}'
