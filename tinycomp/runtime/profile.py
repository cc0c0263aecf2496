"""Where the time of a run goes, step by step and kernel call by kernel call."""

from __future__ import annotations

import dataclasses
import io
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from tinycomp.runtime.plan import Plan, Step
from tinycomp.runtime.regions import NativeRegion, PerShape
from tinycomp.runtime.report import milliseconds, si

_WIDTH = 110


@dataclass(frozen=True)
class ProfileRow:
    """One step, or one kernel call inside a native region.

    Attributes:
        step: Region symbol or host node name.
        kernel: Kernel or operator.
        tier: Who ran it.
        sources: Source names of the nodes behind it.
        seconds: Median time of one run.
        macs: Multiply-accumulate operations.
    """

    step: str
    kernel: str
    tier: str
    sources: tuple[str, ...]
    seconds: float
    macs: int = 0


@dataclass(frozen=True)
class Profile:
    """Medians over several runs.

    Attributes:
        rows: In order of execution.
        steps: Median time by region symbol or host node name.
        runs: How many runs were measured.
    """

    rows: tuple[ProfileRow, ...]
    steps: tuple[tuple[str, float], ...]
    runs: int

    @property
    def seconds(self) -> float:
        """Time of one run: the sum over the steps."""
        return sum(seconds for _, seconds in self.steps)

    def by_step(self) -> dict[str, float]:
        """Return the time by region symbol or host node name."""
        times: dict[str, float] = {}
        for name, seconds in self.steps:
            times[name] = times.get(name, 0.0) + seconds
        return times

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able form."""
        return {"runs": self.runs, "seconds": self.seconds, "rows": [dataclasses.asdict(r) for r in self.rows]}

    def __rich__(self) -> Table:
        """Return what rich prints: the rows, slowest first."""
        table = Table(title=f"Profile, medians of {self.runs} runs", title_justify="left", expand=True)
        for name in ("kernel", "where", "nodes"):
            table.add_column(name, overflow="fold")
        for name in ("time", "share", "GMAC/s"):
            table.add_column(name, justify="right", no_wrap=True)
        whole = self.seconds or 1.0
        for row in sorted(self.rows, key=lambda r: -r.seconds):
            rate = si(row.macs / row.seconds / 1e9) if row.macs and row.seconds else ""
            share = f"{row.seconds / whole:.1%}"
            table.add_row(row.kernel, row.step, ", ".join(row.sources), milliseconds(row.seconds), share, rate)
        return table

    def __str__(self) -> str:
        console = Console(width=_WIDTH, file=io.StringIO(), color_system=None)
        with console.capture() as capture:
            console.print(self)
        return capture.get().rstrip()


def profile_plan(plan: Plan, feeds: Sequence[Any], runs: int) -> Profile:
    """Run a plan ``runs`` times, after one run to warm up, and return medians."""
    recorder = _Recorder(len(plan.steps))
    watched = dataclasses.replace(
        plan, steps=tuple(dataclasses.replace(s, run=recorder.watch(i, s)) for i, s in enumerate(plan.steps))
    )
    plan.run(feeds)
    for _ in range(runs):
        clock = [0.0] * len(plan.steps)
        watched.run(feeds, clock)
        recorder.end_run(clock)
    return recorder.profile(plan, runs)


class _Recorder:
    """Collects times; a native region is run once more per run with its calls timed one by one."""

    def __init__(self, steps: int) -> None:
        self.steps: list[list[float]] = [[] for _ in range(steps)]
        self.calls: dict[int, list[list[float]]] = {}
        self.regions: dict[int, NativeRegion] = {}
        self._extra = 0.0

    def watch(self, index: int, step: Step) -> Any:
        def run(operands: Sequence[Any]) -> Sequence[Any]:
            target = step.run.current(operands) if isinstance(step.run, PerShape) else step.run
            if isinstance(target, NativeRegion):
                self.regions[index] = target
                self.calls.setdefault(index, []).append(target.profile(operands))
            return target(operands)

        return run

    def end_run(self, clock: Sequence[float]) -> None:
        for index, seconds in enumerate(clock):
            inside = sum(self.calls[index][-1]) if index in self.calls else 0.0
            self.steps[index].append(max(seconds - inside, 0.0))

    def profile(self, plan: Plan, runs: int) -> Profile:
        rows: list[ProfileRow] = []
        times: list[tuple[str, float]] = []
        for index, step in enumerate(plan.steps):
            seconds = statistics.median(self.steps[index])
            times.append((step.label, seconds))
            if index not in self.regions:
                rows.append(ProfileRow(step.label, step.op, step.tier, step.sources, seconds))
                continue
            medians = [statistics.median(column) for column in zip(*self.calls[index], strict=True)]
            for call, spent in zip(self.regions[index].program.instructions, medians, strict=True):
                rows.append(ProfileRow(step.label, call.kernel, step.tier, call.source, spent, call.macs))
        return Profile(tuple(rows), tuple(times), runs)
