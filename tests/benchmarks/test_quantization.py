"""The comparison of quantisers runs, and its verdict is about what it measured."""

from __future__ import annotations

import pytest

pytest.importorskip("sklearn", reason="the training digits come with scikit-learn")

from benchmarks import output, quantization


@pytest.mark.filterwarnings("ignore")
def test_a_quick_pass_finds_nothing_worse(tmp_path):
    assert quantization.main(["--quick", "--output", str(tmp_path)]) == 0
    rows = output.load(tmp_path, "quantization")["rows"]
    assert [row["setting"] for row in rows] == [setting.name for setting in quantization.SETTINGS[:2]]
    for row in rows:
        # The same arithmetic, but for the bias correction.
        assert row["uncorrected"]["decibels"] == pytest.approx(row["onnxruntime"]["decibels"], abs=0.3)
        assert row["tinycomp"]["decibels"] > 35
    assert (tmp_path / "quantization.md").read_text().startswith(quantization.HEAD)


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ({"decibels": 30.0}, {"decibels": 29.0}, False),
        ({"decibels": 29.0}, {"decibels": 30.0}, True),
        ({"decibels": 30.0, "accuracy": 0.9}, {"decibels": 29.0, "accuracy": 0.95}, True),
        ({"decibels": 30.0}, None, False),
    ],
)
def test_worse_is_said(ours, theirs, expected):
    assert quantization.worse({"tinycomp": ours, "onnxruntime": theirs}) is expected
