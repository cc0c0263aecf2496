"""Fusion groups: which element-wise operators of a region become one kernel call.

A fusion group is made of operators whose results have one shape and layout. It runs at the place of its last member, so
that everything it reads is there; what it gives must not be wanted before. That holds as long as nothing outside has
read one of its results when the next operator joins: then the group is closed. So contracting all groups is acyclic in
the order of the graph, and the search is one walk over it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.types import Dim, tensor
from tinycomp.records import dataclass, field
from tinycomp.targets.c.codegen.element_program import (
    MAX_IMMEDIATES,
    MAX_INPUTS,
    MAX_OUTPUTS,
    MAX_STEPS,
    Steps,
    StridedInput,
)

Space = tuple[tuple[Dim, ...] | None, str]
"""Shape and layout."""


@dataclass(eq=False)
class FusionGroup:
    """Operators that run as one kernel call.

    Attributes:
        space: What the shapes of all results have in common.
        nodes: In the order in which they run.
        steps: The most steps of the kernel's program.
        immediates: The most scalar constants.
        reads: The values, and what else, that it reads.
        gives: The operators whose results something outside reads.
        is_open: Whether more operators may join.
    """

    space: Space
    nodes: list[Node]
    steps: int
    immediates: int
    reads: set[Value | StridedInput]
    gives: list[Node]
    is_open: bool = True

    def outputs(self, wanted: Iterable[Value]) -> list[Value]:
        """Return the results that something outside reads, or that are among ``wanted``."""
        members, results = set(self.nodes), set(wanted)
        return [n.output for n in self.nodes if n.output in results or not members.issuperset(n.output.users)]


def order_to_fuse(graph: Graph, build: Callable[[Node], Steps | None]) -> list[Node]:
    """Return the operators in the order of the graph, but element-wise ones on single numbers as soon as they can run.

    So what is computed of a scale or a zero point is one group with them, though others read them before.

    Args:
        graph: A region with static shapes and layouts.
        build: The steps of an operator alone, or None if it is not element-wise.
    """

    def is_early(node: Node) -> bool:
        return build(node) is not None and tensor(node.output.type).size(unknown=2) == 1

    order = dict[Node, None]()
    for node in graph.nodes:
        found = [node]
        while found:
            ready = found.pop()
            if ready not in order and order.keys() >= {v.producer for v in ready.inputs if v and v.producer}:
                order[ready] = None
                found += [user for v in reversed(ready.outputs) for user in reversed([*v.users]) if is_early(user)]
    return list(order)


def find_fusion_groups(
    graph: Graph, build: Callable[[Node], Steps | None], nodes: Sequence[Node]
) -> dict[Node, FusionGroup]:
    """Return the fusion group of every element-wise operator, which may be one of one.

    Args:
        graph: A region with static shapes and layouts.
        build: The steps of an operator alone, or None if it is not element-wise.
        nodes: Its operators in the order in which they run.
    """
    grouping = _Grouping(frozenset(graph.outputs))
    for node in nodes:
        grouping.take(node, build(node))
    place = {node: index for index, node in enumerate(nodes)}
    for group in dict.fromkeys(grouping.groups.values()):
        group.nodes.sort(key=place.__getitem__)
    return grouping.groups


@dataclass
class _Grouping:
    """The fusion groups of the operators so far.

    Attributes:
        wanted: The results of the region.
        groups: The fusion group of every element-wise operator.
    """

    wanted: frozenset[Value]
    groups: dict[Node, FusionGroup] = field(default_factory=dict)

    def take(self, node: Node, steps: Steps | None) -> None:
        """Let the next operator join the fusion groups that it reads, or close them."""
        producers = dict.fromkeys(v.producer for v in node.inputs if v is not None and v.producer in self.groups)
        read = dict.fromkeys(self.groups[p] for p in reversed(producers) if p is not None)
        group = None
        if steps is not None:
            group = self.groups[node] = _alone(node, steps)
            for other in read:
                if other.is_open and other.space == group.space and self._join(other, group):
                    group = other
        for other in read:
            other.is_open = other is group

    def _join(self, first: FusionGroup, second: FusionGroup) -> bool:
        """Add the second fusion group to the first, if the kernel takes them as one; return whether it does."""
        steps, immediates = first.steps + second.steps, first.immediates + second.immediates
        if steps > MAX_STEPS or immediates > MAX_IMMEDIATES:
            return False
        both = (first, second)
        reads = {
            v
            for v in first.reads | second.reads
            if isinstance(v, StridedInput) or self._group_of(v.producer) not in both
        }
        gives = [n for n in first.gives + second.gives if self._is_read_outside(n.output, both)]
        if len(reads) > MAX_INPUTS or len(gives) > MAX_OUTPUTS:
            return False
        first.nodes += second.nodes
        first.steps, first.immediates, first.reads, first.gives = steps, immediates, reads, gives
        self.groups |= dict.fromkeys(second.nodes, first)
        return True

    def _group_of(self, node: Node | None) -> FusionGroup | None:
        return None if node is None else self.groups.get(node)

    def _is_read_outside(self, value: Value, groups: Collection[FusionGroup]) -> bool:
        return value in self.wanted or any(self.groups.get(user) not in groups for user in value.users)


def _alone(node: Node, steps: Steps) -> FusionGroup:
    type_ = tensor(node.output.type)
    size = len(steps.steps) + 1  # one more for a copy, if no step makes the result
    return FusionGroup((type_.shape, type_.layout), [node], size, len(steps.immediates), set(steps.inputs), [node])
