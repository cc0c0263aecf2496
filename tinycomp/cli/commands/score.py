"""``tinycomp score``."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from tinycomp.cli.exits import OK
from tinycomp.cli.models import load_module
from tinycomp.cli.options import add_compilation, add_model, assigned, positive
from tinycomp.cli.session import Command, Session

_EXAMPLE = """\
tinycomp score model.onnx data/*.parquet -o out/
tinycomp score model.tcm data/ -o out/ --columns image=pixels --keep id --workers 4
tinycomp score model.tcm data/ -o out/ --ray auto"""


def _configure(parser: ArgumentParser) -> None:
    add_model(parser, saved=True)
    parser.add_argument("files", nargs="+", metavar="FILE", help="Parquet files, and folders of them")
    parser.add_argument(
        "-o", "--output", type=Path, required=True, metavar="DIR",
        help="folder for the results; that of a run that was killed, to go on with it",
    )  # fmt: skip
    group = parser.add_argument_group("scoring", "for example: --columns image=pixels --keep id --batch 64 --workers 4")
    group.add_argument(
        "--columns", action="append", default=[], metavar="INPUT=COLUMN",
        help="the column for an input, where it has another name",
    )  # fmt: skip
    group.add_argument(
        "--keep", action="append", metavar="COLUMN",
        help="a column that the results have beside the outputs (default: all that are not inputs)",
    )  # fmt: skip
    group.add_argument("--batch", type=positive, metavar="N", help="rows of a run (default: 16 to 1024, in 256 KB)")
    group.add_argument(
        "--workers", type=positive, metavar="N",
        help="processes, each with as many threads as --threads says, or 1 (default: one for each processor)",
    )  # fmt: skip
    group.add_argument(
        "--ray", nargs="?", const="local", metavar="ADDRESS",
        help="run on Ray: the address of a cluster, auto for the one that runs here, nothing for a new one",
    )  # fmt: skip
    add_compilation(parser, "cache")


def _run(options: Namespace, session: Session) -> int:
    from tinycomp.scoring.score import score  # imported here: it needs pyarrow

    columns = dict(assigned(t, "a column", "--columns", "INPUT=COLUMN") for t in options.columns)
    options.threads = options.threads or 1
    scored = score(
        load_module(options, session), options.files, options.output, columns=columns, keep=options.keep,
        batch=options.batch, workers=options.workers, threads=options.threads, ray=options.ray,
        progress=False if session.as_json else None,
    )  # fmt: skip
    before = f", {scored.resumed} of them done before" if scored.resumed else ""
    session.show(
        f"Wrote {scored.rows:,} rows into {scored.output}: {scored.parts} files{before}; {scored.seconds:.1f} s."
    )
    if scored.failed:
        session.show(f"{scored.failed:,} rows failed; the reasons are in {scored.rejects}.")
    session.result(scored.to_dict())
    return OK


COMMAND = Command(_EXAMPLE, _configure, _run)
