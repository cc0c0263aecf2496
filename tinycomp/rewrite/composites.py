"""Composites: the named patterns of a target, the choice among their matches, and the outlining of chosen matches.

A match is accepted if its predicates hold, none of its nodes is taken, no value of a non-root node is used outside, and
the composite would not close a cycle; the tests run in this order and take part in the search: if one fails, the search
goes on with the next way to match at the same root. A refused match reserves nothing.
"""

from __future__ import annotations

import bisect
import itertools
import sys
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Any, TypeVar

from tinycomp.errors import PatternError
from tinycomp.ir.graph import COMPOSITE, Graph, Node, Value
from tinycomp.memory.locks import Lock
from tinycomp.records import dataclass, field, replace
from tinycomp.remark import Remark, reject
from tinycomp.rewrite.matcher import (
    Check,
    Feasibility,
    Match,
    Pattern,
    Search,
    always_holds,
    find,
    judge,
    may_start,
    pattern,
)
from tinycomp.rewrite.pattern import Head
from tinycomp.rewrite.rules import open_graphs
from tinycomp.rewrite.traits import is_duplicable, is_structural

_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(eq=False)
class Composite:
    """Describe a group of operators that a target takes as one atom.

    Attributes:
        name: Name within the target.
        pattern: The pattern that it matches.
        checks: Predicates over the whole match, asked after the pattern's own.
        target: Name of the target that owns it; may be empty.
    """

    name: str
    pattern: Pattern
    checks: list[Check] = field(default_factory=list)
    target: str = ""

    @classmethod
    def trace(cls, function: Callable[..., Any], *, target: str = "", name: str | None = None) -> Composite:
        """Make a composite from a pattern function or a :class:`Pattern`; ``name`` defaults to the name of that.

        Raises:
            PatternError: If the function does not describe a pattern.
        """
        traced = function if isinstance(function, Pattern) else pattern(function)
        return cls(name or traced.name, traced, target=target)

    @property
    def qualified_name(self) -> str:
        """Name with the target in front, such as ``npu.conv_relu``; the operator name of its nodes."""
        return f"{self.target}.{self.name}" if self.target else self.name

    @property
    def predicates(self) -> Sequence[Check]:
        """All predicates in the order in which they are asked."""
        return [*self.pattern.checks, *self.checks]

    def check(self, predicate: _F) -> _F:
        """Add a predicate over the whole match: True or None is yes, ``reject("why")`` or False is no."""
        self.checks.append(predicate)
        return predicate

    def match(self, node: Node, graph: Graph | None = None) -> Match | Remark:
        """Return the first match at ``node`` that the predicates accept, or a remark on the one that came furthest."""
        return find(self.pattern, node, graph, self.predicates)


class CompositeGroup:
    """Composites that are created as soon as a graph comes in which they may match.

    Tracing a pattern, and importing its module, takes longer than matching it in most graphs. So a target with many
    composites says which operators each group needs.

    Args:
        names: The names of the composites, in the order in which they are tried.
        needs: Sets of operators; every match of each composite holds an operator of every set.
        describe: Returns the composites.

    Attributes:
        names: The names of the composites.
        needs: The sets of operators.
    """

    def __init__(
        self, names: Sequence[str], needs: Iterable[Iterable[Head]], describe: Callable[[], Sequence[Composite]]
    ) -> None:
        self.names = tuple(names)
        self.needs = tuple(map(frozenset, needs))
        self._describe = describe
        self._described: tuple[Composite, ...] = ()
        self._lock = Lock()

    @property
    def composites(self) -> Sequence[Composite]:
        """The composites; they are created at the first access.

        Raises:
            PatternError: If they have other names, or one can match without the operators.
        """
        if not self._described:
            with self._lock:
                self._described = self._described or self._checked(tuple(self._describe()))
        return self._described

    def may_match(self, operators: AbstractSet[Head]) -> bool:
        """Tell whether there may be a match in a graph that has these operators."""
        return not any(map(operators.isdisjoint, self.needs))

    def _checked(self, described: tuple[Composite, ...]) -> tuple[Composite, ...]:
        names = tuple(composite.name for composite in described)
        if names != self.names:
            raise PatternError(
                "a group of composites has other names", expected=", ".join(self.names), found=", ".join(names)
            )
        for composite, needed in itertools.product(described, self.needs):
            if not any(always_holds(output, needed) for output in composite.pattern.outputs):
                raise PatternError(
                    "a composite can match without the operators of its group",
                    where=composite.qualified_name,
                    expected=f"one of {', '.join(sorted(op for _, op in needed))} in every match",
                )
        return described


# Choosing matches --------------------------------------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Chosen:
    """Hold an accepted match.

    Attributes:
        composite: The composite.
        match: The match.
        owned: The nodes that belong to this match alone; the others are copied for it.
    """

    composite: Composite
    match: Match
    owned: frozenset[Node]


class Selection:
    """Choose matches in one graph that are compatible with each other; the graph does not change meanwhile.

    Args:
        graph: The graph.
        barred: Nodes that no match may have, with the reasons.
    """

    def __init__(self, graph: Graph, barred: Mapping[Node, str] = MappingProxyType({})) -> None:
        self.graph = graph
        self.barred = barred
        self.chosen: list[Chosen] = []
        self.taken: dict[Node, Chosen] = {}
        self._place = {node: index for index, node in enumerate(graph.nodes)}
        self._spans = _Spans()
        self._by_head: dict[Head, list[Node]] = {}
        for node in reversed(self._place):
            self._by_head.setdefault((node.domain, node.op), []).append(node)

    def choose(
        self, composite: Composite, explained: Callable[[Node], object] = lambda root: False
    ) -> list[tuple[Node, Remark]]:
        """Add every acceptable match of ``composite``, roots from the outputs back; return the failed attempts.

        Args:
            composite: The composite.
            explained: True for a root whose failed attempts need no explanation, because another remark will explain
                the node. Such a root is skipped if an operator that every match holds is out of reach, or if operators
                and constants rule a match out, which saves most attempts.
        """
        failed: list[tuple[Node, Remark]] = []
        heads = composite.pattern.heads
        found = {head: nodes for head in heads or self._by_head if (nodes := self._by_head.get(head))}
        if not found:
            return failed
        near = self._near_landmark(composite)
        for head, nodes in found.items():
            if explained(nodes[0]):
                found[head] = [node for node in nodes if node in near]
        roots = [
            node for node in self._backwards([*found.values()])
            if node not in self.taken and node not in self.barred and _may_take(node, composite)
        ]  # fmt: skip
        if not roots:
            return failed
        accept = [*composite.predicates, lambda m: self._is_free(m, composite), self._is_closed, self._stays_acyclic]
        feasible = Feasibility(composite.pattern)
        for root in roots:
            if root in self.taken:
                continue
            may_match = root in near and may_start(composite.pattern, root, feasible)
            if not may_match and explained(root):
                continue
            answer = find(composite.pattern, root, self.graph, accept, feasible)
            if isinstance(answer, Match):
                self.take(composite, answer)
            else:
                failed.append((root, answer))
        return failed

    def _backwards(self, runs: Sequence[list[Node]]) -> list[Node]:
        """Merge lists of nodes, each with consumers first, into one list in that order."""
        if len(runs) == 1:
            return runs[0]
        return sorted(itertools.chain.from_iterable(runs), key=self._place.__getitem__, reverse=True)

    def _near_landmark(self, composite: Composite) -> Container[Node]:
        """Return the nodes that can be the root of a match, given the rarest operator that every match holds."""
        marked = [
            (sum(len(self._by_head.get(head, ())) for head in mark.heads), mark) for mark in composite.pattern.landmarks
        ]
        if not marked:
            return self._place
        _, rarest = min(marked, key=lambda pair: pair[0])
        starts = (node for head in rarest.heads for node in self._by_head.get(head, ()))
        return _within_reach(starts, rarest.depth)

    def take(self, composite: Composite, match: Match) -> None:
        """Accept a match that is compatible with those chosen before."""
        copies = copies_needed(match, self.graph)
        assert not isinstance(copies, Remark)
        chosen = Chosen(composite, match, frozenset(n for n in match.matched if n not in copies))
        self.chosen.append(chosen)
        self.taken.update(dict.fromkeys(chosen.owned, chosen))
        if len({v.producer for v in match.outputs}) > 1:
            self._spans.add(self._place[n] for n in chosen.owned)

    # The tests of a match, in order ----------------------------------------------------------------------------------

    def _is_free(self, match: Match, composite: Composite) -> Remark | None:
        for node in match.matched:
            if node in self.taken:
                reason = f"lost {node.label} to {self.taken[node].composite.qualified_name}"
                return Remark(reason=reason, where=node.label)
            if node in self.barred and not self._is_copied(node, match):
                return Remark(reason=f"it may not have {node.label}: {self.barred[node]}", where=node.label)
            if not _may_take(node, composite):
                return Remark(reason=f"{node.label} belongs to {node.target or node.op} already", where=node.label)
        return None

    def _is_copied(self, node: Node, match: Match) -> bool:
        """Tell whether the match would get a copy of a node, and leave the node itself in place."""
        copies = copies_needed(match, self.graph) if is_duplicable(node) else set()
        return not isinstance(copies, Remark) and node in copies

    def _is_closed(self, match: Match) -> Remark | None:
        copies = copies_needed(match, self.graph)
        return copies if isinstance(copies, Remark) else None

    def _stays_acyclic(self, match: Match) -> Remark | None:
        """Refuse a match with several roots from which a path leads back into it.

        With one root there is no such path: every member is an ancestor of the root, and only the root's value leaves.
        """
        if len({v.producer for v in match.outputs}) == 1:
            return None
        copies = copies_needed(match, self.graph)
        assert not isinstance(copies, Remark)
        members = {n for n in match.matched if n not in copies}
        through = self._way_back(members)
        return None if through is None else reject(f"would close a cycle through {through.label}")

    def _way_back(self, members: set[Node]) -> Node | None:
        limit = self._spans.horizon(max(self._place[n] for n in members))
        first = [u for n in members for u in self.graph.successors(n) if u not in members]
        came_from = {u: u for u in first}
        stack = list(came_from)
        while stack:
            node = stack.pop()
            group = self.taken[node].owned if node in self.taken else (node,)
            for user in (u for n in group for u in self.graph.successors(n)):
                if user in members:
                    return came_from[node]
                if user not in came_from and self._place[user] <= limit:
                    came_from[user] = came_from[node]
                    stack.append(user)
        return None


class _Spans:
    """Disjoint ranges of positions that matches with several roots cover; inside a range, a path may lead back."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []

    def add(self, places: Iterable[int]) -> None:
        held = list(places)
        low, high = min(held), max(held)
        at = bisect.bisect_left(self._ranges, (low, low))
        if at and self._ranges[at - 1][1] >= low:
            at -= 1
        end = at
        while end < len(self._ranges) and self._ranges[end][0] <= high:
            low, high = min(low, self._ranges[end][0]), max(high, self._ranges[end][1])
            end += 1
        self._ranges[at:end] = [(low, high)]

    def horizon(self, place: int) -> int:
        """Return the last place from which a path can lead back to ``place``."""
        at = bisect.bisect_right(self._ranges, (place, sys.maxsize)) - 1
        return max(place, self._ranges[at][1]) if at >= 0 else place


def _within_reach(starts: Iterable[Node], depth: int) -> set[Node]:
    """Return ``starts`` and the nodes up to ``depth`` operators above them; no-ops do not count."""
    level = dict.fromkeys(starts, 0)
    queue = deque(level)
    while queue:
        node = queue.popleft()
        for value in node.outputs:
            for user in value.users:
                step = 0 if is_structural(user) else 1
                reached = level[node] + step
                if reached <= depth and reached < level.get(user, depth + 1):
                    level[user] = reached
                    (queue.append if step else queue.appendleft)(user)
    return set(level)


def _may_take(node: Node, composite: Composite) -> bool:
    """Tell whether the node is unclaimed, or a composite of the same target, which a larger one may contain."""
    if node.target is None:
        return not node.is_region
    return node.target == composite.target and node.is_composite


def explain(composite: Composite, node: Node, graph: Graph, owners: Mapping[Node, str]) -> Remark | None:
    """Return why ``composite`` does not match at ``node``; None if it could.

    Args:
        composite: The composite.
        node: The root.
        graph: The graph, with composites and regions taken apart.
        owners: By node, the target that runs it as a single node, or the composite that it is part of.
    """

    def is_free(match: Match) -> Remark | None:
        for member in match.matched:
            owner = owners.get(member, "the host")
            if owner != composite.target and not is_duplicable(member):
                return Remark(reason=f"lost {member.label} to {owner}", where=member.label)
        return None

    def is_closed(match: Match) -> Remark | None:
        copies = copies_needed(match, graph)
        return copies if isinstance(copies, Remark) else None

    answer = find(composite.pattern, node, graph, [*composite.predicates, is_free, is_closed])
    return None if isinstance(answer, Match) else replace(answer, rule=composite.qualified_name)


def copies_needed(match: Match, graph: Graph) -> set[Node] | Remark:
    """Return the members that the match must copy, because their values are used outside as well.

    A cheap, pure producer is copied, so that each match owns one. The original stays outside, and so does its use of
    other members, which may then need copies, too.

    Returns:
        The nodes to copy, or a remark if a value escapes whose producer cannot be copied.
    """
    members = set(match.matched)
    roots = {v.producer for v in match.outputs}
    copies: set[Node] = set()
    stack = [n for n in match.matched if n not in roots and _escape(n, members, graph) is not None]
    while stack:
        node = stack.pop()
        if node in copies or node in roots:
            continue
        if not is_duplicable(node):
            return Remark(reason=_escape_text(node, members - copies, graph), where=node.label)
        copies.add(node)
        stack += [v.producer for v in node.inputs if v is not None and v.producer in members]
    return copies


def _escape(node: Node, members: set[Node], graph: Graph) -> Value | None:
    for value in node.outputs:
        if graph.is_output(value) or not members.issuperset(value.users):
            return value
    return None


def _escape_text(node: Node, members: set[Node], graph: Graph) -> str:
    value = _escape(node, members, graph) or node.output
    if graph.is_output(value):
        return f"the result of {node.label} is also an output of the graph"
    user = next((u for u in value.users if u not in members), None)
    return f"the result of {node.label} is also used by {user.label if user else 'another node'}"


# Outlining matches -------------------------------------------------------------------------------------------------


def partition(
    graph: Graph, pattern: Pattern, name: str = "", *, target: str = "", checks: Sequence[Check] = ()
) -> list[Node]:
    """Turn every match of ``pattern`` in ``graph`` and its open bodies into a composite node.

    Args:
        graph: The graph, changed in place.
        pattern: The pattern.
        name: Operator name of the composites, by default the pattern's.
        target: Target of the composites, and the prefix of their name.
        checks: Further predicates over a match.

    Returns:
        The composite nodes.
    """
    composite = Composite(name or pattern.name, pattern, list(checks), target)
    made = []
    for scope in open_graphs(graph):
        selection = Selection(scope)
        selection.choose(composite)
        made += outline_all(selection)
    return made


def outline_all(selection: Selection) -> list[Node]:
    """Turn each chosen match into a composite node, in the order in which they were chosen."""
    nodes = (_outline(chosen, selection) for chosen in selection.chosen)
    return [node for node in nodes if node is not None]


def _outline(chosen: Chosen, selection: Selection) -> Node | None:
    graph, match, composite = selection.graph, chosen.match, chosen.composite
    if not any(graph.use_count(v) for v in match.outputs):
        return None  # every user has a copy of its own
    members = _own_copies(chosen, selection)
    inside = set(members)
    read = {v for n in members for v in n.inputs if v is not None and v.producer not in inside}
    return _outlined(graph, members, composite, [v for v in match.free if v in read])


def _outlined(graph: Graph, members: Iterable[Node], composite: Composite, params: Sequence[Value]) -> Node:
    node = graph.outline(
        members, composite.qualified_name, domain=COMPOSITE, target=composite.target or None, params=params
    )
    node.attrs["ops"] = [n.op for n in node.body.nodes]
    return node


def outline_whole(graph: Graph, table: Iterable[Composite]) -> Node | None:
    """Turn a whole graph with one result into one composite: the first of ``table`` that matches all of it.

    If there is one, the result is that of choosing matches in the graph, in a fraction of the time.

    Returns:
        The composite node; None if there is no such match, and then the graph is unchanged.
    """
    root = graph.outputs[0].producer
    heads = {(node.domain, node.op) for node in graph.nodes}
    for composite in table:
        feasible = Feasibility(composite.pattern)
        held = all(not landmark.heads.isdisjoint(heads) for landmark in composite.pattern.landmarks)
        if root is None or not held or not may_start(composite.pattern, root, feasible):
            continue
        for match in Search(composite.pattern, root, graph, feasible):
            if len(match.matched) == len(graph) and judge(match, composite.predicates) is None:
                return _outlined(graph, match.matched, composite, match.free)
    return None


def _own_copies(chosen: Chosen, selection: Selection) -> list[Node]:
    """Return the members, with a copy in place of each shared node; the last match that shares a node keeps it."""
    graph, match = selection.graph, chosen.match
    needed = copies_needed(match, graph)
    assert isinstance(needed, set), "the graph around a chosen match has changed"
    nodes = match.nodes
    shared = [n for n in nodes if n in needed or selection.taken.get(n, chosen) is not chosen]
    if not shared:
        return list(nodes)
    keep = [n for n in nodes if n not in shared]
    renamed: dict[Value, Value] = {}
    copies = [_copy(node, graph, renamed) for node in shared]
    for node in keep:
        for index, value in enumerate(node.inputs):
            if value in renamed:
                graph.set_input(node, index, renamed[value])
    return [*keep, *copies]


def _copy(node: Node, graph: Graph, renamed: dict[Value, Value]) -> Node:
    copy = graph.add(
        node.op,
        [renamed.get(v, v) if v is not None else None for v in node.inputs],
        node.attrs,
        domain=node.domain,
        version=node.version,
        outputs=[v.name and graph.fresh(v.name) for v in node.outputs],
        types=[v.type for v in node.outputs],
        sources=node.sources,
        at=node,
    )
    renamed.update(zip(node.outputs, copy.outputs, strict=True))
    return copy
