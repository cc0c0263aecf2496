"""``tinycomp score`` with one process and with two, on as many cores, and beside a single loop in one process.

``python -m benchmarks score`` needs pyarrow. The ways take turns; a round of each is one whole run into a new folder,
processes started and model loaded included.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import output, page, suites
from benchmarks.machine import describe

WORKERS = (1, 2)
GROUPS = 16


def rows_for(model: Path, seconds: float, folder: Path) -> int:
    """Write a file of as many rows as one thread scores in these seconds; return how many."""
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
    count = max(GROUPS, int(seconds / min(times) * len(sample)) // GROUPS * GROUPS)
    rows = rng.standard_normal((count, int(np.prod(inner))), dtype=np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])
    pq.write_table(pa.table({spec.name: column}), folder / "rows.parquet", row_group_size=count // GROUPS)
    return count


def compare(model: Path, rounds: int, seconds: float) -> dict[str, Any]:
    """Time the ways in turns."""
    import tinycomp

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        count = rows_for(model, seconds, folder)
        saved = folder / "model.tcm"
        tinycomp.compile(model, threads=1).save(saved)
        rates: dict[str, list[float]] = {str(workers): [] for workers in WORKERS}
        processor: dict[str, list[float]] = {str(workers): [] for workers in WORKERS}
        for _ in range(rounds):
            for workers in WORKERS:
                before = _processor_seconds()
                scored = tinycomp.score(saved, folder / "rows.parquet", folder / "out", workers=workers, progress=False)
                assert scored.rows == count
                rates[str(workers)].append(count / scored.seconds)
                processor[str(workers)].append(_processor_seconds() - before)
                shutil.rmtree(folder / "out")
    return {"model": model.stem, "rows": count, "rows_per_second": rates, "processor_seconds": processor}


def _processor_seconds() -> float:
    """What the processes that have ended used: other than rates, it hardly depends on what else the machine does."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def table(rows: Iterable[dict[str, Any]]) -> str:
    """The rows as Markdown: rows per second, and two processes over twice one."""
    cells = []
    for row in rows:
        one, two = (row["rows_per_second"][str(workers)] for workers in WORKERS)
        best, middle = max(two) / max(one) / 2, statistics.median(b / a / 2 for a, b in zip(one, two, strict=True))
        spent = [min(row["processor_seconds"][str(workers)]) for workers in WORKERS]
        cells.append(
            (
                row["model"], f"{row['rows']:,}", f"{max(one):,.0f}", f"{max(two):,.0f}", f"{middle:.2f} ({best:.2f})",
                f"{spent[0] / spent[1]:.2f}",
            )
        )  # fmt: skip
    head = ["model", "rows", "one process, rows/s", "two, rows/s", "two / twice one, median of rounds (best rounds)"]
    head.append("processor time, one / two")
    return page.table(head, cells)


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
