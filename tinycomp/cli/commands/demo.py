"""``tinycomp demo``."""

from __future__ import annotations

import statistics
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any

import numpy as np

import tinycomp
from tinycomp.cli.exits import OK
from tinycomp.cli.session import Command, Session
from tinycomp.console import FoldingTable
from tinycomp.data import digits, digits_model
from tinycomp.errors import TargetError
from tinycomp.runtime.module import Module
from tinycomp.runtime.report import Report
from tinycomp.runtime.tables import si
from tinycomp.target import find

_EXAMPLE = """\
tinycomp demo
tinycomp demo --int8 --target npu_sim --target c"""
_ACCELERATOR = "npu_sim"
_DRAWN = 6
_GAP = "   "
_SHADES = " .:-=+*#%@"
_NEXT = """\
What to try next:
  tinycomp report digits-int8 -t npu_sim     what an accelerator takes, and why
  tinycomp report digits --html report.html  the same as a picture
  tinycomp bench digits --peer onnxruntime   how fast that is
  tinycomp compile digits --emit tir         the partitioned graph
  tinycomp compile your-model.onnx -o your-model.tcm"""


def _configure(parser: ArgumentParser) -> None:
    parser.add_argument("--int8", action="store_true", help="only the quantised model")
    parser.add_argument(
        "-t", "--target", action="append", metavar="NAME",
        help=f"target, in order of priority (default: c, and {_ACCELERATOR} before it for the quantised model)",
    )  # fmt: skip


def _run(options: Namespace, session: Session) -> int:
    rows = []
    for quantized in (True,) if options.int8 else (False, True):
        targets = options.target or _default_targets(quantized)
        title = f"The {'int8' if quantized else 'float32'} digits classifier on {', '.join(targets)}"
        session.show(f"{title}\n{'=' * len(title)}")
        with session.progress("compiling and running"):
            row, report, drawn = _classify(quantized, targets)
        session.show(_draw(*drawn, session.out.width), "", report, _summary(row), "")
        rows.append(row)
    if not options.int8 and not options.target:
        with session.progress("compiling and running"):
            row, _, _ = _classify(True, ["c"])
        rows.append(row)
        session.show(_comparison([row for row in rows if row["targets"] == ["c"]]), "")
    session.show(_NEXT)
    session.result({"models": rows})
    return OK


def _default_targets(quantized: bool) -> list[str]:
    """Choose the accelerator of the worked example, which shows what a partition is; without it the C target."""
    if not quantized:
        return ["c"]
    try:
        return [find(_ACCELERATOR).name, "c"]
    except TargetError:
        return ["c"]


def _classify(quantized: bool, targets: Sequence[str]) -> tuple[dict[str, Any], Report, tuple[np.ndarray, np.ndarray]]:
    """Compile one of the two models, classify every held-out digit, and measure; return images and guesses, too."""
    started = time.perf_counter()
    module = tinycomp.compile(digits_model(quantized), targets)
    compiled = time.perf_counter() - started
    images, labels = digits()
    guesses = np.argmax(module(images), axis=1)
    row = {
        "model": "int8" if quantized else "float32",
        "targets": list(targets),
        "bytes": digits_model(quantized).stat().st_size,
        "images": len(labels),
        "correct": int((guesses == labels).sum()),
        "accuracy": float((guesses == labels).mean()),
        "seconds_to_compile": compiled,
        "seconds_per_image": _seconds_per_image(module, images),
    }
    module.profile(images[:1])  # so that the report shows times
    report = module.report()
    return row | {"report": report.to_dict()}, report, (images, guesses)


def _seconds_per_image(module: Module, images: np.ndarray) -> float:
    """Return the median over all images, one at a time."""
    samples = []
    module(images[:1])
    for index in range(len(images)):
        image = images[index : index + 1]
        started = time.perf_counter()
        module(image)
        samples.append(time.perf_counter() - started)
    return statistics.median(samples)


def _draw(images: np.ndarray, guesses: np.ndarray, room: int) -> str:
    """Draw the first digits in letters, as many as a line of the window has room for, with the guess under each."""
    width = 2 * images.shape[-1]
    shown = max(1, min(_DRAWN, (room + len(_GAP)) // (width + len(_GAP))))
    levels = (images[:shown, 0] * (len(_SHADES) - 1)).round().astype(int)
    lines = [_GAP.join("".join(_SHADES[v] * 2 for v in row) for row in rows) for rows in levels.transpose(1, 0, 2)]
    return "\n".join([*lines, _GAP.join(str(g).center(width) for g in guesses[:shown])])


def _comparison(rows: Sequence[dict[str, Any]]) -> FoldingTable:
    """Return a table of both models on the C target, side by side."""
    table = FoldingTable(title="The same digits on the C target", title_justify="left")
    table.add_column("model")
    for name in ("accuracy", "size", "per image"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        time_ = f"{row['seconds_per_image'] * 1e6:.0f} µs"
        table.add_row(row["model"], f"{row['accuracy']:.1%}", si(row["bytes"], "B"), time_)
    return table


def _summary(row: dict[str, Any]) -> str:
    simulated = f"\n{_ACCELERATOR} is a simulation: its time is not that of an accelerator."
    return (
        f"{row['correct']} of {row['images']} held-out digits are right ({row['accuracy']:.1%})\n"
        f"{row['seconds_per_image'] * 1e6:.0f} µs per image, one at a time; "
        f"compiled in {row['seconds_to_compile']:.2f} s{simulated if _ACCELERATOR in row['targets'] else ''}"
    )


COMMAND = Command(_EXAMPLE, _configure, _run)
