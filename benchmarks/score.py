"""``tinycomp score`` with one process and with two, on as many cores, beside what the machine allows.

``python -m benchmarks score`` needs pyarrow. The ways take turns; a round of each is one whole run into a new folder,
processes started and model loaded included. Two busy cores are slower each than one (they share memory, caches and
heat), and every process has to start: the limit is what two independent runs, each over half of the rows, reach when
they run at the same time. No way to share the rows between two processes can be faster than these.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import output, page, suites
from benchmarks.machine import describe

GROUPS = 8
"""Row groups of each of the two files."""
ONE, TWO, HALF, HALVES = "one", "two", "half", "halves"
"""One process over all rows; two; one over half of them; two independent ones over half each, at the same time."""


def rows_for(model: Path, seconds: float, folder: Path) -> int:
    """Write two files of as many rows, together, as one thread scores in these seconds; return how many."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    import tinycomp

    module = tinycomp.compile(model, threads=1)
    (spec,) = module.inputs
    inner = [dim for dim in (spec.shape or ())[1:] if isinstance(dim, int)]
    rng = np.random.default_rng(0)
    sample = rng.standard_normal((64, *inner), dtype=np.float32)
    module(sample)
    times = []
    for _ in range(5):
        start = time.process_time()  # of one thread, whatever else the machine does
        module(sample)
        times.append(time.process_time() - start)
    count = max(GROUPS, int(seconds / 2 / min(times) * len(sample)) // GROUPS * GROUPS)
    for half in range(2):
        rows = rng.standard_normal((count, int(np.prod(inner))), dtype=np.float32)
        column = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])
        pq.write_table(pa.table({spec.name: column}), folder / f"{half}.parquet", row_group_size=count // GROUPS)
    return 2 * count


def compare(model: Path, rounds: int, seconds: float) -> dict[str, Any]:
    """Time the ways in turns."""
    import tinycomp

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        count = rows_for(model, seconds, folder)
        saved, halves = folder / "model.tcm", [folder / "0.parquet", folder / "1.parquet"]
        tinycomp.compile(model, threads=1).save(saved)

        def score(files: list[Path], workers: int, number: int = 0) -> None:
            tinycomp.score(saved, files, folder / "out" / str(number), workers=workers, progress=False)

        def at_once() -> None:
            with ThreadPoolExecutor(2) as threads:
                for run in [threads.submit(score, [half], 1, number) for number, half in enumerate(halves)]:
                    run.result()

        ways: dict[str, Callable[[], None]] = {
            ONE: lambda: score(halves, 1),
            TWO: lambda: score(halves, 2),
            HALF: lambda: score(halves[:1], 1),
            HALVES: at_once,
        }
        found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
        for _ in range(rounds):
            for way, run in ways.items():
                found[way].append(_measured(run))
                shutil.rmtree(folder / "out")
    return {"model": model.stem, "rows": count, "seconds": found}


def _measured(run: Callable[[], None]) -> dict[str, float]:
    """Return how long it takes, and the processor time of this process and of those that it starts.

    Processor time hardly depends on what else the machine does, other than the time that passes.
    """
    before, start = _processor_seconds(), time.perf_counter()
    run()
    passed, after = time.perf_counter() - start, _processor_seconds()
    return {"passed": passed, "parent": after[0] - before[0], "workers": after[1] - before[1]}


def _processor_seconds() -> tuple[float, float]:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return used[0].ru_utime + used[0].ru_stime, used[1].ru_utime + used[1].ru_stime


def table(rows: Iterable[dict[str, Any]]) -> str:
    """The rows as Markdown: medians of the rounds."""
    cells = []
    for row in rows:
        passed, parent, workers = (
            {way: [each[what] for each in found] for way, found in row["seconds"].items()}
            for what in ("passed", "parent", "workers")
        )
        scaling = _median_ratio(passed[ONE], passed[TWO]) / 2
        limit = _median_ratio(passed[ONE], passed[HALVES]) / 2
        cells.append(
            (
                row["model"], f"{row['rows']:,}", f"{row['rows'] / min(passed[ONE]):,.0f}",
                f"{row['rows'] / min(passed[TWO]):,.0f}", f"{scaling:.2f}", f"{limit:.2f}", f"{scaling / limit:.2f}",
                f"{_median_ratio(passed[HALF], passed[HALVES]):.2f}", f"{min(workers[ONE]) / min(workers[TWO]):.2f}",
                f"{statistics.median(parent[TWO]):.2f} s",
                f"{1 - _median_ratio(workers[TWO], passed[TWO]) / 2:.0%}",
            )
        )  # fmt: skip
    head = [
        "model", "rows", "one process, rows/s", "two, rows/s", "two / twice one", "limit: two runs apart / twice one",
        "of the limit", "machine: half alone / beside another", "processor time, one / two", "parent's processor time",
        "idle, of two cores",
    ]  # fmt: skip
    return page.table(head, cells)


def _median_ratio(above: Iterable[float], below: Iterable[float]) -> float:
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def main(arguments: Iterable[str] | None = None) -> int:
    """Measure and print a Markdown table."""
    given = None if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(description="Time tinycomp score with one process and with two.")
    parser.add_argument("models", nargs="*", type=Path, help="ONNX files with one input of floats (MLPerf Tiny's)")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each (%(default)s)")
    parser.add_argument("--seconds", type=float, default=10.0, help="time of one process (%(default)s)")
    output.add_option(parser)
    options = parser.parse_args(given)
    models = options.models or [Path(name) for name in suites.tiny_files()]
    if not models:
        parser.error(f"name models, or a folder with those of MLPerf Tiny in {suites.VARIABLE}")
    rows = [compare(model, options.rounds, options.seconds) for model in models]
    effort = {"rounds": options.rounds, "seconds": options.seconds}
    found = output.record("score", output.command_line("score", given), effort, rows)
    print(f"{describe(found['machine'])}\n\n{table(rows)}")
    output.save(options.output, found, table(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
