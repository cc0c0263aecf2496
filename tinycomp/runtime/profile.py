"""Where the time of a run goes, step by step and kernel call by kernel call, beside what the machine could do.

A profile may be written as a trace, in the format that is described in "Trace Event Format" (Google). It holds one run
on one track: steps, and inside each the kernel calls that it made. Durations are medians of all runs, laid end to end,
so that the picture is that of a typical run and gaps between steps do not show. Where regions run on devices, the trace
is the run of median length as it was, with a track for the host and one for each device.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tinycomp.records import dataclass
from tinycomp.runtime.device.lanes import HOST
from tinycomp.runtime.device.plan import DevicePlan
from tinycomp.runtime.device.request import Span
from tinycomp.runtime.files import write_file
from tinycomp.runtime.native.executor import NativeProgram
from tinycomp.runtime.native.processor import peak_flops
from tinycomp.runtime.plan import Plan, Position, Step
from tinycomp.runtime.regions import NativeRegion, PerShape
from tinycomp.runtime.tables import drawn, milliseconds, table
from tinycomp.symbolic import evaluate

if TYPE_CHECKING:
    from rich.table import Table

_WIDTH = 120
_NAMES_SHOWN = 4


REGION = "tinycomp.region::"
"""What the kernel of a row begins with that is a region whose kernel calls are not known."""


@dataclass(frozen=True)
class Machine:
    """What native regions ran on.

    Attributes:
        isa: The instruction set; empty where there was no native region.
        threads: Threads of a run.
        peak: Floating-point operations per second of one core, measured; 0 where there was no native region.
    """

    isa: str = ""
    threads: int = 1
    peak: float = 0.0


@dataclass(frozen=True)
class ProfileRow:
    """One step, or one kernel call inside a native region.

    Attributes:
        step: Region symbol or host node name.
        kernel: Kernel or operator.
        tier: Who ran it.
        sources: Source names of the nodes behind it.
        seconds: Median time of one run.
        macs: Multiply-accumulate operations of one run, as the report counts them.
        flops: Arithmetic operations of one run by the definition; 0 where they are not known.
        flops_done: Those of the algorithm, where it gets by with fewer (Winograd); else as ``flops``.
        bytes: Bytes that one run reads and writes, each once.
        algorithm: Which one, where a kernel has several.
        share_of_peak: ``flops_done`` per second over what all threads together could do; 0 where it is not known.
    """

    step: str
    kernel: str
    tier: str
    sources: tuple[str, ...]
    seconds: float
    macs: int = 0
    flops: int = 0
    flops_done: int = 0
    bytes: int = 0
    algorithm: str = ""
    share_of_peak: float = 0.0

    @property
    def gflops(self) -> float:
        """Return billions of operations per second, counted by the definition (above the peak where Winograd pays)."""
        return _rate(self.flops, self.seconds) / 1e9

    @property
    def gigabytes(self) -> float:
        """Return billions of bytes per second."""
        return _rate(self.bytes, self.seconds) / 1e9

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able form, rates included."""
        rates = {"gflops": self.gflops, "gigabytes_per_second": self.gigabytes}
        return dataclasses.asdict(self) | {"sources": list(self.sources)} | rates


def _rate(amount: float, seconds: float) -> float:
    return amount / seconds if seconds else 0.0


@dataclass(frozen=True)
class StepTime:
    """One step of the plan or of a body in it.

    Attributes:
        label: Region symbol or host node name; names of host nodes may repeat.
        position: Where the step stands, as in the report: its index, then body and index for each level of nesting.
        seconds: Median time of one run, all trips through a body together, without the steps inside its own bodies.
    """

    label: str
    position: Position
    seconds: float


@dataclass(frozen=True)
class TrackEvent:
    """Something that happened on the host or on a device, in one run.

    Attributes:
        track: ``"host"``, or the name of the device.
        step: Region symbol or host node name.
        name: Operator, what the device calls it, or its command such as ``"copy in"`` where it reports nothing.
        start: Seconds from the begin of the run.
        seconds: How long it took.
        bytes: Bytes that it moved, if they are known.
        sources: Source names of the nodes behind it.
    """

    track: str
    step: str
    name: str
    start: float
    seconds: float
    bytes: int = 0
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class Profile:
    """Medians over several runs.

    Attributes:
        rows: In order of execution.
        steps: The steps behind them, each before those in its bodies.
        runs: How many runs were measured.
        machine: What native regions ran on.
        elapsed: Where regions run on devices: median time of one run from begin to end, in which steps may overlap.
        timeline: Likewise: what happened when and where in the run of that length, by time.
    """

    rows: tuple[ProfileRow, ...]
    steps: tuple[StepTime, ...]
    runs: int
    machine: Machine = Machine()
    elapsed: float = 0.0
    timeline: tuple[TrackEvent, ...] = ()

    @property
    def seconds(self) -> float:
        """Return the time of one run, which is the sum over the steps."""
        return sum(step.seconds for step in self.steps)

    def by_position(self) -> dict[Position, float]:
        """Return the time of every step by its position."""
        return {step.position: step.seconds for step in self.steps}

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able form."""
        return {
            "runs": self.runs,
            "seconds": self.seconds,
            "machine": dataclasses.asdict(self.machine),
            "rows": [row.to_dict() for row in self.rows],
            "elapsed": self.elapsed,
            "timeline": [dataclasses.asdict(event) for event in self.timeline],
        }

    def save_trace(self, path: str | PathLike[str]) -> None:
        """Write the profile as a trace that Perfetto (https://ui.perfetto.dev) and Chrome's ``about:tracing`` open.

        Raises:
            WriteError: If there is no space or permission.
        """
        text = timeline_text(self.timeline) if self.timeline else trace_text(self.rows, self.machine)
        write_file(Path(path), text.encode())

    def __rich__(self) -> Table:
        """Return what rich prints: the rows, slowest first, calls of one kernel for the same nodes together."""
        whole = self.seconds or 1.0
        cells = (
            (
                _kernel_cell(row, calls),
                row.step,
                _few(row.sources),
                milliseconds(row.seconds),
                f"{row.seconds / whole:.1%}",
                _figure(row.gflops, ".1f"),
                _figure(row.share_of_peak, ".0%"),
                _figure(row.bytes / 1e6, ".3g"),
                _figure(row.gigabytes, ".1f"),
            )
            for row, calls in sorted(_together(self.rows), key=lambda pair: -pair[0].seconds)
        )
        figures = ("time", "share", "GFLOP/s", "of peak", "MB", "GB/s")
        return table(self.title, ("kernel", "where", "nodes"), figures, cells)

    @property
    def title(self) -> str:
        """Return what stands above the rows, which says how much was measured, and on what."""
        title = f"Profile, medians of {self.runs} runs"
        if self.elapsed:
            title += f"; from begin to end {milliseconds(self.elapsed)}"
        if not self.machine.isa:
            return title
        peak = f"{self.machine.peak / 1e9:.1f} GFLOP/s"
        return f"{title}; {self.machine.isa}, {self.machine.threads} thread(s), peak of a core {peak}"

    def __str__(self) -> str:
        return drawn(self, _WIDTH)


def _together(rows: Iterable[ProfileRow]) -> list[tuple[ProfileRow, int]]:
    """Return one row, and how many it stands for, for all calls of a kernel for the same nodes, such as strips."""
    groups: dict[tuple[object, ...], list[ProfileRow]] = {}
    for index, row in enumerate(rows):
        groups.setdefault((row.step, row.kernel, row.tier, row.algorithm, row.sources or index), []).append(row)
    return [(_sum(group), len(group)) for group in groups.values()]


def _sum(rows: Sequence[ProfileRow]) -> ProfileRow:
    if len(rows) == 1:
        return rows[0]
    seconds = sum(row.seconds for row in rows)
    return dataclasses.replace(
        rows[0], seconds=seconds, macs=sum(row.macs for row in rows), flops=sum(row.flops for row in rows),
        flops_done=sum(row.flops_done for row in rows), bytes=sum(row.bytes for row in rows),
        share_of_peak=_rate(sum(row.share_of_peak * row.seconds for row in rows), seconds),
    )  # fmt: skip


def _few(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _kernel_cell(row: ProfileRow, calls: int) -> str:
    kernel = row.kernel.removeprefix(REGION)
    text = f"{kernel}, {row.algorithm}" if row.algorithm else kernel
    return f"{calls} x {text}" if calls > 1 else text


def _figure(value: float, form: str) -> str:
    """Return a number, or nothing where it is not known."""
    return format(value, form) if value else ""


def profile_plan(plan: Plan, feeds: Sequence[Any], runs: int) -> Profile:
    """Run a plan ``runs`` times, which is 1 or more, after one run to warm up, and return medians."""
    recorder = _Recorder()
    watched = recorder.watch(plan)
    plan.run(feeds)
    timelines = []
    for _ in range(runs):
        if isinstance(watched, DevicePlan):
            timelines.append(recorder.timeline(watched, feeds))
        else:
            watched.run(feeds)
        recorder.end_run()
    profile = recorder.profile(runs)
    if not timelines:
        return profile
    elapsed, timeline = sorted(timelines, key=lambda each: each[0])[len(timelines) // 2]
    return dataclasses.replace(profile, elapsed=elapsed, timeline=timeline)


class _Recorder:
    """Puts a probe before every step, those in bodies included, and adds up what the probes measure."""

    def __init__(self) -> None:
        self.spent = 0.0
        """Seconds inside the probes that have returned to the one that is running."""
        self._probes: list[_Probe | _DeviceProbe] = []
        self._on_devices: dict[int, _DeviceProbe] = {}

    def watch(self, plan: Plan, path: Position = ()) -> Plan:
        """Return the plan with probes; ``path`` is the position of the body that it is."""
        planned = plan.lanes.regions if isinstance(plan, DevicePlan) and not path else {}
        steps = []
        for index, step in enumerate(plan.steps):
            if index in planned:
                self._on_devices[index] = _DeviceProbe(step, (index,))
                self._probes.append(self._on_devices[index])
                steps.append(step)
            else:
                steps.append(self._probed(step, (*path, index)))
        return dataclasses.replace(plan, steps=tuple(steps))

    def timeline(self, plan: DevicePlan, feeds: Sequence[Any]) -> tuple[float, tuple[TrackEvent, ...]]:
        """Run a watched plan with regions on devices, and return its seconds and what happened."""
        started = time.perf_counter()
        spans = plan.traced(feeds)
        elapsed = time.perf_counter() - started
        reporting = {(span.track, span.step) for span in spans if span.reported}
        shown = [span for span in spans if span.reported or (span.track, span.step) not in reporting]
        for index, probe in self._on_devices.items():
            probe.add([span for span in shown if span.step == index])
        events = []
        for span in sorted(shown, key=lambda span: span.start):
            step = plan.steps[span.step]
            name = step.op if span.track == HOST else span.name
            events.append(
                TrackEvent(span.track, step.label, name, span.start - started, span.end - span.start, span.bytes,
                           span.sources or step.sources)
            )  # fmt: skip
        return elapsed, tuple(events)

    def _probed(self, step: Step, position: Position) -> Step:
        probe = _Probe(self, step, position)
        self._probes.append(probe)
        if step.rebuild is not None:
            bodies = [self.watch(body, (*position, index)) for index, body in enumerate(step.bodies)]
            probe.run = step.rebuild(bodies)
        return dataclasses.replace(step, run=probe)

    def end_run(self) -> None:
        """Close the books of one run."""
        self.spent = 0.0
        for probe in self._probes:
            probe.end_run()

    def profile(self, runs: int) -> Profile:
        """Return the medians of all runs so far."""
        regions = [region for probe in self._probes for region in probe.regions]
        machine = _machine(regions[0]) if regions else Machine()
        rows = tuple(row for probe in self._probes for row in probe.rows(machine))
        return Profile(rows, tuple(probe.time() for probe in self._probes), runs, machine)


def _machine(region: NativeRegion) -> Machine:
    native = region.native
    return Machine(native.isa, native.pool.threads if native.pool is not None else 1, peak_flops(native.isa))


class _Probe:
    """Times one step; a native region is run once more each time with its calls timed one by one."""

    def __init__(self, recorder: _Recorder, step: Step, position: Position) -> None:
        self.run = step.run
        self.devices = getattr(step.run, "devices", None)
        self._recorder, self._step, self._position = recorder, step, position
        self._seconds: list[float] = []
        self._current = 0.0
        self._moved = 0
        self._calls: dict[NativeRegion, _Calls] = {}

    @property
    def regions(self) -> list[NativeRegion]:
        """The native regions that ran here."""
        return list(self._calls)

    def __call__(self, operands: Sequence[Any]) -> Sequence[Any]:
        before, self._recorder.spent = self._recorder.spent, 0.0
        entered = time.perf_counter()
        run = self.run.current(operands) if isinstance(self.run, PerShape) else self.run
        if isinstance(run, NativeRegion):
            self._calls.setdefault(run, _Calls(run, len(self._seconds))).add(run.profile(operands))
        started = time.perf_counter()
        results = run(operands)
        ended = time.perf_counter()
        self._current += ended - started - self._recorder.spent
        self._moved += _array_bytes(operands) + _array_bytes(results)
        self._recorder.spent = before + ended - entered
        return results

    def end_run(self) -> None:
        self._seconds.append(self._current)
        self._current = 0.0
        for calls in self._calls.values():
            calls.end_run()

    def time(self) -> StepTime:
        return StepTime(self._step.label, self._position, statistics.median(self._seconds))

    def rows(self, machine: Machine) -> list[ProfileRow]:
        step = self._step
        if not self._calls:
            seconds, moved = statistics.median(self._seconds), self._moved // max(len(self._seconds), 1)
            return [ProfileRow(step.label, step.op, step.tier, step.sources, seconds, bytes=moved)]
        return [
            _call_row(step, region.native, index, seconds, trips, machine)
            for region, calls in self._calls.items()
            for index, (seconds, trips) in enumerate(calls.medians())
        ]


def _call_row(
    step: Step, native: NativeProgram, index: int, seconds: float, trips: int, machine: Machine
) -> ProfileRow:
    """Return the row of a kernel call that was made so many times in a run."""
    call, work = native.program.instructions[index], native.work(index)
    macs = evaluate(call.macs, native.profiled_sizes)
    done = work.done * trips
    share = _rate(done, seconds) / (machine.peak * machine.threads)
    return ProfileRow(
        step.label, call.kernel, step.tier, call.source, seconds, macs * trips, work.operations * trips, done,
        work.bytes * trips, work.algorithm, share,
    )  # fmt: skip


def _array_bytes(values: Sequence[Any]) -> int:
    return sum(value.nbytes for value in values if isinstance(value, np.ndarray))


class _DeviceProbe:
    """The times of a region on a device, as the device reports them or as its commands took."""

    regions: tuple[NativeRegion, ...] = ()

    def __init__(self, step: Step, position: Position) -> None:
        self._step, self._position = step, position
        self._spans: list[Sequence[Span]] = []

    def add(self, spans: Sequence[Span]) -> None:
        self._spans.append(spans)

    def end_run(self) -> None:
        pass

    def time(self) -> StepTime:
        seconds = statistics.median(sum(span.end - span.start for span in spans) for spans in self._spans)
        return StepTime(self._step.label, self._position, seconds)

    def rows(self, machine: Machine) -> list[ProfileRow]:
        """Return a row for each thing that most runs did in the same order."""
        step, orders = self._step, [tuple(span.name for span in spans) for spans in self._spans]
        usual = statistics.mode(orders)
        alike = [spans for spans, order in zip(self._spans, orders, strict=True) if order == usual]
        return [
            ProfileRow(
                step.label, column[0].name, step.tier, column[0].sources or step.sources,
                statistics.median(span.end - span.start for span in column), bytes=column[0].bytes,
            )
            for column in zip(*alike, strict=True)
        ]  # fmt: skip


class _Calls:
    """The times of the calls of one native region, which a body may run more than once per run, or not at all."""

    def __init__(self, region: NativeRegion, missed: int) -> None:
        self._none = [0.0] * len(region.program.instructions)
        self._current, self._trips = self._none, 0
        self._runs = [(self._none, 0)] * missed

    def add(self, seconds: Sequence[float]) -> None:
        self._current = [a + b for a, b in zip(self._current, seconds, strict=True)]
        self._trips += 1

    def end_run(self) -> None:
        self._runs.append((self._current, self._trips))
        self._current, self._trips = self._none, 0

    def medians(self) -> list[tuple[float, int]]:
        """Return the seconds of every instruction and how often it ran, in the median of all runs."""
        trips = statistics.median_high(trips for _, trips in self._runs)
        columns = zip(*(seconds for seconds, _ in self._runs), strict=True)
        return [(statistics.median(column), trips) for column in columns]


_PROCESS, _TRACK = 1, 1
_MICROSECONDS = 1e6


def trace_text(rows: Iterable[ProfileRow], machine: Machine) -> str:
    """Return the rows of a profile, in order of execution, as the JSON text of a trace."""
    events = [_name("process_name", "tinycomp"), _name("thread_name", _track_name(machine)), *_events(rows)]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def timeline_text(events: Iterable[TrackEvent]) -> str:
    """Return what happened in a run as the JSON text of a trace, with a track for the host and one for each device."""
    listed = list(events)
    tracks = {name: number for number, name in enumerate(dict.fromkeys([HOST, *(e.track for e in listed)]), _TRACK)}
    names = [_name("process_name", "tinycomp"), *(_name("thread_name", name, n) for name, n in tracks.items())]
    shown = [
        _complete(
            event.name, event.step, event.start, event.seconds,
            {"nodes": list(event.sources), "step": event.step, "bytes": event.bytes}, tracks[event.track],
        )
        for event in listed
    ]  # fmt: skip
    return json.dumps({"traceEvents": [*names, *shown], "displayTimeUnit": "ms"})


def _track_name(machine: Machine) -> str:
    if not machine.isa:
        return "run"
    return f"run ({machine.isa}, {machine.threads} thread(s))"


def _name(kind: str, name: str, track: int = _TRACK) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": _PROCESS, "tid": track, "args": {"name": name}}


def _events(rows: Iterable[ProfileRow]) -> Iterator[dict[str, Any]]:
    """Return an event for every row; one around those of a step that has several."""
    clock = 0.0
    for label, group in itertools.groupby(rows, key=lambda row: (row.step, row.tier)):
        members = list(group)
        if len(members) > 1:
            sources = [source for row in members for source in row.sources]
            whole = sum(row.seconds for row in members)
            yield _complete(label[0], label[1], clock, whole, {"nodes": list(dict.fromkeys(sources))})
        for row in members:
            yield _complete(row.kernel, row.tier, clock, row.seconds, _details(row))
            clock += row.seconds


def _complete(
    name: str, category: str, start: float, seconds: float, details: dict[str, Any], track: int = _TRACK
) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "ts": start * _MICROSECONDS,
        "dur": seconds * _MICROSECONDS,
        "pid": _PROCESS,
        "tid": track,
        "args": details,
    }


def _details(row: ProfileRow) -> dict[str, Any]:
    return {
        "nodes": list(row.sources),
        "step": row.step,
        "algorithm": row.algorithm,
        "GFLOP/s": round(row.gflops, 2),
        "share of peak": round(row.share_of_peak, 4),
        "bytes": row.bytes,
        "GB/s": round(row.gigabytes, 2),
    }
