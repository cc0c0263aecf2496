"""The tables of operators: figures, and the copy of them in the documentation."""

from __future__ import annotations

import onnx
import pytest

from benchmarks.operators import PAGE, NodeTests, Operator, operators, page
from benchmarks.page import DOCS
from tinycomp.ops import OPS

ROWS = {(row.domain, row.name): row for row in operators()}


@pytest.mark.skipif(onnx.defs.onnx_opset_version() != 28, reason="the tables are those of onnx 1.23")
def test_the_documentation_shows_every_operator_as_it_is() -> None:
    lines = (DOCS / PAGE.file).read_text(encoding="utf-8").splitlines()
    shown = {tuple(c.strip() for c in line.split("|")[1:7]) for line in lines if line.count("|") == 8}
    stale = [row.cells for row in ROWS.values() if row.cells not in shown]
    assert not stale, "run `python -m benchmarks operators --write`"
    families = {f"### {row.family.replace('_', ' ')}" for row in ROWS.values()}
    assert families == {line for line in lines if line.startswith("### ")}


def test_a_row_says_what_the_record_and_the_targets_say() -> None:
    conv = ROWS["ai.onnx", "Conv"]
    assert (conv.family, conv.tier, conv.versions, conv.on_c) == ("conv", "numpy", (1, 11, 22), True)
    assert ROWS["ai.onnx", "ReduceSum"].versions == (1, 11, 13)
    assert ROWS["ai.onnx", "ImageDecoder"].tier == "onnx.reference"
    assert ROWS["ai.onnx.preview.training", "Gradient"].tier == "none"
    withdrawn = {r.name for r in OPS.all() if not r.domain} - {name for _, name in ROWS}
    assert withdrawn == {"Scatter", "Upsample"}


def test_totals_count_operators_and_tests() -> None:
    rows = [
        Operator("ai.onnx", "A", "x_y", "numpy", (7,), "floats", True),
        Operator("ai.onnx", "B", "x_y", "none", (7,), "floats", False),
    ]
    text = page(rows, NodeTests({("ai.onnx", "A"): 5}, {("ai.onnx", "A"): 3}, (2, 1)))
    assert "| [x_y](#x-y) | 2 | 1 | 0 | 1 | 1 | 3 | 5 |" in text
    assert "| **all** | 2 | 1 | 0 | 1 | 1 | 4 | 7 |" in text
    assert "| A | ai.onnx | numpy | 7 | floats | yes | 3 of 5 |" in text
    assert "| B | ai.onnx | none | 7 | floats |  | no tests |" in text
