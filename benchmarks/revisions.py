"""Compare two checkouts of tinycomp in one run: their fresh processes take turns.

``python -m benchmarks revisions ../before`` measures this checkout beside another one, whose C runtime must be built:
importing, one call, loading models (import, optimise, partition, lower), running them, and the region search of
``partition-scaling``. Every figure is the median over the processes of a checkout; a ratio above 1 says that this
checkout takes longer. The processes are pinned to one core and share this environment's packages.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MEASURES = ("import", "call-overhead", "loading", "models", "nodes", "partition-scaling")
RUN_SECONDS = 0.5


def main(arguments: Iterable[str] | None = None) -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks revisions", description=__doc__.partition("\n")[0])
    parser.add_argument("other", type=Path, help="the checkout to compare with")
    parser.add_argument("--measure", nargs="+", choices=MEASURES, default=MEASURES, help="default: all")
    parser.add_argument("--models", nargs="+", metavar="MODEL", help="of the corpus, or files (default: the suite)")
    parser.add_argument("--suite", default="headline", help="%(default)s")
    parser.add_argument("--rounds", type=int, default=7, help="processes per checkout and figure (%(default)s)")
    parser.add_argument("--nodes", type=int, default=100_000, help="of the largest graphs (%(default)s)")
    options = parser.parse_args(None if arguments is None else list(arguments))
    print("| measure | other, ms | this, ms | this / other |\n|---|--:|--:|--:|")
    ratios: dict[str, list[float]] = {}
    for measure in options.measure:
        for label, task in _tasks(measure, options):
            other, this = compare(options.other.resolve(), measure, task, options.rounds)
            ratios.setdefault(measure, []).append(this / other)
            print(f"| {measure} {label} | {other * 1e3:.4g} | {this * 1e3:.4g} | {this / other:.3f} |", flush=True)
    for measure, values in ratios.items():
        print(f"| {measure}, geometric mean | | | {statistics.geometric_mean(values):.3f} |")


def _tasks(measure: str, options: argparse.Namespace) -> list[tuple[str, list[str]]]:
    """Return what is measured under a name: a label, and the arguments of the child."""
    if measure in ("loading", "models"):
        from benchmarks import suites

        paths = [suites.model(name)[0].resolve() for name in options.models or suites.members(options.suite)]
        return [(path.stem, [str(path)]) for path in paths]
    return [("", [str(options.nodes)] if measure in ("nodes", "partition-scaling") else [])]


def compare(other: Path, measure: str, task: list[str], rounds: int) -> tuple[float, float]:
    """Return the median seconds of the other checkout and of this one, whose processes take turns."""
    seconds: dict[Path, list[float]] = {other: [], ROOT: []}
    for number in range(rounds):
        for checkout in (other, ROOT) if number % 2 else (ROOT, other):
            seconds[checkout].append(in_checkout(checkout, measure, task))
    return statistics.median(seconds[other]), statistics.median(seconds[ROOT])


def in_checkout(checkout: Path, measure: str, task: list[str]) -> float:
    """Return the seconds that a fresh process measures with the tinycomp of a checkout.

    Raises:
        RuntimeError: If the process fails; the message is the last line that it wrote.
    """
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), "--child", measure, *task],
        capture_output=True, text=True, check=False, cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{checkout}, {measure}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    return float(json.loads(done.stdout.splitlines()[-1]))


def _import() -> float:
    start = time.perf_counter()
    import tinycomp  # noqa: F401

    return time.perf_counter() - start


def _call_overhead() -> float:
    from benchmarks.call_overhead import callers, relu_model

    call = callers(relu_model())["tinycomp module(x)"]
    return _median_of_runs(call)


def _loading(path: str) -> float:
    import tinycomp
    from benchmarks.peers import OURS, prepare
    from benchmarks.suites import model

    prepare(OURS)
    file, _ = model(path)
    start = time.perf_counter()
    tinycomp.compile(file, threads=1)
    return time.perf_counter() - start


def _models(path: str) -> float:
    import tinycomp
    from benchmarks.suites import model

    file, feeds = model(path)
    module = tinycomp.compile(file, threads=1)
    return _median_of_runs(lambda: module.run(feeds))


def _nodes(count: str) -> float:
    import tinycomp
    from benchmarks.compile_time import GRAPHS

    model, compile_ = next(iter(GRAPHS.values()))(int(count)), tinycomp.compile  # which imports the compiler
    start = time.perf_counter()
    compile_(model, threads=1)
    return time.perf_counter() - start


def _partition_scaling(count: str) -> float:
    from benchmarks import partition_scaling

    problem = partition_scaling.tangle(int(count))
    start = time.perf_counter()
    partition_scaling.RegionSearch().minimum(problem)
    return time.perf_counter() - start


def _median_of_runs(call: Callable[[], object]) -> float:
    """Return the median seconds of a call, in blocks that the clock can tell, after a warm-up."""
    start = time.perf_counter()
    call()
    block = max(1, int(0.002 / max(time.perf_counter() - start, 1e-9)))
    samples, end = [], time.perf_counter() + RUN_SECONDS
    while len(samples) < 5 or time.perf_counter() < end:
        start = time.perf_counter()
        for _ in range(block):
            call()
        samples.append((time.perf_counter() - start) / block)
    return statistics.median(samples[1:])


_CHILDREN: Mapping[str, Callable[..., float]] = {
    "import": _import,
    "call-overhead": _call_overhead,
    "loading": _loading,
    "models": _models,
    "nodes": _nodes,
    "partition-scaling": _partition_scaling,
}


def _child(measure: str, *task: str) -> None:
    """Measure in this process, which must be a fresh one, and print the seconds."""
    sys.path[0] = os.environ["PYTHONPATH"]  # the other checkout's benchmarks belong to its tinycomp
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(json.dumps(_CHILDREN[measure](*task)))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _child(*sys.argv[2:])
    else:
        main()
