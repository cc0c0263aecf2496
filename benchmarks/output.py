"""What a measurement leaves behind: figures as JSON, a table as Markdown, and a plot where matplotlib is installed."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.machine import machine

Draw = Callable[[Any], None]
"""Draws into a matplotlib figure."""
NO_PLOT = "no plot: matplotlib is not installed; pip install matplotlib"


def add_option(parser: argparse.ArgumentParser) -> None:
    """Let the command's user ask for files."""
    parser.add_argument("--output", type=Path, metavar="DIR", help="write figures, table and plot into this folder")


def record(name: str, command: str, effort: Mapping[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of a measurement with all that is needed to make it again, as JSON-able values."""
    return {"name": name, "command": command, "effort": dict(effort), "machine": machine(), "rows": rows}


def command_line(name: str, arguments: list[str] | None) -> str:
    """How a measurement was started, paths cut to their last part; ``arguments`` as its ``main`` took them."""
    given = sys.argv[1:] if arguments is None else arguments
    return " ".join(["python -m benchmarks", name, *(Path(text).name if "/" in text else text for text in given)])


def save(folder: Path | None, found: Mapping[str, Any], text: str, draw: Draw | None = None) -> None:
    """Write ``NAME.json``, ``NAME.md`` and, if there is something to draw, ``NAME.png``; without a folder, nothing."""
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / str(found["name"]).replace("-", "_")
    stem.with_suffix(".json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    stem.with_suffix(".md").write_text(text + "\n", encoding="utf-8")
    if draw is not None and found["rows"]:
        plot(draw, stem.with_suffix(".png"))


def plot(draw: Draw, file: Path) -> bool:
    """Draw into a file; where matplotlib is missing, say so and return false."""
    try:
        import matplotlib.figure
    except ModuleNotFoundError:
        print(NO_PLOT, file=sys.stderr)
        return False
    figure = matplotlib.figure.Figure(layout="constrained")
    draw(figure)
    figure.savefig(file, dpi=120)
    return True


def load(folder: Path, name: str) -> dict[str, Any] | None:
    """The figures that :func:`save` wrote, or None if there are none."""
    file = folder / f"{name.replace('-', '_')}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
