"""ONNX's node tests with nothing changed but the declarations: how many are right, refused, wrong or internal errors.

Run as ``python -m tests.declarations``, or for some ways, targets, operators or tests::

    python -m tests.declarations --way first-one --target c --op Conv --op MaxPool
    python -m tests.declarations --json found.json --test 'test_pad*'

Prints a table, and a line for each test that is not right. Ends with 1 if one is wrong or an internal error.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
from collections import Counter
from pathlib import Path

from tests.declarations.measure import KINDS, SECONDS, Outcome, measure, node_tests
from tests.declarations.ways import TARGETS, WAYS
from tests.pool import run_all


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.declarations", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ways = "\n".join(f"  {name}: {way.__doc__}" for name, way in WAYS.items())
    parser.epilog = f"ways:\n{ways}"
    parser.add_argument("--way", action="append", choices=WAYS, metavar="NAME", help="one of them; all by default")
    parser.add_argument("--target", action="append", choices=TARGETS, help="one of them; both by default")
    parser.add_argument("--op", action="append", default=[], help="only the tests of an operator")
    parser.add_argument("--test", action="append", default=[], help="only the tests whose names match a glob")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only one test out of N")
    parser.add_argument("--processes", type=int, default=2, help="how many at a time (default: 2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what is not right, by way and test")
    parser.add_argument("--counts", action="store_true", help="print the table only")
    return parser


def main() -> int:
    """Run, and print what was found."""
    options = _parser().parse_args()
    chosen = [
        (at, case) for at, case in enumerate(node_tests())
        if (not options.op or any(map(case.has, options.op)))
        and (not options.test or any(fnmatch.fnmatch(case.name, t) for t in options.test))
    ][:: options.every]  # fmt: skip
    pairs = [(way, target) for way in options.way or WAYS for target in options.target or TARGETS]
    counts = {pair: Counter[str]() for pair in pairs}
    lines: dict[tuple[str, str], dict[str, Outcome]] = {pair: {} for pair in pairs}
    jobs = ((at, *pair) for pair in pairs for at, _ in chosen)
    for (at, *pair), outcome in run_all(_run, jobs, options.processes, SECONDS, lambda t: [Outcome("internal", t)]):
        for found in outcome:
            counts[tuple(pair)][found.kind] += 1
            if found.kind != "right":
                lines[tuple(pair)][node_tests()[at].name] = found
    print(f"| way | target | {' | '.join(KINDS)} |\n|---|---|{'--:|' * len(KINDS)}")
    for pair, count in counts.items():
        print(f"| {' | '.join(pair)} | {' | '.join(str(count[k]) for k in KINDS)} |")
    if not options.counts:
        for pair, found in lines.items():
            for name, outcome in sorted(found.items(), key=lambda item: (-KINDS.index(item[1].kind), item[0])):
                print(f"{' '.join(pair)} {outcome.kind} {name}: {outcome.text[:400]}")
    if options.json:
        written = {"/".join(pair): {n: o._asdict() for n, o in found.items()} for pair, found in lines.items()}
        options.json.write_text(json.dumps(written, indent=1), encoding="utf-8")
    return int(any(count["wrong"] or count["internal"] for count in counts.values()))


def _run(job: tuple[int, str, str]) -> list[Outcome]:
    at, way, target = job
    outcome = measure(node_tests()[at], way, target)
    return [] if outcome is None else [outcome]


if __name__ == "__main__":
    sys.exit(main())
