"""Compare every region with the numpy kernels, on the operands that it really gets."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tinycomp.checking.compare import Difference, compare, fitting_feeds, random_feeds
from tinycomp.checking.reproduce import alone, is_layer, reference_values, reproduce_region
from tinycomp.driver.lowering import Lowering, specs, static_shapes
from tinycomp.errors import TargetError, TinycompError, VerifyError
from tinycomp.ir.graph import Graph, Node
from tinycomp.ir.types import TensorType, type_of
from tinycomp.ops.body_types import retype
from tinycomp.records import dataclass, field
from tinycomp.runtime.plan import Run


@dataclass(frozen=True)
class RegionCheck:
    """One region compared with the numpy kernels.

    Attributes:
        symbol: The region.
        target: Its target.
        differences: One per result, of the run that was furthest off; empty if the region could not be compared.
        reached: Whether the inputs led there; if not, the operands are made up.
        node: The region.
        operands: What it got in that run.
        layers: One per result of each node that was compared alone, on the reference's operands: the quantised layers,
            and all nodes if the region as a whole differs.
        adds_up: Whether small differences of these explain that of the region: all nodes were compared, each is within
            the tolerance, and not all are equal to the bit.
    """

    symbol: str
    target: str
    differences: tuple[Difference, ...]
    reached: bool
    node: Node = field(repr=False)
    operands: Sequence[Any] = field(repr=False)
    layers: tuple[Difference, ...] = ()
    adds_up: bool = False

    @property
    def within(self) -> bool:
        """Whether every result is within the target's tolerance, or what differs adds up of what it allows."""
        return self.first is None

    @property
    def first(self) -> Difference | None:
        """The first result beyond the tolerance, in order of execution."""
        own = () if self.adds_up else self.differences
        return next((d for d in (*self.layers, *own) if not d.within), None)

    @property
    def badness(self) -> tuple[bool, float]:
        """What orders the runs of one region: a result beyond the tolerance first, then the relative difference."""
        return not self.within, max((d.relative for d in self.differences), default=0.0)


def compare_regions(
    partitioned: Graph, lowering: Lowering, feeds: Mapping[str, np.ndarray] | None = None
) -> list[RegionCheck]:
    """Run a partitioned graph and compare every region with the numpy kernels, those in bodies on every trip.

    A region that the inputs do not lead to (the other branch of an If, a loop without trips) is compared on made-up
    operands if their shapes are known.

    Args:
        partitioned: The graph; symbolic dimensions take the sizes of the feeds.
        lowering: Runs the regions.
        feeds: Inputs by name; random ones by default.

    Returns:
        One check per region: those that ran in order of their first run, then the others.
    """
    given = feeds or {}
    made_up = {} if given.keys() >= {v.name for v in partitioned.inputs} else fitting_feeds(partitioned)
    feeds = {**made_up, **given}
    watching = _Watching(lowering.targets, lowering.pool, lowering.weights, programs=lowering.programs)
    plan = watching.plan(partitioned)
    plan.run([feeds[s.name] for s in plan.inputs])
    regions = [node for _, node in partitioned.walk() if node.is_region]
    unreached = [watching.made_up(node) for node in regions if node.op not in watching.checks]
    return [_in_layers(check, lowering) for check in (*watching.checks.values(), *unreached)]


def _in_layers(check: RegionCheck, lowering: Lowering) -> RegionCheck:
    """Compare the quantised layers of a region one by one; and all its nodes if it differs as a whole.

    A step that one layer is off, as its tolerance allows, may become many behind the next ones. Where all nodes are
    exact, nothing adds up: the region is at fault, such as by the memory that its nodes share.
    """
    atoms = check.node.body.nodes
    layers = [atom for atom in atoms if is_layer(atom)]
    if not layers or not check.differences:
        return check
    values = reference_values(check.node, check.operands, lowering)
    found: list[Difference] = []
    whole = all(d.within for d in check.differences)
    adds_up = not whole
    for atom in layers if whole else atoms:
        try:
            found += alone(check.node, atom, values, lowering)
        except TargetError:  # the target takes it in company alone
            adds_up = False
    adds_up = adds_up and all(d.within for d in found) and any(d.largest for d in found)
    return dataclasses.replace(check, layers=tuple(found), adds_up=adds_up)


@dataclass
class _Watching(Lowering):
    """A lowering whose regions compare their results with those of the numpy kernels on every run.

    Attributes:
        checks: The worst run of each region, by symbol.
    """

    checks: dict[str, RegionCheck] = field(default_factory=dict)

    def region(self, node: Node) -> Run:
        """Return the region's computation, which leaves a check behind."""
        run = super().region(node)
        expected = dataclasses.replace(self, reference=True).plan(node.body, self.rounding_of(node))

        def watched(operands: Sequence[Any]) -> Sequence[Any]:
            results = run(operands)
            check = self._compared(node, operands, results, expected.run(operands))
            if node.op not in self.checks or check.badness > self.checks[node.op].badness:
                self.checks[node.op] = check
            return results

        return watched

    def made_up(self, node: Node) -> RegionCheck:
        """Return the check of a region on random operands; an empty one if their shapes are not known."""
        values = [v for v in node.inputs if v is not None]
        untried = RegionCheck(node.op, node.target or "", (), False, node, ())
        if static_shapes(values) is None:
            return untried
        operands = list(random_feeds(specs([str(i) for i in range(len(values))], values)).values())
        try:
            self.region(node)(operands)
        except TinycompError:  # indices, sizes and the like cannot be made up
            return untried
        return dataclasses.replace(self.checks.pop(node.op), reached=False)

    def _compared(
        self, node: Node, operands: Sequence[Any], results: Sequence[Any], wanted: Sequence[Any]
    ) -> RegionCheck:
        target = node.target or ""
        names = node.body.output_names
        tolerance = self.targets[target].tolerance
        differences = tuple(map(compare, names, results, wanted, [tolerance] * len(names)))
        return RegionCheck(node.op, target, differences, True, node, list(operands))


def check_regions(
    partitioned: Graph, lowering: Lowering, feeds: Mapping[str, np.ndarray], folder: Path | None = None
) -> dict[str, float]:
    """Compare every region with the numpy kernels on these inputs.

    Returns:
        The largest difference, of the largest element of a result, by target.

    Raises:
        VerifyError: At the first region beyond its target's tolerance; its smallest part that differs is in ``folder``.
    """
    differences: dict[str, float] = {}
    for check in compare_regions(_concrete(partitioned, feeds), lowering, feeds):
        if not check.within:
            small = reproduce_region(check.node, check.operands, lowering)
            worst = check.first or max(check.differences, key=lambda d: d.relative)
            raise VerifyError(
                "the region differs from the numpy kernels",
                where=f"{check.target}, region {check.symbol}",
                expected=f"{lowering.targets[check.target].tolerance}",
                found=f'{worst.relative:.3g} of the largest element of "{worst.name}"',
                hint=f"The smallest graph that shows it is in {small.write(folder, check.symbol)}.",
            )
        most = max((d.relative for d in check.differences), default=0.0)
        differences[check.target] = max(differences.get(check.target, 0.0), most)
    return differences


def _concrete(graph: Graph, feeds: Mapping[str, np.ndarray]) -> Graph:
    """Return the graph for inputs of these sizes."""
    copy = graph.clone()
    retype(copy, [type_of(feeds[v.name]) if isinstance(v.type, TensorType) else v.type for v in copy.inputs])
    return copy
