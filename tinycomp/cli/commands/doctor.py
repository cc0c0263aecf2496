"""``tinycomp doctor``. It imports as little as it can: it must run where tinycomp itself does not."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from rich.table import Table
from rich.text import Text

from tinycomp.cli.command import Command
from tinycomp.cli.examination import BROKEN, WARNING, examine
from tinycomp.cli.exits import FAILED, OK
from tinycomp.cli.session import Session

_EXAMPLE = """\
tinycomp doctor
tinycomp doctor --json"""
_STYLES = {BROKEN: "bold red", WARNING: "yellow"}


def _configure(parser: ArgumentParser) -> None:
    del parser


def _run(options: Namespace, session: Session) -> int:
    findings = examine()
    table = Table(title="tinycomp doctor", title_justify="left", expand=True)
    for name in ("", "what", "found"):
        table.add_column(name, overflow="fold")
    for finding in findings:
        status = Text(finding.status, style=_STYLES.get(finding.status, "green"))
        table.add_row(status, finding.what, Text(finding.found))
    session.show(table)
    broken = [f for f in findings if f.status == BROKEN]
    session.show(*(f"{f.what}: {f.hint}" for f in findings if f.hint))
    session.show("Something is broken." if broken else "Everything that tinycomp needs is there.")
    session.result({"ok": not broken, "findings": [f.to_dict() for f in findings]})
    return FAILED if broken else OK


COMMAND = Command(_EXAMPLE, _configure, _run)
