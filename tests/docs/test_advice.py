"""The Python on the page about advice runs, and prints what the page shows."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "advice.md"


def test_the_code_runs_in_order_and_prints_what_the_page_shows():
    scope: dict[str, object] = {}
    printed, compared = "", 0
    for language, code in re.findall(r"^```(python|text)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S):
        if language == "text":
            assert printed.strip() == code.strip()
            compared += 1
        else:
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(code, str(PAGE), "exec"), scope)
            printed = output.getvalue()
    assert compared
