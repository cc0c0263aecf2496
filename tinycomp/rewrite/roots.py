"""The further outputs of a pattern: found from what it shares with the outputs before it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from tinycomp.ir.graph import Node, Value
from tinycomp.rewrite.op_pattern import OpPattern, Result
from tinycomp.rewrite.pattern import ValuePattern
from tinycomp.rewrite.repeat import Repeat
from tinycomp.rewrite.search import Choice, Search
from tinycomp.rewrite.traits import is_structural

_REPEAT_REACH = 16


class OtherRoot(ValuePattern):
    """Asks ``pattern`` to stand for some value that no earlier output stands for.

    Args:
        pattern: The output to find.
        earlier: The outputs that have been found.
    """

    def __init__(self, pattern: ValuePattern, earlier: Sequence[ValuePattern]) -> None:
        self.pattern = pattern
        self.earlier = earlier

    def choices(self, value: Value | None, anchored: bool, search: Search) -> Iterator[Choice]:
        """Try the value that is known already, else the values above the nearest shared sub-pattern."""
        taken = [search.values.get(p) for p in self.earlier]
        found = False
        for candidate in self._candidates(search):
            if candidate not in taken:
                found = True
                yield ((self.pattern, candidate, True),)
        if not found:
            search.fail(f"expected {_text(self.pattern)} on another branch, found none")

    def _candidates(self, search: Search) -> list[Value]:
        held = _held(self.pattern, search)
        if held is not None:
            return [held]
        for shared, depth in distances(self.pattern):
            value = _held(shared, search)
            if value is not None:
                return _above(value, depth, self.pattern)
        return []


def _held(pattern: ValuePattern, search: Search) -> Value | None:
    if isinstance(pattern, Result) and pattern.op in search.nodes:
        results = search.nodes[pattern.op].outputs
        return results[pattern.index] if pattern.index < len(results) else None
    if isinstance(pattern, OpPattern) and pattern in search.nodes:
        return search.nodes[pattern].output
    return search.values.get(pattern)


def _text(pattern: ValuePattern) -> str:
    ops = [p for p, _ in distances(pattern) if isinstance(p, OpPattern)]
    return ops[0].text if ops else "a value"


def distances(pattern: ValuePattern) -> list[tuple[ValuePattern, int]]:
    """Return every sub-pattern with how many operators stand above it at most, the nearest first."""
    found: dict[ValuePattern, int] = {}
    queue = deque([(pattern, 0)])
    while queue:
        current, depth = queue.popleft()
        if current in found and found[current] >= depth:
            continue
        found[current] = depth
        step = 1 if isinstance(current, OpPattern) else _REPEAT_REACH if isinstance(current, Repeat) else 0
        queue.extend((child, depth + step) for child in current.children())
    return list(found.items())


def _above(value: Value, depth: int, pattern: ValuePattern) -> list[Value]:
    """Return the results of nodes up to ``depth`` operators above ``value`` at which ``pattern`` can stand."""
    heads = pattern.heads
    index = pattern.index if isinstance(pattern, Result) else None
    found: dict[Value, None] = {}
    reached: dict[Node, int] = {}
    queue = deque((user, 1) for user in _users(value))
    while queue:
        node, level = queue.popleft()
        if node in reached or level > depth:
            continue
        reached[node] = level
        if heads is None or (node.domain, node.op) in heads:
            found.update(dict.fromkeys(node.outputs if index is None else node.outputs[index : index + 1]))
        step = 0 if is_structural(node) else 1
        queue.extend((user, level + step) for v in node.outputs for user in _users(v))
    return list(found)


def _users(value: Value) -> list[Node]:
    return sorted(value.users, key=lambda n: (n.position, n.serial))
