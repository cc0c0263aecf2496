"""The page runs: its Python in order, text below a block is what it prints, quoted lines stand in their files."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "bring-your-own-backend.md"
QUOTED = re.compile(r"# (tinycomp/[\w/]+\.py)\n")


def blocks() -> list[tuple[str, str]]:
    """Language and contents of every block of the page."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def quotes() -> list[tuple[str, str]]:
    """File and lines of every block that quotes one."""
    python = (code for language, code in blocks() if language == "python")
    return [(found[1], code[found.end() :]) for code in python if (found := QUOTED.match(code))]


def test_the_code_runs_in_order_and_prints_what_the_page_shows():
    scope: dict[str, object] = {}
    printed, compared = "", 0
    for language, code in blocks():
        if language == "text":
            assert printed.strip() == code.strip()
            compared += 1
        elif language == "python" and not QUOTED.match(code):
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(code, str(PAGE), "exec"), scope)
            printed = output.getvalue()
    assert compared >= 4


@pytest.mark.parametrize(("file", "lines"), quotes())
def test_quoted_lines_stand_in_their_file(file: str, lines: str):
    assert lines in (ROOT / file).read_text(encoding="utf-8")


def test_the_page_quotes_the_target():
    assert len(quotes()) >= 7
