"""Sizes that change from call to call: what a new size costs, what one that was seen before, beside the other engines.

``python -m benchmarks sizes bert lstm`` measures models with symbolic dimensions, by default all of ``changing.py``.
Every engine gets the same file and is told no sizes. Each round has a fresh process per engine, in which the sizes come
in random order: first each once (new), then each twice in a row (again, twice). The engines take turns.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gc
import statistics
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import changing, output, page
from benchmarks.machine import describe
from benchmarks.memory import resident
from benchmarks.peers import ENGINES, OURS, REFERENCE, installed, prepare, relative_error
from benchmarks.worker import Worker, pin, worker

TOLERANCE = 1e-4
"""Largest difference of an output that still counts as agreement, as a share of the largest magnitude."""
KINDS = ("new", "again", "twice")
"""A size for the first time, one that was seen some calls before, and one that was seen in the call before."""
CHECKED = 8
"""At how many sizes the outputs are compared."""
DEFAULT_ENGINES = (OURS, REFERENCE, "openvino")


@dataclass(frozen=True)
class Effort:
    """How much is measured.

    Attributes:
        rounds: Fresh processes per engine.
        count: Sizes of a model; None for as many as the model says.
        turns: Into how many parts the sequence is cut, for the engines to take turns.
        pause: Seconds of silence behind every turn.
        block: Seconds of runs on either side of the comparison with a specialised program.
    """

    rounds: int = 2
    count: int | None = None
    turns: int = 8
    pause: float = 0.05
    block: float = 0.2


QUICK = Effort(rounds=1, count=8, turns=2, pause=0.01, block=0.02)


def measure(name: str, engines: Sequence[str], threads: int, effort: Effort) -> dict[str, Any]:
    """One row: the figures of every engine on one model, as JSON-able values; an engine that fails has an ``error``."""
    sequence = changing.MODELS[name].sequence(effort.count)
    changing.path(name)  # written before several processes want it
    asked = [name, threads, sequence]
    samples: dict[str, dict[str, list[list[float]]]] = {e: {kind: [] for kind in KINDS} for e in engines}
    row: dict[str, Any] = {"model": name, "threads": threads, "sizes": len(sequence) - 1}
    row["engines"] = {engine: {} for engine in engines}
    for number in range(effort.rounds):
        with contextlib.ExitStack() as stack:
            workers = {e: stack.enter_context(worker("benchmarks.sizes", "Contestant", e, *asked)) for e in engines}
            for engine, each in workers.items():
                if (first := each.ask("ready")) is not None:
                    row["engines"][engine].update(first)
            for kinds in (KINDS[:1], KINDS[1:]):
                for kind in kinds:
                    for worker_samples in samples.values():
                        worker_samples[kind].append([])
                for part in np.array_split(np.arange(1, len(sequence)), effort.turns):
                    for engine, each in workers.items():
                        found = each.ask("run", part.tolist(), len(kinds))
                        for kind, seconds in zip(kinds, found or [], strict=False):
                            samples[engine][kind][-1] += seconds
                        time.sleep(effort.pause)
            for engine, each in workers.items():
                if (memory := each.ask("memory")) is not None:
                    row["engines"][engine].update(memory)
            if number == 0:
                row.update(_compared(workers, sequence))
                if OURS in workers:
                    row["symbolic"] = workers[OURS].ask("specialised", _few(sequence, 3), effort.block)
        for engine, each in workers.items():
            if each.error:
                row["engines"][engine] = {"error": each.error}
    for engine, figures in row["engines"].items():
        if "error" not in figures:
            figures.update({kind: _figures(samples[engine][kind]) for kind in KINDS})
    row["agrees"] = "error" not in row["engines"].get(OURS, {}) and row.get("error", 0.0) <= TOLERANCE
    return row


def _figures(rounds: Sequence[Sequence[float]]) -> dict[str, float]:
    """The mean seconds of a call over all sizes, of every size the median and the minimum over the rounds."""
    by_size = list(zip(*rounds, strict=True))
    return {
        "median": statistics.fmean(map(statistics.median, by_size)),
        "minimum": statistics.fmean(map(min, by_size)),
        "worst": max(map(min, by_size)),
    }


def _few(sequence: Sequence[changing.Sizes], count: int) -> list[int]:
    """The positions of a few sizes, evenly from the least to the greatest."""
    order = sorted(range(len(sequence)), key=lambda i: sequence[i])
    return [order[i] for i in np.unique(np.linspace(0, len(order) - 1, count).round().astype(int))]


def _compared(workers: Mapping[str, Worker], sequence: Sequence[changing.Sizes]) -> dict[str, float]:
    """The largest error of ours, where both engines gave outputs."""
    if not {OURS, REFERENCE} <= workers.keys():
        return {}
    errors = [0.0]
    for index in _few(sequence, CHECKED):
        pair = [workers[engine].ask("outputs", index) for engine in (OURS, REFERENCE)]
        if pair[0] is None or pair[1] is None:
            return {}
        errors += [relative_error(*each) for each in zip(*pair, strict=True)]
    return {"error": max(errors)}


class Contestant:
    """An engine with a model, in a process of its own; its methods are the questions that it answers."""

    def __init__(self, engine: str, name: str, threads: int, sequence: list[changing.Sizes]) -> None:
        pin(threads)
        prepare(engine)
        self._model, self._engine, self._threads = changing.MODELS[name], engine, threads
        self._path, self._sequence = changing.path(name), sequence
        first = self._feeds(0)
        start = time.perf_counter()
        self._run = ENGINES[engine].load(self._path, threads, first)
        loaded = time.perf_counter()
        self._run(first)
        self._first = {"load": loaded - start, "first": time.perf_counter() - loaded}
        self._before = {"resident": resident(), "programs": programs()}

    def _feeds(self, index: int) -> changing.Feeds:
        return self._model.feeds(self._sequence[index], np.random.default_rng(index))

    def ready(self) -> dict[str, float]:
        """The seconds of loading, and of the first run at the first of the sizes."""
        return self._first

    def run(self, indices: list[int], times: int) -> list[list[float]]:
        """The seconds of the first run, of the second and so on, of every size in turn."""
        feeds = [self._feeds(index) for index in indices]
        samples: list[list[float]] = [[] for _ in range(times)]
        for each in feeds:
            for kind in samples:
                start = time.perf_counter()
                self._run(each)
                kind.append(time.perf_counter() - start)
        return samples

    def outputs(self, index: int) -> list[Any]:
        """Copies of the results at one of the sizes."""
        return [np.array(each) for each in self._run(self._feeds(index))]

    def memory(self) -> dict[str, Any]:
        """How resident memory has grown since the first run, in bytes, and how many programs of ours there are."""
        found = {"growth": resident() - self._before["resident"]}
        return {**found, "programs": [self._before["programs"], programs()]} if self._engine == OURS else found

    def specialised(self, indices: list[int], seconds: float) -> list[dict[str, Any]]:
        """Our times at sizes that were seen before, over those of programs compiled for these sizes alone."""
        import tinycomp

        found = []
        for index in indices:
            feeds = self._feeds(index)
            shapes = {name: value.shape for name, value in feeds.items()}
            fixed = tinycomp.compile(self._path, target="c", threads=self._threads, shapes=shapes)
            runs = (lambda: self._run(feeds), lambda: fixed.run(feeds))  # noqa: B023  run within this turn of the loop
            times: tuple[list[float], ...] = ([], [])
            end = time.perf_counter() + seconds
            while len(times[0]) < 8 or time.perf_counter() < end:
                for run, samples in zip(runs, times, strict=True):
                    run()
                    start = time.perf_counter()
                    run()
                    samples.append(time.perf_counter() - start)
                if len(times[0]) >= 3 and sum(times[0]) > 4 * seconds:
                    break
            ours, alone = ({"median": statistics.median(t), "minimum": min(t)} for t in times)
            ratios = {key: ours[key] / alone[key] for key in ours}
            found.append({"sizes": list(self._sequence[index]), **ratios})
        return found


_DETAILS = ("symbolic / specialised", "programs", "growth, MB")
"""Columns that the page about performance leaves out."""


def programs() -> int:
    """How many native programs of ours this process holds."""
    native = sys.modules.get("tinycomp.runtime.native.executor")
    kind = native.NativeProgram if native else None
    gc.collect()
    return sum(type(each) is kind for each in gc.get_objects())


def ratio(row: Mapping[str, Any], peer: str, kind: str, figure: str = "median") -> float | None:
    """The peer's time over ours; above 1, tinycomp is ahead."""
    pair = [row["engines"].get(engine, {}).get(kind) for engine in (peer, OURS)]
    return pair[0][figure] / pair[1][figure] if pair[0] and pair[1] else None


def heading(engines: Sequence[str]) -> str:
    """The first two lines of the Markdown table."""
    return page.heading(_names(engines))


def _names(engines: Sequence[str]) -> list[str]:
    peers = [engine for engine in engines if engine != OURS]
    ours = [f"{kind}, ms" for kind in KINDS]
    told = [f"{peer} / ours, {kind}" for peer in peers for kind in KINDS]
    return ["model", "threads", "sizes", *ours, *told, "new / again", *_DETAILS, "error"]


def line(row: Mapping[str, Any], engines: Sequence[str]) -> str:
    """One line of the Markdown table: figures of medians, those of minima in brackets."""
    return page.line(_cells(row, engines))


def _cells(row: Mapping[str, Any], engines: Sequence[str]) -> list[str]:
    ours = row["engines"].get(OURS, {})
    cells = [row["model"], str(row["threads"]), str(row["sizes"])]
    failed = ours.get("error", "")
    cells += [failed or _both(ours.get(kind), 1e3, 3) for kind in KINDS]
    for peer in engines:
        if peer != OURS:
            why = row["engines"][peer].get("error", "")[:40]
            cells += [why or _both(_ratios(row, peer, kind)) for kind in KINDS]
    known = "new" in ours
    cells.append(_both({f: ours["new"][f] / ours["again"][f] for f in ("median", "minimum")}) if known else "")
    cells.append(", ".join(_both(each) for each in row.get("symbolic") or ()))
    cells.append(" to ".join(map(str, ours["programs"])) if known else "")
    growths = [row["engines"][e]["growth"] / 1e6 for e in engines if "growth" in row["engines"][e]]
    cells.append(", ".join(f"{growth:.0f}" for growth in growths))
    agreement = "" if row["agrees"] else " differs"
    return [*cells, f"{row['error']:.1e}{agreement}" if "error" in row else ""]


def _ratios(row: Mapping[str, Any], peer: str, kind: str) -> dict[str, float] | None:
    found = {figure: ratio(row, peer, kind, figure) for figure in ("median", "minimum")}
    return None if None in found.values() else found  # type: ignore[return-value]


def _both(figures: Mapping[str, float] | None, factor: float = 1.0, digits: int = 2) -> str:
    if not figures:
        return ""
    return f"{figures['median'] * factor:.{digits}f} ({figures['minimum'] * factor:.{digits}f})"


def table(rows: Iterable[Mapping[str, Any]], engines: Sequence[str]) -> str:
    """All lines of the Markdown table."""
    return "\n".join([heading(engines), *(line(row, engines) for row in rows)])


def brief(rows: Iterable[Mapping[str, Any]], engines: Sequence[str]) -> str:
    """The Markdown table of medians alone, without programs, growth and specialised sizes."""
    head = _names(engines)
    chosen = [i for i, name in enumerate(head) if name not in _DETAILS]
    lines = [[cells[i].partition(" (")[0] for i in chosen] for cells in (_cells(row, engines) for row in rows)]
    return page.table([head[i] for i in chosen], lines)


def main(arguments: Iterable[str] | None = None) -> int:
    """Measure; the exit status is 1 if tinycomp failed on a model or disagreed with onnxruntime."""
    given = None if arguments is None else list(arguments)
    options = _options(given)
    usual = QUICK if options.quick else Effort()
    changed = {"rounds": options.rounds, "count": options.count}
    effort = dataclasses.replace(usual, **{name: value for name, value in changed.items() if value is not None})
    found = output.record("sizes", output.command_line("sizes", given), dataclasses.asdict(effort), [])
    found["engines"] = options.engines
    print(f"{describe(found['machine'])}\n{effort}\n\n{heading(options.engines)}", flush=True)
    for threads in options.threads:
        for name in options.models or changing.MODELS:
            found["rows"].append(measure(name, options.engines, threads, effort))
            print(line(found["rows"][-1], options.engines), flush=True)
    output.save(options.output, found, table(found["rows"], options.engines))
    return int(any(not row["agrees"] for row in found["rows"]))


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks sizes", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="*", choices=[*changing.MODELS, []], help="default: all")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="of every engine (%(default)s)")
    parser.add_argument("--rounds", type=int, help=f"processes per engine ({Effort().rounds})")
    parser.add_argument("--count", type=int, help="sizes of a model (default: the model's own, 20 to 512)")
    parser.add_argument("--quick", action="store_true", help="a short pass with few sizes")
    engines = [name for name in DEFAULT_ENGINES if name in installed()]
    parser.add_argument("--engines", nargs="+", default=engines, choices=installed(), help="%(default)s")
    output.add_option(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
