"""What targets have claimed and must give back: which targets may still be asked about it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tinycomp.frontend.quantized_definition import take_apart
from tinycomp.ir.graph import Graph, Node
from tinycomp.passes.offer_to_target import offer
from tinycomp.target import Policy, Target


@dataclass
class GivenBack:
    """Offer nodes that a target has given back to those that come behind it, each node to each target once.

    Attributes:
        targets: In priority order.
        policy: What counts beside the policies of the targets.
        refused_by: By node, the place of the last target that has given it back.
    """

    targets: Sequence[Target]
    policy: Policy = field(default_factory=Policy)
    refused_by: dict[Node, int] = field(default_factory=dict)
    _first: int | None = field(default=None, init=False)
    """The place of the first target to ask."""

    def add(self, graph: Graph, nodes: Iterable[Node], target: str | None) -> None:
        """Take nodes of ``graph`` from the target that has claimed them; composites are taken apart."""
        place = next((i for i, t in enumerate(self.targets) if t.name == target), len(self.targets))
        for node in nodes:
            node.target = None
            opens = bool(node.bodies) and not node.is_composite  # the target may take what is in the bodies
            self._first = min(self._first if self._first is not None else place + 1, place if opens else place + 1)
            for part in take_apart(graph, node) if node.is_composite else (node,):
                part.target = None
                self.refused_by[part] = place

    def offer(self, graph: Graph) -> bool:
        """Ask the targets that are left; tell whether one of them has claimed anything."""
        first, self._first = self._first, None
        claimed = False
        for place, target in enumerate(self.targets) if first is not None else ():
            if place >= (first or 0):
                withheld = {node: "it was given back" for node, last in self.refused_by.items() if last >= place}
                claimed |= offer(graph, target, self.policy, withheld)
        return claimed
