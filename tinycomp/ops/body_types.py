"""Types of nodes with bodies: what each body takes, and what follows for the node from what its bodies return.

The bodies of If, Loop, Scan and SequenceMap are closed graphs whose formals take their types from the operands of the
node. A carried value whose shape the body changes is widened until body and formals agree; that always ends, because
a shape can only lose dimensions, and after a few rounds it loses all of them. Other operators that hold graphs say in
their record what each of them takes and returns.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextvars import ContextVar

from tinycomp import symbolic
from tinycomp.errors import TypeInferenceError
from tinycomp.index import named
from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.types import (
    UNKNOWN,
    UNKNOWN_DTYPE,
    Dim,
    OptionalType,
    SequenceType,
    TensorType,
    Type,
    compatible,
    join,
    present,
    same,
    tensor,
    without_contents,
    without_shape,
)
from tinycomp.ops import OPS
from tinycomp.symbolic import Size, UndecidedError

CONTROL_FLOW = frozenset(named("control_flow"))
_ROUNDS = 4
_widening = ContextVar("formals never become narrower", default=False)
_SCALAR = {"int64": TensorType("int64", ()), "bool": TensorType("bool", ())}


def formal_types(node: Node) -> list[Type]:
    """Return the types of the inputs of each body of a node, captured values included.

    Raises:
        TypeInferenceError: If the node has too few operands.
    """
    operands = [UNKNOWN if v is None else v.type for v in node.inputs]
    own, captured = operands[: len(operands) - node.captures], operands[len(operands) - node.captures :]
    record = OPS.find(node.op, node.domain, node.version)
    if record is not None and record.body_rule is not None:
        return [*record.body_rule(node)[0], *captured]
    match node.op:
        case "If":
            return captured
        case "Loop":
            return [_SCALAR["int64"], _SCALAR["bool"], *map(without_contents, own[2:]), *captured]
        case "Scan":
            return [*_scan_formals(node, own), *captured]
    return [*(t.element if isinstance(t, SequenceType) else t for t in own), *captured]


def types_by_bodies(node: Node) -> list[Type] | None:
    """Return the types of the results of a call, of control flow, or of another operator that holds graphs.

    Returns:
        None for any other node, which a rule of its own types.

    Raises:
        TypeInferenceError: If a body does not fit its node.
    """
    if node.is_call:
        _retype(node.body, [UNKNOWN if v is None else v.type for v in node.inputs])
        return [v.type for v in node.body.outputs]
    if not node.domain and node.op in CONTROL_FLOW:
        return _RULES[node.op](node)
    record = OPS.find(node.op, node.domain, node.version)
    if record is None or record.body_rule is None:
        return None
    _check_bodies(node, record.body_rule(node)[1])
    return None


def _check_bodies(node: Node, results: Sequence[Type]) -> None:
    """Type the bodies of a node from its operands, and compare what they return with what they must."""
    formals = formal_types(node)
    for key, body in node.bodies.items():
        _expect_counts(node, key, len(formals), len(results))
        _retype(body, formals)
        for value, wanted in zip(body.outputs, results, strict=True):
            if not compatible(value.type, wanted):
                raise _misfit(node, f"{key} returns a value of the wrong type", str(wanted), str(value.type))


def _if(node: Node) -> list[Type]:
    results = []
    for key, body in node.possible_bodies.items():
        _expect_counts(node, key, node.captures, len(node.outputs))
        _retype(body, formal_types(node))
        results.append([v.type for v in body.outputs])
    joined = [_joined(node, types) for types in zip(*results, strict=True)]
    for index, types in enumerate(zip(*results, strict=True)):
        _expect_same_kind(node, index, types)
    return joined


def _joined(node: Node, types: Sequence[Type]) -> Type:
    """Return the type of what a branch gives, given that of every branch which a run may take.

    Dimensions that differ in text are one where the condition says so: where it asks whether a size is 1, the branch
    for that may write 1.
    """
    joined = functools.reduce(join, types)
    truth = node.operand(0).contents or ()
    if len(types) < 2 or len(truth) != 1 or truth[0] is None or not isinstance(joined, TensorType):
        return joined
    pair = dict(zip(node.possible_bodies, types, strict=True))
    taken, other = (tensor(pair[key]).shape or () for key in ("then_branch", "else_branch"))
    dims = [
        dim if dim is not None or a is None or b is None else _dim_of_branches(truth[0], a, b)
        for dim, a, b in zip(joined.shape or (), taken, other, strict=False)
    ]
    return joined if joined.shape is None else TensorType(joined.dtype, tuple(dims), joined.layout, joined.contents)


def _dim_of_branches(truth: Size, taken: int | str, other: int | str) -> Dim:
    """Return a dimension that is ``taken`` where ``truth`` is 1 and ``other`` where it is 0, if one of them is always.

    That is so if the condition asks whether they are equal, or whether they are not.
    """
    difference = symbolic.size(taken) - symbolic.size(other)
    equal = [symbolic.if_zero(value, 1, 0) for value in (difference, -difference)]
    return other if truth in equal else taken if 1 - truth in equal else None


def _loop(node: Node) -> list[Type]:
    carried = len(node.inputs) - 2 - node.captures
    scanned = len(node.bodies["body"].outputs) - 1 - carried
    _expect_counts(node, "body", 2 + carried + node.captures, max(1 + carried, 1 + len(node.outputs)))
    types = _fixpoint(node, first_formal=2, first_output=1, count=carried)
    trips = _certain_trips(node)
    return types[:carried] + [_stacked(t, 0, trips) for t in types[carried : carried + scanned]]


def _certain_trips(node: Node) -> Dim:
    """Return the number of trips of a Loop, if it follows from sizes and no condition ends it earlier."""
    count, condition, body = node.inputs[0], node.inputs[1], node.bodies["body"]
    going = body.outputs[0]
    while going.producer is not None and going.producer.op == "Identity" and not going.producer.domain:
        going = going.producer.operand(0)
    is_endless = going is body.inputs[1] or (going.const is not None and bool(going.const.all()))
    if count is None or not is_endless or (condition is not None and not _is_true(condition)):
        return None
    if count.const is not None and count.const.size != 1:
        return None
    if count.const is not None:
        return max(0, int(count.const.reshape(-1)[0]))
    trips = None if count.contents is None or len(count.contents) != 1 else count.contents[0]
    try:
        return None if trips is None else symbolic.dimension(symbolic.maximum(trips, 0))
    except UndecidedError:
        return None


def _is_true(condition: Value) -> bool:
    return condition.const is not None and bool(condition.const.all())


def _scan(node: Node) -> list[Type]:
    scans = int(node.attrs["num_scan_inputs"])
    batched = node.version < 9
    states = len(node.inputs) - batched - scans - node.captures
    body = node.bodies["body"]
    _expect_counts(node, "body", states + scans + node.captures, max(states, len(node.outputs)))
    types = _fixpoint(node, first_formal=0, first_output=0, count=states)
    axes = list(node.attrs.get("scan_output_axes", [0] * (len(body.outputs) - states)))
    trips, batch = _trips(node, states + batched, batched), _batch(node, batched)
    stacked = [_stacked(t, axis, trips) for t, axis in zip(types[states:], axes, strict=False)]
    results = types[:states] + stacked
    return [_stacked(t, 0, batch) for t in results] if batched else results


def _sequence_map(node: Node) -> list[Type]:
    _expect_counts(node, "body", len(node.inputs), len(node.outputs))
    _retype(node.bodies["body"], formal_types(node))
    return [SequenceType(v.type) for v in node.bodies["body"].outputs]


_RULES = {"If": _if, "Loop": _loop, "Scan": _scan, "SequenceMap": _sequence_map}


_DEEPEST = 4
_loops_around = ContextVar("loops around", default=0)


def _fixpoint(node: Node, *, first_formal: int, first_output: int, count: int) -> list[Type]:
    """Widen the carried formals of the only body until its results fit them; return the results behind the condition.

    Each round widens at least one shape, and from ``_ROUNDS`` on a shape that still moves is given up altogether. In
    many loops around a loop all are given up at once: every round of one types all that are in it anew.
    """
    around = _loops_around.get()
    token = _loops_around.set(around + 1)
    try:
        return _settled(node, first_formal, first_output, count, around < _DEEPEST)
    finally:
        _loops_around.reset(token)


def _settled(node: Node, first_formal: int, first_output: int, count: int, keeps_shapes: bool) -> list[Type]:
    body = node.bodies["body"]
    types = formal_types(node)
    carried = slice(first_formal, first_formal + count)
    if not keeps_shapes:
        types[carried] = map(without_shape, types[carried])
    for attempt in range(2 * _ROUNDS):
        _retype(body, types, widen=_widening.get() or attempt > 0)
        returned = [v.type for v in body.outputs[first_output : first_output + count]]
        before = [v.type for v in body.inputs[carried]]
        for index, pair in enumerate(zip(before, returned, strict=True)):
            _expect_same_kind(node, index, pair)
        joined = [join(a, b) for a, b in zip(before, returned, strict=True)]
        if all(map(same, joined, before)):
            break
        if attempt >= _ROUNDS:
            joined = [a if a == b else without_shape(b) for a, b in zip(before, joined, strict=True)]
        types[carried] = joined
    names = _name_changing(node, types, carried, first_output)
    results = [
        _as_result(v.type, out.type) for v, out in zip(body.inputs[carried], body.outputs[first_output:], strict=False)
    ]
    return [_outside(t, names) for t in (*results, *[v.type for v in body.outputs[first_output + count :]])]


def _name_changing(node: Node, types: list[Type], carried: slice, first_output: int) -> frozenset[str]:
    """Give the dimensions of carried formals that change from trip to trip a symbol each, and type the body with them.

    Dimensions that are equal at first share one as long as the body changes them alike: so the caches of all layers
    have one length.

    Args:
        node: The node, whose body has been typed without these symbols.
        types: The types of the formals, with None for dimensions that change.
        carried: Which of them are carried.
        first_output: The first output of the body that is carried.

    Returns:
        The symbols, which mean nothing outside of the body.
    """
    body = node.bodies["body"]
    formals = list(range(carried.start, carried.stop))
    # Unknown dimensions by where they are: (formal, axis), and what they share a symbol with.
    group: dict[tuple[int, int], object] = {}
    for index in formals:
        type_ = types[index]
        if not isinstance(type_, TensorType) or type_.shape is None:
            continue
        start = node.inputs[index] if node.op == "Loop" else None
        before = start.shape if start is not None and start.shape is not None else ()
        for axis, dim in enumerate(type_.shape):
            if dim is None:
                known = before[axis] if axis < len(before) else None
                group[index, axis] = (index, axis) if known is None else known
    while group:
        members: dict[object, tuple[int, int]] = {}
        for place, key in group.items():
            members.setdefault(key, place)
        names = {key: f"{node.label}:{body.inputs[index].name}.{axis}" for key, (index, axis) in members.items()}
        for index in formals:
            type_ = types[index]
            if isinstance(type_, TensorType) and type_.shape is not None:
                dims = [names[group[index, a]] if (index, a) in group else d for a, d in enumerate(type_.shape)]
                body.inputs[index].type = TensorType(type_.dtype, tuple(dims))
        retype(body, [v.type for v in body.inputs])
        after = {place: _returned_dim(body, place, carried, first_output) for place in group}
        split = {place: (key, after[place]) for place, key in group.items()}
        if len(set(split.values())) == len(members):
            return frozenset(names.values())
        # What is unknown afterwards may be anything: nothing shares a symbol with it.
        group = {place: (key, dim) if dim is not None else place for place, (key, dim) in split.items()}
    return frozenset()


def _returned_dim(body: Graph, place: tuple[int, int], carried: slice, first_output: int) -> Dim:
    shape = body.outputs[first_output + place[0] - carried.start].shape
    return None if shape is None or place[1] >= len(shape) else shape[place[1]]


def _outside(type_: Type, names: frozenset[str]) -> Type:
    """Return a type as it is outside of a body, whose symbols mean nothing there."""
    if not isinstance(type_, TensorType) or type_.shape is None or not names:
        return type_
    dims = [None if isinstance(d, str) and _mentions(d, names) else d for d in type_.shape]
    return TensorType(type_.dtype, tuple(dims), type_.layout)


def _mentions(dim: str, names: frozenset[str]) -> bool:
    value = symbolic.size(dim)
    return isinstance(value, symbolic.Expression) and not names.isdisjoint(value.symbols)


def _as_result(formal: Type, returned: Type) -> Type:
    """Return what a carried value is after the loop: for ONNX present, if the body always returns one that is."""
    return formal if isinstance(returned, OptionalType) else present(formal)


def retype(graph: Graph, types: Sequence[Type]) -> None:
    """Give the inputs of ``graph`` new types and infer everything behind them again, bodies included.

    Raises:
        TypeInferenceError: If operands no longer fit their operators.
    """
    # Even with the same types: what has become constant since may tell more about the shapes behind it.
    _retype(graph, types, widen=False, always=True)


def _retype(body: Graph, types: Sequence[Type], widen: bool | None = None, always: bool = False) -> None:
    """Give the formals of a body new types and infer its nodes again if any differs, or ``always``.

    Args:
        body: The body.
        types: The types of its formals.
        widen: Whether a formal never becomes narrower than it is, in nested bodies as well, so that these settle in few
            rounds; None for as it is around.
        always: Whether nodes are inferred again whatever the types.
    """
    widen = _widening.get() if widen is None else widen
    changed = always
    for formal, wanted in zip(body.inputs, types, strict=True):
        if isinstance(wanted, TensorType) and wanted.dtype == UNKNOWN_DTYPE:
            continue
        new = join(formal.type, wanted) if widen and formal.type != UNKNOWN else wanted
        changed |= not same(new, formal.type)
        formal.type = new
    if not changed:
        return
    token = _widening.set(widen)
    try:
        for inner in body.nodes:
            for value, type_ in zip(inner.outputs, body.infer(inner), strict=False):
                value.type = _known_dtype(value, type_)
    finally:
        _widening.reset(token)


def _known_dtype(value: Value, inferred: Type) -> Type:
    """Keep a declared kind and dtype where inference knows nothing at all (custom operators)."""
    return without_shape(value.type) if inferred == UNKNOWN else inferred


def _stacked(type_: Type, axis: int, size: Dim) -> Type:
    """Return the type of per-trip results stacked along a new axis."""
    if not isinstance(type_, TensorType) or type_.shape is None:
        return type_
    at = axis + len(type_.shape) + 1 if axis < 0 else axis
    return TensorType(type_.dtype, (*type_.shape[:at], size, *type_.shape[at:]))


def _sliced(type_: Type, axis: int) -> Type:
    """Return the type of one slice along ``axis``, which disappears."""
    if not isinstance(type_, TensorType) or type_.shape is None or not type_.shape:
        return type_
    at = axis % len(type_.shape)
    return TensorType(type_.dtype, type_.shape[:at] + type_.shape[at + 1 :])


def _scan_formals(node: Node, own: Sequence[Type]) -> list[Type]:
    scans = int(node.attrs["num_scan_inputs"])
    own = [without_contents(t) for t in own]
    if node.version < 9:
        own = [_sliced(t, 0) for t in own[1:]]
    states = len(own) - scans
    if states < 0 or scans < 1:
        raise _misfit(node, "the node has too few operands", f"at least {scans} scan inputs", f"{len(own)} operands")
    axes = list(node.attrs.get("scan_input_axes", [0] * scans))
    return [*own[:states], *(_sliced(t, axis) for t, axis in zip(own[states:], axes, strict=False))]


def _trips(node: Node, first_scan: int, batched: bool) -> Dim:
    value = node.inputs[first_scan]
    shape = None if value is None else value.shape
    if not shape:
        return None
    if batched:
        return shape[1] if len(shape) > 1 else None
    axis: int = (node.attrs.get("scan_input_axes") or [0])[0]
    return shape[axis % len(shape)]


def _batch(node: Node, batched: bool) -> Dim:
    value = node.optional_operand(1) if batched else None
    return value.shape[0] if value is not None and value.shape else None


def _expect_counts(node: Node, key: str, inputs: int, outputs: int) -> None:
    body = node.bodies[key]
    if len(body.inputs) != inputs:
        raise _misfit(node, f"{key} has the wrong number of inputs", str(inputs), str(len(body.inputs)))
    may_be_more = node.op in named("stacking")  # trailing results may go unused: the node then has fewer
    if len(body.outputs) < outputs or (len(body.outputs) > outputs and not may_be_more):
        raise _misfit(node, f"{key} has the wrong number of outputs", str(outputs), str(len(body.outputs)))


def _expect_same_kind(node: Node, index: int, types: Sequence[Type]) -> None:
    """Reject values that differ in more than their shape."""
    known = [t for t in map(present, types) if t != UNKNOWN]
    kinds = {type(t) for t in known}
    dtypes = {t.dtype for t in known if isinstance(t, TensorType)} - {UNKNOWN_DTYPE}
    if len(kinds) > 1 or len(dtypes) > 1:
        what = "the branches disagree" if node.op == "If" else "the body changes the type of a carried value"
        raise _misfit(node, f"{what} (number {index})", str(types[0]), str(types[-1]))


def _misfit(node: Node, message: str, expected: str, found: str) -> TypeInferenceError:
    return TypeInferenceError(message, where=f"node {node.label} ({node.qualified_op})", expected=expected, found=found)
