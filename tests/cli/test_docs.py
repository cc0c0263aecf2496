"""Every command that the documentation shows works, in the order in which it stands there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tinycomp.cli import exits
from tinycomp.cli.commands import SUMMARIES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "command-line.md"


@pytest.mark.long
def test_the_commands_of_the_page(call, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = re.findall(r"^\$ tinycomp (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(lines) > 20
    for line in lines:
        command, _, remark = line.partition("#")
        result = call(*shlex.split(command))
        wanted = exits.FAILED if "exits with 1" in remark else exits.OK
        assert result.code == wanted, f"{line}\n{result.err}"


def test_the_page_has_a_part_for_every_command() -> None:
    parts = re.findall(r"^## ([\w-]+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert parts == list(SUMMARIES)
