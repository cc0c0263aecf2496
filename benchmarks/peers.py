"""The engines that are compared: tinycomp itself, and the CPU engines of others, each set up at its best.

Loading gives a function from feeds (arrays by input name) to the list of outputs, in the model's order. Every engine
computes in float32 where the model says so; OpenVINO would otherwise take bfloat16 on processors that have it.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Feeds = Mapping[str, NDArray[np.generic]]
Run = Callable[[Feeds], list[NDArray[np.generic]]]

OURS = "tinycomp"
REFERENCE = "onnxruntime"
"""The engine whose outputs the others are compared with."""


def load_tinycomp(model: Path, threads: int, feeds: Feeds) -> Run:
    """Our own C runtime, specialised for the shapes of the feeds."""
    import tinycomp

    module = tinycomp.compile(model, target="c", threads=threads, shapes={k: v.shape for k, v in feeds.items()})
    names = [output.name for output in module.outputs]

    def run(feeds: Feeds) -> list[NDArray[np.generic]]:
        results = module.run(feeds)
        return [results[name] for name in names]

    return run


def load_onnxruntime(model: Path, threads: int, feeds: Feeds) -> Run:
    """ONNX Runtime's CPU provider with all graph optimisations (the default)."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, feeds)


def load_openvino(model: Path, threads: int, feeds: Feeds) -> Run:
    """OpenVINO's CPU plug-in, one stream, float32, without copies of inputs and outputs."""
    import openvino as ov

    core = ov.Core()
    read = core.read_model(model)
    read.reshape({name: ov.PartialShape(list(value.shape)) for name, value in feeds.items()})
    settings = {
        "INFERENCE_PRECISION_HINT": "f32",
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
    }
    compiled = core.compile_model(read, "CPU", settings)
    request = compiled.create_infer_request()
    ports = compiled.outputs

    def run(feeds: Feeds) -> list[NDArray[np.generic]]:
        results = request.infer(feeds, share_inputs=True, share_outputs=True)
        return [results[port] for port in ports]

    return run


LOADERS: dict[str, Callable[[Path, int, Feeds], Run]] = {
    OURS: load_tinycomp,
    REFERENCE: load_onnxruntime,
    "openvino": load_openvino,
}


def installed() -> list[str]:
    """The engines at hand, tinycomp first."""
    return [name for name in LOADERS if importlib.util.find_spec(name) is not None]


def versions() -> dict[str, str]:
    """The version of every engine at hand, and of what they all build on."""
    return {name: _version(name) for name in [*installed(), "numpy", "onnx"]}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "in place"


def relative_error(found: NDArray[Any], wanted: NDArray[Any]) -> float:
    """The largest difference between two outputs, over the largest magnitude of the wanted one.

    Infinite where shapes differ or only one of the two has a NaN; for integers it reads the same way.
    """
    if found.shape != wanted.shape:
        return float("inf")
    if not wanted.size:
        return 0.0
    found64, wanted64 = found.astype(np.float64), wanted.astype(np.float64)
    same = (found64 == wanted64) | (np.isnan(found64) & np.isnan(wanted64))
    if same.all():
        return 0.0
    difference = np.abs(found64 - wanted64)[~same]
    if not np.isfinite(difference).all():
        return float("inf")
    peak = np.abs(wanted64[np.isfinite(wanted64)]).max()
    return float(difference.max() / max(peak, np.finfo(np.float32).tiny))
