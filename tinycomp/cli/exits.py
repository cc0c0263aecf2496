"""Define the exit codes, the same for every command."""

from __future__ import annotations

from tinycomp.errors import FallbackError, TinycompError, VerifyError

OK = 0
"""Everything went as asked."""
FAILED = 1
"""The command ran, and what it checked does not hold: results differ, a node fell back under ``--strict``, …"""
USAGE = 2
"""The command line, the model or the inputs are wrong."""
INTERNAL = 3
"""tinycomp itself failed; please report it."""
INTERRUPTED = 130
"""Stopped with Ctrl-C."""


class UsageError(TinycompError, ValueError):
    """The command line is wrong, or a file that it names."""


class CheckFailedError(TinycompError):
    """A check that the user asked for does not hold."""


def exit_code(error: BaseException) -> int:
    """Return the exit code that stands for an exception.

    >>> exit_code(VerifyError("the results differ")), exit_code(UsageError("no such file")), exit_code(KeyError("x"))
    (1, 2, 3)
    """
    if isinstance(error, (FallbackError, VerifyError, CheckFailedError)):
        return FAILED
    if isinstance(error, (TinycompError, OSError, MemoryError)):
        return USAGE
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else INTERNAL
