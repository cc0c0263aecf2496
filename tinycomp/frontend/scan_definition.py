"""Scan as a Loop: its trips are counted by the scanned axis, and every one gathers its own elements."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

import numpy as np

from tinycomp.frontend.definition_body import Body, Definition
from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.types import TensorType
from tinycomp.ops.typing import infer_node_types

_BATCHED_BEFORE = 9
"""Until this opset Scan has a batch axis and lengths of sequences: one whole sequence is as later ones are."""


def _scan(body: Body, node: Node, operands: Sequence[Value | None]) -> Sequence[Value] | None:
    if node.version < _BATCHED_BEFORE:
        return _of_one_sequence(body, node, operands)
    given = [v for v in operands[: len(node.inputs)] if v is not None]
    scans = int(node.attrs["num_scan_inputs"])
    states = len(node.inputs) - scans - node.captures
    if len(given) != len(node.inputs):
        return None
    return _looped(body, node, given, states)


def _of_one_sequence(body: Body, node: Node, operands: Sequence[Value | None]) -> Sequence[Value] | None:
    """Define an early Scan of a batch of one whole sequence: its results, too, have a batch of one."""
    count = len(node.inputs) - node.captures
    batched = [v for v in operands[1:count] if v is not None]
    if len(batched) != count - 1 or not _is_one_sequence(node):
        return None
    captured = [v for v in operands[count : len(node.inputs)] if v is not None]
    given = [body("Squeeze", v, body.ints(0)) for v in batched]
    results = _looped(body, node, [*given, *captured], len(given) - int(node.attrs["num_scan_inputs"]))
    return None if results is None else [body("Unsqueeze", v, body.ints(0)) for v in results]


def _is_one_sequence(node: Node) -> bool:
    """Tell whether a Scan with a batch axis has a batch of one, read forwards to its end."""
    batched = node.inputs[1 : len(node.inputs) - node.captures]
    whole = node.inputs[0] is None and not any(node.attrs.get("directions") or ())
    return whole and all(v is not None and v.shape is not None and v.shape[:1] == (1,) for v in batched)


def _looped(body: Body, node: Node, given: Sequence[Value], states: int) -> Sequence[Value] | None:
    """Return the results for states, what is scanned, and captured values."""
    scans = int(node.attrs["num_scan_inputs"])
    scanned = given[states : states + scans]
    if any(v.rank is None for v in scanned):
        return None
    axes = _each(node, "scan_input_axes", scans)
    if any(not -rank <= axis < rank for v, axis in zip(scanned, axes, strict=True) if (rank := v.rank) is not None):
        return None
    trips = _common_length(body, scanned, axes)
    loop = _loop_body(node, given, states, axes, trips)
    count = len(loop.outputs) - 1
    captured = [*scanned, *given[states + scans :], *([] if trips.is_const else [trips])]
    results = body.graph.add(
        "Loop", [trips, None, *given[:states], *captured], bodies={"body": loop}, captures=len(captured), outputs=count
    ).outputs
    axes_out, back = (_each(node, f"scan_output_{what}", count - states) for what in ("axes", "directions"))
    stacked = [_stacked(body, v, a, d) for v, a, d in zip(results[states:], axes_out, back, strict=True)]
    whole = [*results[:states], *stacked]
    if any(v is None for v in whole):
        return None
    return [v for v, result in zip(whole, node.outputs, strict=False) if result.name and v is not None]


def _each(node: Node, name: str, count: int) -> list[int]:
    return [int(n) for n in node.attrs.get(name) or [0] * count]


def _common_length(body: Body, scanned: Sequence[Value], axes: Sequence[int]) -> Value:
    """Return the length of what is scanned: the greatest, so that a trip fails where one of several is shorter."""
    lengths = {(v.shape or ())[axis] or (v, axis): (v, axis) for v, axis in zip(scanned, axes, strict=True)}
    first, *others = [_length(body, *each) for each in lengths.values()]
    return body("Max", first, *others) if others else first


def _length(body: Body, x: Value, axis: int) -> Value:
    """Return the size of an axis as a scalar."""
    shape = x.shape or ()
    size = shape[axis]
    if isinstance(size, int):
        return body.const(np.int64(size))
    place = axis % len(shape)
    return body.reshape(body("Shape", x, start=place, end=place + 1), [])


def _loop_body(node: Node, given: Sequence[Value], states: int, axes: Sequence[int], trips: Value) -> Graph:
    """Return the body of the Loop: the number of the trip picks the elements, then follows the body of the Scan."""
    inner = node.bodies["body"].clone()
    body = Body(Graph("body", infer=infer_node_types, opsets=inner.opsets))
    trip = body.graph.add_input("trip", TensorType("int64", ()))
    going = body.graph.add_input("going", TensorType("bool", ()))
    formals = [body.graph.add_input(body.graph.fresh(v.name or "x"), v.type) for v in given]
    own, scanned, captured = formals[:states], formals[states : states + len(axes)], formals[states + len(axes) :]
    last = body.const(trips.const) if trips.const is not None else body.graph.add_input("trips", trips.type)
    elements = []
    directions = _each(node, "scan_input_directions", len(axes))
    for x, axis, backwards in zip(scanned, axes, directions, strict=True):
        place = body("Sub", body("Sub", last, body.const(np.int64(1))), trip) if backwards else trip
        elements.append(body("Gather", x, place, axis=axis))
    call = body.graph.add(
        "body", [*own, *elements, *captured], domain="tinycomp.definition", version=1, bodies={"body": inner},
        outputs=len(inner.outputs), types=[v.type for v in inner.outputs],
    )  # fmt: skip
    body.graph.set_outputs([body("Identity", going), *call.outputs])
    body.graph.inline(call)
    return body.graph


def _stacked(body: Body, x: Value, axis: int, backwards: int) -> Value | None:
    """Return elements that lie along the first axis along another one, the last first if asked."""
    if backwards:
        x = body("Slice", x, body.ints(-1), body.ints(np.iinfo(np.int64).min), body.ints(0), body.ints(-1))
    if axis == 0:
        return x
    if x.rank is None:
        return None
    order = [*range(1, x.rank)]
    order.insert(axis % x.rank, 0)
    return body("Transpose", x, perm=order)


DEFINITIONS = MappingProxyType(
    {"Scan": Definition(_scan, lambda node: node.version >= _BATCHED_BEFORE or _is_one_sequence(node))}
)
