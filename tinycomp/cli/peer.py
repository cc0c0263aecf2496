"""Run onnxruntime as a peer, and time several contenders fairly: they take turns."""

from __future__ import annotations

import importlib
import statistics
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import Any

import tinycomp
from tinycomp.cli.exits import UsageError
from tinycomp.cli.models import load_graph, model_path
from tinycomp.errors import TinycompError
from tinycomp.records import asdict, dataclass

BLOCKS = 10
_WARM_UP = 3
Runner = Callable[[Mapping[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Timing:
    """How long one run of a contender takes.

    Attributes:
        name: Whose.
        median: Seconds; the figure to quote.
        minimum: Seconds; what the machine can do undisturbed.
        runs: How many runs were measured.
    """

    name: str
    median: float
    minimum: float
    runs: int

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able form."""
        return asdict(self)


def measure(
    contenders: Mapping[str, Callable[[], Any]],
    *,
    runs: int | None = None,
    seconds: float = 3.0,
    advance: Callable[[], None] = lambda: None,
) -> list[Timing]:
    """Time the contenders in interleaved blocks.

    Every block begins with a run that is not counted, because the one before has left the caches to the other.

    Args:
        contenders: What to run, by name.
        runs: Counted runs of each, rounded up to fill :data:`BLOCKS` blocks; by default as many as fit ``seconds``.
        seconds: About how long each is measured.
        advance: Called after each block of each of them.
    """
    per_block = {name: _runs_per_block(run, runs, seconds) for name, run in contenders.items()}
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(BLOCKS):
        for name, run in contenders.items():
            run()
            samples[name] += [_once(run) for _ in range(per_block[name])]
            advance()
    return [Timing(name, statistics.median(s), min(s), len(s)) for name, s in samples.items()]


def _runs_per_block(run: Callable[[], Any], runs: int | None, seconds: float) -> int:
    estimate = min(_once(run) for _ in range(_WARM_UP))
    if runs is not None:
        return -(-runs // BLOCKS)
    return max(1, int(seconds / BLOCKS / max(estimate, 1e-7)))


def _once(run: Callable[[], Any]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


class PeerError(TinycompError):
    """The peer cannot run the model."""


def available() -> bool:
    """Tell whether onnxruntime is installed."""
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
