"""Dominance: everything that leaves one node comes together again at another."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from tinycomp.ir.graph import Node, Value
from tinycomp.rewrite.engine import Head
from tinycomp.rewrite.op_pattern import OpPattern
from tinycomp.rewrite.pattern import ValuePattern
from tinycomp.rewrite.search import Choice, Search


class Dominance(ValuePattern):
    """``P.dominates``: ``root`` stands for the value, and all paths from ``parent`` lead to it over ``path`` operators.

    No value of the parent or of the paths may be used elsewhere. What path operators read besides is unconstrained.

    Args:
        parent: What the paths begin with.
        path: What each operator between must be; its operands do not matter.
        root: Where the paths meet.
        at_most: Most operators between the two.
    """

    def __init__(self, parent: ValuePattern, path: OpPattern, root: OpPattern, at_most: int) -> None:
        self.parent = parent
        self.path = path
        self.root = root
        self.at_most = at_most

    @property
    def heads(self) -> frozenset[Head] | None:
        """Those of the root."""
        return self.root.heads

    def children(self) -> Sequence[ValuePattern]:
        """Return root and parent."""
        return (self.root, self.parent)

    def fresh_choices(self, value: Value | None, anchored: bool, search: Search) -> Iterable[Choice]:
        """Match the root, then look for the parent."""
        return [((self.root, value, anchored), (_Parent(self), value, False))]


class _Parent(ValuePattern):
    def __init__(self, rule: Dominance) -> None:
        self.rule = rule

    def choices(self, value: Value | None, anchored: bool, search: Search) -> Iterator[Choice]:
        root = search.nodes[self.rule.root]
        between, found = self._reach(root, search), False
        for candidate in self._candidates(root, between, search):
            paths = _on_paths(candidate, between)
            if not _encloses(candidate, paths, root, search):
                continue
            found = True
            for node in paths:
                search.add_member(node)
                _note_side_operands(node, search)
            _note_side_operands(root, search)
            yield ((self.rule.parent, candidate, False),)
        if not found:
            search.fail(f"expected all paths to {self.rule.root.text} at {root.label} to come from one node", root)

    def _reach(self, root: Node, search: Search) -> dict[Node, None]:
        """Return the path operators below ``root``, nearest first."""
        found: dict[Node, None] = {}
        queue = deque([root])
        while queue and len(found) <= self.rule.at_most:
            for producer in _producers(queue.popleft()):
                if producer not in found and (self.rule.path.accepts(producer) or _is_no_op(producer, search)):
                    found[producer] = None
                    queue.append(producer)
        return found

    def _candidates(self, root: Node, between: dict[Node, None], search: Search) -> list[Value]:
        """Return the values below the paths at which the parent can stand, nearest first."""
        heads = self.rule.parent.heads
        anything = heads == frozenset()
        found: dict[Value, None] = {}
        for node in [root, *between]:
            for value in node.inputs:
                producer = None if value is None else value.producer
                stands = producer is not None and (heads is None or (producer.domain, producer.op) in heads)
                if value is not None and value.const is None and (anything or stands):
                    found[value] = None
        return list(found)


def _is_no_op(node: Node, search: Search) -> bool:
    return search.looks_through(node.output)


def _on_paths(start: Value, between: dict[Node, None]) -> dict[Node, None]:
    """Return the nodes of ``between`` that ``start`` leads to."""
    found: dict[Node, None] = {}
    queue = deque(u for u in start.users if u in between)
    while queue:
        node = queue.popleft()
        if node not in found:
            found[node] = None
            queue.extend(u for v in node.outputs for u in v.users if u in between)
    return found


def _encloses(start: Value, paths: dict[Node, None], root: Node, search: Search) -> bool:
    """Whether every use of ``start`` and of the paths lies on the paths or at the root."""
    for value in [start, *(v for n in paths for v in n.outputs)]:
        inside = sum(slots for user, slots in value.users.items() if user is root or user in paths)
        if inside != search.uses(value):
            return False
    return True


def _note_side_operands(node: Node, search: Search) -> None:
    for value in node.inputs:
        if value is not None:
            search.record(search.rest, value, None)


def _producers(node: Node) -> list[Node]:
    return [v.producer for v in node.inputs if v is not None and v.producer is not None]
