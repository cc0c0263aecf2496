"""What is compiled and for what: the input of a trial, the changes of it, and the figures that come out."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Set
from typing import Any

from tinycomp.driver.pipeline import Pipeline, optimisation_passes, partitioning_passes
from tinycomp.frontend import Shapes
from tinycomp.ir.graph import Graph, Node
from tinycomp.records import dataclass, field, replace
from tinycomp.rewrite.rules import open_graphs
from tinycomp.symbolic import assuming
from tinycomp.target import Placement, Policy, Target
from tinycomp.target.placement import HOST, Place
from tinycomp.target.policy import macs


@dataclass(frozen=True)
class Setup:
    """Hold what :func:`tinycomp.compile` is given, as far as it decides about regions.

    Attributes:
        graph: The model; changes copy it.
        targets: In priority order.
        policy: What every region must fulfil; None for nothing.
        optimize: Whether the graph is simplified first.
        read: Gives a copy of a graph other shapes.
        shapes: Shapes that replace those of inputs.
        sizes: The sizes that these shapes fix, by symbol.
        declined: Source names of what the code generator of a target has declined, by its name.
    """

    graph: Graph
    targets: tuple[Target, ...]
    policy: Policy | None
    optimize: bool
    read: Callable[[Graph, Shapes | None], Graph]
    shapes: Shapes = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    declined: Mapping[str, Set[str]] = field(default_factory=dict)

    def partitioned(self) -> Graph:
        """Return the model cut into regions.

        Raises:
            TinycompError: If a rule fails, or the changed model is not valid.
        """
        graph = self.read(self.graph, self.shapes or None)
        targets = [_without(target, self.declined.get(target.name, ())) for target in self.targets]
        first = optimisation_passes(targets, self.policy) if self.optimize else []
        with assuming(graph.bounds):
            last = partitioning_passes(targets, self.policy, optimize=self.optimize)
            Pipeline([*first, *last]).run(graph)
        return graph

    def optimized(self) -> Graph:
        """Return the model as targets are asked about it."""
        graph = self.read(self.graph, self.shapes or None)
        if self.optimize:
            with assuming(graph.bounds):
                Pipeline(optimisation_passes(self.targets, self.policy)).run(graph)
        return graph

    def arguments(self) -> dict[str, Any]:
        """Return the arguments that :func:`tinycomp.compile` needs for this."""
        return {
            "model": self.graph.clone(), "target": list(self.targets) or "host", "policy": self.policy,
            "shapes": dict(self.shapes) or None, "optimize": self.optimize,
        }  # fmt: skip

    def target(self, name: str) -> Target:
        """Return the target of that name."""
        return next(t for t in self.targets if t.name == name)

    def with_target(self, changed: Target) -> Setup:
        """Return the setup with a target in the place of the one of its name."""
        return replace(self, targets=tuple(changed if t.name == changed.name else t for t in self.targets))


def _without(target: Target, declined: Collection[str]) -> Target:
    """Return a target that does not get nodes of these names."""
    if not declined:
        return target
    place = Place(lambda node: not set(declined).isdisjoint(node.sources), HOST)
    return target.under(None, Placement((place, *target.placement.places)))


@dataclass(frozen=True)
class Change:
    """One change of a setup; changes with the same key are the same.

    Attributes:
        key: What tells changes apart.
        kind: As in :class:`tinycomp.runtime.advice.Advice`.
        effort: 1 for an option, 2 for an edit of the model, more for what the target has to learn.
        reason: Why the node is in the way, as one clause.
        action: What to do.
        apply: Returns the changed setup; None if the change is not possible.
    """

    key: Hashable
    kind: str = field(compare=False)
    effort: int = field(compare=False)
    reason: str = field(compare=False)
    action: str = field(compare=False)
    apply: Callable[[Setup], Setup | None] = field(compare=False, repr=False)


def changed(setup: Setup, changes: Iterable[Change]) -> Setup | None:
    """Return the setup after all changes; None if one of them is not possible."""
    result: Setup | None = setup
    for change in changes:
        result = change.apply(result) if result is not None else None
    return result


@dataclass(frozen=True)
class Outcome:
    """Hold what there is to know about a partitioned graph; the graph itself may have new weights, and is let go.

    Attributes:
        regions: How many regions there are.
        places: Where operators run, by source names and operator; None is the host.
        owned: The source names of what each target runs.
        work: The multiply-accumulates that each target does in its regions.
        sizes: The sizes for which these are counted, by symbol; others count as in reports.
    """

    regions: int
    places: Mapping[tuple[tuple[str, ...], str], Set[str | None]]
    owned: Mapping[str | None, Set[str]]
    work: Mapping[str | None, int]
    sizes: Mapping[str, int]

    @classmethod
    def of(cls, graph: Graph, sizes: Mapping[str, int]) -> Outcome:
        """Return what there is to know about a partitioned graph, for some sizes."""
        regions = 0
        places: dict[tuple[tuple[str, ...], str], set[str | None]] = {}
        owned: dict[str | None, set[str]] = {}
        work: dict[str | None, int] = {}
        for node in itertools.chain.from_iterable(scope.nodes for scope in open_graphs(graph)):
            regions += node.is_region
            if node.is_region or not node.bodies:
                with assuming(graph.bounds):
                    work[node.target] = work.get(node.target, 0) + macs([node], sizes)
            for inner in node.operators():
                places.setdefault((inner.sources, inner.op), set()).add(node.target)
                owned.setdefault(node.target, set()).update(inner.sources)
        return cls(regions, places, owned, work, sizes)

    def macs(self, target: str | None) -> int:
        """Return the multiply-accumulates that a target does in all its regions; None for the host."""
        return self.work.get(target, 0)

    def takes(self, target: str, node: Node) -> bool:
        """Tell whether a target runs all of what has become of a node, or nothing is left of it."""
        if self.places.get((node.sources, node.op), set()) - {target}:
            return False
        owners = {place for place, names in self.owned.items() if not names.isdisjoint(node.sources)}
        return not owners or set(node.sources) <= self.owned.get(target, set())
