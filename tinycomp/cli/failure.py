"""An exception as one block of text for people, and as a dict for programs."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from tinycomp.cli import exits
from tinycomp.errors import TinycompError

_BROKEN = "The installation seems to be broken; see: tinycomp doctor"
_REPORT = "This is a fault in tinycomp. Run again with --traceback and report what it shows."
_PARTS = ("where", "expected", "found", "hint")


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
