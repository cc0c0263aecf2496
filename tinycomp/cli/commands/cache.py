"""``tinycomp cache``."""

from __future__ import annotations

import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import Any

from rich.table import Table
from rich.text import Text

from tinycomp.cli.exits import OK, UsageError
from tinycomp.cli.session import Command, Session
from tinycomp.runtime.csource.cache import CCache, Entry

_EXAMPLE = """\
tinycomp cache list
tinycomp cache prune --older-than 30
tinycomp cache prune --all"""
_DAY = 86_400.0
_SHOWN_KEY = 12


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=("list", "prune"), default="list", help="default: list")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--older-than", type=_days, metavar="DAYS", help="prune what was not used for so many days (default: 30)"
    )
    which.add_argument("--all", action="store_true", help="prune everything")


def _run(options: Namespace, session: Session) -> int:
    if options.action == "list" and (options.all or options.older_than is not None):
        raise UsageError("list shows everything", where="tinycomp cache list", hint="Did you mean prune?")
    cache = CCache()
    try:
        if options.action == "list":
            _list(cache, session)
        else:
            _prune(cache, 0.0 if options.all else options.older_than, session)
    except OSError as error:
        raise UsageError(f"the cache cannot be used: {error}", where=str(cache.folder)) from error
    return OK


def _list(cache: CCache, session: Session) -> None:
    entries = cache.entries()
    table = Table(title=f"Compiled C source in {cache.folder}", title_justify="left", expand=True)
    for name in ("key", "target", "region", "bytes", "last used"):
        table.add_column(name, overflow="fold", justify="right" if name == "bytes" else "left")
    for entry in entries:
        cells = (entry.key[:_SHOWN_KEY], entry.target, entry.region, f"{entry.bytes:,}", _ago(_age(entry)))
        table.add_row(*map(Text, cells))
    session.show(table if entries else f"There is nothing in {cache.folder}.")
    session.result(_summary(cache, entries))


def _prune(cache: CCache, days: float | None, session: Session) -> None:
    removed = cache.prune(_DAY * (30.0 if days is None else days))
    session.show(f"Removed {len(removed)} of {len(removed) + len(cache.entries())} entries from {cache.folder}.")
    session.result({**_summary(cache, removed), "kept": len(cache.entries())})


def _summary(cache: CCache, entries: list[Entry]) -> dict[str, Any]:
    rows = [
        {"key": e.key, "target": e.target, "region": e.region, "bytes": e.bytes, "age_seconds": round(_age(e), 1)}
        for e in entries
    ]
    return {"folder": str(cache.folder), "entries": rows, "bytes": sum(e.bytes for e in entries)}


def _age(entry: Entry) -> float:
    return max(0.0, time.time() - entry.used)


def _ago(seconds: float) -> str:
    """Say how long ago something was, in one unit."""
    for unit, length in (("d", _DAY), ("h", 3600.0), ("min", 60.0)):
        if seconds >= length:
            return f"{seconds / length:.0f} {unit} ago"
    return "just now"


def _days(text: str) -> float:
    try:
        days = float(text)
    except ValueError:
        days = -1.0
    if not days >= 0:
        raise ArgumentTypeError(f"expected a number of days, found {text}")
    return days


COMMAND = Command(_EXAMPLE, _configure, _run)
