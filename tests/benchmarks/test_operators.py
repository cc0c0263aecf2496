"""The tables of operators: figures, and the copy of them in the documentation."""

from __future__ import annotations

import re

import onnx
import pytest

from benchmarks.operators import PAGE, TIERS, NodeTests, Operator, details, operators, overview
from benchmarks.page import DOCS
from tinycomp.ops import OPS

ROWS = {(row.domain, row.name): row for row in operators()}


@pytest.mark.skipif(onnx.defs.onnx_opset_version() != 28, reason="the tables are those of onnx 1.23")
def test_the_documentation_shows_every_operator_as_it_is() -> None:
    text = (DOCS / PAGE.file).read_text(encoding="utf-8")
    shown = text.partition("<!-- operators: begin -->")[2].splitlines()
    computed = overview(list(ROWS.values()), NodeTests({}, {}, (0, 0))).splitlines()

    def without_counts(lines: list[str]) -> list[str]:
        return [line.rpartition(" | ")[0] for line in lines if line.count("|") == 6]

    assert without_counts(shown) == without_counts(computed), "run `python -m benchmarks operators --write`"


def test_the_overview_names_every_operator_once() -> None:
    text = overview(list(ROWS.values()), NodeTests({}, {}, (0, 0)))
    names = [name for line in text.splitlines()[2:] for name in re.findall(r"\w+", line)]
    assert [name for _, name in ROWS if names.count(name) != 1] == []
    families = {row.family.replace("_", " ") for row in ROWS.values()}
    assert families == {line.split("|")[1].strip() for line in text.splitlines()[2:] if line.count("|") == 6}
    assert {row.tier for row in ROWS.values()} == {*TIERS, "none"}


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
        Operator("ai.onnx", "C", "x_y", "numpy", (7,), "floats", False),
        Operator("ai.onnx.ml", "D", "x_y", "onnx.reference", (1,), "floats", False),
    ]
    tests = NodeTests({("ai.onnx", "A"): 5, ("ai.onnx.ml", "D"): 4}, {("ai.onnx", "A"): 3}, (2, 1))
    text = overview(rows, tests)
    assert "| x y | A | C | ai.onnx.ml: D | 3/9 |" in text
    assert text.endswith(
        "1 of 4 operators have a rule of the C target. Refused everywhere: B. Of ONNX's 11 node tests 4 leave nothing "
        "to the host, among them 1 of the 2 whose model has several nodes."
    )
    text = details(rows, tests)
    assert "### x y" in text
    assert "| A | ai.onnx | numpy | 7 | floats | yes | 3 of 5 |" in text
    assert "| B | ai.onnx | none | 7 | floats |  | no tests |" in text
