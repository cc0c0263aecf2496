"""What loading and the first run take in a fresh process, beside onnxruntime, and which phases of ours take it.

``python -m benchmarks loading mobilenet_v2 path/to/other.onnx`` loads models of the corpus and ONNX files, ``--suite``
a named set. Every load has a process of its own, pinned to one core, with the engine imported before the clock starts:
what a program pays that compiles one model. Sizes that a file leaves open are told to nobody; what an engine puts off
until it sees them is in the first run. A second table has what a program pays that loads what the engine saved before:
a module of ours, the optimised model of onnxruntime. A third has what a program pays that compiles with a cache
(``compile(cache=…)``) in which the module is already, beside onnxruntime's session on the model itself. The engines
take turns; the figures are medians over all rounds, with minima in brackets, and the phases are those of the fastest.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import output, page, suites
from benchmarks.compile_time import phase_seconds
from benchmarks.fresh import in_fresh_process
from benchmarks.machine import describe
from benchmarks.peers import ENGINES, OURS, REFERENCE, Feeds, installed, load_cached_tinycomp, prepare
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
    print(f"\nWhat was saved\n\n{saved_table(found['rows'])}")
    print(f"\nWith a cache that holds the module\n\n{cached_table(found['rows'])}")
    tables = [table(found["rows"], options.engines), saved_table(found["rows"]), cached_table(found["rows"])]
    output.save(options.output, found, "\n\n".join(tables))


def measure(name: str, effort: Effort, engines: Iterable[str]) -> dict[str, Any]:
    """One row: the seconds of every engine, also for what it saved or has in a cache, and the phases of ours."""
    model, feeds = suites.model(name)
    model = model.resolve()
    pairs: dict[str, list[tuple[float, float]]] = {engine: [] for engine in engines}
    phases: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        files = {engine: Path(folder) / f"{engine}.onnx" for engine in pairs if ENGINES[engine].save is not None}
        for engine, file in files.items():
            in_fresh_process("benchmarks.loading", "own_save", engine, model, file)
        saved: dict[str, list[tuple[float, float]]] = {engine: [] for engine in files}
        cached: list[tuple[float, float]] = []
        cache = Path(folder) / "cache"
        in_fresh_process("benchmarks.loading", "own_cached_load", model, feeds, cache)
        for _ in range(effort.rounds):
            for engine, samples in pairs.items():
                samples.append(in_fresh_process("benchmarks.loading", "own_load", engine, model, feeds))
            for engine, file in files.items():
                saved[engine].append(in_fresh_process("benchmarks.loading", "own_load", engine, file, feeds, True))
            cached.append(in_fresh_process("benchmarks.loading", "own_cached_load", model, feeds, cache))
            phases.append(in_fresh_process("benchmarks.loading", "own_phases", model))
    fastest = min(phases, key=lambda p: sum(p.values()))
    loads = {"saved": _loads(saved), "cached": _loads({OURS: cached})}
    return {"model": Path(name).stem, **_loads(pairs), "phases": fastest, **loads}


def _loads(samples: Mapping[str, Sequence[tuple[float, float]]]) -> dict[str, Any]:
    """Figures of loading and of the first run, by engine."""
    columns = {engine: [*zip(*both, strict=True)] for engine, both in samples.items()}
    seconds, first = ({engine: _figures(both[i]) for engine, both in columns.items()} for i in (0, 1))
    return {"seconds": seconds, "first": first}


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


def saved_table(rows: Iterable[Mapping[str, Any]]) -> str:
    """The Markdown table of loading what the engines saved."""
    rows = list(rows)
    engines = list(rows[0]["saved"]["seconds"]) if rows else []
    lines = [[row["model"], *cells(row["saved"], engines)] for row in rows]
    return page.table(["model", *(f"{e}, saved, ms" for e in engines), "ratio", "with first run"], lines)


def cached_table(rows: Iterable[Mapping[str, Any]]) -> str:
    """The Markdown table of compiling with a cache that holds the module, beside the reference on the model itself."""
    lines = []
    for row in rows:
        both = {
            k: {**row["cached"][k], **{e: row[k][e] for e in (REFERENCE,) if e in row[k]}} for k in ("seconds", "first")
        }
        lines.append([row["model"], *cells(both, both["seconds"])])
    engines = [f"{OURS}, cached, ms", f"{REFERENCE}, ms"] if lines and len(lines[0]) > 4 else [f"{OURS}, cached, ms"]
    return page.table(["model", *engines, "ratio", "with first run"], lines)


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


def own_save(engine: str, model: Path, file: Path) -> None:
    """Write what an engine keeps of a model."""
    save = ENGINES[engine].save
    assert save is not None
    save(model, file)


def own_load(engine: str, model: Path, feeds: Feeds, saved: bool = False) -> tuple[float, float]:
    """Seconds of loading a model, or what was saved of it, in this process, a fresh one, and of its first run."""
    pin(1)
    load = ENGINES[engine].load_saved if saved else ENGINES[engine].load
    assert load is not None
    prepare(engine)
    start = time.perf_counter()
    run = load(model, 1, feeds)
    loaded = time.perf_counter()
    run(feeds)
    return loaded - start, time.perf_counter() - loaded


def own_cached_load(model: Path, feeds: Feeds, cache: Path) -> tuple[float, float]:
    """Seconds of compiling a model with a cache in this process, a fresh one, and of its first run."""
    pin(1)
    prepare(OURS)
    start = time.perf_counter()
    run = load_cached_tinycomp(model, 1, feeds, cache)
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
