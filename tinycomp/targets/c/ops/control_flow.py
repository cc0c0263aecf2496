"""If and Loop on the C target: instructions whose bodies are programs, which run without coming back to Python."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tinycomp.errors import TypeInferenceError
from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.types import TensorType, Type
from tinycomp.ops.elements import sizing_operands
from tinycomp.ops.rows import any_counts_rows
from tinycomp.ops.typing import infer_node_types
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.remark import Remark
from tinycomp.rewrite import reject
from tinycomp.rewrite.traits import is_structural
from tinycomp.runtime.native.program import Control
from tinycomp.symbolic import UNLIMITED, Expression, Size, dimension, is_at_least_zero, naming, span, symbol
from tinycomp.target import Decline
from tinycomp.targets.c.codegen.element_program import TYPES
from tinycomp.targets.c.codegen.emitter import MAX_RANK, Emitter, View, nbytes
from tinycomp.targets.c.codegen.generate import name_sizes
from tinycomp.targets.c.codegen.rules import LoweringRules, taken
from tinycomp.targets.common.checks import Check, Verdict, sized_type

FAMILY = LoweringRules()
CONTROL_FLOW = frozenset({"If", "Loop"})
"""Operators that the target takes with their bodies, if it takes all that is in these."""


def whole(accepts: Check) -> Check:
    """Return the check of a node with bodies, given the check of every node in them."""

    def check(node: Node) -> Verdict:
        verdict = _values(node)
        if isinstance(verdict, Remark):
            return verdict
        with naming():
            return _bodies(node, inside)

    def inside(node: Node) -> Verdict:
        if not node.domain and node.op in CONTROL_FLOW:
            verdict = check(node)
            if isinstance(verdict, Remark):
                return verdict
            types = zip(node.outputs, infer_node_types(node), strict=False)
            unknown = [v.name for v, t in types if v.name and _sizes(t) is None]
            return not unknown or reject(f'how large "{unknown[0]}" is depends on data')
        return accepts(node)

    return check


def _sizes(type_: Type) -> tuple[Size, ...] | None:
    return type_.sizes if isinstance(type_, TensorType) else None


def _values(node: Node) -> Verdict:
    """Tell whether all operands and results are tensors that the target knows, and the branches of If agree."""
    bodies = [v for body in node.bodies.values() for v in (*body.inputs, *body.outputs)]
    for value in (*node.inputs, *node.used_outputs(), *bodies):
        if value is None:
            continue
        type_ = value.type
        if not isinstance(type_, TensorType) or type_.dtype not in TYPES:
            return reject(f'"{value.name}" is {type_}')
        if type_.rank is None or type_.rank >= MAX_RANK:
            return reject(f'the rank of "{value.name}" is {"unknown" if type_.rank is None else type_.rank}')
    if node.op == "If":
        branches = [body.outputs for body in node.bodies.values()]
        for type_, *values in zip(infer_node_types(node), *branches, strict=True):
            if _sizes(type_) is None:
                given = " and ".join(str(value.type) for value in values)
                return reject(f"the branches give {given}: how large a result is depends on data")
    elif node.bodies["body"].outputs[0].static_shape is None:
        return reject("the size of the condition is unknown")
    for index in (0,) if node.op == "If" else (0, 1):
        value = node.optional_operand(index)
        if value is not None and (value.static_shape is None or np.prod(value.static_shape) != 1):
            return reject(f'"{value.name}" is {value.type}, not one value')
    return True


def _bodies(node: Node, accepts: Check) -> Verdict:
    """Tell whether every node of the bodies is accepted."""
    for key, body in node.bodies.items():
        if _finds_sizes(body):
            body = body.clone()
            verdict = _name_sizes(body)
            if isinstance(verdict, Remark):
                return reject(f"{key}: {verdict.reason}")
        for inner in body.nodes:
            if is_structural(inner):
                continue
            verdict = accepts(inner)
            if isinstance(verdict, Remark):
                return reject(f"{key}: {inner.label} ({inner.qualified_op}): {verdict.reason}")
            if not verdict:
                return reject(f"{key}: {inner.label} ({inner.qualified_op}) is refused")
    return True


def _finds_sizes(body: Graph) -> bool:
    """Tell whether sizes in a body depend on elements that are computed there, or come from around it."""
    if any_counts_rows(body) or any(map(sizing_operands, body.nodes)):
        return True
    return any(isinstance(size, Expression) for value in body.inputs for size in value.contents or ())


def _name_sizes(body: Graph) -> Verdict:
    """Give every size in a body a name, and tell whether there are limits for all values, which memory is for."""
    try:
        _, most = name_sizes(body, "body:")
    except Decline as declined:
        return reject(declined.reason)
    except TypeInferenceError as error:
        return reject(f"it does not work for all sizes: {error.message}")
    elements = {name: UNLIMITED for name, size in most.items() if size is None}
    for value in [value for inner in body.nodes for value in inner.used_outputs()]:
        sizes = _sizes(value.type)
        if sizes is None:
            return reject(f'how large "{value.name}" is depends on data')
        if any(span(size, elements)[1] is None or not is_at_least_zero(size) for size in sizes):
            return reject(f'how large "{value.name}" is depends on data: there is no limit to {list(sizes)}')
    for value in body.outputs:
        if any(isinstance(size, Expression) and size.symbols & most.keys() for size in _sizes(value.type) or ()):
            return reject(f'how large its result "{value.name}" is depends on data')
    return True


def _bind_constants(node: Node, bodies: Sequence[Graph], first: int) -> list[Value]:
    """Put captured constants into the bodies, so that their weights are packed; return the other captured values."""
    captured = list(node.inputs[len(node.inputs) - node.captures :])
    kept: list[Value] = []
    for place in reversed(range(len(captured))):
        value = captured[place]
        assert value is not None, node
        if value.const is None:
            kept.insert(0, value)
            continue
        for body in bodies:
            formal = body.inputs[first + place]
            body.replace_uses(formal, body.add_const(value.const, body.fresh(formal.name)))
            body.remove_input(formal)
    return kept


def _results(emit: Emitter, node: Node, kept: Sequence[int]) -> tuple[list[View | None], list[Size | None]]:
    """Return where the results of a node go that are kept, and how many bytes they have."""
    places: list[View | None] = []
    sizes: list[Size | None] = []
    # A model may have declared names for sizes that only a run shows.
    types = infer_node_types(node)
    for value, type_ in [(node.outputs[i], types[i]) for i in kept]:
        assert isinstance(type_, TensorType), value
        if not emit.graph.use_count(value):
            places.append(None)
            sizes.append(0)
        elif type_.sizes is not None:
            value.type = type_
            places.append(emit.view(value))
            sizes.append(nbytes(type_))
        else:
            named = [
                dimension(symbol(f"{value.name}:{a}")) if d is None else d for a, d in enumerate(type_.shape or ())
            ]
            value.type = TensorType(type_.dtype, tuple(named))
            places.append(emit.grown(value))
            sizes.append(None)
    return places, sizes


def _shapes(values: Sequence[Value]) -> tuple[tuple[Size, ...], ...]:
    return tuple([sized_type(value)[1] for value in values])


@FAMILY.lower("If", check=taken, layout=LayoutRule.ROW_MAJOR)
def if_(emit: Emitter, node: Node) -> None:
    """Emit the choice between two programs."""
    bodies = [node.bodies[key].clone() for key in ("then_branch", "else_branch")]
    kept = [i for i, v in enumerate(node.outputs) if emit.graph.use_count(v)]
    for body in bodies:
        body.set_outputs([body.outputs[i] for i in kept])
    captured = _bind_constants(node, bodies, 0)
    programs = [emit.body(body, f"{node.label}/{name}") for body, name in zip(bodies, ("then", "else"), strict=True)]
    views = [emit.view(node.operand(0)), *map(emit.view, captured)]
    places, sizes = _results(emit, node, kept)
    control = Control(tuple(programs), 0, _shapes(captured), tuple(sizes))
    emit.control("if", [*views, *places], control, node)


@FAMILY.lower("Loop", check=taken, layout=LayoutRule.ROW_MAJOR)
def loop(emit: Emitter, node: Node) -> None:
    """Emit the repetition of a program."""
    carried = [node.operand(i) for i in range(2, len(node.inputs) - node.captures)]
    body = node.bodies["body"].clone()
    # Rows that nobody reads are not kept; carried values are needed by the next trip.
    kept = [i for i, v in enumerate(node.outputs) if i < len(carried) or emit.graph.use_count(v)]
    body.set_outputs([body.outputs[0], *[body.outputs[1 + i] for i in kept]])
    captured = _bind_constants(node, [body], 2 + len(carried))
    program = emit.body(body, node.label)
    views = [None if v is None else emit.view(v) for v in (node.inputs[0], node.inputs[1])]
    views += [emit.view(v) for v in (*carried, *captured)]
    places, sizes = _results(emit, node, kept)
    control = Control((program,), len(carried), _shapes([*carried, *captured]), tuple(sizes))
    emit.control("loop", [*views, *places], control, node)
