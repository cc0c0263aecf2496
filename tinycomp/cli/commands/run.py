"""``tinycomp run``."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

import numpy as np
from rich.text import Text

from tinycomp.cli.exits import OK
from tinycomp.cli.feeds import feeds_of, save_outputs
from tinycomp.cli.models import load_module
from tinycomp.cli.options import add_compilation, add_feeds, add_model
from tinycomp.cli.session import Command, Session
from tinycomp.console import FoldingTable

_EXAMPLE = """\
tinycomp run model.onnx --input image=photo.npy -o results.npz
tinycomp run model.tcm --input feeds.npz
tinycomp run digits --random 0"""
_SHOWN = 6


def _configure(parser: ArgumentParser) -> None:
    add_model(parser, saved=True)
    add_compilation(parser, "cache")
    add_feeds(parser, default="needed unless --random is given")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.npz", help="where to write the results")


def _run(options: Namespace, session: Session) -> int:
    module = load_module(options, session)
    feeds = feeds_of(options, module.inputs, module.defaults)
    with session.progress("running"):
        started = time.perf_counter()
        outputs = module.run(feeds)
        seconds = time.perf_counter() - started
    if options.output is not None:
        save_outputs(options.output, outputs)
    rows = {name: _describe(value) for name, value in outputs.items()}
    session.show(_table(rows), f"{seconds * 1e3:.3f} ms for this run, the first")
    if options.output is not None:
        session.show(f"Wrote {options.output}.")
    session.result({"outputs": rows, "seconds": seconds, "output": options.output})
    return OK


def _describe(value: Any) -> dict[str, Any]:
    if not isinstance(value, np.ndarray):
        return {"kind": type(value).__name__, "length": len(value) if hasattr(value, "__len__") else None}
    row: dict[str, Any] = {"dtype": value.dtype.name, "shape": list(value.shape)}
    if value.dtype.kind in "OUSV" and value.dtype.name in ("object", "str"):
        return row | {"first": [str(v) for v in value.reshape(-1)[:_SHOWN]]}
    if value.dtype.kind == "c":
        return row | {"first": [str(v) for v in value.reshape(-1)[:_SHOWN]]}
    wide = value.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    row |= {"min": float(finite.min()), "max": float(finite.max()), "mean": float(finite.mean())} if finite.size else {}
    row["first"] = [float(v) if np.isfinite(v) else str(v) for v in wide.reshape(-1)[:_SHOWN]]
    return row


def _table(rows: dict[str, dict[str, Any]]) -> FoldingTable:
    table = FoldingTable(title="Results", title_justify="left")
    for name in ("output", "type", "min", "max", "mean", "first elements"):
        table.add_column(name)
    for name, row in rows.items():
        kind = f"{row['dtype']}{row['shape']}" if "dtype" in row else f"{row['kind']} of {row['length']}"
        numbers = [f"{row[key]:.6g}" if key in row else "" for key in ("min", "max", "mean")]
        first = " ".join(v if isinstance(v, str) else f"{v:.4g}" for v in row.get("first", ()))
        table.add_row(Text(name), Text(kind), *numbers, Text(first))
    return table


COMMAND = Command(_EXAMPLE, _configure, _run)
