"""The implementations that a model is run by, and how their results are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime

import tinycomp
from tinycomp.checking import compare
from tinycomp.driver.pipeline import partitioning_passes
from tinycomp.target import Tolerance, find

Results = dict[str, np.ndarray]

TOLERANCES = {
    "float32": Tolerance(rtol=1e-4, atol=1e-5),
    "float64": Tolerance(rtol=1e-4, atol=1e-5),  # it may have been float32 on the way
    "float16": Tolerance(rtol=5e-3, atol=1e-3),
}
"""Of floats, in the largest magnitude of the result; everything else has to be equal."""


class RefusedError(Exception):
    """onnxruntime does not run a model: it has no kernel for a type, or its checks are stricter than ONNX."""


def by_onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray], optimise: bool = True) -> Results:
    """Run a model in one thread.

    Raises:
        RefusedError: If it cannot be run.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        results = session.run(None, dict(feeds))
    except Exception as error:
        raise RefusedError(str(error)) from error
    return dict(zip([o.name for o in model.graph.output], results, strict=True))


@dataclass(frozen=True)
class Peer:
    """A way to compile.

    Attributes:
        name: What it is called in findings.
        options: Makes the arguments of ``tinycomp.compile``.
    """

    name: str
    options: Callable[[], dict[str, Any]]

    def run(self, model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> Results:
        """Compile and run a model; errors are findings, for the model is valid."""
        return tinycomp.compile(model, **{"threads": 1, **self.options()}).run(feeds)


OPERATOR_BY_OPERATOR = Peer("host without passes", lambda: {"target": "host", "passes": []})
PEERS = (
    Peer("c", lambda: {"target": "c"}),
    Peer("host", lambda: {"target": "host"}),
    Peer("c without optimisation", lambda: {"threads": 2, "passes": partitioning_passes([find("c")])}),
    OPERATOR_BY_OPERATOR,
)


def differences(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, str]:
    """Return what is wrong with results, by name; empty if they agree."""
    wrong = {}
    for name, right in wanted.items():
        text = difference(name, found[name], right)
        if text:
            wrong[name] = text
    return wrong


def difference(name: str, found: np.ndarray, right: np.ndarray) -> str:
    """Return how two results differ; empty if the tolerance allows it."""
    if (found.dtype, found.shape) != (right.dtype, right.shape):
        return f"{found.dtype}{list(found.shape)} instead of {right.dtype}{list(right.shape)}"
    tolerance = TOLERANCES.get(found.dtype.name)
    if tolerance is None:
        count = int((found != right).sum())
        return f"{count} of {found.size} elements differ" if count else ""
    result = compare(name, found, right, tolerance)
    return "" if result.within else f"{result.largest:.3g} apart, {result.relative:.3g} of the largest"


def magnitude(found: np.ndarray, right: np.ndarray) -> float:
    """Return the largest difference of two results of one shape, for comparing differences."""
    if found.shape != right.shape:
        return float("inf")
    with np.errstate(all="ignore"):
        apart = np.abs(found.astype(np.float64) - right.astype(np.float64))
    return float(np.nan_to_num(apart, nan=np.inf).max(initial=0.0))


def declared(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """Return a copy whose outputs are ``names``."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.output[:]
    copy.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    return copy
