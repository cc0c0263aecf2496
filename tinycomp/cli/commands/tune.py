"""``tinycomp tune``."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

import tinycomp
from tinycomp.cli.exits import OK
from tinycomp.cli.models import load_graph
from tinycomp.cli.options import add_model, add_options, positive
from tinycomp.cli.session import Command, Session

_EXAMPLE = """\
tinycomp tune model.onnx
tinycomp tune model.onnx --shape image=8,3,224,224 --threads 4 --log server.jsonl
tinycomp tune digits --shape image=1,1,8,8 && tinycomp compile digits -t c:tuning=tuning.jsonl -o digits.tcm"""


def _configure(parser: ArgumentParser) -> None:
    add_model(parser)
    add_options(parser, "shapes")
    parser.add_argument("--threads", type=positive, metavar="N", help="threads of a run (default: all it may use)")
    parser.add_argument(
        "--log", type=Path, default=Path("tuning.jsonl"), metavar="FILE",
        help="where to keep what is measured; what it holds already is not measured again (default: tuning.jsonl)",
    )  # fmt: skip


def _run(options: Namespace, session: Session) -> int:
    graph = load_graph(options)
    tuned = tinycomp.tune(graph, options.log, threads=options.threads, progress=False if session.as_json else None)
    known = tuned.problems - tuned.measured
    session.show(
        f"Measured {tuned.measured} of {tuned.problems} problems in {tuned.seconds:.1f} s"
        f"{f'; {options.log} held the other {known}' if known else ''}."
    )
    session.show(f"Use it with: tinycomp compile {options.model} -t c:tuning={options.log}")
    session.result(
        {"log": options.log, "problems": tuned.problems, "measured": tuned.measured, "seconds": tuned.seconds}
    )
    return OK


COMMAND = Command(_EXAMPLE, _configure, _run)
