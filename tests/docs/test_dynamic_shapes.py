"""The page about dynamic shapes runs as it stands and prints what it says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "docs" / "dynamic-shapes.md"


def test_the_page_prints_what_it_says():
    blocks = re.findall(r"```(python|text)\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    names: dict[str, Any] = {}
    printed = io.StringIO()
    for kind, text in blocks:
        if kind == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(text, names)
        else:
            assert printed.getvalue() == text
    assert len(blocks) == 6
