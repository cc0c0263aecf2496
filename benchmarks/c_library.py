"""How long a saved module takes in a C program, beside Python: the same bits, and the same speed.

``python -m benchmarks c-library`` compiles models of the corpus, builds a C program with ``cc`` and the flags of
``pkg-config``, and runs both in turn, in processes of their own.
"""

from __future__ import annotations

import argparse
import os
import statistics
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import output, page, suites
from benchmarks.machine import describe


def build(folder: Path) -> Path:
    """Build the C program and return its path."""
    import tinycomp

    package = Path(tinycomp.__file__).parent
    environment = {**os.environ, "PKG_CONFIG_PATH": str(package / "lib" / "pkgconfig")}
    asked = ["pkg-config", "--cflags", "--libs", "tinycomp"]
    flags = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True).stdout.split()
    source, program = Path(__file__).with_suffix(".c"), folder / "c_library"
    subprocess.run(["cc", "-O2", source, "-o", program, *flags], check=True)
    return program


def compare(name: str, program: Path, folder: Path, threads: int, rounds: int) -> dict[str, Any]:
    """Time one model both ways; its results must be the same to the bit."""
    import tinycomp

    path, feeds = suites.model(name)
    module = tinycomp.compile(path, threads=threads)
    module.save(folder / "model.tcm")
    arrays = [np.require(feeds[spec.name], requirements=["C"]) for spec in module.inputs]
    with (folder / "inputs").open("wb") as file:
        for array in arrays:
            file.write(struct.pack(f"<{array.ndim + 2}q", array.ndim, *array.shape, array.nbytes))
            file.write(array.tobytes())
    command = [program, folder / "model.tcm", folder / "inputs", folder / "outputs", str(threads)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as c:
        assert c.stdin is not None
        assert c.stdout is not None
        assert c.stdout.readline() == "ready\n"
        results = module(*arrays)
        results = results if isinstance(results, tuple) else (results,)
        assert (folder / "outputs").read_bytes() == b"".join(r.tobytes() for r in results), f"{name}: other results"
        once = time_python(module, arrays, 3)
        runs = max(1, min(2000, int(0.15 / once)))
        samples: dict[str, list[float]] = {"python": [], "c": []}
        for _ in range(rounds):
            samples["python"].append(time_python(module, arrays, runs))
            time.sleep(0.02)  # idle threads of the other process spin for a moment
            c.stdin.write(f"{runs}\n")
            c.stdin.flush()
            samples["c"].append(float(c.stdout.readline()))
            time.sleep(0.02)
        c.stdin.close()
    ratios = [p / q for p, q in zip(samples["python"], samples["c"], strict=True)]
    return {
        "model": Path(name).stem,
        "threads": threads,
        **{kind: {"median": statistics.median(s), "minimum": min(s)} for kind, s in samples.items()},
        "ratio": statistics.median(ratios),
    }


def time_python(module: Any, arrays: list[Any], runs: int) -> float:
    """Mean seconds of some runs in a row."""
    start = time.perf_counter()
    for _ in range(runs):
        module(*arrays)
    return (time.perf_counter() - start) / runs


def table(rows: Iterable[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    cells = (
        (
            row["model"], str(row["threads"]), *(f"{row[kind]['median'] * 1e3:.3f}" for kind in ("python", "c")),
            f"{row['ratio']:.3f}", f"{row['python']['minimum'] / row['c']['minimum']:.3f}",
        )
        for row in rows
    )  # fmt: skip
    heads = ["model", "threads", "Python, ms", "C, ms", "Python / C, medians of pairs", "minima"]
    return page.table(heads, cells)


def main(arguments: Iterable[str] | None = None) -> int:
    """Measure and print a Markdown table."""
    given = None if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(description="Time saved modules in a C program and in Python.")
    parser.add_argument("models", nargs="*", default=["resnet50"], help="models of the corpus, or files (resnet50)")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2], help="threads of a run (1 2)")
    parser.add_argument("--rounds", type=int, default=15, help="blocks of each (%(default)s)")
    parser.add_argument("--quick", action="store_true", help="few blocks")
    output.add_option(parser)
    options = parser.parse_args(given)
    rounds = 3 if options.quick else options.rounds
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = build(folder)
        rows = [
            compare(model, program, folder, threads, rounds) for model in options.models for threads in options.threads
        ]
    found = output.record("c-library", output.command_line("c-library", given), {"rounds": rounds}, rows)
    print(f"{describe(found['machine'])}\n\n{table(rows)}")
    output.save(options.output, found, table(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
