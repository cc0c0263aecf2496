"""``tinycomp targets``."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import fields
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from tinycomp.cli.exits import OK
from tinycomp.cli.session import Command, Session
from tinycomp.console import FoldingTable
from tinycomp.errors import TargetError
from tinycomp.target import QuantizationRule, Target, find, names
from tinycomp.target.options import declared

_EXAMPLE = """\
tinycomp targets
tinycomp targets c
tinycomp targets --json"""


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these, with composites, operators and options")


def _run(options: Namespace, session: Session) -> int:
    rows = [_describe(name) for name in options.names] if options.names else [_describe_or_error(n) for n in names()]
    table = FoldingTable(title="Targets", title_justify="left", expand=True)
    for column in ("name", "description", "composites", "operators"):
        table.add_column(column, overflow="fold")
    for row in rows:
        lists = (row["composites"], row["operators"])
        cells = [", ".join(x) if options.names else str(len(x)) for x in lists]
        about = f"unavailable: {row['error']}" if row["error"] else row["description"]
        table.add_row(*map(Text, (row["name"], about, *cells)))
    session.show(table)
    for row in rows if options.names else ():
        session.show(_options_table(row))
        if row["quantization"]:
            session.show(_rules_table(row))
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
        "quantization": {op: _rule(rule) for op, rule in target.quantization_rules.items()},
        "options": [
            {
                "name": option.name,
                "values": option.values,
                "value": option.written(getattr(target.options, option.name)),
                "default": option.written(option.default),
                "help": option.help,
            }
            for option in declared(target.options).values()
        ],
        "error": _what_is_missing(target),
    }


def _options_table(row: dict[str, Any]) -> RenderableType:
    if not row["options"]:
        return f"{row['name']} has no options."
    first = row["options"][0]
    example = f"-t {row['name'].partition(':')[0]}:{first['name']}={first['values'].partition('|')[0]}"
    table = FoldingTable(title=f"Options of {row['name']}, given as in {example}", title_justify="left", expand=True)
    for column in ("option", "values", "value", "what it does"):
        table.add_column(column, overflow="fold")
    for option in row["options"]:
        table.add_row(*map(Text, (option["name"], option["values"], option["value"], option["help"])))
    return table


def _rule(rule: QuantizationRule) -> dict[str, Any]:
    """Return a rule as JSON has it; of its checks what mends a layer that they refuse."""
    given = {field.name: getattr(rule, field.name) for field in fields(rule)}
    return {**given, "checks": [check.remedy for check in rule.checks]}


def _rules_table(row: dict[str, Any]) -> RenderableType:
    """Return the quantisation rules of a target, operators with the same one in a line, and what is not the default."""
    alike: dict[str, list[str]] = {}
    default = _rule(QuantizationRule())
    for op, rule in row["quantization"].items():
        said = [f"{name}={_text(value)}" for name, value in rule.items() if value != default[name] or name in _ALWAYS]
        alike.setdefault(", ".join(said), []).append(op)
    table = FoldingTable(title=f"How {row['name']} wants layers quantised", title_justify="left", expand=True)
    for column in ("operators", "rule"):
        table.add_column(column, overflow="fold")
    for said_of, ops in alike.items():
        table.add_row(*map(Text, (", ".join(ops), said_of)))
    return table


_ALWAYS = ("activations",)


def _text(value: Any) -> str:
    return "|".join(map(str, value)) or "none" if isinstance(value, (tuple, list)) else str(value)


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
        nothing = {"description": "", "composites": [], "operators": [], "generates_code": False, "options": []}
        return {"name": name, **nothing, "quantization": {}, "error": str(error)}


COMMAND = Command(_EXAMPLE, _configure, _run)
