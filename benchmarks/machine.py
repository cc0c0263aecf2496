"""What a measurement was made on."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from benchmarks.peers import versions


def machine() -> dict[str, object]:
    """Processor, cores, load and software, as JSON-able values."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": versions(),
    }


def describe(facts: dict[str, object]) -> str:
    """One line for the head of a table."""
    return f"{facts['processor']}, {facts['cores']} cores, load {facts['load']}; {software(facts)}"


def software(facts: dict[str, object]) -> str:
    """The version of Python and of every package that matters."""
    versions = ", ".join(f"{name} {version}" for name, version in dict(facts["versions"]).items())  # type: ignore[call-overload]
    return f"Python {facts['python']}, {versions}"


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
