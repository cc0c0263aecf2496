"""Hold what every command writes with: results and errors for people or for programs, and the form of a command."""

from __future__ import annotations

import json
import math
import sys
import threading
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from tinycomp.cli import exits
from tinycomp.console import SafeConsole
from tinycomp.errors import TinycompError, visible
from tinycomp.records import dataclass

_BROKEN = "The installation seems to be broken; see: tinycomp doctor"
_REPORT = "This is a fault in tinycomp. Run again with --traceback and report what it shows."
_PARTS = ("where", "expected", "found", "hint")
_PATIENCE = 1.0


def failure_block(error: BaseException, code: int) -> RenderableType:
    """Return the message, then where, what was expected, what was found, and what to do, a line each."""
    lines = [Text.assemble(("error: ", "bold red"), _message(error))]
    parts = {name: getattr(error, name) for name in _PARTS} if isinstance(error, TinycompError) else {}
    if code == exits.INTERNAL:
        parts["hint"] = _BROKEN if isinstance(error, ImportError) else _REPORT
    lines += [Text.assemble((f"  {name}: ", "bold"), text) for name, text in parts.items() if text]
    if isinstance(error, TinycompError) and error.snippet:
        lines.append(Text(error.snippet))
    lines += [Text(f"  note: {note}") for note in getattr(error, "__notes__", ())]
    return Group(*lines)


def failure_dict(error: BaseException) -> dict[str, Any]:
    """Return the same as a JSON-able dict."""
    data = {"type": type(error).__name__, "message": _message(error)}
    if isinstance(error, TinycompError):
        data |= {name: getattr(error, name) for name in (*_PARTS, "snippet")}
    return data


def _message(error: BaseException) -> str:
    if isinstance(error, TinycompError):
        return error.message
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    return f"{type(error).__name__}: {error}"


class Session:
    """One run of one command.

    Args:
        as_json: Whether stdout carries one JSON object and nothing else.
    """

    def __init__(self, as_json: bool = False) -> None:
        self.as_json = as_json
        self.out = _Console()
        self.err = _Console(stderr=True)

    def show(self, *parts: RenderableType, end: str = "\n") -> None:
        """Print for people; silent under ``--json``.

        Texts are printed as they are, without markup; in a pipe or file their lines are not broken, so that paths stay
        whole.
        """
        if not self.as_json:
            for part in parts:
                is_whole = isinstance(part, str) and not self.out.is_terminal
                self.out.print(part, markup=False, highlight=False, end=end, soft_wrap=is_whole)

    def result(self, data: dict[str, Any]) -> None:
        """Print for programs; silent without ``--json``."""
        if self.as_json:
            sys.stdout.write(json.dumps(_plain(data), indent=2, allow_nan=False) + "\n")

    def text(self, text: str, *, err: bool = False) -> None:
        """Print a text of many lines as it is, none of them broken, on stdout or stderr; silent under ``--json``."""
        if not self.as_json:
            (sys.stderr if err else sys.stdout).write(visible(f"{text.rstrip()}\n", lines=True))

    def flush(self) -> None:
        """Let readers have what has been printed."""
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """Print a remark on stderr."""
        self.err.print(text, markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def progress(self, text: str, total: int | None = None) -> Iterator[Callable[[], None]]:
        """Show on stderr what is going on, once it has taken longer than a second.

        Args:
            text: What is going on.
            total: In how many parts; None where that is not known, and neither is the time left.

        Yields:
            A function to call after each part.
        """
        left = () if total is None else (BarColumn(), TextColumn("left"), TimeRemainingColumn())
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), *left)
        bar = Progress(*columns, console=self.err, transient=True)
        task = bar.add_task(text, total=total)
        moving = self.err.is_terminal
        timer = threading.Timer(_PATIENCE, bar.start if moving else self.note, () if moving else (f"{text} …",))
        timer.daemon = True
        timer.start()
        try:
            yield lambda: bar.advance(task)
        finally:
            timer.cancel()
            timer.join()
            if moving:
                bar.stop()


class _Console(SafeConsole):
    """A console that leaves a reader's departure to the command line; rich's own would exit with 1, a failed check."""

    def on_broken_pipe(self) -> None:
        """Let the caller see the error."""
        raise BrokenPipeError


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: no numpy, no paths, and null for what JSON has no number for."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


@dataclass(frozen=True)
class Command:
    """One sub-command.

    Attributes:
        example: Lines for the end of its help.
        configure: Adds its arguments.
        run: Does the work and returns an exit code.
    """

    example: str
    configure: Callable[[ArgumentParser], None]
    run: Callable[[Namespace, Session], int]
