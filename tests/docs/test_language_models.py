"""The page runs: its two commands on a model that has learnt less than there, and its Python in order."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tinycomp.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "language-models.md"
STEPS = 10


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "LICENSE", tmp_path)
    example, generate = (line.removeprefix(".venv/bin/") for line in blocks("sh")[0].splitlines())
    assert example.startswith("python examples/")
    spec = importlib.util.spec_from_file_location("language_model", ROOT / example.removeprefix("python "))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "STEPS", STEPS)
    monkeypatch.setattr(sys, "argv", [example])
    module.main()
    assert capsys.readouterr().out.count("perplexity") == 4
    assert main(shlex.split(generate)[1:]) == 0
    assert len(capsys.readouterr().out) > 20
    names: dict[str, Any] = {}
    for code in blocks("python"):
        exec(compile(code, str(PAGE), "exec"), names)
    assert len(capsys.readouterr().out) == 20
    assert names["after"] == pytest.approx(names["before"], rel=0.2)
