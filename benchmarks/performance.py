"""The page about performance, made from the figures of ``python -m benchmarks all``.

``python -m benchmarks performance --from DIR`` prints it; ``--write`` puts it into ``docs/performance.md``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import call_overhead, kernels, loading, models, output, page, scaling
from benchmarks.machine import describe
from benchmarks.peers import OURS, REFERENCE

PAGE = page.Page("performance", "performance.md")
MEASUREMENTS = ("models", "loading", "kernels", "scaling", "call-overhead")
Figures = Mapping[str, Any]


def text(found: Mapping[str, Figures]) -> str:
    """The page's generated part, from figures by measurement; what was not measured is said to be missing.

    Raises:
        ValueError: The figures come from different machines.
    """
    makers = (_models, _loading, _kernels, _scaling, _call_overhead)
    pairs = zip(MEASUREMENTS, makers, strict=True)
    parts = [part for name, make in pairs if name in found for part in make(found[name])]
    return "\n\n".join([*_head(found), *parts])


def _head(found: Mapping[str, Figures]) -> Iterator[str]:
    processors = {figures["machine"]["processor"] for figures in found.values()}
    if len(processors) > 1:
        raise ValueError(f"the figures come from different machines: {', '.join(sorted(processors))}")
    if any("--quick" in figures["command"] for figures in found.values()):
        yield (
            "> **Rough figures.** At least a part of this page comes from a short pass (`--quick`), possibly on a busy "
            "machine. It shows what is measured, not how fast tinycomp is."
        )
    rows = [
        (f"`{figures['command']}`", _effort(figures), describe(dict(figures["machine"]))) for figures in found.values()
    ]
    yield page.table(["command", "effort", "machine, its load at the start, versions"], rows, left=3)
    if missing := [name for name in MEASUREMENTS if name not in found]:
        yield f"Not measured: {', '.join(missing)}."


def _effort(figures: Figures) -> str:
    return ", ".join(f"{name} {value}" for name, value in figures["effort"].items())


def _models(found: Figures) -> Iterator[str]:
    threads = sorted({row["threads"] for row in found["rows"]})
    for count in threads:
        yield f"## Whole models, {count} thread{'s' if count > 1 else ''}"
        yield models.section(dict(found), count)
    rows = [row for row in found["rows"] if row["threads"] == threads[0]]
    yield "## From a file to the first result"
    yield load_times(rows, found["engines"])
    if any("memory" in figures for row in rows for figures in row["engines"].values()):
        yield f"## Memory, {threads[0]} thread{'s' if threads[0] > 1 else ''}"
        yield memory(rows, found["engines"])


def _loading(found: Figures) -> Iterator[str]:
    yield "## Loading in fresh processes"
    yield loading.table(found["rows"], found["engines"])


def load_times(rows: Iterable[Figures], engines: Sequence[str]) -> str:
    """Milliseconds until a model can run (compilation, or the creation of a session), plus those of the first run."""
    lines = []
    for row in rows:
        known = {e: f for e, f in row["engines"].items() if "error" not in f}
        cells = [f"{known[e]['load'] * 1e3:.0f} + {known[e]['first'] * 1e3:.0f}" if e in known else "" for e in engines]
        both = OURS in known and REFERENCE in known
        ratio = f"{known[OURS]['load'] / known[REFERENCE]['load']:.2f}" if both else ""
        lines.append([row["model"], *cells, ratio])
    return page.table(["model", *(f"{e}, ms" for e in engines), f"ours / {REFERENCE}, loading"], lines)


def memory(rows: Iterable[Figures], engines: Sequence[str]) -> str:
    """Megabytes at the peak, and in brackets what the model added to the engine."""
    lines = []
    for row in rows:
        peaks = {engine: figures["memory"] for engine, figures in row["engines"].items() if "memory" in figures}
        cells = [f"{p['peak'] / 1e6:.0f} ({p['added'] / 1e6:.0f})" if (p := peaks.get(e)) else "" for e in engines]
        others = [peak["peak"] for engine, peak in peaks.items() if engine != OURS]
        ratio = f"{min(others) / peaks[OURS]['peak']:.2f}" if OURS in peaks and others else ""
        lines.append([row["model"], *cells, ratio])
    return page.table(["model", *(f"{e}, MB" for e in engines), "smallest peer / ours"], lines)


def _kernels(found: Figures) -> Iterator[str]:
    rows = found["rows"]
    isas = list(found["peaks"])
    peaks = ", ".join(f"{isa} {rate / 1e9:.1f}" for isa, rate in found["peaks"].items())
    yield f"## Kernels, {isas[0]}"
    yield f"Measured peak of a core in GFLOP/s: {peaks}."
    yield kernels.table(row for row in rows if row["isa"] not in isas[1:])
    if len(isas) > 1:
        yield "## Instruction sets"
        yield instruction_sets(rows, isas)


def instruction_sets(rows: Iterable[Figures], isas: Sequence[str]) -> str:
    """Microseconds of every kernel with each instruction set, and how many times faster the first is than the last."""
    by_case: dict[tuple[str, ...], dict[str, float]] = {}
    for row in rows:
        case = (row["family"], row["shape"], row["algorithm"])
        by_case.setdefault(case, {})[row["isa"]] = row["minimum"]
    lines = []
    for case, times in by_case.items():
        cells = [f"{times[isa] * 1e6:.1f}" if isa in times else "" for isa in isas]
        ratio = f"{times[isas[-1]] / times[isas[0]]:.1f}" if {isas[0], isas[-1]} <= times.keys() else ""
        lines.append([*case, *cells, ratio])
    names = ["kernel", "shape", "algorithm", *(f"{isa}, µs" for isa in isas), f"{isas[-1]} / {isas[0]}"]
    return page.table(names, lines, left=3)


def _scaling(found: Figures) -> Iterator[str]:
    yield "## How time grows"
    yield scaling.table(found["rows"], found["engines"])


def _call_overhead(found: Figures) -> Iterator[str]:
    yield "## One call"
    yield call_overhead.table(found["rows"])


def main(arguments: Iterable[str] | None = None) -> int:
    """Print the page, and write it if asked to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks performance", description=__doc__.partition("\n")[0])
    parser.add_argument("--from", dest="folder", type=Path, metavar="DIR", required=True, help="where the figures are")
    PAGE.add_option(parser)
    options = parser.parse_args(None if arguments is None else list(arguments))
    loaded = {name: output.load(options.folder, name) for name in MEASUREMENTS}
    found = {name: figures for name, figures in loaded.items() if figures is not None}
    if not found:
        parser.error(f"{options.folder} holds no figures; make some with: python -m benchmarks all --output DIR")
    PAGE.publish(text(found), options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
