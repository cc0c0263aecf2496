"""Whole models: tinycomp against onnxruntime and openvino, interleaved, with the outputs compared.

``python -m benchmarks models resnet50 path/to/other.onnx`` times models of the corpus and ONNX files. A ratio is the
time of the peer over ours: above 1, tinycomp is ahead. The table is Markdown; ``--json FILE`` keeps every figure.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import corpus
from benchmarks.contest import Effort, Result, contest
from benchmarks.feeds import random_feeds
from benchmarks.machine import describe, machine
from benchmarks.peers import OURS, REFERENCE, Feeds, installed, relative_error

TOLERANCE = 1e-3
"""Largest relative error of an output that still counts as agreement."""


def main(arguments: Iterable[str] | None = None) -> int:
    """Measure; the exit status is 1 if tinycomp failed on a model or disagreed with onnxruntime."""
    options = _options(None if arguments is None else list(arguments))
    facts = machine()
    print(describe(facts), f"\n{options.threads} thread(s), {options.rounds} blocks of {options.block} s\n")
    print(heading(options.engines))
    rows = []
    for name in options.models:
        rows.append(measure(name, options))
        print(line(rows[-1], options.engines), flush=True)
    print(f"\n{means(rows, options.engines)}")
    if options.json:
        options.json.write_text(
            json.dumps({"machine": facts, "threads": options.threads, "rows": rows}, indent=1) + "\n"
        )
    return int(any(not row["agrees"] for row in rows))


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """One row: the figures of every engine on one model, as JSON-able values."""
    model, feeds = _model(name, dict(options.dim), options.seed)
    effort = Effort(options.rounds, options.block, options.pause)
    results = contest(model, feeds, options.engines, threads=options.threads, effort=effort)
    return make_row(Path(name).stem, results)


def make_row(name: str, results: Sequence[Result]) -> dict[str, Any]:
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
    row["agrees"] = (usable or OURS not in by_engine) and row.get("error", 0.0) <= TOLERANCE
    return row


def _figures(result: Result) -> dict[str, Any]:
    if result.error:
        return {"error": result.error}
    figures = {"median": result.median, "minimum": result.minimum, "load": result.load}
    return {**figures, "runs": len(result.samples)}


def heading(engines: Sequence[str]) -> str:
    """The first two lines of the Markdown table."""
    peers = [engine for engine in engines if engine != OURS]
    names = ["model", *(f"{e}, ms (min)" for e in engines), *(f"{p} / ours (of minima)" for p in peers), "error"]
    return f"| {' | '.join(names)} |\n|---{'|---:' * (len(names) - 1)}|"


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
    cells.append(f"{row['error']:.1e}{'' if row['agrees'] else ' differs'}" if "error" in row else "")
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def means(rows: Sequence[dict[str, Any]], engines: Sequence[str]) -> str:
    """The geometric means of the ratios, against every peer and against the fastest peer of each model."""
    texts = []
    for peer in (engine for engine in engines if engine != OURS):
        ratios = [row["ratios"][peer]["median"] for row in rows if peer in row["ratios"]]
        texts.append(f"{peer} / ours {_geometric(ratios)} over {len(ratios)}")
    best = [min(ratio["median"] for ratio in row["ratios"].values()) for row in rows if row["ratios"]]
    return f"Geometric means of medians: {', '.join([*texts, f'fastest peer / ours {_geometric(best)}'])}."


def _geometric(ratios: Sequence[float]) -> str:
    return f"{math.exp(sum(map(math.log, ratios)) / len(ratios)):.3f}" if ratios else "n/a"


def _model(name: str, sizes: dict[str, int], seed: int) -> tuple[Path, Feeds]:
    if name in corpus.names():
        return corpus.path(name), corpus.feeds(name, seed)
    return Path(name), random_feeds(Path(name), sizes, seed)


def _size(text: str) -> tuple[str, int]:
    name, _, size = text.partition("=")
    return name, int(size)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    usual = Effort()
    parser = argparse.ArgumentParser(description="Time whole models against other engines.")
    parser.add_argument(
        "models", nargs="*", default=corpus.names(), help="names of the corpus, or ONNX files (the corpus)"
    )
    parser.add_argument("--threads", type=int, default=1, help="threads of every engine (%(default)s)")
    parser.add_argument("--rounds", type=int, default=usual.rounds, help="blocks per engine (%(default)s)")
    parser.add_argument("--block", type=float, default=usual.block, help="seconds per block (%(default)s)")
    parser.add_argument("--pause", type=float, default=usual.pause, help="seconds between blocks (%(default)s)")
    parser.add_argument("--dim", type=_size, action="append", default=[], metavar="NAME=SIZE", help="a symbolic size")
    parser.add_argument("--seed", type=int, default=0, help="chooses the inputs (%(default)s)")
    parser.add_argument("--engines", nargs="+", default=installed(), choices=installed(), help="%(default)s")
    parser.add_argument("--json", type=Path, help="write every figure here")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
