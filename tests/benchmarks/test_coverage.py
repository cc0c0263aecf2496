"""The tables of coverage: figures of a small model, and what the tables say of rows."""

from __future__ import annotations

import pytest

from benchmarks import page

coverage = pytest.importorskip(
    "benchmarks.coverage", reason="the corpus is part of the source tree, not of the package"
)
Row = coverage.Row

REASON = "c: no rule for Mod"
GOOD = Row("a", "dynamo", 1, 1e-6, 1, 1.0, 1.0)
MIXED = Row("b", "dynamo", 1, 2e-6, 2, 1.0, 0.987, (("Mod", REASON, 2), ("Mod", "other", 1)))
FAILED = Row("b", "dynamo", 2, failure="node x (Mod): bad\n  hint")


def test_a_row_says_what_was_found():
    lines = [page.line(coverage._cells(row)) for row in (GOOD, MIXED, FAILED)]
    assert lines == [
        "| a | dynamo | 1 | 1.0e-06 | 1 | 100.0 % | 100.0 % | nothing |",
        "| b | dynamo | 1 | 2.0e-06 | 2 | 100.0 % | 98.7 % | 3 Mod |",
        "| b | dynamo | 2 | failed |  |  |  | node x (Mod): bad |",
    ]


def test_the_table_has_the_worst_batch_of_every_model():
    worse = Row("a", "dynamo", 2, 3e-6, 2, 1.0, 1.0)
    assert coverage.table([GOOD, worse, MIXED]).splitlines()[2:] == [
        "| a | dynamo | 3.0e-06 | 2 | nothing |",
        "| b | dynamo | 2.0e-06 | 2 | 3 Mod; on c: 100.0 % of the MACs, 98.7 % of the time |",
    ]
    assert coverage.table([MIXED, FAILED]).splitlines()[2:] == [
        "| b | dynamo | failed |  | batch 2: node x (Mod): bad |"
    ]


def test_reasons_are_counted_per_model():
    line = coverage.reasons_table([GOOD, MIXED, MIXED]).splitlines()[2]
    assert line == "| Mod | c: no rule for Mod | b 2 |"


def test_a_model_counts_only_if_every_batch_is_right():
    assert coverage.summary([GOOD, MIXED]).startswith("2 of 2 architectures")
    text = coverage.summary([GOOD, MIXED, FAILED])
    assert text.startswith("1 of 2 architectures agree")
    assert text.endswith("1 are one region with nothing on the host.")
    assert not Row("a", "dynamo", 1, error=1e-3).matches


def test_models_that_are_not_named_keep_their_figures(tmp_path):
    file = tmp_path / "coverage.json"
    assert coverage._stored(file) == {}
    coverage._store(file, {"a": [GOOD], "b": [MIXED, FAILED]})
    assert coverage._stored(file) == {"a": [GOOD], "b": [MIXED, FAILED]}


def test_a_model_is_measured_at_every_batch():
    pytest.importorskip("torch", reason="exporting the corpus needs PyTorch")
    pytest.importorskip("onnxscript", reason="exporting the corpus with dynamo needs onnxscript")
    rows = list(coverage.measure("tcn", runs=1))
    assert [(row.model, row.batch) for row in rows] == [("tcn", 1), ("tcn", 2), ("tcn", 3)]
    for row in rows:
        assert row.matches
        assert (row.regions, row.macs, row.seconds, row.hosts) == (1, 1.0, 1.0, ())
