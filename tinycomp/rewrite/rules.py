"""Rules that rewrite graphs, the engine that applies them until none applies any more, and open graphs.

A rule names the operators at which it may start, and changes the graph around one node. A :class:`RewriteRule` puts a
replacement, written with a :class:`GraphBuilder`, in the place of a match; a :class:`FunctionRule` is free in what it
does. The engine starts with every node. After a change it tries the neighbourhood and all new nodes again, so that the
work is proportional to the number of changes, not to that of passes over the graph. Dead nodes are erased on the way.

>>> from tinycomp.rewrite import Engine, FunctionRule
>>> def drop_identity(graph, node):
...     graph.replace_uses(node.output, node.inputs[0])
...     return True
>>> engine = Engine([FunctionRule(drop_identity, ops="Identity")])
"""

from __future__ import annotations

import inspect
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from tinycomp.errors import PatternError, shown
from tinycomp.ir.graph import TINYCOMP, Graph, Node, Value
from tinycomp.ir.types import UNKNOWN_DTYPE, compatible, numpy_dtype, refine
from tinycomp.lazy import LazyModule
from tinycomp.ops.record import heads
from tinycomp.records import dataclass, field
from tinycomp.remark import Remark
from tinycomp.rewrite.matcher import Check, Feasibility, Match, Pattern, Search, judge, may_start, pattern
from tinycomp.rewrite.pattern import OWN_OPS, Head

_WINDOW = 64
"""How many of the latest changes the error names if rules do not terminate."""


class Rule(Protocol):
    """Describe a rule for the engine.

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
    """Make a rule of a plain function ``f(graph, node) -> bool``.

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

    @property
    def apply(self) -> Callable[[Graph, Node], bool]:
        """The function."""
        return self.function


@dataclass(frozen=True)
class RuleGroup:
    """Rules of a module that is imported when the engine first meets an operator at which one of them may start.

    Attributes:
        module: Its name; the rules are its ``RULES``.
        ops: The operators at which they start.
    """

    module: str
    ops: str

    @property
    def heads(self) -> frozenset[Head]:
        """The operators at which the rules start."""
        return frozenset(heads(self.ops))

    @property
    def rules(self) -> Sequence[Rule]:
        """The rules."""
        found: Sequence[Rule] = LazyModule(self.module).RULES
        return found


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


class GraphBuilder:
    """Insert nodes in the place of others; types are inferred at once.

    Args:
        graph: The graph.
        at: The node whose position the new ones take over.
        sources: Source names of the new nodes.
        domain: Domain of the operators.
    """

    def __init__(self, graph: Graph, at: Node, sources: tuple[str, ...], domain: str = "") -> None:
        self.graph = graph
        self.added: list[Node] = []
        self._at = at
        self._sources = sources
        self._domain = domain

    def __getitem__(self, domain: str) -> GraphBuilder:
        """Return a builder for the operators of ``domain``."""
        other = GraphBuilder(self.graph, self._at, self._sources, domain)
        other.added = self.added
        return other

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if not name[:1].isupper() and not self._domain:
            raise AttributeError(name)
        return lambda *operands, **attrs: self.emit(name, *operands, **attrs)

    def const(self, value: Any, dtype: str = "float32") -> Value:
        """Add a constant: an array, or a number or list of ``dtype``."""
        array = value if isinstance(value, np.ndarray) else np.asarray(value, numpy_dtype(dtype))
        return self.graph.add_const(array)

    def emit(
        self, name: str, /, *operands: Any, outputs: int | Sequence[str] = 1, version: int | None = None, **attrs: Any
    ) -> Any:
        """Insert a node.

        Args:
            name: Operator name.
            operands: Values, None for an absent one, or plain numbers, which become constants of the dtype of the first
                value.
            outputs: How many results, or names for them that are not taken.
            version: Since-version of the operator; by default the one in force in the graph's opset.
            attrs: Attributes; None leaves one out.

        Returns:
            The result, or a tuple of them if there are several.

        Raises:
            TypeInferenceError: If the operands do not fit the operator.
        """
        domain = self._domain or (TINYCOMP if name in OWN_OPS else "")
        given = {k: v for k, v in attrs.items() if v is not None}
        node = self.graph.add(
            name,
            self._values(name, operands),
            given,
            domain=domain,
            version=version,
            outputs=outputs,
            at=self._at,
            sources=self._sources,
        )
        self.added.append(node)
        return node.output if len(node.outputs) == 1 else node.outputs

    def _values(self, name: str, operands: tuple[Any, ...]) -> list[Value | None]:
        dtypes = [v.dtype for v in operands if isinstance(v, Value)]
        dtype = next((d for d in dtypes if d != UNKNOWN_DTYPE), "float32")
        values: list[Value | None] = []
        for item in operands:
            if item is None or isinstance(item, Value):
                values.append(item)
            elif isinstance(item, (bool, int, float, list, np.ndarray, np.generic)):
                values.append(self.const(np.asarray(item) if isinstance(item, np.generic) else item, dtype))
            else:
                raise PatternError(
                    f"an operand of {name} is not a value", expected="a value, None or a number", found=shown(item)
                )
        return values

    def undo(self) -> None:
        """Erase everything inserted."""
        for node in reversed(self.added):
            _erase(self.graph, node)
        self.added.clear()


class RewriteRule:
    """Put something else in the place of a match.

    The replacement is a function of ``op``, which inserts nodes, and of bindings of the pattern by name (``match`` is
    the whole match). It returns the new result (a tuple for several), which must have a type that the old one could
    have. It may return :func:`reject` or None to decline. New nodes inherit the source names of those they replace, new
    results the names of the old ones; replaced nodes that nobody reads any more are erased. Nodes that a target has
    claimed are left alone.

    >>> from tinycomp.rewrite import P, RewriteRule, pattern
    >>> @pattern
    ... def negated_twice(x):
    ...     return P.Neg(P.Neg(x))
    >>> RewriteRule(negated_twice, lambda op, x: x)
    <RewriteRule negated_twice>

    Args:
        pattern: What to look for.
        replacement: What to put there.
        check: A predicate, or several, besides the pattern's own.
        name: Name for messages, by default the pattern's.
    """

    def __init__(
        self,
        pattern: Pattern,
        replacement: Callable[..., Any],
        check: Check | Sequence[Check] = (),
        *,
        name: str = "",
    ) -> None:
        self.pattern = pattern
        self.replacement = replacement
        self.checks = [check] if callable(check) else list(check)
        self._name = name or pattern.name
        self._wanted = list(inspect.signature(replacement).parameters)[1:]

    @property
    def name(self) -> str:
        """Name for messages."""
        return self._name

    @property
    def heads(self) -> frozenset[Head] | None:
        """Operators at which the pattern can be anchored."""
        return self.pattern.heads

    def apply(self, graph: Graph, node: Node) -> bool:
        """Rewrite at ``node`` if the pattern matches there; return whether it did.

        Raises:
            PatternError: If the replacement does not fit what it replaces.
        """
        if not self.pattern.can_start_at(node):
            return False
        feasible = Feasibility(self.pattern)
        if not may_start(self.pattern, node, feasible):
            return False
        accept = [self._is_unclaimed, *self.pattern.checks, *self.checks]
        for match in Search(self.pattern, node, graph, feasible):
            if judge(match, accept) is None:
                return self._replace(graph, match)
        return False

    def _is_unclaimed(self, match: Match) -> Remark | None:
        for node in match.matched:
            if node.target is not None and not (node.is_composite and self.pattern.mentions_composites):
                return Remark(reason=f"{node.label} belongs to {node.target} already", where=node.label)
        return None

    def _replace(self, graph: Graph, match: Match) -> bool:
        sources = tuple(dict.fromkeys(s for n in match.nodes for s in n.sources))
        builder = GraphBuilder(graph, match.root, sources)
        arguments = {name: match if name == "match" else match[name] for name in self._wanted}
        answer = self.replacement(builder, **arguments)
        if answer is None or isinstance(answer, Remark) or answer is False:
            builder.undo()
            return False
        new = self._results(match, answer)
        if all(a is b for a, b in zip(match.outputs, new, strict=True)) or _closes_cycle(graph, match, new):
            builder.undo()
            return False
        replaced = [(old.name, old.producer) for old in match.outputs]
        for old, value in zip(match.outputs, new, strict=True):
            _substitute(graph, old, value)
        dead = [node for node in dict.fromkeys(node for _, node in replaced) if node and graph.is_dead(node)]
        for node in dead:
            _erase(graph, node)
        for (name, root), value in zip(replaced, new, strict=True):
            if name and root in dead and value.producer in builder.added:
                graph.rename(value, name)
        return True

    def _results(self, match: Match, answer: Any) -> list[Value]:
        new = list(answer) if isinstance(answer, tuple) else [answer]
        where = f"rule {self.name} at {match.root.label}"
        if len(new) != len(match.outputs) or not all(isinstance(v, Value) for v in new):
            raise PatternError(
                "the replacement returns the wrong results",
                where=where,
                expected=f"{len(match.outputs)} value{'' if len(match.outputs) == 1 else 's'}",
                found=shown(answer),
            )
        for old, value in zip(match.outputs, new, strict=True):
            if not compatible(old.type, value.type):
                raise PatternError(
                    "the replacement has another type than what it replaces",
                    where=where,
                    expected=str(old.type),
                    found=str(value.type),
                    hint="Narrow the pattern with a check, or cast or reshape the replacement.",
                )
        return new

    def __repr__(self) -> str:
        return f"<RewriteRule {self.name}>"


def _closes_cycle(graph: Graph, match: Match, new: list[Value]) -> bool:
    """Tell whether a new result depends on an outside user of an old one; one root alone cannot bring that about."""
    if len(new) < 2:
        return False
    matched = set(match.matched)
    users = {u for v in match.outputs for u in v.users if u not in matched}
    stack = [v.producer for v in new if v.producer is not None]
    seen = set(stack)
    while stack:
        node = stack.pop()
        if node in users:
            return True
        further = [p for p in graph.predecessors(node) if p not in seen]
        seen.update(further)
        stack += further
    return False


def replaces(
    wanted: Pattern | Callable[..., Any], check: Check | Sequence[Check] = (), *, through: bool | Iterable[str] = False
) -> Callable[[Callable[..., Any]], RewriteRule]:
    """Make the decorated replacement a rule, named after it.

    >>> from tinycomp.rewrite import P, replaces
    >>> @replaces(lambda x: P.Neg(P.Neg(x)))
    ... def drop_double_negation(op, x):
    ...     return x
    >>> drop_double_negation
    <RewriteRule drop_double_negation>

    Args:
        wanted: What to look for: a pattern, or a function to trace.
        check: A predicate over the match, or several.
        through: Whether no-ops between matched nodes are looked through, where ``wanted`` is a function.
    """
    traced = wanted if isinstance(wanted, Pattern) else pattern(through=through)(wanted)
    return lambda replacement: RewriteRule(traced, replacement, check, name=replacement.__name__)


def _substitute(graph: Graph, old: Value, new: Value) -> None:
    if old is new:
        return
    new.type = refine(old.type, new.type)
    users = list(old.users) if new.type != old.type else []
    graph.replace_uses(old, new)
    queue = deque(users)
    while queue:
        node = queue.popleft()
        if node in graph and not node.bodies and graph.infer_again(node):
            queue.extend(graph.successors(node))


def rewrite(graph: Graph, rules: Iterable[Rule], *, max_changes: int | None = None, bodies: bool = True) -> int:
    """Apply rules until none applies any more, and return how often one did.

    Args:
        graph: Changed in place.
        rules: Rewrite rules and function rules, tried in this order.
        max_changes: Bound on the number of changes per graph; by default it grows with the graph.
        bodies: Whether the bodies of unclaimed nodes are rewritten too.

    Raises:
        PatternError: If the rules do not come to an end; the message names those that keep applying.
    """
    return Engine(rules, max_changes=max_changes, bodies=bodies).run(graph)


class Engine:
    """Apply rules to a fixpoint.

    Args:
        rules: Tried in this order at every node; a group stands for all of its rules.
        max_changes: Bound on the number of changes per graph; by default it grows with the graph.
        bodies: Whether the bodies of unclaimed nodes are rewritten too.
        claimed: Whether rules may start at nodes that a target has claimed.
    """

    def __init__(
        self,
        rules: Iterable[Rule | RuleGroup],
        *,
        max_changes: int | None = None,
        bodies: bool = True,
        claimed: bool = True,
    ) -> None:
        self._max_changes = max_changes
        self._bodies = bodies
        self._claimed = claimed
        self._rules = [(entry, entry.heads) for entry in rules]
        self._by_head: dict[Head, list[Rule]] = {}

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
            if graph.is_dead(node):
                work.sweep(node)
                continue
            applied = self._apply_first(graph, node, work)
            if applied is None:
                continue
            changes += 1
            work.history.append(applied.name)
            if changes > limit:
                raise _endless(work.history, node, limit)
        return changes

    def _apply_first(self, graph: Graph, node: Node, work: _Worklist) -> Rule | None:
        rules = self._rules_at(node) if self._claimed or node.target is None else ()
        around = work.neighbourhood(node) if rules else []
        for entry in rules:
            if entry.apply(graph, node):
                work.changed(node, around)
                return entry
        return None

    def _rules_at(self, node: Node) -> Sequence[Rule]:
        head = (node.domain, node.op)
        rules = self._by_head.get(head)
        if rules is None:
            near = [entry for entry, heads in self._rules if heads is None or head in heads]
            known = (each for entry in near for each in (entry.rules if isinstance(entry, RuleGroup) else [entry]))
            rules = self._by_head[head] = [each for each in known if each.heads is None or head in each.heads]
        return rules


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
        """Queue the nodes around a change: the old neighbours, the node, and all new nodes that are linked to them."""
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
        for producer in erase_dead(self.graph, node):
            self.push(producer)
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


def erase_dead(graph: Graph, node: Node) -> list[Node]:
    """Erase a node without readers, then the producers and constants that this leaves without readers.

    Returns:
        The producers that have lost a reader, and perhaps been erased for it.
    """
    touched = []
    waiting = [node]
    while waiting:
        dead = waiting.pop()
        if dead in graph and graph.is_dead(dead):
            producers = _erase(graph, dead)
            touched += producers
            waiting += producers
    return touched


def _erase(graph: Graph, node: Node) -> list[Node]:
    """Erase a dead node and the constants that only it reads; return the producers of its other operands."""
    operands = dict.fromkeys(v for v in node.inputs if v is not None)
    graph.erase(node)
    for value in operands:
        if value.is_const and not graph.use_count(value):
            graph.erase_unused(value)
    return [value.producer for value in operands if value.producer is not None]


def open_graphs(graph: Graph) -> Iterator[Graph]:
    """Yield ``graph`` and every body below it that is open, outer graphs first.

    Bodies of composites, of regions and of claimed nodes are closed. A graph is looked into only after the caller has
    dealt with it, so that a node claimed on the way closes its bodies, and one inserted opens its own.
    """
    graphs = [graph]
    for current in graphs:
        yield current
        for node in current.nodes:
            if node.bodies and node.target is None and not node.is_composite and not node.is_region:
                graphs.extend(node.bodies.values())
