"""Every error that tinycomp raises on purpose.

A message always answers four questions: *where* it happened, what was *expected*, what was *found*, and
what to do next (the *hint*). The parts are attributes too, so that tools need not parse the text.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

_CONTROLS = "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"


def visible(text: str, *, lines: bool = False) -> str:
    r"""Return a text without characters that command a terminal, turn the direction of writing or cannot be seen.

    Args:
        text: Something that may hold names out of a stranger's file.
        lines: Whether line feeds and tabs may stay.

    >>> print(visible("red\x1b[31m\nline"), visible("two\nlines", lines=True))
    red\x1b[31m\nline two
    lines
    """
    if text.isprintable():
        return text
    return re.sub(_CONTROLS, lambda found: found[0] if lines and found[0] in "\n\t" else _escaped(found[0]), text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _cut(text: str, most: int = 4000) -> str:
    """Return a text, or the beginning of a long one."""
    return text if len(text) <= most else f"{text[:most]}…"


def shown(value: object) -> str:
    """Return a value as it was found, for messages; of a long one the beginning."""
    try:
        return _cut(repr(value), 200)
    except Exception:  # of the caller's class, of many digits, or deep
        return f"a {type(value).__name__}"


class TinycompError(Exception):
    """Base of all tinycomp errors.

    Args:
        message: One sentence that says what is wrong.
        where: The file, node, value or option concerned.
        expected: What would have been right.
        found: What was there instead.
        hint: What the user can do next.
        snippet: Lines of the text concerned, with a caret under the place.
    """

    def __init__(
        self, message: str, *, where: str = "", expected: str = "", found: str = "", hint: str = "", snippet: str = ""
    ) -> None:
        where = _cut(visible(where))
        message, expected, found, hint, snippet = (
            _cut(visible(part, lines=True)) for part in (message, expected, found, hint, snippet)
        )
        self.message = message
        self.where = where
        self.expected = expected
        self.found = found
        self.hint = hint
        self.snippet = snippet
        text = f"{where}: {message}" if where else message
        if expected:
            text += f"; expected {expected}"
        if found:
            text += f"; found {found}"
        if hint:
            text = f"{text.rstrip('.')}. {hint}"
        if snippet:
            text += f"\n{snippet}"
        super().__init__(text)

    if sys.version_info < (3, 11):

        def add_note(self, note: str) -> None:
            """Add a line that is shown below the message, as every exception has it from Python 3.11 on."""
            self.__notes__ = [*getattr(self, "__notes__", ()), note]

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by parts: the default would feed the finished text back in as the message."""
        return _rebuild, (type(self), self.message, self.where, self.expected, self.found, self.hint, self.snippet)


def _rebuild(cls: type[TinycompError], message: str, *parts: str) -> TinycompError:
    names = ("where", "expected", "found", "hint", "snippet")
    return cls(message, **dict(zip(names, parts, strict=True)))


class TinycompWarning(UserWarning):
    """Something in the model or the options is unusual; the text says how tinycomp deals with it."""

    def __init__(self, text: object = "") -> None:
        super().__init__(visible(str(text), lines=True))


class ModelError(TinycompError, ValueError):
    """The model is not valid ONNX, or cannot be read."""


class UnsupportedError(TinycompError, NotImplementedError):
    """The model is valid, but asks for something that no available tier can do."""


class MissingPackageError(TinycompError, ImportError):
    """A package that only some of tinycomp needs is not installed."""


class TypeInferenceError(ModelError):
    """The types of a node's operands do not fit its operator."""


class TuningError(TinycompError, ValueError):
    """A tuning log cannot be read or written, or there is nothing to tune."""


class QuantizationError(TinycompError, ValueError):
    """A model cannot be quantised as asked, or the calibration data do not fit it."""


class GenerationError(TinycompError, ValueError):
    """A model cannot generate text as asked: it is not a decoder, its cache is full, or its logits are not numbers."""


class VerifyError(TinycompError):
    """A graph broke an invariant of the IR, or two computations that must agree differ."""


class ParseError(TinycompError, ValueError):
    """A text is not valid tinycomp IR."""


class PatternError(TinycompError, ValueError):
    """A pattern or a rewrite rule is written wrongly."""


class TargetError(TinycompError):
    """A target is unknown, written wrongly, or its code generator failed."""


class OptionError(TinycompError, TypeError):
    """A function was called with an option that it does not have, or with a value that the option cannot have."""


class FallbackError(TinycompError):
    """``strict=True`` was asked for and nodes were left to the host."""


class PlacementError(TinycompError):
    """A node cannot run where it was placed."""


class FeedError(TinycompError, ValueError):
    """An input handed to a module does not fit the model."""


class ExecutionError(TinycompError, RuntimeError):
    """A step of a compiled module failed on values that only run time could show."""


class TimeLimitError(ExecutionError):
    """A run has ended before it was done, for its time is up or it was cancelled."""


class DeclaredShapeError(ExecutionError):
    """A value has another shape than the model declares, which nothing else told and other nodes relied on."""


class DeviceFault(ExecutionError):  # noqa: N818 - the hardware's word
    """A device could not run a command, or not in time.

    A vendor's code raises it with what it knows; tinycomp adds the region and the nodes.

    Args:
        message: One sentence that says what is wrong.
        command: What the device was doing, such as the name of a layer or ``"copy to the device"``.
        region: Symbol of the region.
        sources: Source names of the nodes concerned: those of the command if the device knows them, else the region's.
        parts: As for :class:`TinycompError`.
    """

    def __init__(
        self, message: str, *, command: str = "", region: str = "", sources: Iterable[str] = (), **parts: str
    ) -> None:
        self.command, self.region, self.sources = command, region, tuple(sources)
        super().__init__(message, **parts)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by parts, those of the device included."""
        names = ("where", "expected", "found", "hint", "snippet", "command", "region", "sources")
        return _refault, (self.message, {name: getattr(self, name) for name in names})


def _refault(message: str, parts: Mapping[str, Any]) -> DeviceFault:
    return DeviceFault(message, **parts)


class MemoryLimitError(TinycompError, MemoryError):
    """A value would be larger than the byte budget allows."""


class WriteError(TinycompError, OSError):
    """A file cannot be written, for want of space or permission; ``errno`` says which. What was there is untouched."""


class ArtifactError(TinycompError, ValueError):
    """A saved module is damaged, was made by another version, or is not a saved module."""


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Return ``'Did you mean "x"?'`` for the known name nearest to ``name``, or an empty text.

    >>> did_you_mean("Rleu", ["Conv", "Relu"])
    'Did you mean "Relu"?'
    >>> did_you_mean("zzz", ["Conv", "Relu"])
    ''
    """
    from difflib import get_close_matches  # imported here: few programs need it

    if not isinstance(name, str):
        return ""  # such as the key of a caller's dict
    names = [each for each in known if isinstance(each, str)]
    close = [n for n in names if n.lower() == name.lower()] or get_close_matches(name, names, n=1)
    return f'Did you mean "{close[0]}"?' if close else ""
