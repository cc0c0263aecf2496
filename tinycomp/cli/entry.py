"""Parse the command line, run the command, and turn every failure into a message and an exit code."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
import shutil
import sys
import textwrap
import traceback
import warnings
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from tinycomp.cli import commands, exits
from tinycomp.cli.session import Session, failure_block, failure_dict
from tinycomp.errors import TinycompWarning, did_you_mean
from tinycomp.version import installed_version

_EPILOG = """\
start here:
  tinycomp demo

exit codes:
  0    everything went as asked
  1    a check failed: results differ, nodes fell back under --strict, the
       installation is broken
  2    the command line, the model or an input is wrong
  3    tinycomp itself failed; please report it
  130  interrupted with Ctrl-C
"""


class _Parser(ArgumentParser):
    """An argument parser that raises instead of leaving the process."""

    chosen: ArgumentParser | None = None
    """The parser of the command that the arguments name; its options are the ones to suggest."""

    def print_help(self, file: Any = None) -> None:
        """Write the help; the base class keeps it to itself if that fails."""
        (file or sys.stdout).write(self.format_help())

    def error(self, message: str) -> NoReturn:
        wrong = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        hint = did_you_mean(wrong[1], re.findall(r"[\w-]+", wrong[2])) if wrong else ""
        unknown = re.search(r"unrecognized arguments: (-[^ =]+)", message)
        if unknown:
            hint = did_you_mean(unknown[1], re.findall(r"--[\w-]+", (self.chosen or self).format_help()))
        asked = self.chosen or self
        raise exits.UsageError(message, hint=f"{hint} See: {asked.prog} --help".strip())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: Arguments without the program's name; by default those of the process.

    Returns:
        The exit code, see :mod:`tinycomp.cli.exits`.
    """
    if argv is None and "_ARGCOMPLETE" in os.environ:
        _complete(os.environ.get("COMP_LINE", ""))
    arguments = list(sys.argv[1:] if argv is None else argv)
    session = Session(as_json="--json" in arguments)
    try:
        with _warnings_as_remarks(session), _logs_as_remarks(session):
            code = _run(arguments, session)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _forget_stdout()
        return exits.OK
    except (Exception, KeyboardInterrupt) as error:
        return _fail(error, arguments, session)


@contextlib.contextmanager
def _warnings_as_remarks(session: Session) -> Iterator[None]:
    """Show tinycomp's own warnings without the line of Python that a user of the command line has not written."""
    with warnings.catch_warnings():

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, TinycompWarning):
                session.note(f"warning: {message}")
            else:
                session.note(warnings.formatwarning(message, category, *place[:2]).rstrip())

        warnings.showwarning = show
        yield


@contextlib.contextmanager
def _logs_as_remarks(session: Session) -> Iterator[None]:
    """Show records of logs that nobody else takes on stderr, like everything else."""

    class Notes(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            session.note(self.format(record))

    before, logging.lastResort = logging.lastResort, Notes(logging.WARNING)
    try:
        yield
    finally:
        logging.lastResort = before


def _run(arguments: list[str], session: Session) -> int:
    parser = build_parser(arguments)
    if not arguments:
        session.show(parser.format_help())
        return exits.USAGE
    try:
        options = parser.parse_args(arguments)
    except SystemExit as stop:  # --help and --version
        return stop.code if isinstance(stop.code, int) else exits.OK
    code: int = options.run(options, session)
    return code


def build_parser(arguments: Sequence[str]) -> ArgumentParser:
    """Return a parser that knows all commands, and the arguments of the one that ``arguments`` name."""
    parser = _Parser(
        prog="tinycomp",
        description="Compile ONNX models for accelerators and for the CPU, and see what runs where.",
        epilog=_EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tinycomp {installed_version() or '(not installed)'}")
    chosen = next((a for a in arguments if not a.startswith("-")), "")
    subparsers = parser.add_subparsers(metavar="command", title="commands", dest="command", required=True)
    for name, summary in commands.SUMMARIES.items():
        sub = subparsers.add_parser(name, help=summary, formatter_class=RawDescriptionHelpFormatter)
        if name == chosen:
            _configure(sub, name, summary)
            parser.chosen = sub
    return parser


def _configure(parser: ArgumentParser, name: str, summary: str) -> None:
    command, room = commands.load(name), _room()
    parser.description = textwrap.fill(f"{summary[0].upper()}{summary[1:]}.", room)
    examples = [_continued(line, room - 2) for line in command.example.splitlines()]
    parser.epilog = "examples:\n" + textwrap.indent("\n".join(examples), "  ")
    command.configure(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout and nothing else")
    parser.add_argument("--traceback", action="store_true", help="show where in tinycomp an error was raised")
    parser.set_defaults(run=command.run)


def _room() -> int:
    """Return how many letters a line of help has."""
    return max(20, shutil.get_terminal_size().columns - 2)


def _continued(command: str, room: int) -> str:
    r"""Return a command in lines that a shell takes for one; what follows an option stays with it.

    >>> print(_continued("tinycomp report digits --html report.html", 36))
    tinycomp report digits \
        --html report.html
    """
    words = shlex.split(command, posix=False)
    parts: list[str] = []
    for before, word in zip(["", *words], words, strict=False):
        if before.startswith("-") and not word.startswith("-"):
            parts[-1] += f" {word}"
        else:
            parts.append(word)
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + 1 + len(part) + 2 > room:
            lines[-1] += " \\"
            lines.append(f"    {part}")
        else:
            lines[-1] += f" {part}"
    return "\n".join(lines)


def _complete(line: str) -> None:
    """Answer a shell that asks how a command goes on, and leave the process; needs argcomplete."""
    try:
        import argcomplete
    except ImportError:
        return
    argcomplete.autocomplete(build_parser(line.split()[1:]))


def _fail(error: BaseException, arguments: Sequence[str], session: Session) -> int:
    code = exits.exit_code(error)
    # The streams themselves may be what failed: the disk behind them is full.
    with contextlib.suppress(OSError):
        if "--traceback" in arguments:
            session.note("".join(traceback.format_exception(error)).rstrip())
        session.err.print(failure_block(error, code), soft_wrap=True)
    try:
        session.result({"error": failure_dict(error), "exit_code": code})
        sys.stdout.flush()
    except OSError:
        _forget_stdout()
    return code


def _forget_stdout() -> None:
    """Keep the interpreter from complaining at exit that nobody can have our output (``| head``, a full disk)."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
