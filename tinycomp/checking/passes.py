"""Compare a graph before and after each pass, on the same random inputs."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from tinycomp.checking.compare import compare, fitting_feeds
from tinycomp.checking.reproduce import reproduce_pass
from tinycomp.driver.lowering import Lowering
from tinycomp.errors import ExecutionError, FeedError, TinycompWarning, VerifyError
from tinycomp.ir.graph import Graph
from tinycomp.passes.round_weights import RoundWeights
from tinycomp.passes.widen_half import WidenHalf
from tinycomp.runtime.plan import Plan
from tinycomp.target import Tolerance

_ROUNDED = Tolerance(rtol=0.05, atol=1e-3)
"""What rounding weights, or rounding after every operator, may make of results that are computed without."""


class NumericCheck:
    """An observer of pipelines that compares the graph's results with those before the first pass.

    Args:
        lowering: How to evaluate; regions run on the numpy kernels whatever their target.
        folder: Where to write the smallest graph that shows a difference; None for a new temporary folder.
        tolerance: What a pass may change.
        differences: Takes by how much of the largest result passes that round change it.
        given: Values of inputs; those of the others are made up, in sizes that the model's conditions allow.

    Attributes:
        feeds: The inputs of the comparisons; None where the model takes no inputs that could be made up.
    """

    def __init__(
        self,
        lowering: Lowering,
        folder: Path | None,
        tolerance: Tolerance | None = None,
        differences: dict[str, float] | None = None,
        given: Mapping[str, np.ndarray] = MappingProxyType({}),
    ) -> None:
        self._lowering = dataclasses.replace(lowering, reference=True, by_definition=True)
        self._folder = folder
        self._differences = {} if differences is None else differences
        self._tolerance = tolerance or Tolerance(rtol=1e-4, atol=1e-5)
        self._given = given
        self.feeds: Mapping[str, np.ndarray] | None = None
        self._expected: list[Any] = []
        self._before: Graph | None = None

    def __call__(self, number: int, name: str, graph: Graph) -> None:
        """Evaluate the graph behind pass ``number`` and compare.

        Raises:
            VerifyError: If the results differ; the message names the pass, the output, and the reproducer's file.
        """
        plan = self._lowering.plan(graph)
        if number == 0:
            self._begin(graph, plan)
        elif self.feeds is not None:
            results = plan.run([self.feeds[s.name] for s in plan.inputs])
            if name in (WidenHalf.name, RoundWeights.name):
                self._differences[name] = self._compare(name, graph, results, _ROUNDED)
                self._expected = results  # the passes behind it are as exact as ever
            else:
                self._compare(name, graph, results, self._tolerance)
        self._before = graph.clone()

    def _begin(self, graph: Graph, plan: Plan) -> None:
        """Run the model as it is; what it refuses although it was made up for it is no fault of the model."""
        try:
            feeds = {**fitting_feeds(graph), **graph.defaults, **self._given}
            self._expected = plan.run([feeds[s.name] for s in plan.inputs])
        except (ExecutionError, FeedError, VerifyError) as error:
            if self._given:
                raise
            message = f"verify=True compares no numbers: no inputs could be made up that the model takes ({error})"
            warnings.warn(f'{message}; pass some, as verify={{"input": array}}', TinycompWarning, stacklevel=2)
        else:
            self.feeds = feeds

    def _compare(self, name: str, graph: Graph, results: list[Any], tolerance: Tolerance) -> float:
        most = 0.0
        for output, result, expected in zip(graph.output_names, results, self._expected, strict=True):
            difference = compare(output, result, expected, tolerance)
            most = max(most, difference.relative)
            if difference.within:
                continue
            assert self._before is not None
            small = reproduce_pass(self._before, graph, self.feeds or {}, self._lowering, tolerance)
            raise VerifyError(
                f"the pass {name} changes the results",
                where=f'output "{output}"',
                expected=f"a difference of at most {tolerance.rtol} of the largest output",
                found=f"{difference.relative:.3g}",
                hint=f"The smallest graph that shows it is in {small.write(self._folder, name)}.",
            )
        return most
