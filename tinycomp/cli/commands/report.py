"""``tinycomp report``."""

from __future__ import annotations

import dataclasses
from argparse import ArgumentParser, Namespace
from pathlib import Path

from tinycomp.cli.exits import OK, UsageError
from tinycomp.cli.feeds import feeds_of
from tinycomp.cli.models import SAVED, load_module, model_path
from tinycomp.cli.options import add_compilation, add_feeds, add_model, settled
from tinycomp.cli.session import Command, Session
from tinycomp.errors import did_you_mean
from tinycomp.runtime.comparison import compare
from tinycomp.runtime.report import Report
from tinycomp.runtime.rows import HostRow, RegionRow

_EXAMPLE = """\
tinycomp report model.onnx -t npu_sim -t c
tinycomp report model.onnx --why /layer1/Conv
tinycomp report model.onnx -t npu_sim --advise
tinycomp report digits --profile --html report.html
tinycomp report digits --html both.html --against digits-int8
tinycomp report digits -t c --against-target npu_sim --against-target c
tinycomp report model.onnx --model-explorer out/"""


def _configure(parser: ArgumentParser) -> None:
    add_model(parser, saved=True)
    add_compilation(parser)
    question = parser.add_mutually_exclusive_group()
    question.add_argument("--why", metavar="NODE", help="say where one node runs, and every reason why not elsewhere")
    question.add_argument("--advise", action="store_true", help="say which small changes would save regions, as tried")
    question.add_argument("--against", metavar="MODEL", help="compare with another model, or a module saved before")
    parser.add_argument(
        "--against-target", action="append", metavar="NAME", help="targets of the other model (default: the same ones)"
    )
    parser.add_argument(
        "--profile",
        action="store_true",
        help="run the model first, so that the report has times and the page a timeline",
    )
    add_feeds(parser, default="made up for --profile if none is given")
    pictures = parser.add_argument_group("pictures", "for example: --profile --html report.html")
    pictures.add_argument(
        "--html", type=Path, metavar="FILE", help="write the report as a web page: the graph, tables, times, memory"
    )
    pictures.add_argument(
        "--model-explorer", type=Path, metavar="FOLDER", help="write the graph and its overlays for Model Explorer"
    )


def _run(options: Namespace, session: Session) -> int:
    if options.against_target and not (options.against or options.why or options.advise):
        options.against = options.model
    report = _report(options, session)
    other = None if options.against is None else _report(_other(options), session)
    if options.html is not None:
        report.save_html(options.html, other)
        session.show(f"Wrote {options.html}.")
    if options.model_explorer is not None:
        paths = report.save_model_explorer(options.model_explorer)
        session.show(*(f"Wrote {path}." for path in paths))
    if other is not None:
        comparison = compare(report, other)
        session.show(comparison)
        session.result(comparison.to_dict())
        return OK
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


def _report(options: Namespace, session: Session) -> Report:
    """Return the report of the model that the options name, with times if they are asked for."""
    module = load_module(options, session)
    if options.profile:
        feeds = feeds_of(options, module.inputs, module.defaults, default_seed=0)
        with session.progress(f"measuring {options.model}"):
            module.profile(feeds)
    return module.report()


def _other(options: Namespace) -> Namespace:
    """Return the options for the model to compare with; a saved module has settled most of them already."""
    other = {**vars(options), "model": options.against, "target": options.against_target or options.target}
    if model_path(options.against).suffix == SAVED:
        if options.against_target:
            raise UsageError("a saved module has its targets already", where="--against-target", hint="Leave it out.")
        other |= settled()
    return Namespace(**other)


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
