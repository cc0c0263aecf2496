"""The index by which a file is found that registers something says exactly what the files register."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

import tinycomp

ROOT = Path(tinycomp.__file__).parent.parent
INDEX = ROOT / ".ci" / "index"


@pytest.mark.skipif(not INDEX.exists(), reason="the command that writes the index lies in a checkout")
def test_the_index_is_what_its_command_writes() -> None:
    written = (ROOT / "tinycomp" / "index.py").read_text(encoding="utf-8")
    assert written == runpy.run_path(str(INDEX))["index"](), "write it anew: .ci/index"
