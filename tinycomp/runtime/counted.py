"""Results whose number of rows only a run shows: computed in memory for the most that there may be, then cut."""

from __future__ import annotations

from collections.abc import Sequence

from tinycomp.runtime.program import Array, Program


def actual_results(program: Program, outputs: Sequence[Array]) -> list[Array]:
    """Return the results of a run of ``program`` with the rows that they turned out to have.

    A result with fewer rows than there was room for is a copy: nobody keeps memory for what is not there.

    Args:
        program: What has run.
        outputs: What it wrote: its results, and behind them how many rows they have.
    """
    results = list(outputs[: len(program.results)])
    for counted in program.counted:
        rows = int(outputs[counted.count][()])
        if rows < len(results[counted.output]):
            results[counted.output] = results[counted.output][:rows].copy()
    return results
