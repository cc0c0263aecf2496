"""Pages of the documentation, whose code runs as it stands."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


class Page:
    """A page of ``docs/``.

    Attributes:
        path: Its file.
        text: What stands in it.
        printed: What each block of Python has printed when it ran.
    """

    def __init__(self, name: str) -> None:
        self.path = ROOT / "docs" / name
        self.text = self.path.read_text(encoding="utf-8")
        self.printed: list[str] = []

    def blocks(self, *languages: str) -> list[tuple[str, str]]:
        """List language and contents of every block of code, in order; all languages unless some are named."""
        blocks = re.findall(r"^```(\w+)\n(.*?)^```$", self.text, flags=re.DOTALL | re.MULTILINE)
        return [(language, code) for language, code in blocks if not languages or language in languages]

    def code(self, language: str) -> list[str]:
        """List the blocks of one language."""
        return [code for _, code in self.blocks(language)]

    def run(
        self, patch: pytest.MonkeyPatch, *, skip: Callable[[str], object] = lambda code: False, compare: bool = True
    ) -> dict[str, Any]:
        """Run the Python of the page in order.

        Args:
            patch: Undoes at the end what running needs: the code is that of a module, where dataclasses look for names.
            skip: Tells Python that is quoted from that which runs.
            compare: Whether blocks of text are what the Python just before prints.

        Returns:
            The names that the code has left.
        """
        patch.setitem(sys.modules, "page", module := ModuleType("page"))
        for language, code in self.blocks("python", *["text"] * compare):
            if language == "text":
                assert self.printed[-1].strip() == code.strip()
            elif not skip(code):
                with contextlib.redirect_stdout(io.StringIO()) as output:
                    exec(compile(code, str(self.path), "exec"), vars(module))
                self.printed.append(output.getvalue())
        return vars(module)
