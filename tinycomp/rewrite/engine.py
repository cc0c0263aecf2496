"""The worklist engine: applies rules until none applies any more.

A rule says at which operators it may start and changes the graph around one node. The engine seeds every node, and
after a change tries the node's neighbourhood and everything new again, so that the work is in proportion to the number
of changes and not to passes over the graph. Nodes that nobody reads any more are erased on the way.

>>> from tinycomp.rewrite import Engine, FunctionRule
>>> def drop_identity(graph, node):
...     graph.replace_uses(node.output, node.inputs[0])
...     return True
>>> engine = Engine([FunctionRule(drop_identity, ops="Identity")])
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tinycomp.errors import PatternError
from tinycomp.ir.graph import Graph, Node

Head = tuple[str, str]
"""Domain and name of an operator."""

_WINDOW = 64


class Rule(Protocol):
    """What the engine runs.

    Attributes:
        name: Name for messages.
        heads: Operators at which the rule may start, or None for every node.
    """

    @property
    def name(self) -> str:
        """Name for messages."""

    @property
    def heads(self) -> frozenset[Head] | None:
        """Operators (domain, name) at which the rule may start; None means every node."""

    def apply(self, graph: Graph, node: Node) -> bool:
        """Change ``graph`` around ``node``; return whether anything changed."""


@dataclass(frozen=True)
class FunctionRule:
    """A plain function ``f(graph, node) -> bool`` as a rule.

    Args:
        function: Changes the graph around the node with ``graph.add``, ``replace_uses``, ``set_input``, …, and returns
            whether it did. It may leave dead nodes behind; the engine erases them.
        ops: Operator name, names, or ``(domain, name)`` pairs at which it starts; empty for every node.
    """

    function: Callable[[Graph, Node], bool]
    ops: str | Sequence[str | Head] = ()

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function.__name__

    @property
    def heads(self) -> frozenset[Head] | None:
        """The operators at which the rule starts."""
        ops = [self.ops] if isinstance(self.ops, str) else self.ops
        return frozenset(("", op) if isinstance(op, str) else op for op in ops) or None

    def apply(self, graph: Graph, node: Node) -> bool:
        """Run the function."""
        return self.function(graph, node)


def rule(*ops: str | Head) -> Callable[[Callable[[Graph, Node], bool]], FunctionRule]:
    """Make the decorated function a rule that starts at ``ops`` (none: at every node).

    >>> @rule("Identity")
    ... def drop_identity(graph, node):
    ...     graph.replace_uses(node.output, node.inputs[0])
    ...     return True
    >>> drop_identity.name
    'drop_identity'
    """
    return lambda function: FunctionRule(function, ops)


class Engine:
    """Applies rules to a fixpoint.

    Args:
        rules: Tried in this order at every node.
        max_changes: Bound on the number of changes per graph; by default it grows with the graph.
        bodies: Whether the bodies of unclaimed nodes are rewritten too.
        claimed: Whether rules may start at nodes that a target has claimed.
    """

    def __init__(
        self, rules: Iterable[Rule], *, max_changes: int | None = None, bodies: bool = True, claimed: bool = True
    ) -> None:
        self._max_changes = max_changes
        self._bodies = bodies
        self._claimed = claimed
        self._always: list[tuple[int, Rule]] = []
        self._by_head: dict[Head, list[tuple[int, Rule]]] = {}
        self._merged: dict[Head, list[Rule]] = {}
        for order, entry in enumerate(rules):
            for head in entry.heads or ():
                self._by_head.setdefault(head, []).append((order, entry))
            if entry.heads is None:
                self._always.append((order, entry))

    def run(self, graph: Graph) -> int:
        """Rewrite ``graph`` in place and return the number of changes.

        Raises:
            PatternError: If the rules do not come to an end; the message names those that keep applying.
        """
        graphs = open_graphs(graph) if self._bodies else [graph]
        return sum(self._run_one(g) for g in graphs)

    def _run_one(self, graph: Graph) -> int:
        limit = self._max_changes if self._max_changes is not None else 1000 + 50 * len(graph)
        work = _Worklist(graph)
        changes = 0
        while (node := work.pop()) is not None:
            applied = self._apply_first(graph, node, work)
            if applied is None:
                continue
            changes += 1
            work.history.append(applied.name)
            if changes > limit:
                raise _endless(work.history, node, limit)
        return changes

    def _apply_first(self, graph: Graph, node: Node, work: _Worklist) -> Rule | None:
        if work.sweep(node) or not (self._claimed or node.target is None):
            return None
        rules = self._rules_at(node)
        around = work.neighbourhood(node) if rules else []
        for entry in rules:
            if entry.apply(graph, node):
                work.changed(node, around)
                return entry
        return None

    def _rules_at(self, node: Node) -> list[Rule]:
        head = (node.domain, node.op)
        if head not in self._merged:
            entries = sorted(self._always + self._by_head.get(head, []), key=lambda pair: pair[0])
            self._merged[head] = [entry for _, entry in entries]
        return self._merged[head]


@dataclass
class _Worklist:
    """Nodes still to try, each at most once in the queue."""

    graph: Graph
    history: deque[str] = field(default_factory=lambda: deque(maxlen=_WINDOW))

    def __post_init__(self) -> None:
        self._queue = deque(self.graph.nodes)
        self._queued = set(self._queue)
        self._known = set(self._queue)

    def pop(self) -> Node | None:
        while self._queue:
            node = self._queue.popleft()
            self._queued.discard(node)
            if node in self.graph:
                return node
        return None

    def push(self, node: Node) -> None:
        self._known.add(node)
        if node not in self._queued:
            self._queued.add(node)
            self._queue.append(node)

    def neighbourhood(self, node: Node) -> list[Node]:
        """Return the nodes on both sides; one may stand more than once."""
        before = [v.producer for v in node.inputs if v is not None and v.producer is not None]
        return before + [user for value in node.outputs for user in value.users]

    def changed(self, node: Node, around: list[Node]) -> None:
        """Queue what the change touched: the old neighbours, the node, and all new nodes that are linked to them."""
        outputs = [v.producer for v in self.graph.outputs if v.producer is not None and v.producer not in self._known]
        stack = [*around, node, *outputs]
        seen = set()
        while stack:
            near = stack.pop()
            if near in seen or near not in self.graph:
                continue
            seen.add(near)
            links = self.neighbourhood(near)
            stack += links if near not in self._known else [n for n in links if n not in self._known]
            self.push(near)
        for near in [node, *around]:
            self.sweep(near)

    def sweep(self, node: Node) -> bool:
        """Erase ``node`` if it is dead, then its producers that this leaves dead; return whether it was."""
        if node not in self.graph or not self.graph.is_dead(node):
            return False
        stack = [node]
        while stack:
            dead = stack.pop()
            if dead not in self.graph or not self.graph.is_dead(dead):
                continue
            operands = [v for v in dead.inputs if v is not None]
            self.graph.erase(dead)
            for value in dict.fromkeys(operands):
                if value.producer is not None:
                    stack.append(value.producer)
                    self.push(value.producer)
                elif value.is_const and not self.graph.use_count(value):
                    self.graph.erase_unused(value)
        return True


def _endless(history: Iterable[str], node: Node, limit: int) -> PatternError:
    names = " and ".join(f'"{name}"' for name, _ in Counter(history).most_common())
    which = f"rules {names} keep undoing each other" if " and " in names else f"rule {names} keeps applying"
    return PatternError(
        f"rewriting does not come to an end: {which}",
        where=node.label,
        expected=f"at most {limit} changes",
        hint="Make each rule's result something that no rule turns back, for example with a check.",
    )


def open_graphs(graph: Graph) -> Iterator[Graph]:
    """Yield ``graph`` and every body below it that is open, outer graphs first.

    Bodies of composites, of regions and of claimed nodes are closed. A graph is looked into only after the caller has
    dealt with it, so that a node claimed on the way closes its bodies, and one inserted opens its own.
    """
    found = [graph]
    for current in found:
        yield current
        for node in current.nodes:
            if node.bodies and node.target is None and not node.is_composite and not node.is_region:
                found.extend(node.bodies.values())
