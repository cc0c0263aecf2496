"""The page runs: its Python in order, and text below a block is what it prints."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from tinycomp.memory.constants import VARIABLE
from tinycomp.runtime.csource import compiler, source

PAGE = Path(__file__).resolve().parents[2] / "docs" / "code-generation.md"


def blocks() -> list[tuple[str, str]]:
    """Language and contents of every block of the page."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def test_the_code_runs_in_order_and_prints_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    scope: dict[str, object] = {}
    printed, compared = "", 0
    for language, code in blocks():
        if language == "text":
            assert printed.strip() == code.strip()
            compared += 1
        elif language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(code, str(PAGE), "exec"), scope)
            printed = output.getvalue()
    assert compared == 5


def test_the_page_shows_the_signature_that_is_compiled() -> None:
    (shown,) = (code for language, code in blocks() if language == "c")
    documented = re.search(r"int f\((.*)\);", shown)
    assert documented is not None
    assert documented[1] == compiler._SIGNATURE
    assert shown.strip() in (source.__doc__ or "")


@pytest.mark.parametrize(
    "word",
    [VARIABLE, *compiler.COMPILERS, *compiler.BASE_FLAGS[:3], *(n for n in dir(source) if n.startswith("c_"))],
)
def test_the_page_speaks_of(word: str) -> None:
    assert word in PAGE.read_text(encoding="utf-8")
