"""The table of regions: figures, and the copy of it in the documentation."""

from __future__ import annotations

import pytest

from benchmarks.page import DOCS
from benchmarks.regions import PAGE, Row, measure, table, targets
from tinycomp.data import digits_model


@pytest.mark.parametrize(("name", "quantized"), [("digits", False), ("digits, int8", True)])
@pytest.mark.parametrize("target", ["c", "npu_sim"])
def test_the_documentation_shows_what_is_measured(name: str, quantized: bool, target: str):
    row = measure(name, digits_model(quantized), *targets([target]))
    assert row.regions == row.bound == 1
    assert shown()[name][target] == cells(table([row]).splitlines()[-1])[1]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")[1:-1]]


def shown() -> dict[str, dict[str, str]]:
    """The table of the documentation, by model and target."""
    text = (DOCS / PAGE.file).read_text(encoding="utf-8").partition("<!-- regions: begin -->")[2]
    head, _, *lines = [line for line in text.splitlines() if line.startswith("|")]
    return {cells(line)[0]: dict(zip(cells(head), cells(line), strict=False)) for line in lines}


def test_a_cell_says_what_is_not_proven_and_what_stays_on_the_host():
    assert Row("m", 9, "t", 3, 3, 0, 1.0).cell == "3"
    assert Row("m", 9, "t", 4, 3, 2, 0.99999).cell == "4 (at least 3), 2 host, 99.9 %"


def test_targets_stand_side_by_side():
    rows = [Row("m", 9, "a", 1, 1, 0, 1.0), Row("m", 9, "b", 2, 2, 1, 0.5), Row("n", 9, "b", 1, 1, 0, 1.0)]
    assert table(rows).splitlines() == [
        "| model | a | b |",
        "|---|---|---|",
        "| m | 1 | 2, 1 host, 50.0 % |",
        "| n |  | 1 |",
    ]
