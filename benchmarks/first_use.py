"""What a program waits for before its first result: importing tinycomp, and compiling or loading a small model.

``python -m benchmarks first-use`` starts every program in a process of its own, round by round, and tells the seconds
that passed inside it and those of the processor, minima with medians in brackets; Python's own start is in none of
them. ``--packages`` tells which packages take the time to import. The bytecode is cached, as that of an installed
package is.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = {
    "numpy": "import numpy",
    "import tinycomp": "import tinycomp",
    "compile and run": (
        "import numpy, tinycomp\nmodule = tinycomp.compile(MODEL, target='c')\n"
        "module(numpy.zeros((1, 1, 8, 8), 'float32'))"
    ),
    "load and run": "import numpy, tinycomp\ntinycomp.load(MODULE)(numpy.zeros((1, 1, 8, 8), 'float32'))",
    "onnxruntime": (
        "import numpy, onnxruntime\nsession = onnxruntime.InferenceSession(MODEL)\n"
        "session.run(None, {'image': numpy.zeros((1, 1, 8, 8), 'float32')})"
    ),
}
"""What runs in a process, with MODEL and MODULE as the digits classifier and what is saved of it."""
_CLOCKED = """
import importlib._bootstrap, json, sys, time
MODEL, MODULE = sys.argv[1:]
took, inside, load = {}, [], importlib._bootstrap._load_unlocked
def load_clocked(spec):
    start = time.process_time()
    inside.append(0.0)
    try:
        return load(spec)
    finally:
        whole, inner = time.process_time() - start, inside.pop()
        took[spec.name] = whole - inner
        if inside:
            inside[-1] += whole
if PACKAGES:
    importlib._bootstrap._load_unlocked = load_clocked
passed, spent = time.perf_counter(), time.process_time()
PROGRAM
passed, spent = time.perf_counter() - passed, time.process_time() - spent
json.dump([passed, spent, took], sys.stdout)
"""


def main(arguments: list[str] | None = None) -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks first-use", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="processes per program")
    parser.add_argument("--packages", action="store_true", help="tell what importing each package takes")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        files = prepared(Path(name))
        found: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for _ in range(options.rounds):
            for program, text in PROGRAMS.items():
                passed, spent, _took = clocked(text, files)
                found[program].append((passed, spent))
        print(table(found))
        if options.packages:
            print(packages(clocked(PROGRAMS["compile and run"], files, packages=True)[2]))
    return 0


def prepared(folder: Path) -> tuple[str, str]:
    """Return the paths of the model and of what is saved of it, having filled the cache of bytecode."""
    text = "import tinycomp\nfrom tinycomp.data import digits_model\nmodel = digits_model()\n"
    text += "tinycomp.compile(model, target='c').save(MODULE)\n"
    module = str(folder / "digits.tcm")
    clocked(text, ("", module))
    return str(ROOT / "tinycomp" / "data" / "digits_fp32.onnx"), module


def clocked(program: str, files: tuple[str, str], *, packages: bool = False) -> tuple[float, float, dict[str, float]]:
    """Run a program in a new process; return the seconds that passed, those of the processor, and of each import."""
    text = _CLOCKED.replace("PROGRAM", program).replace("PACKAGES", str(packages))
    cache = Path(tempfile.gettempdir()) / "tinycomp-benchmark-bytecode"
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
        "PYTHONDONTWRITEBYTECODE": "",
        "PYTHONPYCACHEPREFIX": str(cache),
    }
    command = [sys.executable, "-c", text, *files]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    passed, spent, took = json.loads(done.stdout)
    return passed, spent, took


def table(found: dict[str, list[tuple[float, float]]]) -> str:
    """Return the figures as a Markdown table."""
    lines = ["| program | seconds that passed | of the processor |", "|---|---:|---:|"]
    for program, figures in found.items():
        cells = (f"{min(column):.3f} ({statistics.median(column):.3f})" for column in zip(*figures, strict=True))
        lines.append(f"| {program} | {' | '.join(cells)} |")
    return "\n".join(lines)


def packages(took: dict[str, float], most: int = 8) -> str:
    """Return what the imports of each package take, the slowest first."""
    sums: dict[str, float] = defaultdict(float)
    for module, seconds in took.items():
        sums[module.partition(".")[0]] += seconds
    lines = ["", "| package | seconds to import | modules |", "|---|---:|---:|"]
    for package, seconds in sorted(sums.items(), key=lambda item: -item[1])[:most]:
        count = sum(module.partition(".")[0] == package for module in took)
        lines.append(f"| {package} | {seconds:.3f} | {count} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
