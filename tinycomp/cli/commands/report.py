"""``tinycomp report``."""

from __future__ import annotations

import dataclasses
from argparse import ArgumentParser, Namespace
from pathlib import Path

from tinycomp.cli.exits import OK, UsageError
from tinycomp.cli.models import load_module
from tinycomp.cli.options import add_compilation, add_model
from tinycomp.cli.session import Command, Session
from tinycomp.errors import did_you_mean
from tinycomp.runtime.report import HostRow, RegionRow, Report

_EXAMPLE = """\
tinycomp report model.onnx -t npu_sim -t c
tinycomp report model.onnx --why /layer1/Conv
tinycomp report model.onnx -t npu_sim --advise
tinycomp report digits --html report.html"""


def _configure(parser: ArgumentParser) -> None:
    add_model(parser, saved=True)
    add_compilation(parser)
    parser.add_argument("--why", metavar="NODE", help="say where one node runs, and every reason why not elsewhere")
    parser.add_argument("--advise", action="store_true", help="say which small changes would save regions, as tried")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the report as a web page too")


def _run(options: Namespace, session: Session) -> int:
    report = load_module(options, session).report()
    if options.html is not None:
        report.save_html(options.html)
        session.show(f"Wrote {options.html}.")
    if options.why is not None:
        return _why(report, options.why, session)
    if options.advise:
        with session.progress("trying changes"):
            advice = report.advice()
        session.show(str(advice))
        session.result(advice.to_dict())
        return OK
    session.show(report)
    session.result(report.to_dict())
    return OK


def _why(report: Report, node: str, session: Session) -> int:
    where = report.where(node)
    if where is None:
        rows: list[RegionRow | HostRow] = [*report.regions, *report.hosts]
        known = [source for row in rows for source in row.sources]
        hint = did_you_mean(node, known) or "Leave out --why to see the nodes; optimisation may have removed this one."
        raise UsageError("the compiled model has no such node", where=node, hint=hint)
    hosts = report.why(node)
    if not hosts:
        session.show(f"{node} runs in the region {where}.")
        session.show(*(f"  computed by {layer.kernel}, {layer.algorithm}" for layer in report.how(node)))
        session.show(*(f"  not elsewhere: {reason.stage}: {reason}" for reason in report.reasons.get(node, ())))
    for row in hosts:
        session.show(f"{row.name} ({row.op}) runs on the host, {row.tier} tier:")
        session.show(*(f"  {reason.stage}: {reason}" for reason in row.reasons))
        if not row.reasons:
            session.show("  no target was asked" if not report.targets else "  no target has a rule for it")
    reasons = [reason.to_dict() for reason in report.reasons.get(node, ())]
    session.result(
        {
            "node": node,
            "where": where,
            "hosts": [row.to_dict() for row in hosts],
            "reasons": reasons,
            "layers": [dataclasses.asdict(layer) for layer in report.how(node)],
        }
    )
    return OK


COMMAND = Command(_EXAMPLE, _configure, _run)
