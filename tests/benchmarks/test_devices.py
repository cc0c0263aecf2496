"""The measurement of devices runs, and its figures are those of its table."""

from __future__ import annotations

import pytest

from benchmarks import devices


def test_every_case_has_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert devices.main(["--milliseconds", "1", "--rounds", "1"]) == 0
    shown = capsys.readouterr().out
    assert "a chain of four regions on one device, 2 copies" in shown
    assert shown.count("requests") == 2
    assert devices.table([{"case": "x", "seconds": 0.5, "serial": 1.0}]).endswith("| x | 500.00 | 1000 | 2.00 |")
