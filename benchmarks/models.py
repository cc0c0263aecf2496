"""Whole models: tinycomp against the other engines at hand, interleaved, with the outputs compared.

``python -m benchmarks models resnet50 path/to/other.onnx`` times models of the corpus and ONNX files, ``--suite`` a
named set; ``--threads 1 2`` measures with one thread, then with two. A ratio is the time of the peer over ours: above
1, tinycomp is ahead. The table is Markdown; ``--output DIR`` keeps every figure.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import output, page, suites
from benchmarks.contest import Effort, Result, contest
from benchmarks.machine import describe
from benchmarks.memory import peak_memory
from benchmarks.peers import ENGINES, OURS, REFERENCE, Feeds, installed, relative_error
from benchmarks.quantized_layers import Difference, difference_of_layers, steps_of_results

TOLERANCE = 1e-4
"""Largest difference of an output that still counts as agreement, as a share of the largest magnitude."""
STEPS = 1
"""Most steps by which layers of int8 models may differ that are given equal data: next to a tie, both are right."""
QUICK = Effort(rounds=2, block=0.05, pause=0.02)


def main(arguments: Iterable[str] | None = None) -> int:
    """Measure; the exit status is 1 if tinycomp failed on a model or disagreed with onnxruntime."""
    given = None if arguments is None else list(arguments)
    options = _options(given)
    effort = QUICK if options.quick else Effort(options.rounds, options.block, options.pause)
    found = output.record("models", output.command_line("models", given), dataclasses.asdict(effort), [])
    found["engines"] = options.engines
    print(describe(found["machine"]), f"\n{effort}")
    for threads in options.threads:
        print(f"\n{threads} thread(s)\n\n{heading(options.engines)}")
        for name in options.models or suites.members(options.suite):
            found["rows"].append(measure(name, threads, effort, options))
            print(line(found["rows"][-1], options.engines), flush=True)
        print(f"\n{means(_with(found['rows'], threads), options.engines)}")
    text = "\n\n".join(section(found, threads) for threads in options.threads)
    output.save(options.output, found, text, lambda figure: draw(found, figure))
    return int(any(not row["agrees"] for row in found["rows"]))


def measure(name: str, threads: int, effort: Effort, options: argparse.Namespace) -> dict[str, Any]:
    """One row: the figures of every engine on one model, as JSON-able values."""
    model, feeds = suites.model(name, dict(options.dim), options.seed)
    results = contest(model, feeds, options.engines, threads=threads, effort=effort)
    row = make_row(Path(name).stem, results)
    if not row["agrees"] and "error" in row:
        add_layers(row, model, feeds, results)
    row["threads"] = threads
    for engine, figures in row["engines"].items():
        if options.memory and threads == options.threads[0] and "error" not in figures:
            peak = peak_memory(engine, model, feeds, threads)
            figures["memory"] = {"peak": peak.run, "added": peak.added}
    return row


def add_layers(row: dict[str, Any], model: Path, feeds: Feeds, results: Sequence[Result]) -> None:
    """Add to the row of a quantised model in what its results and its layers differ, and whether the latter agree."""
    layers = difference_of_layers(model, feeds, ENGINES[OURS].load, ENGINES[REFERENCE].load)
    if layers is not None:
        outputs = {result.engine: result.outputs for result in results}
        row["steps"] = steps_of_results(model, outputs[OURS], outputs[REFERENCE])
        row["layers"] = dataclasses.asdict(layers)
        row["agrees"] = layers.steps <= STEPS


def _with(rows: Iterable[dict[str, Any]], threads: int) -> list[dict[str, Any]]:
    return [row for row in rows if row["threads"] == threads]


def section(found: dict[str, Any], threads: int) -> str:
    """The table of one number of threads, and the means below it."""
    rows, engines = _with(found["rows"], threads), found["engines"]
    table = "\n".join([heading(engines), *(line(row, engines) for row in rows)])
    return f"{table}\n\n{means(rows, engines)}"


def make_row(name: str, results: Sequence[Result], tolerance: float = TOLERANCE) -> dict[str, Any]:
    """The figures of a contest; ratios are missing where an engine failed, errors where there is no reference."""
    by_engine = {result.engine: result for result in results}
    row: dict[str, Any] = {"model": name, "engines": {r.engine: _figures(r) for r in results}, "ratios": {}}
    ours, reference = by_engine.get(OURS), by_engine.get(REFERENCE)
    usable = ours is not None and not ours.error
    if usable:
        row["ratios"] = {
            peer.engine: {"median": peer.median / ours.median, "minimum": peer.minimum / ours.minimum}
            for peer in results
            if peer.engine != OURS and not peer.error
        }
    if usable and reference is not None and not reference.error:
        pairs = zip(ours.outputs, reference.outputs, strict=True)
        row["error"] = max((relative_error(*pair) for pair in pairs), default=0.0)
    row["agrees"] = (usable or OURS not in by_engine) and row.get("error", 0.0) <= tolerance
    return row


def _figures(result: Result) -> dict[str, Any]:
    if result.error:
        return {"error": result.error}
    times = {"median": result.median, "minimum": result.minimum, "load": result.load, "first": result.first}
    return {**times, "runs": len(result.samples)}


def heading(engines: Sequence[str]) -> str:
    """The first two lines of the Markdown table."""
    peers = [engine for engine in engines if engine != OURS]
    return page.heading(
        ["model", *(f"{e}, ms (min)" for e in engines), *(f"{p} / ours (of minima)" for p in peers), "error"]
    )


def line(row: dict[str, Any], engines: Sequence[str]) -> str:
    """One line of the Markdown table: medians with minima in brackets, the ratios of both, the error."""
    cells = [row["model"]]
    for engine in engines:
        figures = row["engines"][engine]
        failed = "error" in figures
        cells.append(figures["error"] if failed else f"{figures['median'] * 1e3:.3f} ({figures['minimum'] * 1e3:.3f})")
    for peer in engines:
        ratio = row["ratios"].get(peer)
        if peer != OURS:
            cells.append(f"{ratio['median']:.2f} ({ratio['minimum']:.2f})" if ratio else "")
    return page.line([*cells, error(row)])


def error(row: Mapping[str, Any]) -> str:
    """The difference from the reference, for quantised models in steps, too, and whether it is too great.

    It is empty without a reference.
    """
    if "error" not in row:
        return ""
    text = f"{row['error']:.1e}"
    if row.get("steps") is not None:
        text += f", {row['steps']} steps"
    if "layers" in row:
        text += f"; layers given equal data: {Difference(**row['layers'])}"
    return text if row["agrees"] else f"{text} differs"


def means(rows: Sequence[dict[str, Any]], engines: Sequence[str]) -> str:
    """The geometric means of the ratios, against every peer and against the fastest peer of each model."""
    texts = []
    for peer in (engine for engine in engines if engine != OURS):
        ratios = [row["ratios"][peer]["median"] for row in rows if peer in row["ratios"]]
        texts.append(f"{peer} / ours {_geometric(ratios)} over {len(ratios)}")
    best = [_fastest(row) for row in rows if row["ratios"]]
    return f"Geometric means of medians: {', '.join([*texts, f'fastest peer / ours {_geometric(best)}'])}."


def _geometric(ratios: Sequence[float]) -> str:
    return f"{math.exp(sum(map(math.log, ratios)) / len(ratios)):.3f}" if ratios else "n/a"


def draw(found: dict[str, Any], figure: Any) -> None:
    """The ratio to the fastest peer of every model, one bar for each number of threads."""
    threads = sorted({row["threads"] for row in found["rows"]})
    names = list(dict.fromkeys(row["model"] for row in found["rows"]))
    figure.set_size_inches(8, 0.35 * len(names) + 1)
    axes, height = figure.subplots(), 0.8 / len(threads)
    for index, count in enumerate(threads):
        best = {row["model"]: _fastest(row) for row in _with(found["rows"], count) if row["ratios"]}
        places = [names.index(name) + index * height for name in best]
        axes.barh(places, list(best.values()), height, label=f"{count} thread(s)")
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_yticks([i + 0.4 - height / 2 for i in range(len(names))], names)
    axes.invert_yaxis()
    axes.set_xlabel("time of the fastest peer / time of tinycomp (medians)")
    axes.legend()


def _fastest(row: dict[str, Any]) -> float:
    """The ratio to the fastest peer."""
    return min(ratio["median"] for ratio in row["ratios"].values())


def _size(text: str) -> tuple[str, int]:
    name, _, size = text.partition("=")
    return name, int(size)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    usual = Effort()
    parser = argparse.ArgumentParser(description="Time whole models against other engines.")
    parser.add_argument("models", nargs="*", help="names of the corpus, or ONNX files (default: the suite)")
    parser.add_argument("--suite", choices=suites.NAMES, default="headline", help="%(default)s")
    parser.add_argument("--threads", type=int, nargs="+", default=[1], help="threads of every engine (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="few and short blocks")
    parser.add_argument(
        "--memory",
        action="store_true",
        help="measure the peak of resident memory too, with the first number of threads",
    )
    parser.add_argument("--rounds", type=int, default=usual.rounds, help="blocks per engine (%(default)s)")
    parser.add_argument("--block", type=float, default=usual.block, help="seconds per block (%(default)s)")
    parser.add_argument("--pause", type=float, default=usual.pause, help="seconds between blocks (%(default)s)")
    parser.add_argument("--dim", type=_size, action="append", default=[], metavar="NAME=SIZE", help="a symbolic size")
    parser.add_argument("--seed", type=int, default=0, help="chooses the inputs (%(default)s)")
    parser.add_argument("--engines", nargs="+", default=installed(), choices=installed(), help="%(default)s")
    output.add_option(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
