"""Models in half precision, beside onnxruntime, OpenVINO in the precision that it chooses, and all of them in float32.

``python -m benchmarks half`` runs the corpus's float32 models, ours also with ``precision="bf16"``, and float16 models
that it makes by casting their weights, inputs and outputs. OpenVINO has the float32 model and takes bfloat16 by itself
where the processor multiplies it. Ratios are times of a row over those of ours in bfloat16 and in float16, medians and
minima of the same rounds: above 1, ours is faster. Errors are differences from the float32 model in onnxruntime, as a
share of the largest output.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from benchmarks import corpus, output, page
from benchmarks.contest import Effort, Result, compete
from benchmarks.machine import describe
from benchmarks.models import QUICK
from benchmarks.peers import OURS, REFERENCE, relative_error

MODELS = ("mobilenet_v2", "resnet50", "bert_base")
LARGEST = float(np.finfo(np.float16).max)
COLUMNS = ("model", "engine", "precision", "median, ms", "minimum, ms", "/ ours in bf16", "/ ours in f16", "error")


class Entry(NamedTuple):
    """One row of a model.

    Attributes:
        engine: One of ``peers.ENGINES``.
        name: What tables call it.
        precision: What it computes in, and for float16 also what the model is in.
    """

    engine: str
    name: str
    precision: str


OURS_BF16 = Entry("tinycomp-bf16", OURS, "bf16")
OURS_F16 = Entry(OURS, OURS, "f16")
FLOAT32 = Entry(REFERENCE, REFERENCE, "f32")
ENTRIES = (
    OURS_BF16,
    Entry("openvino-default", "openvino", "its own"),
    Entry(OURS, OURS, "f32"),
    Entry("openvino", "openvino", "f32"),
    FLOAT32,
    OURS_F16,
    Entry(REFERENCE, REFERENCE, "f16"),
)
"""In the order in which they run, those that are compared next to each other."""


def main(arguments: Iterable[str] | None = None) -> int:
    """Measure; the exit status is 1 if an engine failed."""
    given = None if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(prog="python -m benchmarks half", description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL", help="of the corpus")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=Effort.rounds)
    parser.add_argument("--quick", action="store_true", help="a short pass, to see that everything works")
    parser.add_argument("--output", type=Path, metavar="DIR")
    options = parser.parse_args(given)
    effort = QUICK if options.quick else Effort(options.rounds)
    found = output.record("half", output.command_line("half", given), dataclasses.asdict(effort), [])
    print(describe(found["machine"]), f"\n\n{page.heading(COLUMNS, 3)}")
    for name in options.models:
        found["rows"].append(measure(name, options.threads, effort))
        print(lines(found["rows"][-1]), flush=True)
    text = "\n".join([page.heading(COLUMNS, 3), *map(lines, found["rows"])])
    output.save(options.output, found, text)
    return int(any(row["error"] for model in found["rows"] for row in model["engines"]))


def measure(name: str, threads: int, effort: Effort) -> dict[str, Any]:
    """Return what is found for one model: a row for each of :data:`ENTRIES`, with times in seconds."""
    wide, feeds = corpus.path(name), corpus.feeds(name)
    with tempfile.TemporaryDirectory() as folder:
        half = Path(folder) / f"{name}.onnx"
        onnx.save(in_float16(onnx.load(wide)), half)
        narrow = {key: np.asarray(_narrow(array)) for key, array in feeds.items()}
        models = [(half, narrow) if entry.precision == "f16" else (wide, feeds) for entry in ENTRIES]
        entries = [(entry.engine, *model) for entry, model in zip(ENTRIES, models, strict=True)]
        results = compete(entries, threads=threads, effort=effort)
    reference = results[ENTRIES.index(FLOAT32)]
    return {"model": name, "threads": threads, "engines": [_row(result, reference) for result in results]}


def _row(result: Result, reference: Result) -> dict[str, Any]:
    if result.error or reference.error:
        return {"error": result.error or f"nothing to compare with: {reference.error}"}
    return {
        "error": "",
        "median": result.median,
        "minimum": result.minimum,
        "difference": _difference(result, reference),
    }


def lines(found: dict[str, Any]) -> str:
    """Return the lines of the Markdown table for one model."""
    rows = found["engines"]
    ours = [rows[ENTRIES.index(entry)] for entry in (OURS_BF16, OURS_F16)]
    return "\n".join(
        page.line([found["model"], entry.name, entry.precision, *_cells(row, ours)])
        for entry, row in zip(ENTRIES, rows, strict=True)
    )


def _cells(row: dict[str, Any], ours: Sequence[dict[str, Any]]) -> list[str]:
    if row["error"]:
        return [row["error"], *[""] * (len(COLUMNS) - 4)]
    times = [f"{row[name] * 1e3:.2f}" for name in ("median", "minimum")]
    return [*times, *(_ratio(row, each) for each in ours), f"{row['difference']:.1e}"]


def _ratio(row: dict[str, Any], ours: dict[str, Any]) -> str:
    if ours["error"]:
        return ""
    return " ".join(f"{row[name] / ours[name]:.2f}" for name in ("median", "minimum"))


def in_float16(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a float32 model, changed into a float16 one: weights, inputs, outputs and what Casts make."""
    graph = model.graph
    del graph.value_info[:]
    for tensor in _tensors(graph):
        if tensor.data_type == TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(_narrow(numpy_helper.to_array(tensor)), tensor.name))
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    for node in graph.node:
        for attribute in node.attribute:
            if (node.op_type, attribute.name, attribute.i) == ("Cast", "to", TensorProto.FLOAT):
                attribute.i = TensorProto.FLOAT16
    return model


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        yield from (attribute.t for attribute in node.attribute if attribute.type == onnx.AttributeProto.TENSOR)


def _narrow(array: NDArray[Any]) -> NDArray[Any]:
    """Return floats in float16; masks of huge numbers become the largest ones."""
    return np.clip(array, -LARGEST, LARGEST).astype(np.float16) if array.dtype == np.float32 else array


def _difference(result: Result, reference: Result) -> float:
    pairs = zip(result.outputs, reference.outputs, strict=True)
    return max(relative_error(found, wanted) for found, wanted in pairs)


if __name__ == "__main__":
    raise SystemExit(main())
