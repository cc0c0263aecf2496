"""What options of a compilation keep from a target: policies, placements, and sizes that nobody has declared."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tinycomp.driver.advice.case import Case, numbers
from tinycomp.driver.advice.setup import Change, Setup
from tinycomp.ir.graph import Graph
from tinycomp.ir.types import TensorType
from tinycomp.remark import Remark
from tinycomp.symbolic import Expression, size
from tinycomp.target import Placement, Policy
from tinycomp.target.placement import Place

_EFFORT = 1
_RELAXED: Mapping[str, Any] = {"min_nodes": 1, "min_macs": 0, "max_regions": None, "transfer": None}
"""Fields of a policy that refuse regions, with the values that refuse none."""
_COUNTING = ("min_macs", "transfer")
"""Those that count work, for which a size that nobody has declared is 1."""
_SIZES = (1, 64)
"""Sizes to try for a symbol that has no upper bound."""
_BOUNDS = (64, 4096)
"""Upper bounds to try likewise: for rules that ask for one, and for policies, which count such a size as its bound."""


def option_changes(case: Case) -> Iterator[Change]:
    """Yield the options that may keep a node from a target."""
    for remark in case.remarks:
        field = remark.rule.removeprefix("policy.")
        if field in _RELAXED and field != remark.rule:
            yield from _bounds(case) if field in _COUNTING else ()
            yield _policy(case, remark, field)
        elif remark.rule == "policy":
            yield from _admitted(case, remark)
    yield from _placed(case)
    yield from _shapes(case)


def _policy(case: Case, remark: Remark, field: str) -> Change:
    found = numbers(remark.reason)
    value = found[0] if field in ("min_nodes", "min_macs") and found else _RELAXED[field]

    def relaxed(policy: Policy) -> Policy:
        before = getattr(policy, field)
        kept: Any = value if value is None or before is None else min(before, value)
        return _with(policy, field, kept)

    action = f'policy={{"{case.target.name}": Policy({field}={value}, …)}}'
    return _on_policies(case, ("policy", field, value), remark.reason, action, relaxed)


def _on_policies(case: Case, key: object, reason: str, action: str, edit: Any) -> Change:
    """Return the change of the policy for all targets, and of that of one."""
    name = case.target.name

    def apply(setup: Setup) -> Setup:
        target = setup.target(name)
        own = target.under(edit(target.policy), target.placement)
        common = None if setup.policy is None else edit(setup.policy)
        return replace(setup.with_target(own), policy=common)

    return Change((name, key), "policy", _EFFORT, f"a policy keeps it from {name}: {reason}", action, apply)


def _admitted(case: Case, remark: Remark) -> Iterator[Change]:
    """Yield the change of what excludes a node by name."""
    name = case.target.name
    for field, start in (("exclude", "excluded by "), ("host_after", "host_after: depends on ")):
        if remark.reason.startswith(start):
            glob = remark.reason.removeprefix(start)
            without = functools.partial(_without, field=field, glob=glob)
            action = f'leave "{glob}" out of {field} in the policy'
            yield _on_policies(case, (field, glob), remark.reason, action, without)
    place = remark.reason.removeprefix("placed by ")
    if place in map(str, case.target.placement.places):  # not where a code generator has declined

        def apply(setup: Setup) -> Setup:
            return _with_places(setup, [p for p in setup.target(name).placement.places if str(p) != place])

        reason = f"it is placed by {place}"
        yield Change(("place", place), "place", _EFFORT, reason, f"leave {place} out of place", apply)


def _without(policy: Policy, field: str, glob: str) -> Policy:
    return _with(policy, field, tuple(g for g in getattr(policy, field) if g != glob))


def _with(policy: Policy, field: str, value: Any) -> Policy:
    fields: dict[str, Any] = {field: value}
    return replace(policy, **fields)


def _with_places(setup: Setup, places: Sequence[Place]) -> Setup:
    placement = Placement(tuple(places))
    return replace(setup, targets=tuple(t.under(None, placement) for t in setup.targets))


def _placed(case: Case) -> Iterator[Change]:
    """Yield the placement of a node that another target has, where the target has a rule that takes it."""
    name, node = case.target.name, case.node
    others = [t for t in case.setup.targets if t.name != name]
    if not node.sources or not others or case.remarks:
        return
    if any(rule.refusal(node) is None for rule in case.target.rules_for(node)):
        source = node.sources[0]

        def apply(setup: Setup) -> Setup:
            return _with_places(setup, [Place(source, name), *case.target.placement.places])

        action = f'place={{"{source}": "{name}"}}'
        yield Change(("place", source, name), "place", _EFFORT, "a target before it takes it", action, apply)


def _shapes(case: Case) -> Iterator[Change]:
    """Yield bounds and numbers for the sizes of inputs that a node's types depend on."""
    yield from _bounds(case)
    most = _open_sizes(case)
    for number in _SIZES if None in most.values() else (1,) if most else ():
        yield _fixed(case, {name: number if limit is None else limit for name, limit in most.items()})


def _bounds(case: Case) -> Iterator[Change]:
    """Yield upper bounds for those of the sizes that have none."""
    most = _open_sizes(case)
    for bound in _BOUNDS if None in most.values() else ():
        yield _bounded(case, {name: bound if limit is None else limit for name, limit in most.items()})


def _open_sizes(case: Case) -> Mapping[str, int | None]:
    """Return the sizes of inputs that a node's types depend on, with their upper bounds."""
    graph = case.setup.graph
    named = [v for v in (*case.node.inputs, *case.node.outputs) if v is not None]
    sizes = [size(dim) for v in named for dim in _dims(v.type) if isinstance(dim, str)]
    symbols = {name for found in sizes if isinstance(found, Expression) for name in found.symbols}
    symbols &= {dim for v in graph.inputs for dim in _dims(v.type)}
    return {name: graph.bounds.get(name, (0, None))[1] for name in sorted(symbols if case.remarks else ())}


def _dims(type_: object) -> Sequence[object]:
    return (type_.shape or ()) if isinstance(type_, TensorType) else ()


def _bounded(case: Case, most: Mapping[str, int]) -> Change:
    """Return the declaration of upper bounds for sizes."""
    shapes = _given(case.setup.graph, {name: (name, 1, bound) for name, bound in most.items()})
    why = f"the model does not declare how large {_listed(most)} may be: {case.remarks[0].reason}"
    return Change(
        ("bounds", tuple(most.items())), "shapes", _EFFORT, why, f"shapes={shapes}",
        lambda setup: replace(setup, shapes={**setup.shapes, **shapes}),
    )  # fmt: skip


def _fixed(case: Case, sizes: Mapping[str, int]) -> Change:
    """Return the choice of numbers for sizes."""
    shapes = _given(case.setup.graph, sizes)
    why = f"{_listed(sizes)} can be any size: {case.remarks[0].reason}"
    return Change(
        ("sizes", tuple(sizes.items())), "shapes", _EFFORT, why, f"shapes={shapes}",
        lambda setup: replace(setup, shapes={**setup.shapes, **shapes}, sizes={**setup.sizes, **sizes}),
    )  # fmt: skip


def _listed(names: Mapping[str, int]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _given(graph: Graph, dims: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Return the shapes of the inputs that have one of the symbols, with what is given for it."""
    shapes = {}
    for value in graph.inputs:
        before = _dims(value.type)
        if not dims.keys().isdisjoint(before):
            shapes[value.name] = tuple(dims.get(dim, dim) if isinstance(dim, str) else dim for dim in before)
    return shapes
