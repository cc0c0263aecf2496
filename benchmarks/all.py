"""All measurements of speed and memory, one after another, with their files in one folder.

``python -m benchmarks all --output DIR`` leaves what ``python -m benchmarks performance --from DIR`` makes a page of.
Each has a process of its own. ``--quick`` takes a few minutes, to see that everything works; its figures are rough.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

MODELS = ("models", "--threads", "1", "2", "--memory")


def commands(options: argparse.Namespace) -> list[list[str]]:
    """The measurements with their options."""
    prototype = ["--prototype", str(options.prototype)] if options.prototype else []
    suite = "quick" if options.quick else "headline"
    short = ["--quick"] if options.quick else []
    models, loading = [*MODELS, "--suite", suite], ["loading", "--suite", suite]
    chosen = [["kernels", *prototype], models, ["scaling"], ["call-overhead"], loading, ["sizes"], ["decode"]]
    return [[*command, *short, "--output", str(options.output)] for command in chosen]


def main(arguments: Iterable[str] | None = None) -> int:
    """Run them all; the exit status is 1 if one of them failed, the others being run all the same."""
    options = _options(None if arguments is None else list(arguments))
    failed = [command[0] for command in commands(options) if _run(command)]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return int(bool(failed))


def _run(command: Sequence[str]) -> int:
    print(f"\n== python -m benchmarks {' '.join(command)}", flush=True)
    start = time.monotonic()
    status = subprocess.run([sys.executable, "-m", "benchmarks", *command], check=False).returncode
    print(f"== {command[0]}: status {status} after {time.monotonic() - start:.0f} s", flush=True)
    return status


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks all", description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, metavar="DIR", required=True, help="where all files go")
    parser.add_argument("--prototype", type=Path, metavar="FOLDER", help="for kernels: a library to compare with")
    parser.add_argument("--quick", action="store_true", help="a short pass over a few models")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
