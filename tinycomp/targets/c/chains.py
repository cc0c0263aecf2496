"""Grouping: which element-wise operators of a region become one kernel call.

A chain is made of operators whose results have one shape and layout. It runs at the place of its last member, so that
everything it reads is there; what it gives must not be wanted before. That holds as long as nothing outside has read
one of its results when the next operator joins: then the chain is closed. Contraction of all chains is thus acyclic in
the order of the graph, and the search is one walk over it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tinycomp.ir.graph import Graph, Node, Value
from tinycomp.ir.types import Dim, tensor
from tinycomp.targets.c.element_program import MAX_IMMEDIATES, MAX_INPUTS, MAX_OUTPUTS, MAX_STEPS, Steps

Space = tuple[tuple[Dim, ...] | None, str]


@dataclass(eq=False)
class Chain:
    """Operators that run as one kernel call.

    Attributes:
        space: The shape and layout of every result.
        nodes: In the order of the graph.
        steps: At most so many steps of the kernel's program.
        immediates: At most so many scalar constants.
        is_open: Whether more operators may join.
    """

    space: Space
    nodes: list[Node]
    steps: int
    immediates: int
    is_open: bool = True
    reads: set[Value] = field(default_factory=set)

    def outputs(self, wanted: Iterable[Value]) -> list[Value]:
        """Return the results that something outside reads, or that are among ``wanted``."""
        members, results = set(self.nodes), set(wanted)
        return [n.output for n in self.nodes if n.output in results or not members.issuperset(n.output.users)]


def find_chains(graph: Graph, build: Callable[[Node], Steps | None]) -> dict[Node, Chain]:
    """Return the chain of every element-wise operator, which may be one of one.

    Args:
        graph: A region with static shapes and layouts.
        build: The steps of an operator alone, or None if it is not element-wise.
    """
    wanted = frozenset(graph.outputs)
    chains: dict[Node, Chain] = {}
    for node in graph.nodes:
        read = [chains[p] for p in dict.fromkeys(v.producer for v in node.inputs if v is not None) if p in chains]
        steps = build(node)
        chain = None
        if steps is not None:
            chain = _alone(node, steps)
            for other in dict.fromkeys(reversed(read)):
                if other.is_open and other.space == chain.space:
                    chain = _joined(other, chain, wanted) or chain
            chains |= dict.fromkeys(chain.nodes, chain)
        for other in read:
            other.is_open = False  # unless it has just become part of `chain`, which is another object
    place = {node: index for index, node in enumerate(graph.nodes)}
    for chain in dict.fromkeys(chains.values()):
        chain.nodes.sort(key=place.__getitem__)
    return chains


def _alone(node: Node, steps: Steps) -> Chain:
    type_ = tensor(node.output.type)
    size = len(steps.steps) + 1  # a copy, where the result is no step of its own
    return Chain(
        (type_.shape, type_.layout),
        [node],
        size,
        len(steps.immediates),
        reads={v for v in steps.inputs if isinstance(v, Value)},
    )


def _joined(first: Chain, second: Chain, wanted: frozenset[Value]) -> Chain | None:
    """The two chains as one, if the kernel takes it."""
    nodes = [*first.nodes, *second.nodes]
    reads = (first.reads | second.reads) - {n.output for n in nodes}
    both = Chain(first.space, nodes, first.steps + second.steps, first.immediates + second.immediates, reads=reads)
    fits = both.steps <= MAX_STEPS and both.immediates <= MAX_IMMEDIATES and len(reads) <= MAX_INPUTS
    return both if fits and len(both.outputs(wanted)) <= MAX_OUTPUTS else None
