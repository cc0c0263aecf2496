"""What runs of a small model wait for while another thread compiles a large one.

``python -m benchmarks stalls resnet50 path/to/other.onnx`` compiles models of the corpus and ONNX files. One thread
runs the small model again and again, another one compiles and drops the large one. A run that takes long had to wait:
for the interpreter's lock, or for a core. So figures mean something on a machine with two idle cores; the least of
several rounds is given in brackets. **typical** is the median, by time, of the run that is under way.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import onnx

import tinycomp
from benchmarks import output, page, suites
from benchmarks.machine import describe
from tinycomp.data import digits, digits_model

COLUMNS = ("model", "given as", "compile, ms", "quiet run, ms", "typical, ms", "longest, ms", "longest but one, ms")
FORMS: Mapping[str, Callable[[Path], Any]] = {"path": Path, "bytes": Path.read_bytes, "proto": onnx.load}


def main(arguments: Iterable[str] | None = None) -> None:
    """Measure and print the table."""
    given = None if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(prog="python -m benchmarks stalls", description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", help="names of the corpus, or ONNX files", default=["resnet50", "bert"])
    parser.add_argument("--form", choices=FORMS, default="path", help="what compile is given (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="%(default)s")
    output.add_option(parser)
    options = parser.parse_args(given)
    effort = {"rounds": options.rounds, "form": options.form}
    found = output.record("stalls", output.command_line("stalls", given), effort, [])
    print(describe(found["machine"]), "\n")
    found["rows"] = [measure(name, options.form, options.rounds) for name in options.models]
    text = page.table(COLUMNS, [cells(row) for row in found["rows"]])
    print(text)
    output.save(options.output, found, text)


def measure(name: str, form: str, rounds: int) -> dict[str, Any]:
    """Return the figures of all rounds of one model, as JSON-able values; times are in milliseconds."""
    path, _ = suites.model(name)
    module = tinycomp.compile(digits_model(), threads=1)
    image = digits()[0][:1]
    tinycomp.compile(path, threads=1)  # which imports what compiling needs
    samples = [_round(lambda: module(image), FORMS[form](path)) for _ in range(rounds)]
    return {"model": path.stem, "form": form, **{key: [sample[key] for sample in samples] for key in samples[0]}}


def _round(run: Callable[[], object], model: Any) -> dict[str, float]:
    """Return what runs take in one thread while another compiles a model."""
    ends = [time.perf_counter()]
    end = threading.Event()

    def work() -> None:
        while not end.is_set():
            run()
            ends.append(time.perf_counter())

    worker = threading.Thread(target=work)
    worker.start()
    time.sleep(0.2)
    start = time.perf_counter()
    module = tinycomp.compile(model, threads=1)
    compiled = time.perf_counter()
    del module
    stop = time.perf_counter()
    time.sleep(0.02)  # the run that has begun meanwhile ends
    end.set()
    worker.join()
    runs = list(itertools.pairwise(ends))
    quiet = [after - before for before, after in runs if after < start]
    meanwhile = sorted((after - before for before, after in runs if after > start and before < stop), reverse=True)
    sums = itertools.accumulate(meanwhile)
    typical = next(one for one, most in zip(meanwhile, sums, strict=True) if 2 * most >= sum(meanwhile))
    return {
        "compile": 1e3 * (compiled - start),
        "quiet": 1e3 * statistics.median(quiet),
        "typical": 1e3 * typical,
        "longest": 1e3 * meanwhile[0],
        "second": 1e3 * meanwhile[1],
    }


def cells(row: Mapping[str, Any]) -> list[str]:
    """Return one line of the table: medians, in brackets minima."""
    keys = ("compile", "quiet", "typical", "longest", "second")
    figures = [f"{statistics.median(row[key]):.2f} ({min(row[key]):.2f})" for key in keys]
    return [row["model"], row["form"], *figures]


if __name__ == "__main__":
    main()
