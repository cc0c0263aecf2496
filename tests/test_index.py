"""The index by which a file is found that registers something says exactly what the files register."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import pytest

import tinycomp
from tinycomp import index

ROOT = Path(tinycomp.__file__).parent.parent
INDEX = ROOT / ".ci" / "index"
RECORDS = ("ops", "frontend", "targets")
"""Where operators are told of: what they are, what they are defined by, and how targets lower them."""
TABLES = {
    "passes/keep_forms.py: _PAIRS",
    "passes/simplify/affine.py: ABSORBERS",
    "passes/simplify/classical.py: _METRICS",
    "passes/simplify/quantized.py: _MOVES",
    "quantization/layers.py: RULES",
    "rewrite/pattern.py: OWN_OPS",
}
"""The tables of operators elsewhere: each is what one pass knows of them. Whatever holds for others is a trait."""


@pytest.mark.skipif(not INDEX.exists(), reason="the command that writes the index lies in a checkout")
def test_the_index_is_what_its_command_writes() -> None:
    written = (ROOT / "tinycomp" / "index.py").read_text(encoding="utf-8")
    assert written == runpy.run_path(str(INDEX))["index"](), "write it anew: .ci/index"


def test_names_of_operators_stand_in_few_tables() -> None:
    lists = [*index.FAMILIES.values(), *index.DEFINITIONS.values(), *index.EXTENSIONS.values()]
    known = {name.rpartition("::")[2] for text in lists for name in text.split()}
    found = set()
    for path in sorted((ROOT / "tinycomp").rglob("*.py")):
        place = path.relative_to(ROOT / "tinycomp")
        if place.parts[0] in RECORDS or place.name == "index.py":
            continue
        for line in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(line, ast.Assign | ast.AnnAssign) and line.value is not None:
                texts = {str(part.value) for part in ast.walk(line.value) if isinstance(part, ast.Constant)}
                if len(known & texts) > 1:
                    target = line.target if isinstance(line, ast.AnnAssign) else line.targets[0]
                    found.add(f"{place.as_posix()}: {ast.unparse(target)}")
    assert found == TABLES
