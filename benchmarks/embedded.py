"""Exported models on emulated microcontrollers: instructions, memory, flash and stack, which repeat exactly.

Usage: python -m benchmarks embedded [--cpu NAME ...] [--memory fast|BYTES|least ...] [--folder DIR] [MODEL ...]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import tinycomp
from benchmarks.page import table
from tinycomp.data import digits_model
from tinycomp.export_c import to_c
from tinycomp.export_c.processors import processor_named
from tinycomp.export_c.project import to_c_within
from tinycomp.export_c.trial import run_trial

COLUMNS = ("model", "cpu", "planned", "million instructions", "memory", "weights", "code", "stack", "results")


def row(path: Path, cpu: str, memory: str) -> tuple[str, ...]:
    """Export one model with all open sizes 1, run its test, and return what it took, in bytes."""
    graph = tinycomp.from_onnx(path)
    shapes = {v.name: tuple(d if isinstance(d, int) else 1 for d in v.shape or ()) for v in graph.inputs}

    def build(planned: int | str) -> tinycomp.Module:
        options = {"c": {"memory": planned, **processor_named(cpu).options}}
        return tinycomp.compile(tinycomp.from_onnx(path), "c", shapes=shapes, threads=1, options=options)

    project = to_c_within(build, int(memory), cpu) if memory.isdecimal() else to_c(build(memory), cpu)
    trial = run_trial(project)
    count = "" if trial.instructions is None else f"{trial.instructions / 1e6:.3f}"
    sizes = (project.memory_bytes, project.weights_bytes, trial.code_bytes, trial.stack_bytes)
    return (path.stem, cpu, memory, count, *(f"{size or 0:,}" for size in sizes), "equal" if trial.passed else "WRONG")


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="ONNX files; by default all int8 ones of the folder")
    parser.add_argument("--cpu", nargs="+", default=["cortex-m4", "cortex-m55"])
    parser.add_argument("--memory", nargs="+", default=["fast", "40960", "least"], metavar="fast|BYTES|least")
    parser.add_argument("--folder", type=Path, default=Path(__file__).resolve().parents[2] / "shared" / "models")
    options = parser.parse_args()
    paths = [Path(name) for name in options.models] or sorted(options.folder.glob("*_int8.onnx"))
    rows = [
        row(path, cpu, memory)
        for path in [*paths, digits_model(quantized=True)]
        for cpu in options.cpu
        for memory in options.memory
    ]
    print(table(COLUMNS, rows))


if __name__ == "__main__":
    main()
