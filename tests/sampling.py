"""Which tests a plain ``pytest`` runs: those that are short, and of long tables a part; ``--rows all`` runs all.

A test function with many rows, or a class of ``unittest`` with many tests, is run for :data:`MOST` of them, or as many
as ``@pytest.mark.rows(number)`` says, or all after ``@pytest.mark.rows(None)``. The rows are chosen by their names
alone, so that they are the same ones everywhere, and a new row changes few of them. ``@pytest.mark.long`` keeps a
function out altogether. Files and tests that are named on the command line are run whole. ``--rows others`` runs what a
plain run leaves out. ``--share 2/6`` is for runs with too little time for that: of what a plain run leaves out it takes
the second of six shares, which are drawn by names as well.
"""

from __future__ import annotations

import argparse
import unittest
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator

import pytest

MOST = 6
"""So many rows of a function are run, unless its mark says otherwise."""


def add_option(parser: pytest.Parser) -> None:
    """Let the command line ask for everything."""
    parser.addoption("--rows", choices=["some", "all", "others"], help="what to run of long tables, and of long tests")
    parser.addoption("--share", type=_share, metavar="K/N", help="run one of N shares of what is left out")


def _share(text: str) -> tuple[int, int]:
    which, _, count = text.partition("/")
    if not (which.isdecimal() and count.isdecimal() and 1 <= int(which) <= int(count)):
        raise argparse.ArgumentTypeError(f"not a share; expected K/N with 1 <= K <= N, such as 2/6; found {text}")
    return int(which), int(count)


def settle(config: pytest.Config) -> None:
    """Decide what is run if the command line does not say so: some of the whole suite, all of what it names.

    Workers of xdist, to which everything seems to be named, get the option of their controller.
    """
    if config.option.rows is None:
        config.option.rows = "all" if config.args_source is pytest.Config.ArgsSource.ARGS else "some"


def leave_out(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests that are asked for."""
    if config.option.rows == "all":
        return
    tables: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        tables[_table(item)].append(item)
    some = {item for table in tables.values() for item in _kept(table)}
    rows, share = config.option.rows, config.option.share

    def is_kept(item: pytest.Item) -> bool:
        if item in some or (rows == "some" and share is None):
            return rows == "some" and item in some
        return share is None or _draw(item) % share[1] == share[0] - 1

    config.hook.pytest_deselected(items=[item for item in items if not is_kept(item)])
    items[:] = filter(is_kept, items)


def _table(item: pytest.Item) -> str:
    """Return the name of what the tests are rows of."""
    of = getattr(item, "cls", None)
    is_class = isinstance(of, type) and issubclass(of, unittest.TestCase)
    return item.nodeid.rpartition("::")[0] if is_class else item.nodeid.partition("[")[0]


def _kept(table: list[pytest.Item]) -> Iterable[pytest.Item]:
    most = next(_numbers(table[0]), MOST)
    if most is None or len(table) <= most:
        return table
    return sorted(table, key=_draw)[:most]


def _draw(item: pytest.Item) -> int:
    return zlib.crc32(item.nodeid.encode())


def _numbers(item: pytest.Item) -> Iterator[int | None]:
    if item.get_closest_marker("long"):
        yield 0
    yield from (mark.args[0] for mark in item.iter_markers("rows"))
