"""``tinycomp targets``."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from rich.table import Table
from rich.text import Text

from tinycomp.cli.exits import OK
from tinycomp.cli.session import Command, Session
from tinycomp.errors import TargetError
from tinycomp.target import Target, find, names

_EXAMPLE = """\
tinycomp targets
tinycomp targets c
tinycomp targets --json"""


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these, with every composite and operator")


def _run(options: Namespace, session: Session) -> int:
    rows = [_describe(name) for name in options.names] if options.names else [_describe_or_error(n) for n in names()]
    table = Table(title="Targets", title_justify="left", expand=True)
    for column in ("name", "description", "composites", "operators"):
        table.add_column(column, overflow="fold")
    for row in rows:
        lists = (row["composites"], row["operators"])
        cells = [", ".join(x) if options.names else str(len(x)) for x in lists]
        about = f"unavailable: {row['error']}" if row["error"] else row["description"]
        table.add_row(*map(Text, (row["name"], about, *cells)))
    session.show(table)
    if not options.names:
        session.show('"host" stands for none: everything runs on numpy kernels.')
    session.result({"targets": rows})
    return OK


def _describe(name: str) -> dict[str, Any]:
    target = find(name)
    return {
        "name": name,
        "description": target.description,
        "composites": [c.name for c in target.composites],
        "operators": sorted(f"{domain}::{op}" if domain else op for domain, op in target.rules),
        "generates_code": target.generates,
        "error": _what_is_missing(target),
    }


def _what_is_missing(target: Target) -> str:
    try:
        target.require()
    except TargetError as error:
        return str(error)
    return ""


def _describe_or_error(name: str) -> dict[str, Any]:
    """Describe one target; that it does not load must not hide the others."""
    try:
        return _describe(name)
    except TargetError as error:
        nothing = {"description": "", "composites": [], "operators": [], "generates_code": False}
        return {"name": name, **nothing, "error": str(error)}


COMMAND = Command(_EXAMPLE, _configure, _run)
