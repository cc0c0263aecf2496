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

EXACT = ("session.x64quantprecision", "1")
"""The session setting with which onnxruntime adds products of 8-bit numbers exactly.

On x86 without VNNI it otherwise multiplies uint8 by int8 with an instruction that adds pairs of products in 16 bits and
saturates, which is fast and, where weights are large, wrong. Machines with VNNI need no setting and ignore this one.
"""


class PeerError(TinycompError):
    """The peer cannot run the model."""


def available() -> bool:
    """Whether onnxruntime is installed."""
    try:
        importlib.import_module("onnxruntime")
    except ImportError:
        return False
    return True


def onnxruntime_runner(options: Namespace, threads: int, exact: bool = False) -> Runner:
    """Return a function from inputs to outputs by name that runs the model in onnxruntime.

    Args:
        options: With ``model``.
        threads: Threads of one run.
        exact: Whether results matter more than speed, see :data:`EXACT`.

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
    if exact:
        settings.add_session_config_entry(*EXACT)
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
