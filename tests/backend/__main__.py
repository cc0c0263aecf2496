"""ONNX's backend suite with every pass of the default pipeline left out in turn, as a table.

Run as ``python -m tests.backend``, or for some passes: ``python -m tests.backend --without simplify fold-constants``.
Ends with 1 if a test fails that the list of known failures does not name.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor

from tests.backend.matrix import NONE, run_alone
from tests.backend.suite import pass_names


def main() -> int:
    """Run the suite once per pass, and print a line about each."""
    parser = argparse.ArgumentParser(prog="python -m tests.backend", description=__doc__.partition("\n")[0])
    every = [NONE, *pass_names()]
    parser.add_argument("--without", nargs="+", choices=every, default=every, metavar="pass", help=", ".join(every))
    parser.add_argument("--processes", type=int, default=2, help="how many runs at a time (default: 2)")
    options = parser.parse_args()
    clean = True
    print("| without | pass | of |\n|---|--:|--:|", flush=True)
    with ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        for name, outcome in zip(options.without, pool.map(run_alone, options.without), strict=True):
            print(f"| {name} | {outcome.total - len(outcome.failures)} | {outcome.total} |", flush=True)
            for test, why in outcome.unexpected.items():
                print(f"  {test}: {why}", file=sys.stderr, flush=True)
            clean = clean and not outcome.unexpected
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
