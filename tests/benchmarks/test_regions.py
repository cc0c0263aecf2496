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
    assert table([row]).splitlines()[-1] in (DOCS / PAGE.file).read_text(encoding="utf-8").splitlines()


def test_a_number_that_is_not_proven_says_so():
    row = Row("m", 9, "t", 4, 3, 2, 0.99999)
    assert table([row]).splitlines()[-1] == "| m | 9 | t | 4 | at least 3 | 2 | 99.9 % |"
    assert Row("m", 9, "t", 3, 3, 2, 1.0).minimum == "3"
