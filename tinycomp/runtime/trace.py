"""A profile in the trace-event format, which Perfetto and Chrome's ``about:tracing`` open.

The format is described in "Trace Event Format" (Google). The trace holds one run on one track: steps, and inside each
the kernel calls that it made. Durations are medians over all runs, laid end to end, so that the picture is that of a
typical run and gaps between steps do not show.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tinycomp.runtime.profile import Machine, ProfileRow

_PROCESS, _TRACK = 1, 1
_MICROSECONDS = 1e6


def trace_text(rows: Iterable[ProfileRow], machine: Machine) -> str:
    """Return the rows of a profile, in order of execution, as the JSON text of a trace."""
    events = [_name("process_name", "tinycomp"), _name("thread_name", _track_name(machine)), *_events(rows)]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def _track_name(machine: Machine) -> str:
    if not machine.isa:
        return "run"
    return f"run ({machine.isa}, {machine.threads} thread(s))"


def _name(kind: str, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": _PROCESS, "tid": _TRACK, "args": {"name": name}}


def _events(rows: Iterable[ProfileRow]) -> Iterator[dict[str, Any]]:
    """An event for every row; one around those of a step that has several."""
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


def _complete(name: str, category: str, start: float, seconds: float, details: dict[str, Any]) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "cat": category,
        "ts": start * _MICROSECONDS,
        "dur": seconds * _MICROSECONDS,
        "pid": _PROCESS,
        "tid": _TRACK,
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
