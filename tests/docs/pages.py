"""Pages of the documentation, whose code runs as it stands."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tinycomp.cli import main

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
            self._run(module, language, code, skip)
        return vars(module)

    def follow(self, patch: pytest.MonkeyPatch, folder: Path, *, done: Collection[str] = ()) -> dict[str, Any]:
        """Do everything that the page says, in order, in a folder.

        That is Python, as :meth:`run` does; commands behind ``$``, below which stands a part of what they print; and
        C, whose first line names the file that it becomes.

        Args:
            patch: As for :meth:`run`.
            folder: Where files are written.
            done: Commands that somebody else has seen to.

        Returns:
            The names that the Python has left.
        """
        patch.chdir(folder)
        patch.setitem(sys.modules, "page", module := ModuleType("page"))
        output = ""
        for language, code in self.blocks("python", "text", "console", "c"):
            if language == "console":
                for line in code.splitlines():
                    if not line.startswith("$ "):
                        assert line in output
                    elif (command := line[2:]) not in done:
                        output = command_output(command)
            elif language == "c":
                name = re.match(r"/\* (\S+) \*/\n", code)
                assert name is not None
                (folder / name[1]).write_text(code, encoding="utf-8")
            else:
                self._run(module, language, code)
        return vars(module)

    def _run(
        self, module: ModuleType, language: str, code: str, skip: Callable[[str], object] = lambda code: False
    ) -> None:
        if language == "text":
            assert self.printed[-1].strip() == code.strip()
        elif not skip(code):
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(code, str(self.path), "exec"), vars(module))
            self.printed.append(output.getvalue())


def command_output(command: str) -> str:
    """Run a command, the one of tinycomp in this process, and return what it prints."""
    program, *arguments = shlex.split(command)
    if program == "tinycomp":
        with contextlib.redirect_stdout(io.StringIO()) as output:
            assert main(arguments) == 0, command
        return output.getvalue()
    run = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"{command}\n{run.stderr}"
    return run.stdout
