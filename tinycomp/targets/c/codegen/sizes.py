"""Which nodes one program can serve: those whose results have sizes that follow from sizes.

A region's program computes every size of a run from those of the region's inputs. A result whose size depends on data
needs a bound and a count (:mod:`tinycomp.ops.rows`); others stay on the host, and what reads them may begin a region.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tinycomp.errors import TypeInferenceError
from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.types import TensorType, Type
from tinycomp.ops.elements import sizing_operands, with_elements
from tinycomp.ops.rows import counts_rows
from tinycomp.ops.typing import infer_node_types
from tinycomp.rewrite import reject
from tinycomp.symbolic import dimension, naming, symbol
from tinycomp.targets.common.checks import Check, Verdict


def with_sizes(check: Check) -> Check:
    """Return a check that passes where ``check`` does and the sizes of all results follow from sizes.

    Elements of small integer operands are sizes, too, where the operator's results follow from them.
    """

    def checked(node: Node) -> Verdict:
        verdict = check(node)
        unranked = None
        for value in node.inputs:
            if value is not None and value.shape is None:
                unranked = value
                break
        if verdict is True and unranked is not None:
            return reject(f'the rank of "{unranked.name}" is unknown')
        if verdict is True and (counts_rows(node) or _unsized(node.used_outputs()) is None):
            return verdict
        read = sizing_operands(node)
        gets_sizes = any(v.shape is not None and None in v.shape for v in node.inputs if v is not None)
        if verdict is not True and not read and not gets_sizes:
            return verdict
        with naming():
            alone = None if unranked is not None else _in_region(node, read)
            if verdict is not True:
                inside = verdict if alone is None else check(alone)
                if inside is not True:
                    return inside
        unsized = _unsized((node if alone is None else alone).used_outputs())
        if unsized is None:
            return True
        return reject(f'the size of its result "{unsized.name}" does not follow from sizes')

    return checked


def _unsized(values: Iterable[Value]) -> Value | None:
    """Return the first value with an unknown rank or dimension."""
    for value in values:
        shape = value.shape
        if shape is None or None in shape:
            return value
    return None


def _in_region(node: Node, read: Sequence[Value]) -> Node | None:
    """Return a copy of a node whose operands are as they enter a region; None where it cannot be typed.

    ``read`` are the operands whose elements have names there.
    """
    alone = Graph(node.op, infer=infer_node_types)
    copies: dict[Value | None, Value | None] = {None: None}
    for value in node.inputs:
        if value is not None and value not in copies:
            is_const = value.const is not None
            type_ = with_elements(value) if value in read else _named(value)
            copies[value] = _constant(alone, value) if is_const else alone.add_input(value.name, type_)
    try:
        return alone.add(
            node.op, [copies[v] for v in node.inputs], node.attrs, domain=node.domain, version=node.version,
            outputs=[v.name for v in node.outputs],
        )  # fmt: skip
    except TypeInferenceError:
        return None


def _constant(graph: Graph, value: Value) -> Value:
    assert value.const is not None
    return graph.add_const(value.const, value.name)


def _named(value: Value) -> Type:
    type_ = value.type
    if not isinstance(type_, TensorType) or type_.shape is None:
        return type_
    shape = [dimension(symbol(f"{value.name}.{i}")) if dim is None else dim for i, dim in enumerate(type_.shape)]
    return TensorType(type_.dtype, tuple(shape), type_.layout, type_.contents)
