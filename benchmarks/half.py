"""Models in float16, beside onnxruntime, the same models in float32, and OpenVINO in the precision that it chooses.

``python -m benchmarks half`` makes float16 models by casting the weights, inputs and outputs of the corpus's. A ratio
is the time of the peer over ours in float16: above 1, that is ahead. OpenVINO has the float32 model. Errors are
differences from the float32 model in onnxruntime, as a share of the largest output.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from benchmarks import corpus, output, page
from benchmarks.contest import Effort, Result, compete
from benchmarks.machine import describe
from benchmarks.models import QUICK
from benchmarks.peers import OURS, REFERENCE, relative_error

MODELS = ("mobilenet_v2", "resnet18", "bert_base")
DEFAULT = "openvino-default"
FLOAT = "openvino"
LARGEST = float(np.finfo(np.float16).max)
COLUMNS = (
    "model", "ours, ms", "onnxruntime / ours", "ours in float32 / ours", "openvino / ours",
    "openvino in float32 / ours", "our error",
    "onnxruntime's", "openvino's",
)  # fmt: skip


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
    print(describe(found["machine"]), f"\n\n{page.heading(list(COLUMNS))}")
    for name in options.models:
        found["rows"].append(measure(name, options.threads, effort))
        print(line(found["rows"][-1]), flush=True)
    text = "\n".join([page.heading(list(COLUMNS)), *map(line, found["rows"])])
    output.save(options.output, found, text)
    return int(any("error" in row for row in found["rows"]))


def measure(name: str, threads: int, effort: Effort) -> dict[str, Any]:
    """One row: medians in seconds, and errors, by engine and precision."""
    wide, feeds = corpus.path(name), corpus.feeds(name)
    with tempfile.TemporaryDirectory() as folder:
        half = Path(folder) / f"{name}.onnx"
        onnx.save(in_float16(onnx.load(wide)), half)
        narrow = {key: np.asarray(_narrow(array)) for key, array in feeds.items()}
        entries = [
            (OURS, half, narrow), (REFERENCE, half, narrow), (OURS, wide, feeds), (DEFAULT, wide, feeds),
            (FLOAT, wide, feeds),
            (REFERENCE, wide, feeds),
        ]  # fmt: skip
        results = compete(entries, threads=threads, effort=effort)
    failed = [f"{result.engine}: {result.error}" for result in results if result.error]
    if failed:
        return {"model": name, "error": "; ".join(failed)}
    ours, peer, ours_wide, default, default_wide, reference = results
    return {
        "model": name,
        "seconds": [statistics.median(each.samples) for each in (ours, peer, ours_wide, default, default_wide)],
        "errors": [_error(each, reference) for each in (ours, peer, default)],
    }


def line(row: dict[str, Any]) -> str:
    """One line of the Markdown table."""
    if "error" in row:
        return page.line([row["model"], row["error"], *[""] * (len(COLUMNS) - 2)])
    ours, *others = row["seconds"]
    ratios = [f"{other / ours:.2f}" for other in others]
    return page.line([row["model"], f"{ours * 1e3:.2f}", *ratios, *(f"{error:.1e}" for error in row["errors"])])


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


def _error(result: Result, reference: Result) -> float:
    pairs = zip(result.outputs, reference.outputs, strict=True)
    return max(relative_error(found, wanted) for found, wanted in pairs)


if __name__ == "__main__":
    raise SystemExit(main())
