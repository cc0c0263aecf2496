"""``tinycomp cache``."""

from __future__ import annotations

import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import Any

from rich.text import Text

from tinycomp.cli.exits import OK, UsageError
from tinycomp.cli.options import natural
from tinycomp.cli.session import Command, Session
from tinycomp.console import FoldingTable
from tinycomp.memory.constants import cache_folder
from tinycomp.runtime.cache import BlobCache, Cache, CCache, Entry, ModuleCache

_EXAMPLE = """\
tinycomp cache list
tinycomp cache prune --older-than 30
tinycomp cache prune --limit 2000000000
tinycomp cache prune --all"""
_DAY = 86_400.0
_USUAL_AGE = 30.0
_SHOWN_KEY = 12
_TITLES = {"c": "Compiled C source", "blobs": "Blobs", "modules": "Compiled modules"}


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=("list", "prune"), default="list", help="default: list")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--older-than", type=_days, metavar="DAYS", help="prune what was not used for so many days (default: 30)"
    )
    which.add_argument(
        "--limit", type=natural, metavar="BYTES",
        help="prune the modules that were used longest ago, until the others take no more than this",
    )  # fmt: skip
    which.add_argument("--all", action="store_true", help="prune everything")


def _run(options: Namespace, session: Session) -> int:
    if options.action == "list" and (options.all or options.older_than is not None or options.limit is not None):
        raise UsageError("list shows everything", where="tinycomp cache list", hint="Did you mean prune?")
    caches: dict[str, Cache] = {"c": CCache(), "blobs": BlobCache(), "modules": ModuleCache()}
    try:
        if options.action == "list":
            _list(caches, session)
        else:
            _prune(caches, options, session)
    except OSError as error:
        raise UsageError(f"the cache cannot be used: {error}", where=str(cache_folder())) from error
    return OK


def _list(caches: dict[str, Cache], session: Session) -> None:
    found = {kind: cache.entries() for kind, cache in caches.items()}
    for kind, entries in found.items():
        table = FoldingTable(expand=True)
        for name in ("key", "target", "model" if kind == "modules" else "region", "bytes", "last used"):
            table.add_column(name, overflow="fold", justify="right" if name == "bytes" else "left")
        for entry in entries:
            cells = (entry.key[:_SHOWN_KEY], entry.target, entry.region, f"{entry.bytes:,}", _ago(_age(entry)))
            table.add_row(*map(Text, cells))
        if entries:
            session.show(f"{_TITLES[kind]} in {caches[kind].folder}", table)
        else:
            session.show(f"There is nothing in {caches[kind].folder}.")
    session.result(_summary(caches, found))


def _prune(caches: dict[str, Cache], options: Namespace, session: Session) -> None:
    if options.limit is not None:
        caches = {"modules": caches["modules"]}
        removed = {"modules": caches["modules"].prune(float("inf"), options.limit)}
    else:
        days = 0.0 if options.all else _USUAL_AGE if options.older_than is None else options.older_than
        removed = {kind: cache.prune(_DAY * days) for kind, cache in caches.items()}
    kept = {kind: len(cache.entries()) for kind, cache in caches.items()}
    for kind, entries in removed.items():
        total = len(entries) + kept[kind]
        session.show(f"Removed {len(entries)} of {total} entries from {caches[kind].folder}.")
    session.result({**_summary(caches, removed), "kept": sum(kept.values())})


def _summary(caches: dict[str, Cache], found: dict[str, list[Entry]]) -> dict[str, Any]:
    rows = [
        {
            "kind": kind,
            "key": e.key,
            "target": e.target,
            "region": e.region,
            "bytes": e.bytes,
            "age_seconds": round(_age(e), 1),
        }
        for kind, entries in found.items()
        for e in entries
    ]
    folders = {kind: str(cache.folder) for kind, cache in caches.items()}
    return {"folders": folders, "entries": rows, "bytes": sum(row["bytes"] for row in rows)}


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
