"""onnxruntime as a peer: the same model, the same inputs, the same number of threads."""

from __future__ import annotations

import importlib
from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import Any

import tinycomp
from tinycomp.cli.exits import UsageError
from tinycomp.cli.models import load_graph, model_path
from tinycomp.errors import TinycompError

Runner = Callable[[Mapping[str, Any]], dict[str, Any]]


class PeerError(TinycompError):
    """The peer cannot run the model."""


def available() -> bool:
    """Whether onnxruntime is installed."""
    try:
        importlib.import_module("onnxruntime")
    except ImportError:
        return False
    return True


def onnxruntime_runner(options: Namespace, threads: int, literally: bool = False) -> Runner:
    """Return a function from inputs to outputs by name that runs the model in onnxruntime.

    Args:
        options: With ``model``.
        threads: Threads of one run.
        literally: Run the model as it stands, without graph optimisations: slower, but on x86 without VNNI the merged
            kernels of quantised layers add pairs of products in 16 bits, which saturates where weights are large.

    Raises:
        UsageError: If onnxruntime is not installed.
        PeerError: If it refuses the model.
    """
    if not available():
        raise UsageError("onnxruntime is not installed", hint="Install it with: pip install onnxruntime")
    onnxruntime = importlib.import_module("onnxruntime")
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.inter_op_num_threads = threads, 1
    settings.log_severity_level = 3
    if literally:
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    path = model_path(options.model)
    # The file itself where there is one: what tinycomp exports has passed through tinycomp's importer.
    model = str(path) if path.suffix == ".onnx" else tinycomp.to_onnx(load_graph(options)).SerializeToString()
    try:
        peer = onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exception classes have no base of their own
        raise PeerError("onnxruntime cannot load the model", where=options.model, found=_first_line(error)) from error
    names = [output.name for output in peer.get_outputs()]

    def run(feeds: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return dict(zip(names, peer.run(None, dict(feeds)), strict=True))
        except Exception as error:
            raise PeerError("onnxruntime failed", where=options.model, found=_first_line(error)) from error

    return run


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
