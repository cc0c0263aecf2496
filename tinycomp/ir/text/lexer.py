"""Tokens of the textual form, and errors that point at them."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, NoReturn, TypeVar

from tinycomp.errors import ParseError
from tinycomp.ir.text.literals import BARE_VALUE, BARE_WORD

MAX_NESTING = 64
"""Bodies inside bodies, and lists inside lists, that the textual form allows."""
_MAX_DIGITS = 100
_T = TypeVar("_T")
_STRING = r'"(?:[^"\\\n]|\\.)*"'
_TOKEN = re.compile(
    rf"""(?P<SKIP>(?:[ \t\r\n]|//[^\n]*)+)
    |(?P<VALUE>%(?:{_STRING}|{BARE_VALUE}))
    |(?P<STRING>{_STRING})
    |(?P<BYTES>b{_STRING})
    |(?P<HASH>\#[0-9a-f]+)
    |(?P<NUMBER>-?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|(?:inf|nan)(?![A-Za-z0-9_.]))f?(?![A-Za-z0-9_]))
    |(?P<WORD>{BARE_WORD})
    |(?P<PUNCT>->|::|\.\.\.|[(){{}}\[\]<>,:;=@|?])""",
    re.VERBOSE,
)


class Token(NamedTuple):
    """One token: what kind, its text, and the offset where it begins."""

    kind: str
    text: str
    start: int


END = "END"


def tokens(source: str) -> Iterator[Token]:
    """Yield the tokens of ``source``, then endless ``END``.

    Raises:
        ParseError: At a character that begins no token.
    """
    at = 0
    while at < len(source):
        match = _TOKEN.match(source, at)
        if match is None:
            _fail_at(source, at)
        at = match.end()
        kind = match.lastgroup
        assert kind is not None
        if kind != "SKIP":
            yield Token(kind, match.group(), match.start())
    while True:
        yield Token(END, "", len(source))


def _fail_at(source: str, at: int) -> NoReturn:
    if source.startswith(('"', '%"', 'b"'), at):
        fail(source, at, "a text in quotes does not end on its line", hint='Close it with a double quote (").')
    fail(source, at, f"the character {source[at]!r} begins nothing that the textual form knows")


def fail(
    source: str, at: int, message: str, *, length: int = 1, expected: str = "", found: str = "", hint: str = ""
) -> NoReturn:
    """Raise a :class:`ParseError` for the offset ``at``: line, column, the line itself, and a caret under it."""
    begin = source.rfind("\n", 0, at) + 1
    end = source.find("\n", at)
    text = source[begin:] if end < 0 else source[begin:end]
    line = source.count("\n", 0, at) + 1
    raise ParseError(
        message,
        where=f"line {line}, column {at - begin + 1}",
        expected=expected,
        found=found,
        hint=hint,
        snippet=caret(text, at - begin, length, str(line)),
    )


def caret(line: str, column: int, length: int = 1, number: str = "") -> str:
    """Return ``line`` behind a margin with its number, and carets under ``length`` characters from ``column``."""
    margin = " " * len(number)
    padding = "".join("\t" if c == "\t" else " " for c in line[:column])
    return f"{number} | {line}\n{margin} | {padding}{'^' * max(length, 1)}"


class TokenStream:
    """The tokens of a text with one token of lookahead, and the small moves that every rule is made of."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._tokens = tokens(source)
        self._depth = 0
        self.now = next(self._tokens)
        self.ahead = next(self._tokens)

    def advance(self) -> Token:
        """Step over the current token and return it."""
        token = self.now
        self.now = self.ahead
        self.ahead = next(self._tokens)
        return token

    def skip(self, text: str) -> bool:
        """Step over the current token if it is ``text``; return whether it was."""
        if self.now.text != text or self.now.kind == END:
            return False
        self.advance()
        return True

    def take(self, text: str) -> None:
        """Step over ``text``, which must come now."""
        if not self.skip(text):
            self.fail("unexpected text", expected=f'"{text}"')

    def name(self, what: str) -> str:
        """Return a word or a quoted text; ``what`` names it in the error."""
        if self.now.kind == "STRING":
            return self.string()
        if self.now.kind != "WORD":
            self.fail("unexpected text", expected=what)
        return self.advance().text

    def value(self, what: str) -> str:
        """Return the name of a value, without the percent sign."""
        if self.now.kind != "VALUE":
            self.fail("unexpected text", expected=what)
        token = self.advance()
        name = token.text[1:]
        if name.startswith('"'):
            name = self.unquote(name, token)
        if not name:
            self.fail("the name of a value is empty", at=token, hint="Write _ for a skipped or absent one.")
        return name

    def string(self) -> str:
        """Return a quoted text."""
        if self.now.kind != "STRING":
            self.fail("unexpected text", expected="a text in double quotes")
        token = self.advance()
        return self.unquote(token.text, token)

    def unquote(self, text: str, at: Token) -> str:
        """Return what the quoted ``text`` says."""
        try:
            return str(json.loads(text, strict=False))
        except ValueError as error:
            self.fail(f"the text in quotes has a wrong escape: {error}", at=at)

    def integer(self, what: str) -> int:
        """Return a whole number."""
        if self.now.kind != "NUMBER" or not _INTEGER.match(self.now.text):
            self.fail("unexpected text", expected=what)
        return int(self.number_text())

    def number_text(self) -> str:
        """Step over a number and return its text, which Python can convert."""
        if len(self.now.text) > _MAX_DIGITS and _INTEGER.match(self.now.text):
            self.fail("the number is too long", expected=f"at most {_MAX_DIGITS} digits")
        return self.advance().text

    def items(self, ends: tuple[str, ...], item: Callable[[], _T]) -> list[_T]:
        """Return the items up to one of ``ends``, which is left standing; commas lie between."""
        if self.now.text in ends and self.now.kind == "PUNCT":
            return []
        found = [item()]
        while self.skip(","):
            found.append(item())
        return found

    def sequence(self, begin: str, end: str, item: Callable[[], _T]) -> list[_T]:
        """Return the items between two brackets."""
        self.take(begin)
        found = self.items((end,), item)
        self.take(end)
        return found

    @contextlib.contextmanager
    def nesting(self, what: str) -> Iterator[None]:
        """Count one level of nesting while inside, and refuse more than :data:`MAX_NESTING`."""
        self._depth += 1
        if self._depth > MAX_NESTING + 1:
            self.fail(f"{what} are nested too deeply", expected=f"at most {MAX_NESTING} levels")
        yield
        self._depth -= 1

    def fail(
        self, message: str, *, at: Token | None = None, expected: str = "", found: str = "", hint: str = ""
    ) -> NoReturn:
        """Raise a :class:`ParseError` that points at a token, by default the current one."""
        token = self.now if at is None else at
        if expected and not found:
            found = "the end of the text" if token.kind == END else f'"{token.text}"'
        fail(
            self._source, token.start, message,
            length=len(token.text), expected=expected, found=found, hint=hint,
        )  # fmt: skip


_INTEGER = re.compile(r"-?\d+\Z")
