"""``tinycomp serve``."""

from __future__ import annotations

import copy
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

from tinycomp.cli.exits import OK, UsageError
from tinycomp.cli.models import SHIPPED, load_module
from tinycomp.cli.options import add_compilation, natural, positive
from tinycomp.cli.session import Command, Session

_EXAMPLE = """\
tinycomp serve model.tcm
tinycomp serve detector=yolo.tcm words:2=bert.onnx --host 0.0.0.0 --port 9000
tinycomp serve model.tcm --max-batch 16 --batch-delay 2 --max-queue 64"""


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "models", nargs="+", metavar="[NAME[:VERSION]=]FILE",
        help=".tcm, .onnx or .tir files, digits or digits-int8; the name is that of the file unless it is given",
    )  # fmt: skip
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (default: %(default)s)")
    parser.add_argument("--port", type=natural, default=8080, help="port, 0 for a free one (default: %(default)s)")
    group = parser.add_argument_group("serving", "for example: --max-batch 16 --batch-delay 2 --max-queue 64")
    group.add_argument(
        "--max-batch", type=positive, metavar="ROWS",
        help="rows of a run, 1 for no batches (default: 32 where rows are known to be independent)",
    )  # fmt: skip
    group.add_argument(
        "--batch-delay", type=_number, default=0.0, metavar="MS",
        help="how long a request waits for others while the model is free (default: 0)",
    )  # fmt: skip
    group.add_argument(
        "--max-queue", type=positive, default=256, metavar="N",
        help="requests for a model at once; more get status 429 (default: %(default)s)",
    )  # fmt: skip
    group.add_argument(
        "--max-body", type=positive, default=64 << 20, metavar="BYTES",
        help="size of a request; larger ones get status 413 (default: 64 MiB)",
    )  # fmt: skip
    group.add_argument(
        "--timeout", type=_number, default=60.0, metavar="S",
        help="time of a request; later it gets status 504 (default: 60)",
    )  # fmt: skip
    group.add_argument(
        "--grace", type=_number, default=30.0, metavar="S",
        help="time for requests under way after SIGTERM (default: 30)",
    )  # fmt: skip
    add_compilation(parser, "cache")


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e9:
        raise ArgumentTypeError(f"expected a number from 0 on, found {text}")
    return value


def _run(options: Namespace, session: Session) -> int:
    from tinycomp.serving.application import Application, Limits, ServedModel  # imported here: they need packages
    from tinycomp.serving.server import listen, serve

    limits = Limits(
        options.max_batch, options.batch_delay / 1e3, options.max_queue, options.max_body, options.timeout
    )  # fmt: skip
    models = []
    for text in options.models:
        name, version, file = _named(text)
        chosen = copy.copy(options)
        chosen.model = file
        models.append(ServedModel(name, load_module(chosen, session), version))
    application = Application(models, limits)
    for served in models:
        _, remark = served.rows_of_a_batch(limits.batch)
        if remark:
            session.note(f"{served.name}: {remark}.")
    listening = listen(options.host, options.port)
    host, port = listening.getsockname()[:2]
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}/v2"
    names = {served.name: None for served in models}
    session.show(f"Serving {', '.join(names)} at {url}. Stop with Ctrl-C.")
    session.result({"url": url, "models": [{"name": served.name, "version": served.version} for served in models]})
    session.flush()
    serve(application, listening, grace=options.grace)
    session.note("stopped")
    return OK


def _named(text: str) -> tuple[str, str, str]:
    """Return name, version and file."""
    name, equals, file = text.partition("=")
    if not equals or Path(text).exists():
        return (text if text in SHIPPED else Path(text).stem), "1", text
    name, colon, version = name.partition(":")
    if not name or not file or (colon and not version):
        raise UsageError("cannot read a model", where="serve", expected="NAME=FILE or NAME:VERSION=FILE", found=text)
    return name, version or "1", file


COMMAND = Command(_EXAMPLE, _configure, _run)
