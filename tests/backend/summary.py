"""One line at the end of a test run: how much of ONNX's backend suite passes."""

from __future__ import annotations

import pytest

_SUITE = "tests/backend/test_onnx_suite.py::OnnxBackend"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count by outcome; the reports of all workers arrive here."""
    counts = {
        outcome: sum(r.nodeid.startswith(_SUITE) for r in terminalreporter.getreports(outcome))
        for outcome in ("passed", "failed", "xfailed", "xpassed", "skipped")
    }
    if any(counts.values()):
        rest = ", ".join(f"{n} {outcome}" for outcome, n in counts.items() if n and outcome != "passed")
        terminalreporter.write_line(
            f"ONNX backend suite: {counts['passed']} of {sum(counts.values())} pass{f' ({rest})' if rest else ''}"
        )
