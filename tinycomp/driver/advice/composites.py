"""What a target's composites would have to take: the part of a pattern that did not fit, or what a check refused."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence

from tinycomp.driver.advice.case import Case, form
from tinycomp.driver.advice.setup import Change, Setup
from tinycomp.ir.graph import Graph, Node
from tinycomp.passes.merge_composite import MergeComposite
from tinycomp.rewrite.composites import Composite
from tinycomp.rewrite.matcher import Check, Match, Pattern
from tinycomp.rewrite.relaxations import relaxations
from tinycomp.rewrite.rules import open_graphs
from tinycomp.target import answer_reason

_CHECK = 3
_DEMAND = 4
_OPERATOR = 6
"""Efforts: of a check that refuses less, of a pattern that demands less, of one with other operators."""


Relaxed = Callable[[Composite], Composite]


def composite_changes(case: Case, *, operators: bool) -> Iterator[Change]:
    """Yield the composites that would take a node if they asked for less.

    Args:
        case: The node.
        operators: Whether to put operators into the place of others, instead of all else that patterns demand.
    """
    for composite in case.target.composites:
        name = composite.qualified_name
        if not operators:
            refused = [r for r in case.remarks if r.rule == name and r.stage == MergeComposite.name and r.progress == 1]
            for remark in {form(r.reason): r for r in refused}.values():
                yield _checked(case, composite, remark.reason)
        for scope, root in _roots(case, composite):
            for found in relaxations(composite.pattern, root, scope, composite.predicates, operators=operators):
                # A match must hold more than the operator that was exchanged.
                if _holds(found.match, case.node) and (not operators or found.pattern.size > 1):
                    yield _demanding(case, composite, found.text, found.pattern, operators)


def _holds(match: Match, node: Node) -> bool:
    """Tell whether a match in another graph holds a node."""
    return any(other.op == node.op and set(other.sources) & set(node.sources) for other in match.matched)


def _roots(case: Case, composite: Composite) -> Iterator[tuple[Graph, Node]]:
    """Yield the nodes at or just behind a node at which a composite may be anchored."""
    sources = set(case.node.sources)
    for scope in open_graphs(case.optimized):
        here = [n for n in scope.nodes if n.op == case.node.op and not sources.isdisjoint(n.sources)]
        near = itertools.chain(here, *(scope.successors(n) for n in here))
        for node in dict.fromkeys(near):
            if composite.pattern.heads is None or (node.domain, node.op) in composite.pattern.heads:
                yield scope, node


def _checked(case: Case, composite: Composite, reason: str) -> Change:
    """Return the composite whose predicates take what they refuse for a reason."""
    name = composite.qualified_name
    why = f"{name} refuses it: {reason}"

    def loosened(check: Check) -> Check:
        def answer(match: Match) -> object:
            given = check(match)
            said = answer_reason(given, name) if given is not True else None
            return True if said is not None and form(said) == form(reason) else given

        return answer

    def relaxed(old: Composite) -> Composite:
        checks = [loosened(check) for check in old.predicates]
        pattern = old.pattern
        bare = Pattern(
            pattern.name, pattern.outputs, pattern.arguments,
            through=True if pattern.through is None else pattern.through,
        )  # fmt: skip
        return dataclasses.replace(old, pattern=bare, checks=checks)

    action = f"let the check of {name} take that"
    return _change(case, composite, ("check", form(reason)), _CHECK, why, action, relaxed)


def _demanding(case: Case, composite: Composite, text: str, pattern: Pattern, operators: bool) -> Change:
    """Return the composite with a further pattern."""
    name = composite.qualified_name
    why = f"the pattern of {name} does not take {text}"
    effort = _OPERATOR if operators else _DEMAND
    action = f"let the pattern of {name} take {text}"
    return _change(case, composite, text, effort, why, action, lambda old: dataclasses.replace(old, pattern=pattern))


def _change(
    case: Case, composite: Composite, key: object, effort: int, reason: str, action: str, relaxed: Relaxed
) -> Change:
    """Return the change that puts the relaxed form behind a composite, so that what matched before does so again."""
    target, name = case.target.name, composite.name

    def apply(setup: Setup) -> Setup:
        made = setup.target(target).with_options()
        table: Sequence[Composite] = made.composites
        made.composites = [
            each for old in table for each in ((old, relaxed(old)) if old.name == name else (old,))
        ]  # fmt: skip
        return setup.with_target(made)

    return Change((target, name, key), "composite", effort, reason, action, apply)
