"""``tinycomp bench``."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tinycomp.cli.exits import OK, UsageError
from tinycomp.cli.feeds import feeds_of
from tinycomp.cli.models import SAVED, load_module, model_path
from tinycomp.cli.options import add_compilation, add_feeds, add_model, amount, positive
from tinycomp.cli.peer import BLOCKS, Timing, measure, onnxruntime_runner
from tinycomp.cli.session import Command, Session
from tinycomp.console import FoldingTable

_EXAMPLE = """\
tinycomp bench model.onnx --threads 4 --peer onnxruntime
tinycomp bench model.tcm --input image=photo.npy --profile --trace trace.json
tinycomp bench digits --runs 1000"""
_OURS, _PEER = "tinycomp", "onnxruntime"


def _configure(parser: ArgumentParser) -> None:
    add_model(parser, saved=True)
    add_compilation(parser, "cache")
    add_feeds(parser, default="made up if none is given")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--runs", type=positive, metavar="N", help="how many runs to measure, in tens")
    length.add_argument("--seconds", type=amount, default=3.0, metavar="S", help="how long to measure (default: 3)")
    parser.add_argument("--peer", choices=(_PEER,), help="measure this too, in turns with tinycomp")
    parser.add_argument("--profile", action="store_true", help="show where the time goes, kernel by kernel")
    parser.add_argument(
        "--trace", type=Path, metavar="FILE", help="write the profile for Perfetto (trace events, JSON)"
    )


def _run(options: Namespace, session: Session) -> int:
    if options.peer and model_path(options.model).suffix == SAVED:
        raise UsageError("a saved module does not hold the ONNX model", where="--peer", hint="Name the .onnx file.")
    module = load_module(options, session)
    feeds = feeds_of(options, module.inputs, module.defaults, default_seed=0)
    contenders: dict[str, Callable[[], Any]] = {_OURS: lambda: module.run(feeds)}
    if options.peer:
        runner = onnxruntime_runner(options, module.threads)
        contenders[_PEER] = lambda: runner(feeds)
    with session.progress(f"measuring {' and '.join(contenders)}", BLOCKS * len(contenders)) as advance:
        timings = measure(contenders, runs=options.runs, seconds=options.seconds, advance=advance)
        profile = module.profile(feeds) if options.profile or options.trace else None
    ratio = timings[1].median / timings[0].median if len(timings) > 1 else None
    session.show(_table(timings, module.threads))
    if ratio is not None:
        session.show(_verdict(ratio))
    if profile is not None and options.profile:
        session.show(profile)
    if profile is not None and options.trace is not None:
        profile.save_trace(options.trace)
        session.show(f"Wrote {options.trace}; open it at https://ui.perfetto.dev.")
    session.result(
        {
            "threads": module.threads,
            "timings": [t.to_dict() for t in timings],
            "peer_over_tinycomp": ratio,
            "profile": None if profile is None or not options.profile else profile.to_dict(),
        }
    )
    return OK


def _table(timings: Sequence[Timing], threads: int) -> FoldingTable:
    table = FoldingTable(title=f"Time of one run, {threads} thread(s)", title_justify="left")
    table.add_column("")
    for name in ("median", "minimum", "runs"):
        table.add_column(name, justify="right")
    for timing in timings:
        table.add_row(
            timing.name, f"{timing.median * 1e3:.4g} ms", f"{timing.minimum * 1e3:.4g} ms", str(timing.runs)
        )  # fmt: skip
    return table


def _verdict(ratio: float) -> str:
    """Return the ratio of the medians as a sentence."""
    if ratio >= 1:
        return f"tinycomp takes 1/{ratio:.2f} of {_PEER}'s time"
    return f"tinycomp takes {1 / ratio:.2f} times {_PEER}'s time"


COMMAND = Command(_EXAMPLE, _configure, _run)
