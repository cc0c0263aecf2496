"""What loading and the first run take in a fresh process, beside onnxruntime, and which phases of ours take it.

``python -m benchmarks loading mobilenet_v2 path/to/other.onnx`` loads models of the corpus and ONNX files, ``--suite``
a named set. Every load has a process of its own, pinned to one core, with the engine imported before the clock starts:
what a program pays that compiles one model. Sizes that a file leaves open are told to nobody; what an engine puts off
until it sees them is in the first run. The engines take turns; the figures are medians over all rounds, with minima in
brackets, and the phases are those of the fastest round.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import output, page, suites
from benchmarks.compile_time import phase_seconds
from benchmarks.fresh import in_fresh_process
from benchmarks.machine import describe
from benchmarks.peers import ENGINES, OURS, REFERENCE, Feeds, installed, prepare
from benchmarks.worker import pin


@dataclasses.dataclass(frozen=True)
class Effort:
    """How much is measured.

    Attributes:
        rounds: Processes per engine and model.
    """

    rounds: int = 7


QUICK = Effort(rounds=1)


def main(arguments: Iterable[str] | None = None) -> None:
    """Measure and print the table."""
    given = None if arguments is None else list(arguments)
    options = _options(given)
    effort = QUICK if options.quick else Effort(options.rounds)
    found = output.record("loading", output.command_line("loading", given), dataclasses.asdict(effort), [])
    found["engines"] = options.engines
    print(describe(found["machine"]), f"\n{effort}\n")
    print(heading(options.engines))
    for name in options.models or suites.members(options.suite):
        found["rows"].append(measure(name, effort, options.engines))
        print(line(found["rows"][-1], options.engines), flush=True)
    output.save(options.output, found, table(found["rows"], options.engines))


def measure(name: str, effort: Effort, engines: Iterable[str]) -> dict[str, Any]:
    """One row: the least seconds of every engine, and the phases of ours, as JSON-able values."""
    model, feeds = suites.model(name)
    model = model.resolve()
    pairs: dict[str, list[tuple[float, float]]] = {engine: [] for engine in engines}
    phases: list[dict[str, float]] = []
    for _ in range(effort.rounds):
        for engine, samples in pairs.items():
            samples.append(in_fresh_process("benchmarks.loading", "own_load", engine, model, feeds))
        phases.append(in_fresh_process("benchmarks.loading", "own_phases", model))
    columns = {engine: [*zip(*samples, strict=True)] for engine, samples in pairs.items()}
    seconds, first = ({engine: _figures(both[i]) for engine, both in columns.items()} for i in (0, 1))
    fastest = min(phases, key=lambda p: sum(p.values()))
    return {"model": Path(name).stem, "seconds": seconds, "first": first, "phases": fastest}


def _figures(samples: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(samples), "minimum": min(samples)}


def heading(engines: Iterable[str]) -> str:
    """The first two lines of the Markdown table."""
    return page.heading(
        ["model", *(f"{e}, ms" for e in engines), "ratio", "with first run", "slowest phases of ours, ms"], (0, -1)
    )


def line(row: Mapping[str, Any], engines: Iterable[str]) -> str:
    """One line of the Markdown table: loading plus the first run; the ratios are our time over onnxruntime's."""
    phases = row["phases"]
    slowest = sorted(phases, key=phases.__getitem__, reverse=True)[:6]
    return page.line(
        [
            row["model"],
            *cells(row, engines),
            ", ".join(f"{name} {phases[name] * 1e3:.1f}" for name in slowest),
        ]
    )


def table(rows: Iterable[Mapping[str, Any]], engines: Iterable[str]) -> str:
    """All lines of the Markdown table."""
    return "\n".join([heading(engines), *(line(row, engines) for row in rows)])


def cells(row: Mapping[str, Any], engines: Iterable[str]) -> list[str]:
    """Milliseconds of every engine, and our time over the reference's: of loading, and with the first run.

    Behind medians stand minima in brackets.
    """
    kinds = ("median", "minimum")
    load, first = row["seconds"], row["first"]
    found = [
        "{} ({})".format(*(f"{load[engine][k] * 1e3:.1f}+{first[engine][k] * 1e3:.1f}" for k in kinds))
        for engine in engines
    ]
    if not {OURS, REFERENCE} <= load.keys():
        return [*found, "", ""]
    whole = {e: {k: load[e][k] + first[e][k] for k in kinds} for e in (OURS, REFERENCE)}
    return [*found, *("{:.2f} ({:.2f})".format(*(e[OURS][k] / e[REFERENCE][k] for k in kinds)) for e in (load, whole))]


def own_load(engine: str, model: Path, feeds: Feeds) -> tuple[float, float]:
    """Seconds of loading a model in this process, which must be a fresh one, and of its first run."""
    pin(1)
    prepare(engine)
    start = time.perf_counter()
    run = ENGINES[engine].load(model, 1, feeds)
    loaded = time.perf_counter()
    run(feeds)
    return loaded - start, time.perf_counter() - loaded


def own_phases(model: Path) -> dict[str, float]:
    """Seconds of every phase of our own loading in this process, which must be a fresh one."""
    pin(1)
    prepare(OURS)
    return phase_seconds(model)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    usual = Effort()
    parser = argparse.ArgumentParser(prog="python -m benchmarks loading", description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", help="names of the corpus, or ONNX files (default: the suite)")
    parser.add_argument("--suite", choices=suites.NAMES, default="headline", help="%(default)s")
    parser.add_argument("--rounds", type=int, default=usual.rounds, help="processes per engine (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="a short pass")
    engines = [name for name in (OURS, REFERENCE) if name in installed()]
    parser.add_argument("--engines", nargs="+", default=engines, choices=installed(), help="%(default)s")
    output.add_option(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
