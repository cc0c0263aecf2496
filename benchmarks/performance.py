"""The page about performance, made from the figures of ``python -m benchmarks all``.

``python -m benchmarks performance --from DIR`` prints it; ``--write`` puts it into ``docs/performance.md``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import call_overhead, decode, loading, models, output, page, scaling, sizes
from benchmarks.machine import software
from benchmarks.peers import OURS, REFERENCE

PAGE = page.Page("performance", "performance.md")
MEASUREMENTS = ("models", "loading", "sizes", "decode", "kernels", "scaling", "call-overhead")
Figures = Mapping[str, Any]


def text(found: Mapping[str, Figures]) -> str:
    """The page's generated part, from figures by measurement; what was not measured is said to be missing.

    Raises:
        ValueError: The figures come from different machines.
    """
    makers = (_models, _loading, _sizes, _decode, _kernels, _scaling, _call_overhead)
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
    machines = {f"{m['processor']}, {m['cores']} cores; {software(dict(m))}": m for m in _machines(found)}
    yield f"{'; '.join(machines)}."
    rows = [(f"`{f['command']}`", _effort(f), f["machine"]["load"]) for f in found.values()]
    yield page.table(["command", "effort", "load at the start"], rows, left=2)
    if missing := [name for name in MEASUREMENTS if name not in found]:
        yield f"Not measured: {', '.join(missing)}."


def _machines(found: Mapping[str, Figures]) -> list[Figures]:
    return [figures["machine"] for figures in found.values()]


def _effort(figures: Figures) -> str:
    return ", ".join(f"{name} {value}" for name, value in figures["effort"].items())


def _models(found: Figures) -> Iterator[str]:
    rows, engines = found["rows"], found["engines"]
    counts = sorted({row["threads"] for row in rows})
    yield "## Whole models"
    yield whole_models(rows, engines)
    for count in counts:
        yield f"{_threads(count)}. {models.means([row for row in rows if row['threads'] == count], engines)}"
    yield f"## Loading and memory, {_threads(counts[0])}"
    yield loading_and_memory([row for row in rows if row["threads"] == counts[0]], engines)


def _threads(count: int) -> str:
    return f"{count} thread{'s' if count > 1 else ''}"


def whole_models(rows: Iterable[Figures], engines: Sequence[str]) -> str:
    """Our medians in milliseconds (and minima) and the ratios to every peer, numbers of threads side by side."""
    peers = [engine for engine in engines if engine != OURS]
    by_model: dict[str, dict[int, Figures]] = {}
    for row in rows:
        by_model.setdefault(row["model"], {})[row["threads"]] = row
    counts = sorted({count for found in by_model.values() for count in found})
    lines = []
    for model, found in by_model.items():
        cells = [cell for count in counts for cell in _times(found.get(count), peers)]
        worst = max(found.values(), key=lambda row: float(row.get("error", -1.0)))
        lines.append([model, *cells, models.error(worst)])
    columns = [name for count in counts for name in (f"{OURS}, ms, {_threads(count)}", *(f"{p} / ours" for p in peers))]
    return page.table(["model", *columns, "error"], lines)


def _times(row: Figures | None, peers: Sequence[str]) -> list[str]:
    """Our median and minimum, and the ratio of the medians and that of the minima to each peer."""
    ours = row["engines"].get(OURS, {}) if row else {}
    known = "median" in ours
    median = f"{ours['median'] * 1e3:.3f} ({ours['minimum'] * 1e3:.3f})" if known else ours.get("error", "")
    ratios = [row["ratios"].get(peer) if row else None for peer in peers]
    return [median, *(f"{r['median']:.2f} ({r['minimum']:.2f})" if r else "" for r in ratios)]


def loading_and_memory(rows: Iterable[Figures], engines: Sequence[str]) -> str:
    """Milliseconds until a model can run plus those of the first run; where it was measured, megabytes at the peak."""
    rows = list(rows)
    measured = [e for e in engines if any("memory" in row["engines"].get(e, {}) for row in rows)]
    lines = []
    for row in rows:
        known = {e: f for e, f in row["engines"].items() if "error" not in f}
        loads = [f"{known[e]['load'] * 1e3:.0f}+{known[e]['first'] * 1e3:.0f}" if e in known else "" for e in engines]
        peaks = [f"{row['engines'][e]['memory']['peak'] / 1e6:.0f}" if e in known else "" for e in measured]
        lines.append([row["model"], *loads, *peaks])
    return page.table(["model", *(f"{e}, ms" for e in engines), *(f"{e}, MB" for e in measured)], lines)


def _loading(found: Figures) -> Iterator[str]:
    yield "## Loading in fresh processes"
    yield fresh_loading(found["rows"], found["engines"])
    yield "## Loading what was saved, in fresh processes"
    yield loading.saved_table(found["rows"])


def fresh_loading(rows: Iterable[Figures], engines: Sequence[str]) -> str:
    """The milliseconds of every engine and those of the first run, and the ratios of ours to the reference's."""
    lines = [[row["model"], *loading.cells(row, engines)] for row in rows]
    ratio = f"ours / {REFERENCE}"
    return page.table(["model", *(f"{e}, ms" for e in engines), ratio, f"{ratio}, with first run"], lines)


def _sizes(found: Figures) -> Iterator[str]:
    yield "## Sizes that change"
    yield sizes.brief(found["rows"], found["engines"])


def _decode(found: Figures) -> Iterator[str]:
    yield "## Decoders, token by token"
    yield decode.table(found["rows"], found["engines"])


def _kernels(found: Figures) -> Iterator[str]:
    isas = list(found["peaks"])
    peaks = ", ".join(f"{isa} {rate / 1e9:.1f}" for isa, rate in found["peaks"].items())
    yield f"## Kernels, {isas[0]}"
    yield f"Measured peak of a core in GFLOP/s: {peaks}."
    yield kernel_families(found["rows"], isas)


def kernel_families(rows: Iterable[Figures], isas: Sequence[str]) -> str:
    """What the first instruction set reaches over all shapes of a kernel, from the least to the most."""
    by_family: dict[str, dict[str, dict[str, Figures]]] = {}
    for row in rows:
        family = f"{row['family']} {row['algorithm']}".strip()
        by_family.setdefault(family, {}).setdefault(row["shape"], {})[row["isa"]] = row
    lines = []
    for family, shapes in by_family.items():
        first = [found[isas[0]] for found in shapes.values() if isas[0] in found]
        arithmetic = [row for row in first if not row["copy"]]
        gains = [
            found[isas[-1]]["minimum"] / found[isas[0]]["minimum"]
            for found in shapes.values()
            if found.keys() >= set(isas)
        ]
        lines.append(
            [
                family,
                len(first),
                _range([f"{row['gflops']:.1f}" for row in arithmetic]),
                _range([f"{row['share_of_peak']:.0%}" for row in arithmetic if row["share_of_peak"]]),
                _range([f"{row['share_of_copy']:.0%}" for row in first if row["share_of_copy"]]),
                *([_range([f"{gain:.1f}" for gain in gains])] if len(isas) > 1 else []),
            ]
        )
    names = ["kernel", "shapes", "GFLOP/s", "of peak", "of a copy", f"times as fast as {isas[-1]}"]
    return page.table(names[: 6 if len(isas) > 1 else 5], lines)


def _range(figures: Sequence[str]) -> str:
    """The least and the greatest of some figures, once if they are equal."""
    ends = sorted(figures, key=lambda text: float(text.rstrip("%")))
    return " to ".join(dict.fromkeys((ends[0], ends[-1]))) if ends else ""


def _scaling(found: Figures) -> Iterator[str]:
    yield "## How time grows"
    yield slopes(found["rows"])


def slopes(rows: Iterable[Figures]) -> str:
    """The slope of our times in every measure, and the range of the measure, one line per family of models."""
    curves = scaling.curves([dict(row) for row in rows])
    axes = list(dict.fromkeys(axis for _, axis in curves))
    lines = []
    for family in dict.fromkeys(family for family, _ in curves):
        members = [curves.get((family, axis)) for axis in axes]
        lines.append(
            [family, *(f"{scaling.slope(m)} ({m[0]['value']} to {m[-1]['value']})" if m else "" for m in members)]
        )
    return page.table(["family", *axes], lines)


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
