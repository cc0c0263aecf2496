"""Resident memory of whole models: loading and ten runs of tinycomp and its peers, a fresh process for each.

``python -m benchmarks memory resnet50 path/to/other.onnx`` measures models of the corpus and ONNX files. A
process's peak is its ``VmHWM``; what the model added is that less what was resident after importing the engine.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import page, suites
from benchmarks.fresh import in_fresh_process
from benchmarks.machine import describe, machine
from benchmarks.peers import ENGINES, OURS, Feeds, installed, prepare

MODELS = (
    "resnet18",
    "resnet50",
    "mobilenet_v2",
    "efficientnet_b0",
    "bert_base",
    "gpt2_small",
    "vit_tiny",
    "whisper_encoder",
    "unet",
    "yolov8n",
)
RUNS = 10
_MEGABYTE = 1e6


@dataclass(frozen=True)
class Peak:
    """Resident memory of one engine with one model, all in bytes.

    Attributes:
        imported: Resident when the engine had been imported and the inputs were there.
        load: The highest so far when the model had been loaded.
        run: The highest so far after ten runs.
        resident: Resident after ten runs.
        anonymous: The part of ``resident`` that no file stands behind, which the system cannot take back.
    """

    imported: int
    load: int
    run: int
    resident: int
    anonymous: int

    @property
    def added(self) -> int:
        """The highest, less what was there after the import."""
        return self.run - self.imported


def peak_memory(engine: str, model_path: Path, feeds: Feeds, threads: int = 1) -> Peak:
    """Load a model and run it ten times in a fresh process.

    Args:
        engine: One of ``benchmarks.peers.ENGINES``.
        model_path: The ONNX file.
        feeds: Its inputs.
        threads: Threads of the engine.

    Raises:
        NotImplementedError: There is no ``/proc``, which tells a process about its memory.
        RuntimeError: The engine failed; the message is the last line that it wrote.
    """
    if not Path("/proc/self/status").exists():
        raise NotImplementedError("resident memory is read from /proc/self/status, which only Linux has")
    found = in_fresh_process("benchmarks.memory", "own_peak", engine, Path(model_path).resolve(), dict(feeds), threads)
    return Peak(**found)


def own_peak(engine: str, model: Path, feeds: Feeds, threads: int) -> dict[str, int]:
    """The fields of :class:`Peak` for this process, which must be a fresh one; see :func:`peak_memory`."""
    prepare(engine)
    imported = resident()
    run = ENGINES[engine].load(model, threads, feeds)
    load = _status("VmHWM")
    for _ in range(RUNS):
        run(feeds)
    return dataclasses.asdict(Peak(imported, load, _status("VmHWM"), resident(), _status("RssAnon")))


def resident() -> int:
    """What is resident of this process now, in bytes."""
    return _status("VmRSS")


def _status(field: str) -> int:
    """A figure of ``/proc/self/status``, in bytes."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        name, _, rest = line.partition(":")
        if name == field:
            return int(rest.split()[0]) * 1024
    raise NotImplementedError(f"/proc/self/status does not tell {field}")


def measure(name: str, engines: Sequence[str], threads: int) -> dict[str, Any]:
    """One row: the figures of every engine on one model, as JSON-able values; an engine that fails has an ``error``."""
    model, feeds = suites.model(name)
    row: dict[str, Any] = {"model": Path(name).stem, "file": model.stat().st_size, "engines": {}}
    for engine in engines:
        try:
            peak = peak_memory(engine, model, feeds, threads)
            row["engines"][engine] = {**dataclasses.asdict(peak), "added": peak.added}
        except RuntimeError as error:
            row["engines"][engine] = {"error": str(error)}
    return row


def heading(engines: Sequence[str]) -> str:
    """The first two lines of the Markdown table."""
    names = ["model", "file", *engines, "smallest peer / ours"]
    return page.heading(names)


def line(row: dict[str, Any], engines: Sequence[str]) -> str:
    """One line of the Markdown table, in MB: the peak; in brackets what the model added, and what stays resident."""
    cells = [row["model"], f"{row['file'] / _MEGABYTE:.0f}"]
    for engine in engines:
        figures = row["engines"][engine]
        if "error" in figures:
            cells.append(figures["error"])
            continue
        peak, added, resident = (figures[key] / _MEGABYTE for key in ("run", "added", "resident"))
        cells.append(f"{peak:.0f} ({added:.0f}, {resident:.0f})")
    ratios = [_smallest_peer(row, key) for key in ("run", "added")]
    cells.append("" if None in ratios else "{:.2f} ({:.2f})".format(*ratios))
    return page.line(cells)


def _smallest_peer(row: dict[str, Any], key: str) -> float | None:
    """The least figure of any peer over ours; above 1, tinycomp needs less."""
    found = {engine: figures[key] for engine, figures in row["engines"].items() if "error" not in figures}
    ours = found.pop(OURS, None)
    return min(found.values()) / ours if ours and found else None


def main(arguments: Iterable[str] | None = None) -> int:
    """Measure; the exit status is 1 if tinycomp failed on a model."""
    options = _options(None if arguments is None else list(arguments))
    facts = machine()
    print(f"{describe(facts)}\n{options.threads} thread(s)\n")
    print("MB at the peak (added by the model, resident after ten runs)\n")
    print(heading(options.engines))
    rows = []
    for name in options.models:
        rows.append(measure(name, options.engines, options.threads))
        print(line(rows[-1], options.engines), flush=True)
    if options.json:
        figures = {"machine": facts, "threads": options.threads, "runs": RUNS, "rows": rows}
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return int(any("error" in row["engines"].get(OURS, {}) for row in rows))


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure the resident memory of whole models in fresh processes.")
    parser.add_argument("models", nargs="*", default=MODELS, help="names of the corpus, or ONNX files (%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="threads of every engine (%(default)s)")
    parser.add_argument("--engines", nargs="+", default=installed(), choices=installed(), help="%(default)s")
    parser.add_argument("--json", type=Path, help="write every figure here")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
