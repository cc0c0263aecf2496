"""The command ``python -m tests.fuzz``: cases of one harness, or of all of them in turn, for some time."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.fuzz.registry import NAMES, find
from tests.fuzz.session import Outcome, Session


def main() -> int:
    """Run, and say what was seen; 1 if anything was found."""
    options = _parser().parse_args()
    found = False
    for name in options.harness or NAMES:
        try:
            harness = find(name)
        except ModuleNotFoundError as error:
            print(f"{name}: left out, for {error.name} is not installed", flush=True)
            continue
        folder = options.folder / name
        print(f"{name}: from seed {options.seed} on, findings go to {folder}", flush=True)
        started = time.monotonic()
        session = Session(harness, folder, options.jobs, say=True)
        seconds = None if options.count else 60 * options.minutes
        outcome = session.run(options.seed, options.count, seconds)
        found |= bool(outcome.findings)
        print(_summary(name, outcome, time.monotonic() - started), flush=True)
    return int(found)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="time for each harness (default: 1)")
    parser.add_argument("--count", type=int, help="number of cases of each harness, instead of a time")
    parser.add_argument("--harness", choices=NAMES, action="append", help="one of them; all of them by default")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first case (default: 0)")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time (default: 1)")
    parser.add_argument("--folder", type=Path, default=Path("build/fuzz"), help="where to write what was found")
    return parser


def _summary(name: str, outcome: Outcome, seconds: float) -> str:
    facts = ", ".join(f"{count} {fact}" for fact, count in outcome.facts.items() if fact != "cases")
    lines = [f"{name}: {outcome.cases} cases in {seconds:.0f} s ({facts}); {sum(outcome.findings.values())} findings"]
    for kind, number in outcome.findings.most_common():
        lines.append(f"--- {number} times: {kind}\n{outcome.first[kind]}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
