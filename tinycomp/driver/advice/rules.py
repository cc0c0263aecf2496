"""What a target's operator rules would have to take, and which property of a node they refuse."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from tinycomp.driver.advice.case import Case, form
from tinycomp.driver.advice.setup import Change, Setup
from tinycomp.errors import TargetError
from tinycomp.ir.graph import Node
from tinycomp.ir.types import TensorType
from tinycomp.ops.body_types import CONTROL_FLOW
from tinycomp.rewrite.edits import excerpt
from tinycomp.target import OpRule

ORDINARY = 3
"""Effort of a rule."""
_BESIDE_COMPOSITES = 5
"""Effort of a rule for an operator that the target knows in composites only."""
_MULTIPLES = (2, 3, 4, 8, 16, 32, 64, 128)
_DTYPES = ("float32", "float16", "int8", "uint8", "int32", "int64")


def rule_changes(case: Case) -> Iterator[Change]:
    """Yield the rule that a target lacks for a node, or what its rules refuse."""
    node, target = case.node, case.target
    if node.bodies or (node.op in CONTROL_FLOW and not node.domain):
        return  # no line makes a target run a loop
    rules = target.rules_for(node)
    if not rules:
        yield _accepted(case)
        return
    refusals = [(rule, reason) for rule in rules if (reason := rule.refusal(node)) is not None]
    if len(refusals) == len(rules):
        yield _widened(case, *refusals[-1])


def _accepted(case: Case) -> Change:
    node, name = case.node, case.target.name
    key = node.domain, node.op
    composed = any(key in composite.pattern.operators for composite in case.target.composites)

    def apply(setup: Setup) -> Setup:
        made = setup.target(name).with_options()
        made.rules[key] = [*made.rules_for(node), OpRule(f"{name}.{node.qualified_op}")]
        return setup.with_target(made)

    where = " outside of its composites" if composed else ""
    effort = _BESIDE_COMPOSITES if composed else ORDINARY
    reason = f"{name} has no rule for {node.qualified_op}{where}"
    return Change((name, "accept", key), "rule", effort, reason, f'{name}.accept("{node.qualified_op}")', apply)


def _widened(case: Case, rule: OpRule, reason: str) -> Change:
    """Return the rule that takes what the rules of a target take, and nodes that are refused for the same reason."""
    node, name = case.node, case.target.name
    key = node.domain, node.op

    def refuses(other: Node) -> object:
        return form(rule.refusal(other) or "") == form(reason)

    def apply(setup: Setup) -> Setup:
        made = setup.target(name).with_options()
        made.rules[key] = [*made.rules_for(node), OpRule(rule.name, refuses)]
        return setup.with_target(made)

    culprit = _culprit(case, rule)
    action = f"let the rule {rule.name} take {culprit or f'nodes like {node.label}'}"
    why = f"the rule {rule.name} refuses it: {reason}"
    return Change((name, "widen", key, form(reason)), "rule", ORDINARY, why, action, apply)


# What a rule minds --------------------------------------------------------------------------------------------------


def _culprit(case: Case, rule: OpRule) -> str:
    """Return the property of a node without which the rule would take it; an empty text if it is no single one."""
    for text, edit in _variants(case.node):
        twin = excerpt(case.setup.graph, [case.node]).nodes[0]
        edit(twin)
        try:
            if rule.refusal(twin) is None:
                return text
        except TargetError:  # a made-up node may be one that no rule has to understand
            continue
    return ""


def _variants(node: Node) -> Iterator[tuple[str, Callable[[Node], None]]]:
    """Yield edits of one property of a node, with what the property is."""
    for name, value in node.attrs.items():
        yield f"{name}={value}", _without(name)
    for index, operand in enumerate(node.inputs):
        if operand is None or not isinstance(operand.type, TensorType):
            continue
        for dtype in _DTYPES:
            if dtype != operand.type.dtype:
                changed = dataclasses.replace(operand.type, dtype=dtype)
                yield f"{operand.type.dtype} as operand {index}", _retyping(index, changed)
        shape = operand.type.shape or ()
        for axis, dim in enumerate(shape):
            for multiple in _MULTIPLES:
                if isinstance(dim, int) and dim % multiple:
                    larger = (*shape[:axis], -(-dim // multiple) * multiple, *shape[axis + 1 :])
                    changed = dataclasses.replace(operand.type, shape=larger)
                    yield f"size {dim} at axis {axis} of operand {index}", _retyping(index, changed)


def _without(name: str) -> Callable[[Node], None]:
    def edit(node: Node) -> None:
        del node.attrs[name]

    return edit


def _retyping(index: int, type_: TensorType) -> Callable[[Node], None]:
    def edit(node: Node) -> None:
        node.operand(index).type = type_

    return edit
