"""The matrix of operators and ways: every row of the table, and ONNX's own node tests, met in every way.

Run as ``python -m tests.cases``, or for some operators and ways::

    python -m tests.cases --op Conv --op MaxPool --way c --way open
    python -m tests.cases --most 6 --write tests/cases/matrix.md

Prints the matrix and what is not right. Ends with 1 if something is wrong or an internal error.
"""

from __future__ import annotations

import argparse
import fnmatch
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

from tests.cases import quick
from tests.cases.runner import KINDS, meet
from tests.cases.subject import count, operator_of, operators, rows, subject
from tests.cases.ways import WAYS
from tests.declarations.measure import SECONDS, Outcome
from tests.pool import run_all

Cells = dict[tuple[str, str], Counter[str]]
LETTERS = {"hosted": "h", "refused": "r", "wrong": "w", "internal": "i"}
_FEW = {"exported": 1}
"""Rows of an operator where each takes long."""
_HEAD = """Made by `python -m tests.cases`. A cell has the number of rows, and of those that are right but run on the
host (h), are refused (r), wrong (w), or end in an error of ours (i). Each kind of hole has a line below. One row of
each operator is exported."""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.cases", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.epilog = "ways:\n" + "\n".join(f"  {name}: {way.__doc__}" for name, way in WAYS.items())
    parser.add_argument("--op", action="append", default=[], metavar="GLOB", help="only operators of these names")
    parser.add_argument("--way", action="append", choices=WAYS, metavar="NAME", help="one of them; all by default")
    parser.add_argument("--rows", choices=("own", "onnx"), help="only rows of the table, or ONNX's node tests")
    parser.add_argument("--most", type=int, metavar="N", help="only so many rows of an operator, evenly spread")
    parser.add_argument("--processes", type=int, default=2, help="how many at a time (default: 2)")
    parser.add_argument("--all", action="store_true", help="print every hole, not one of each kind")
    parser.add_argument("--holes", action="store_true", help="write down the holes of the part that is tested")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the matrix and its holes to a file")
    return parser


def main() -> int:
    """Run, and print or write what was found."""
    options = _parser().parse_args()
    jobs = _jobs(options)
    if options.holes:
        jobs = [job for table in (quick.jobs(), quick.whole()) for part in table.values() for job in part]
    cells: Cells = defaultdict(Counter)
    holes: list[tuple[str, str, str, Outcome]] = []
    for (at, way), (name, outcome) in run_all(_run, jobs, options.processes, SECONDS, _ended):
        if outcome is not None:
            cells[operator_of(at), way][outcome.kind] += 1
            if outcome.kind != "right":
                holes.append((operator_of(at), way, name, outcome))
    if options.holes:
        quick.write(quick.hole(name, way, outcome) for _, way, name, outcome in holes)
        return 0
    ways = [way for way in options.way or WAYS if any(key[1] == way for key in cells)]
    text = "\n".join([*_matrix(cells, ways), "", *_sums(cells, ways), "", *_holes(sorted(holes), options.all)]) + "\n"
    if options.write:
        left_out = ", ".join(way for way in WAYS if way not in ways)
        about = f"{_HEAD}\nRows of an operator: {options.most or 'all'}. Ways left out: {left_out or 'none'}."
        options.write.write_text(f"# Operators and ways\n\n{about}\n\n{text}", encoding="utf-8")
    else:
        print(text)
    return int(any(cell["wrong"] or cell["internal"] for cell in cells.values()))


def _jobs(options: argparse.Namespace) -> list[tuple[int, str]]:
    """Return rows and ways: one row of an operator where a compiler takes seconds, unless that way is asked for."""
    rows_of = {way: set(_chosen(options, None if options.way else _FEW.get(way))) for way in options.way or WAYS}
    return [(at, way) for at in _chosen(options) for way, chosen in rows_of.items() if at in chosen]


def _chosen(options: argparse.Namespace, few: int | None = None) -> list[int]:
    most = few or options.most
    found: dict[str, list[int]] = defaultdict(list)
    for at in range(count()):
        own, op = at < len(rows()), operator_of(at)
        if options.rows and own != (options.rows == "own"):
            continue
        if not options.op or any(fnmatch.fnmatch(op, pattern) for pattern in options.op):
            found[op].append(at)
    steps = {op: -(-len(every) // (most or len(every))) for op, every in found.items()}
    return sorted(at for op, every in found.items() for at in every[:: steps[op]])


def _ended(text: str) -> tuple[str, Outcome | None]:
    return "", Outcome("internal", text)


def _run(job: tuple[int, str]) -> tuple[str, Outcome | None]:
    at, way = job
    try:
        given = subject(at)
    except RuntimeError as error:
        return "", Outcome("internal", str(error))
    return given.name, meet(given, way)


def _matrix(cells: Cells, ways: list[str]) -> list[str]:
    found = dict.fromkeys(op for op, _ in cells)
    known = [*(op for op in operators() if op in found), *(op for op in found if op not in operators())]
    lines = [f"| | {' | '.join(ways)} |", f"|---|{'--|' * len(ways)}"]
    return [*lines, *(f"| {op} | {' | '.join(_cell(cells[op, w]) for w in ways)} |" for op in known)]


def _cell(cell: Counter[str]) -> str:
    return " ".join([str(cell.total() or ""), *(f"{letter}{cell[k]}" for k, letter in LETTERS.items() if cell[k])])


def _sums(cells: Cells, ways: list[str]) -> list[str]:
    lines = [f"| way | {' | '.join(KINDS)} |", f"|---|{'--:|' * len(KINDS)}"]
    for way in ways:
        total = sum((cell for (_, each), cell in cells.items() if each == way), Counter[str]())
        lines.append(f"| {way} | {' | '.join(str(total[kind]) for kind in KINDS)} |")
    return lines


def _holes(holes: list[tuple[str, str, str, Outcome]], every: bool) -> list[str]:
    """Return a line for each hole, or for all that differ in numbers and names alone."""
    groups: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    ways: dict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    for op, way, name, outcome in holes:
        words = re.sub(r"\d+", "N", re.sub(r"^\([^)]*\) |node [^ ]+ ", "", outcome.text))[:90]
        key = (outcome.kind, op, f"{name} {way}" if every else words)
        groups[key].append(f"{name}: {outcome.text[:300]}")
        ways[key][way] += 1
    order = sorted(groups, key=lambda key: (-KINDS.index(key[0]), key[1], key[2]))
    return [
        f"- {key[0]}, {key[1]}, {', '.join(f'{way} {n}' for way, n in ways[key].items())}: {groups[key][0]}"
        for key in order
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
