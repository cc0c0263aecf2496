"""Where a pattern cannot stand: too far from an operator that every match of it holds."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from tinycomp.ir.graph import Graph, Node
from tinycomp.rewrite.engine import Head
from tinycomp.rewrite.op_pattern import OpPattern, Result
from tinycomp.rewrite.pattern import AnyOf, ValuePattern, Where
from tinycomp.rewrite.roots import distances
from tinycomp.rewrite.traits import is_structural

_TRANSPARENT = (OpPattern, Result, Where, AnyOf)


class Landmark(NamedTuple):
    """An operator that every match holds: its names, and how many operators stand above it at most."""

    heads: frozenset[Head]
    depth: int


def landmarks(pattern: ValuePattern) -> tuple[Landmark, ...]:
    """Return the landmarks of a pattern; none for one of unbounded reach or with nested graphs."""
    parts = distances(pattern)
    if not all(_bounded(item) for item, _ in parts):
        return ()
    needed = _needed(pattern)
    found = ((item.names, depth) for item, depth in parts if isinstance(item, OpPattern) and item in needed)
    return tuple(Landmark(names, depth) for names, depth in found if names is not None)


def within_reach(graph: Graph, starts: Iterable[Node], depth: int) -> set[Node]:
    """Return the nodes up to ``depth`` operators above ``starts``, those included; no-ops do not count."""
    level = dict.fromkeys(starts, 0)
    queue = deque(level)
    while queue:
        node = queue.popleft()
        for user in graph.successors(node):
            step = 0 if is_structural(user) else 1
            reached = level[node] + step
            if reached <= depth and reached < level.get(user, depth + 1):
                level[user] = reached
                (queue.append if step else queue.appendleft)(user)
    return set(level)


def _bounded(item: ValuePattern) -> bool:
    if isinstance(item, OpPattern):
        return not item.bodies
    return isinstance(item, _TRANSPARENT) or not item.children()


def _needed(pattern: ValuePattern) -> frozenset[ValuePattern]:
    """Return the operator patterns that stand in every match."""
    needs: dict[ValuePattern, frozenset[ValuePattern]] = {}
    stack = [pattern]
    while stack:
        item = stack[-1]
        waiting = [child for child in item.children() if child not in needs]
        if waiting:
            stack += waiting
            continue
        below = [needs[child] for child in item.children()]
        joined = frozenset[ValuePattern]().union(*below)
        if isinstance(item, AnyOf):
            joined = joined.intersection(*below)
        needs[stack.pop()] = joined | {item} if isinstance(item, OpPattern) else joined
    return needs[pattern]
