"""``tinycomp opt``."""

from __future__ import annotations

import dataclasses
import re
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

import tinycomp
from tinycomp.cli.exits import OK, UsageError
from tinycomp.cli.models import TEXT, load_graph
from tinycomp.cli.options import add_model, add_options
from tinycomp.cli.session import Command, Session
from tinycomp.console import FoldingTable
from tinycomp.driver.dump import write_graph
from tinycomp.driver.pipeline import Observer, Pipeline, parse_passes, pass_types
from tinycomp.errors import did_you_mean
from tinycomp.ir.graph import Graph
from tinycomp.passes.base import Pass
from tinycomp.runtime.files import write_file

_EXAMPLE = """\
tinycomp opt --list
tinycomp opt model.onnx --passes simplify,fold-constants -o smaller.onnx
tinycomp opt digits --passes "merge-composite{target=c},annotate-target{targets=c}" --print-after all"""
_ALL = "all"


def _configure(parser: ArgumentParser) -> None:
    add_model(parser, optional=True)
    add_options(parser, "shapes")
    parser.add_argument("--passes", default="", metavar="A,B{OPTION=VALUE}", help="what to run, in order")
    parser.add_argument("--list", action="store_true", help="list the passes with their options")
    parser.add_argument(
        "--print-after", action="append", default=[], metavar="NAME", help='print the graph after this pass, or "all"'
    )
    parser.add_argument("--timing", action="store_true", help="show how long each pass took")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=".tir or .onnx (default: text on stdout)")


def _run(options: Namespace, session: Session) -> int:
    if options.list:
        return _list(session)
    if options.model is None:
        raise UsageError("no model is given", expected="a .onnx or .tir file", hint="Or list the passes with --list.")
    passes = parse_passes(options.passes)
    graph = load_graph(options)
    printed: list[dict[str, Any]] = []
    pipeline = Pipeline(passes, check=True, observers=[_printer(options.print_after, passes, printed, session)])
    with session.progress(f"running {len(passes)} passes"):
        result = pipeline(graph)
    written = [] if options.output is None else _write(options.output, result)
    text = str(result)
    if options.output is None:
        session.text(text)
    timings = [dataclasses.asdict(t) for t in pipeline.timings]
    if options.timing:
        session.err.print(_timing_table(timings))
    session.result({"graph": text, "written": written, "timings": timings, "printed": printed})
    return OK


def _printer(wanted: list[str], passes: list[Pass], printed: list[dict[str, Any]], session: Session) -> Observer:
    """Print the graph after the passes in ``wanted``; on stderr, so that stdout stays one graph."""
    names = [p.name for p in passes]
    for name in wanted:
        if name not in (_ALL, *names):
            hint = did_you_mean(name, names) or f"There are: {', '.join(names) or 'none'}."
            raise UsageError(f'the pass "{name}" does not run', where="--print-after", hint=hint)

    def observe(number: int, name: str, graph: Graph) -> None:
        if number and (_ALL in wanted or name in wanted):
            printed.append({"number": number, "pass": name, "graph": str(graph)})
            session.text(f"// after pass {number}, {name}\n{graph}", err=True)

    return observe


def _write(path: Path, graph: Graph) -> list[Path]:
    """Write a graph in the form that the file's name asks for; return the files written."""
    if path.suffix == ".onnx":
        write_file(path, tinycomp.to_onnx(graph).SerializeToString())
        return [path]
    if path.suffix != TEXT:
        raise UsageError("unknown file type", where=str(path), expected="a name that ends in .tir or .onnx")
    return write_graph(path, graph)


def _list(session: Session) -> int:
    rows = [_describe(name, kind) for name, kind in pass_types().items()]
    table = FoldingTable(title="Passes", title_justify="left", expand=True)
    for name in ("pass", "options", "what it does"):
        table.add_column(name, overflow="fold", no_wrap=name == "pass")
    for row in rows:
        table.add_row(row["name"], ", ".join(row["options"]), row["summary"])
    session.show(table)
    session.result({"passes": rows})
    return OK


def _describe(name: str, kind: type[Pass]) -> dict[str, Any]:
    options = [f.name.replace("_", "-") for f in dataclasses.fields(kind) if f.init]
    summary = re.sub(r":\w+:`([^`]*)`", r"\1", (kind.__doc__ or "").strip().split("\n")[0])
    return {"name": name, "options": options, "summary": summary}


def _timing_table(timings: list[dict[str, Any]]) -> FoldingTable:
    table = FoldingTable(title="Passes", title_justify="left")
    table.add_column("pass")
    for name in ("time", "changed", "nodes after"):
        table.add_column(name, justify="right")
    for row in timings:
        changed = "yes" if row["changed"] else "no"
        table.add_row(row["name"], f"{row['seconds'] * 1e3:.2f} ms", changed, str(row["nodes"]))
    return table


COMMAND = Command(_EXAMPLE, _configure, _run)
