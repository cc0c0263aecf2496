"""Every region against the numpy kernels, on the operands that it really gets."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tinycomp.checking.compare import SYMBOL_SIZE, Difference, compare, random_feeds
from tinycomp.checking.reproduce import reproduce_region
from tinycomp.errors import VerifyError
from tinycomp.ir.graph import Graph, Node
from tinycomp.ir.types import substitute
from tinycomp.lowering import Lowering, specs
from tinycomp.ops.typing import retype
from tinycomp.runtime.plan import Step


@dataclass(frozen=True)
class RegionCheck:
    """One region compared with the numpy kernels on the operands that it got.

    Attributes:
        symbol: The region.
        target: Its target.
        differences: One per result.
        node: The region.
        operands: What it got.
    """

    symbol: str
    target: str
    differences: tuple[Difference, ...]
    node: Node = dataclasses.field(repr=False)
    operands: Sequence[Any] = dataclasses.field(repr=False)

    @property
    def within(self) -> bool:
        """Whether every result is within the target's tolerance."""
        return all(d.within for d in self.differences)


def compare_regions(
    partitioned: Graph, lowering: Lowering, feeds: Mapping[str, np.ndarray] | None = None
) -> list[RegionCheck]:
    """Run a partitioned graph and compare every region of its top level with the numpy kernels.

    Args:
        partitioned: The graph; symbolic dimensions take the sizes of the feeds.
        lowering: Runs the regions.
        feeds: Inputs by name; random ones by default.
    """
    given = feeds or {}
    open_ = [v for v in partitioned.inputs if v.name not in given]
    feeds = {**random_feeds(specs([v.name for v in open_], open_)), **given}
    plan = lowering.plan(partitioned)
    reference = dataclasses.replace(lowering, reference=True)
    regions = {n.op: n for n in partitioned.nodes if n.is_region}
    checks: list[RegionCheck] = []

    def watched(step: Step) -> Step:
        node = regions.get(step.label)
        return step if node is None else dataclasses.replace(step, run=_both(step, node, reference, checks, lowering))

    watching = dataclasses.replace(plan, steps=tuple(map(watched, plan.steps)))
    watching.run([feeds[s.name] for s in plan.inputs])
    return checks


def _both(step: Step, node: Node, reference: Lowering, checks: list[RegionCheck], lowering: Lowering) -> Any:
    expected_plan = reference.plan(node.body)
    target = node.target or ""
    tolerance = lowering.targets[target].tolerance

    def run(operands: Sequence[Any]) -> Sequence[Any]:
        found = step.run(operands)
        expected = expected_plan.run(operands)
        names = node.body.output_names
        differences = tuple(map(compare, names, found, expected, [tolerance] * len(names)))
        checks.append(RegionCheck(node.op, target, differences, node, list(operands)))
        return found

    return run


def check_regions(partitioned: Graph, lowering: Lowering, folder: Path | None = None) -> None:
    """Compare every region with the numpy kernels on random inputs.

    Raises:
        VerifyError: At the first region beyond its target's tolerance; its smallest part that differs is in ``folder``.
    """
    for check in compare_regions(_concrete(partitioned), lowering):
        if not check.within:
            small = reproduce_region(check.node, check.operands, lowering)
            worst = max(check.differences, key=lambda d: d.relative)
            raise VerifyError(
                "the region differs from the numpy kernels",
                where=f"{check.target}, region {check.symbol}",
                expected=f"{lowering.targets[check.target].tolerance}",
                found=f'{worst.relative:.3g} of the largest element of "{worst.name}"',
                hint=f"The smallest graph that shows it is in {small.write(folder, check.symbol)}.",
            )


def _concrete(graph: Graph) -> Graph:
    """Return the graph with :data:`SYMBOL_SIZE` for every symbol."""
    copy = graph.clone()
    symbols = {d for v in copy.inputs for d in getattr(v.type, "shape", None) or () if isinstance(d, str)}
    retype(copy, [substitute(v.type, dict.fromkeys(symbols, SYMBOL_SIZE)) for v in copy.inputs])
    return copy
