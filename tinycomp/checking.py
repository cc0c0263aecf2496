"""Checking numbers: a graph before and after each pass, and every region against the numpy kernels."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tinycomp.errors import VerifyError
from tinycomp.ir.graph import Graph, Node
from tinycomp.ir.types import substitute
from tinycomp.lowering import Lowering, specs
from tinycomp.ops.typing import retype
from tinycomp.runtime.plan import Plan, Step
from tinycomp.runtime.spec import TensorSpec
from tinycomp.target import Tolerance

SYMBOL_SIZE = 2
"""The size that checks give to every symbolic dimension."""


def random_feeds(inputs: Sequence[TensorSpec], seed: int = 0) -> dict[str, np.ndarray]:
    """Return random values for inputs: floats from the standard normal distribution, small non-negative integers.

    Every symbolic dimension has size :data:`SYMBOL_SIZE`.

    Raises:
        VerifyError: If an input is not a tensor of known rank.
    """
    rng = np.random.default_rng(seed)
    feeds = {}
    for spec in inputs:
        dtype = spec.numpy_dtype
        if spec.shape is None or dtype is None or dtype.kind == "O":
            raise VerifyError("cannot make up values for this input", where=str(spec), hint="Pass feeds of your own.")
        shape = [d if isinstance(d, int) else SYMBOL_SIZE for d in spec.shape]
        if dtype.kind == "b":
            feeds[spec.name] = rng.integers(0, 2, shape).astype(bool)
        elif dtype.kind in "iu":
            feeds[spec.name] = rng.integers(0, 2 if dtype.itemsize > 1 else 100, shape).astype(dtype)
        else:
            feeds[spec.name] = rng.standard_normal(shape).astype(dtype)
    return feeds


@dataclass(frozen=True)
class Difference:
    """How far two results of one value are apart.

    Attributes:
        name: The value.
        largest: Largest absolute difference; infinite where only one is a number.
        relative: The same over the largest magnitude of the reference.
        within: Whether the tolerance allows it.
    """

    name: str
    largest: float
    relative: float
    within: bool


def compare(name: str, found: Any, reference: Any, tolerance: Tolerance) -> Difference:
    """Compare two values: floats against ``atol + rtol * largest reference``, integers against ``atol`` steps.

    Values that are not arrays must be equal.
    """
    if not isinstance(found, np.ndarray) or not isinstance(reference, np.ndarray):
        same = bool(np.array_equal(np.asarray(found, dtype=object), np.asarray(reference, dtype=object)))
        return Difference(name, 0.0 if same else np.inf, 0.0 if same else np.inf, same)
    if found.shape != reference.shape or found.dtype != reference.dtype:
        return Difference(name, np.inf, np.inf, False)
    if found.dtype.kind == "O":
        same = bool((found == reference).all())
        return Difference(name, 0.0 if same else np.inf, 0.0 if same else np.inf, same)
    a, b = found.astype(np.float64), reference.astype(np.float64)
    with np.errstate(all="ignore"):
        apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    largest = float(np.nan_to_num(apart, nan=np.inf).max(initial=0.0))
    scale = float(np.abs(b[np.isfinite(b)]).max(initial=0.0))
    exact = found.dtype.kind in "iub"
    allowed = max(tolerance.atol, 1.0) if exact else tolerance.atol + tolerance.rtol * scale
    return Difference(name, largest, largest / scale if scale else largest, largest <= allowed)


class NumericCheck:
    """An observer of pipelines that compares the graph's results with those before the first pass.

    Args:
        lowering: Its pool runs nothing: all evaluation is on the numpy kernels.
        tolerance: What a pass may change.
    """

    def __init__(self, lowering: Lowering, tolerance: Tolerance | None = None) -> None:
        self._lowering = dataclasses.replace(lowering, reference=True)
        self._tolerance = tolerance or Tolerance(rtol=1e-4, atol=1e-5)
        self._feeds: Mapping[str, np.ndarray] = {}
        self._before: list[Any] = []

    def __call__(self, number: int, name: str, graph: Graph) -> None:
        """Evaluate the graph behind pass ``number`` and compare.

        Raises:
            VerifyError: If the results differ; the message names the pass and the output.
        """
        plan = self._lowering.plan(graph)
        if number == 0:
            self._feeds = {**random_feeds(plan.inputs), **graph.defaults}
            self._before = plan.run([self._feeds[s.name] for s in plan.inputs])
            return
        results = plan.run([self._feeds[s.name] for s in plan.inputs])
        for output, found, reference in zip(graph.output_names, results, self._before, strict=True):
            difference = compare(output, found, reference, self._tolerance)
            if not difference.within:
                raise VerifyError(
                    f"the pass {name} changes the results",
                    where=f'output "{output}"',
                    expected=f"a difference of at most {self._tolerance.rtol} of the largest output",
                    found=f"{difference.relative:.3g}",
                    hint="Write the graphs out with dump=DIR and compare the two around this pass.",
                )


@dataclass(frozen=True)
class RegionCheck:
    """One region compared with the numpy kernels on the operands that it got.

    Attributes:
        symbol: The region.
        target: Its target.
        differences: One per result.
    """

    symbol: str
    target: str
    differences: tuple[Difference, ...]

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
    feeds = {**random_feeds(specs([v.name for v in partitioned.inputs], partitioned.inputs)), **(feeds or {})}
    plan = lowering.plan(partitioned)
    reference = dataclasses.replace(lowering, reference=True)
    regions = {n.op: n for n in partitioned.nodes if n.is_region}
    checks: list[RegionCheck] = []

    def watched(step: Step) -> Step:
        node = regions.get(step.label)
        return step if node is None else dataclasses.replace(step, run=_both(step, node, reference, checks, lowering))

    Plan.run(dataclasses.replace(plan, steps=tuple(map(watched, plan.steps))), [feeds[s.name] for s in plan.inputs])
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
        checks.append(RegionCheck(node.op, target, differences))
        return found

    return run


def check_regions(partitioned: Graph, lowering: Lowering) -> None:
    """Compare every region with the numpy kernels on random inputs.

    Raises:
        VerifyError: At the first region beyond its target's tolerance.
    """
    for check in compare_regions(_concrete(partitioned), lowering):
        if not check.within:
            worst = max(check.differences, key=lambda d: d.relative)
            raise VerifyError(
                "the region differs from the numpy kernels",
                where=f"{check.target}, region {check.symbol}",
                expected=f"{lowering.targets[check.target].tolerance}",
                found=f'{worst.relative:.3g} of the largest element of "{worst.name}"',
                hint="Narrow it down with `tinycomp verify --regions`.",
            )


def _concrete(graph: Graph) -> Graph:
    """Return the graph with :data:`SYMBOL_SIZE` for every symbol."""
    copy = graph.clone()
    symbols = {d for v in copy.inputs for d in getattr(v.type, "shape", None) or () if isinstance(d, str)}
    retype(copy, [substitute(v.type, dict.fromkeys(symbols, SYMBOL_SIZE)) for v in copy.inputs])
    return copy
