"""The index by which a file is found that registers something says exactly what the files register."""

from __future__ import annotations

import ast
import json
import runpy
from pathlib import Path

import onnx
import pytest

import tinycomp
from tinycomp import index
from tinycomp.ir import schemas
from tinycomp.ir.proto import ELEMENT_NAMES

ROOT = Path(tinycomp.__file__).parent.parent
INDEX = ROOT / ".ci" / "index"
RECORDS = ("ops", "frontend", "targets")
"""Where operators are told of: what they are, what they are defined by, and how targets lower them."""
TABLES = {
    "passes/keep_forms.py: _PAIRS", "passes/simplify/affine.py: ABSORBERS", "passes/simplify/classical.py: _METRICS",
    "passes/simplify/quantized.py: _MOVES", "quantization/layers.py: RULES", "rewrite/pattern.py: OWN_OPS",
}  # fmt: skip
"""The tables of operators elsewhere: each is what one pass knows of them. Whatever holds for others is a trait."""


@pytest.mark.skipif(not INDEX.exists(), reason="the command that writes the index lies in a checkout")
def test_the_index_is_what_its_command_writes() -> None:
    written = (ROOT / "tinycomp" / "index.py").read_text(encoding="utf-8")
    assert written == runpy.run_path(str(INDEX))["index"](), "write it anew: .ci/index"


@pytest.mark.skipif(not INDEX.exists(), reason="the command that writes the file lies in a checkout")
def test_the_file_of_schemas_says_what_onnx_says() -> None:
    """Of an installed package that knows more or less than the file, what both know is compared."""
    written, found = json.loads(runpy.run_path(str(INDEX))["SCHEMAS"].read_bytes()), schemas.described(onnx)
    opsets = {domain: min(newest, found["opsets"][domain]) for domain, newest in written["opsets"].items()}
    for known in (written, found):
        for name, rows in known["operators"].items():
            newest = opsets[name.rpartition("::")[0]]
            kept = [row for row in rows if row[0] <= newest]
            known["operators"][name] = [
                [*row[:3], [[*formal[:-1], known["types"][formal[-1]]] for formal in row[3]], *row[4:]] for row in kept
            ]
    differing = {n for n, rows in written["operators"].items() if rows and rows != found["operators"].get(n)}
    assert not differing, "write it anew: .ci/index"
    assert written["operators"].keys() >= {name for name, rows in found["operators"].items() if rows}
    assert dict(ELEMENT_NAMES).items() <= {n: k.lower() for k, n in onnx.TensorProto.DataType.items()}.items()


def test_an_opset_that_the_file_does_not_know_is_asked_of_onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    older = {"": 21, "ai.onnx.ml": 5}
    monkeypatch.setattr(schemas, "known_opsets", lambda: older)
    assert schemas.schema.__wrapped__("Conv", "", 22) == schemas.schema("Conv", "", 22)
    assert schemas.schema.__wrapped__("NoSuchOperator", "", 22) is None
    assert schemas.schema("Conv", "com.nobody", 1) is None


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
