"""How a plan runs an offloaded region: natively in one C call, or specialised per shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tinycomp.runtime.cache import BoundedCache
from tinycomp.runtime.counted import actual_results
from tinycomp.runtime.native import NativeProgram, Pool
from tinycomp.runtime.plan import Plan, Run
from tinycomp.runtime.program import Array, Program
from tinycomp.runtime.spec import array_dtype
from tinycomp.runtime.weights import Weights

SPECIALISATIONS = 16
"""How many sets of input shapes a region or module keeps compiled."""


class NativeRegion:
    """A program as a step: allocates its results and makes one C call.

    Args:
        program: What to run.
        pool: Threads to share the work with.
        weights: Packed weights to share with other regions.
        beside: Bytes that a run needs beside the memory of this program, for the budget in force.
    """

    def __init__(self, program: Program, pool: Pool, weights: Weights | None = None, beside: int = 0) -> None:
        self.program = program
        self.native = NativeProgram(program, pool, weights=weights, beside=beside)
        self._results = [(spec.shape, array_dtype(spec.dtype)) for spec in program.outputs]

    def __call__(self, operands: Sequence[Array]) -> list[Array]:
        """Return fresh arrays with the results; operands that are not contiguous are copied."""
        results = [np.empty(shape, dtype) for shape, dtype in self._results]
        self.native.run([_ready(x) for x in operands], results)
        return actual_results(self.program, results) if self.program.counted else results

    def profile(self, operands: Sequence[Array]) -> list[float]:
        """Run once and return the seconds of every instruction."""
        results = [np.empty(shape, dtype) for shape, dtype in self._results]
        return self.native.profile([_ready(x) for x in operands], results)


def arenas(plan: Plan, path: tuple[int, ...] = ()) -> dict[tuple[int, ...], tuple[int, int]]:
    """Return arena and lower bound of every native region of static shapes, in bytes by position as in the report."""
    found: dict[tuple[int, ...], tuple[int, int]] = {}
    for index, step in enumerate(plan.steps):
        if isinstance(step.run, NativeRegion):
            found[*path, index] = step.run.program.arena_bytes, step.run.program.arena_bound
        for number, body in enumerate(step.bodies):
            found |= arenas(body, (*path, index, number))
    return found


class PerShape:
    """A region whose shapes only run time shows: built for each set of operand shapes, with a bounded cache.

    Args:
        build: Makes the step for given operand shapes.
    """

    def __init__(self, build: Callable[[tuple[tuple[int, ...], ...]], Run]) -> None:
        self._build = build
        self.cache: BoundedCache[tuple[tuple[int, ...], ...], Run] = BoundedCache(SPECIALISATIONS)

    def __call__(self, operands: Sequence[Any]) -> Sequence[Any]:
        """Run the step for these shapes."""
        return self.current(operands)(operands)

    def current(self, operands: Sequence[Any]) -> Run:
        """Return the step for the shapes of ``operands``."""
        key = tuple(np.shape(x) for x in operands)
        return self.cache.get(key, lambda: self._build(key))


def _ready(array: Array) -> Array:
    flags = array.flags
    return array if flags.c_contiguous and flags.aligned else np.require(array, requirements=["C", "A"])
