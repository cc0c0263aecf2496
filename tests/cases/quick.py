"""The part of the table that every test run covers, and the holes that are known in it."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.cases.subject import count, name_of, operator_of, rows
from tests.cases.ways import WAYS
from tests.declarations.measure import Outcome
from tinycomp.index import named

PLAIN = ("c", "host", "channels-last")
"""The ways of a test per operator."""
MOST = 20
"""So many rows of an operator are met on the C target and on the host, evenly spread; one in three channels last."""
SHARE = 9
"""In all other ways, so many operators have one that is met, each in another way another one of its rows."""
_FILE = Path(__file__).with_name("holes.txt")


def jobs() -> dict[str, list[tuple[int, str]]]:
    """Return subjects and ways by the name of a test: one for each operator with rows, and one for each way.

    One more has all of ONNX's node tests of loops and branches, on the host.
    """
    own: dict[str, list[int]] = defaultdict(list)
    every: dict[str, list[int]] = defaultdict(list)
    for at in range(count()):
        every[operator_of(at)].append(at)
        if at < len(rows()):
            own[operator_of(at)].append(at)
    found = {op: [*_plain(places[:: -(-len(places) // MOST)])] for op, places in own.items()}
    bodies = named("control_flow")
    found["node tests of bodies"] = [(at, "host") for op in bodies for at in every[op] if at >= len(rows())]
    for way in WAYS:
        if way not in PLAIN and way != "exported":  # a compiler takes a second for each
            chosen = [op for op in every if _draw(way, op) % SHARE == 0]
            found[f"way {way}"] = [(_drawn(way, every[op]), way) for op in chosen]
    return found


def _plain(places: list[int]) -> Iterator[tuple[int, str]]:
    for number, at in enumerate(places):
        yield from ((at, way) for way in PLAIN[: 3 if number % 3 == 1 else 2])


def whole() -> dict[str, list[tuple[int, str]]]:
    """Return every row of the table on the C target and on the host, by operator."""
    found: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for at in range(len(rows())):
        found[operator_of(at)] += [(at, way) for way in PLAIN[:2]]
    return found


def _drawn(way: str, places: list[int]) -> int:
    return min(places, key=lambda at: _draw(way, name_of(at)))


def _draw(way: str, name: str) -> int:
    """Return a number that depends on names alone, so that further rows change little of what is drawn."""
    return zlib.crc32(f"{way}/{name}".encode())


def known() -> frozenset[str]:
    """Return the names of the holes."""
    return frozenset(_FILE.read_text(encoding="utf-8").splitlines())


def hole(name: str, way: str, outcome: Outcome) -> str:
    """Return the name of a hole: what fails, in which way, and of what kind it is."""
    return f"{way}, {outcome.kind}: {name}"


def write(holes: Iterable[str]) -> None:
    """Write down which holes there are."""
    _FILE.write_text("".join(f"{line}\n" for line in sorted(set(holes))), encoding="utf-8")
