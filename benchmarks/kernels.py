"""Single kernels: GFLOP/s or GB/s on the shapes of well-known models, and the share of what the core can do.

``python -m benchmarks kernels`` runs programs of one call each on one thread, for every instruction set at hand or for
those that ``--isa`` or ``TINYCOMP_ISA`` names. Arithmetic is judged by the core's measured peak, movement of data by
numpy's plain copy of as many bytes. ``--prototype FOLDER`` measures a library with the interface of ``prototype.py``
on the same 3x3 convolutions, in turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import kernel_cases, kernel_cases_int8, output, page
from benchmarks.kernel_cases import Case
from benchmarks.machine import describe
from benchmarks.prototype import NAME as PROTOTYPE
from benchmarks.prototype import Prototype
from tinycomp.runtime.native.executor import NativeProgram, Work
from tinycomp.runtime.native.processor import available_isas, peak_flops, peak_int8

Run = Callable[[], None]


@dataclass(frozen=True)
class Effort:
    """How much is measured: so many blocks of so many seconds for every contender, of at least one run."""

    rounds: int = 5
    block: float = 0.02


_PAGE = 4096
QUICK = Effort(rounds=2, block=0.005)


def measure(case: Case, isas: Sequence[str], prototype: Prototype | None, effort: Effort) -> list[dict[str, Any]]:
    """One row for each instruction set, and one for the prototype where it has the kernel."""
    program, feeds = case.program()
    result = np.empty(program.outputs[0].shape, program.outputs[0].dtype)
    natives = {isa: NativeProgram(program, isa=isa) for isa in isas}
    work = natives[isas[0]].work(0)
    runs: dict[str, Run] = {isa: native.bound(feeds, [result]) for isa, native in natives.items()}
    if prototype is not None and case.convolution is not None:
        runs[PROTOTYPE] = prototype.winograd(*case.convolution)
    if case.moves_data:
        runs["copy"] = _copy(work.bytes)
    samples = _in_turns(runs, effort)
    copy = work.bytes / min(samples.pop("copy")) if case.moves_data else 0.0
    return [_row(case, work, name, times, copy) for name, times in samples.items()]


def _copy(moved: int) -> Run:
    """A copy that reads and writes so many bytes together; its addresses do not fall into the same sets of a cache."""
    size = max(moved // 2, 1)
    memory = np.ones(2 * size + 3 * _PAGE, np.uint8)
    start = -memory.ctypes.data % _PAGE
    apart = -(-size // _PAGE) * _PAGE + _PAGE // 2
    source, target = memory[start : start + size], memory[start + apart :][:size]
    return lambda: np.copyto(target, source)


def _in_turns(runs: dict[str, Run], effort: Effort) -> dict[str, list[float]]:
    """Seconds per run, several figures for each contender; the first run of a block is not counted."""
    samples: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(effort.rounds):
        for name, run in runs.items():
            run()
            samples[name] += _block(run, effort.block)
    return samples


def _block(run: Run, seconds: float) -> list[float]:
    clock, samples = time.perf_counter, []
    end = clock() + seconds
    while not samples or clock() < end:
        start = clock()
        run()
        samples.append(clock() - start)
    return samples


def _row(case: Case, work: Work, isa: str, times: Sequence[float], copy: float) -> dict[str, Any]:
    seconds = min(times)
    peak = 0.0 if isa == PROTOTYPE else peak_int8(isa) if case.int8 else peak_flops(isa)
    rates = {"gflops": work.operations / seconds / 1e9, "gigabytes_per_second": work.bytes / seconds / 1e9}
    shares = {
        "share_of_peak": work.done / seconds / peak if peak else 0.0,
        "share_of_copy": rates["gigabytes_per_second"] * 1e9 / copy if copy else 0.0,
    }
    head = {"family": case.family, "kernel": case.kernel, "shape": case.shape, "algorithm": work.algorithm, "isa": isa}
    return {**head, "minimum": seconds, "median": statistics.median(times), **rates, **shares, "copy": copy}


def cells(row: dict[str, Any]) -> list[str]:
    """One line of the table."""
    arithmetic = not row["copy"]
    return [
        row["family"],
        row["shape"],
        row["algorithm"],
        row["isa"],
        f"{row['minimum'] * 1e6:.1f} ({row['median'] * 1e6:.1f})",
        f"{row['gflops']:.1f}" if arithmetic else "",
        f"{row['share_of_peak']:.0%}" if row["share_of_peak"] and arithmetic else "",
        f"{row['gigabytes_per_second']:.1f}",
        f"{row['share_of_copy']:.0%}" if row["share_of_copy"] else "",
    ]


NAMES = ["kernel", "shape", "algorithm", "runs on", "µs (median)", "GFLOP/s", "of peak", "GB/s", "of a copy"]
TEXTS = 4
"""Columns that are no figures."""


def table(rows: Iterable[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    return page.table(NAMES, map(cells, rows), TEXTS)


def draw(rows: Sequence[dict[str, Any]], figure: Any) -> None:
    """Shares of the peak, or of a copy, of the instruction set that comes first."""
    shown = [row for row in rows if row["isa"] == rows[0]["isa"]]
    figure.set_size_inches(9, 0.22 * len(shown) + 1)
    axes = figure.subplots()
    shares = [row["share_of_copy"] or row["share_of_peak"] for row in shown]
    colors = ["tab:green" if row["share_of_copy"] else "tab:blue" for row in shown]
    labels = [f"{row['family']} {row['shape']} {row['algorithm']}" for row in shown]
    axes.barh(labels, [100 * share for share in shares], color=colors)
    axes.invert_yaxis()
    axes.tick_params(labelsize=7)
    axes.set_xlabel(f"{rows[0]['isa']}: % of the core's peak (blue), or of the speed of a plain copy (green)")


def main(arguments: Iterable[str] | None = None) -> int:
    """Measure and print the table."""
    given = None if arguments is None else list(arguments)
    options = _options(given)
    effort = QUICK if options.quick else Effort()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    prototype = _prototype(options.prototype)
    figures = output.record("kernels", output.command_line("kernels", given), vars(effort), [])
    figures["peaks"] = {isa: peak_flops(isa) for isa in options.isa}
    figures["int8_peaks"] = {isa: peak_int8(isa) for isa in options.isa}
    peaks = ", ".join(
        f"{isa} {rate / 1e9:.1f} GFLOP/s, on 8-bit numbers {figures['int8_peaks'][isa] / 1e9:.1f} GOP/s"
        for isa, rate in figures["peaks"].items()
    )
    print(f"{describe(figures['machine'])}\npeak of a core: {peaks}\n\n{page.heading(NAMES, TEXTS)}")
    for case in (*kernel_cases.cases(), *kernel_cases_int8.cases()):
        if options.only in case.family:
            for row in measure(case, options.isa, prototype, effort):
                figures["rows"].append(row)
                print(page.line(cells(row)), flush=True)
    output.save(options.output, figures, table(figures["rows"]), lambda figure: draw(figures["rows"], figure))
    return 0


def _prototype(folder: Path | None) -> Prototype | None:
    try:
        return Prototype(folder) if folder is not None else None
    except (FileNotFoundError, RuntimeError) as error:
        print(f"without the prototype: {error}", file=sys.stderr)
        return None


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks kernels", description=__doc__.partition("\n")[0])
    wanted = os.environ.get("TINYCOMP_ISA")
    isas = [wanted] if wanted else [*reversed(available_isas())]
    parser.add_argument("--isa", nargs="+", choices=available_isas(), default=isas, help="%(default)s")
    parser.add_argument("--only", default="", metavar="TEXT", help="kernels whose name contains this")
    parser.add_argument("--prototype", type=Path, metavar="FOLDER", help="a folder with a library to compare with")
    parser.add_argument("--quick", action="store_true", help="short blocks")
    output.add_option(parser)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
