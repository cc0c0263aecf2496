from __future__ import annotations

from typing import Any


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print one line about the corpus. A crash would have ended the process before."""
    reports = [
        report
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        if "bad_input/test_corpus.py" in report.nodeid and report.when == "call"
    ]
    failures = [report.longreprtext for report in reports if report.failed]
    kinds = {kind: sum(f"AssertionError: {kind}" in text for text in failures) for kind in ("hang", "silent")}
    if reports:
        terminalreporter.write_line(
            f"bad input: {len(reports)} runs, 0 crashes, {kinds['hang']} hangs, {kinds['silent']} silent, "
            f"{len(failures) - sum(kinds.values())} other failures"
        )
