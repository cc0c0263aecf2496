"""The benchmark of products with weights of 4 bits runs, and its rows hold what it prints."""

from __future__ import annotations

import pytest

pytest.importorskip("onnxruntime")

from benchmarks import block_products


def test_prints_a_line_per_product(capsys):
    assert block_products.main(["--quick", "--threads", "1", "--rows", "1", "16"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| 512x512")]
    assert [line.split("|")[2].strip() for line in lines] == ["1", "16"]


def test_a_row_holds_both_contenders():
    row = block_products.measure(512, 512, 2, 1, rounds=1, seconds=0.001)
    assert set(row["medians"]) == {"tinycomp", "onnxruntime"}
    assert row["ratio"] == row["medians"]["onnxruntime"] / row["medians"]["tinycomp"]
    assert row["share_of_reading"] > 0
