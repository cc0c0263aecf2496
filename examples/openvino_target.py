"""OpenVINO as a target: a whole library in one file. Needs ``pip install openvino``.

What OpenVINO reads runs there, with symbolic sizes too; all else goes to the target behind it. Each region becomes an
ONNX model, which OpenVINO compiles; what it exports is the region's blob: a saved module compiles nothing when loaded.
Run it with ``python examples/openvino_target.py [MODEL.onnx]``.
"""

from __future__ import annotations

import functools
import io
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx
import openvino

import tinycomp.data
from tinycomp import target_api as api

DTYPES = ("float32", "int8", "uint8", "int32", "int64", "bool")  # float64 would be computed as float32
LEFT = ("If", "Loop", "Scan", "NonMaxSuppression", "Multinomial", "RandomNormal", "RandomUniform")


@dataclass(frozen=True)
class OpenVinoOptions:
    """How OpenVINO computes.

    Attributes:
        device: Name of its plugin.
        precision: What float32 is computed in.
        threads: Threads of a run; 0 for as many as OpenVINO likes.
    """

    device: str = "CPU"
    precision: Literal["f32", "bf16", "f16"] = "f32"
    threads: int = 0

    def config(self) -> dict[str, Any]:
        """Return the properties of a compiled model."""
        threads = {"INFERENCE_NUM_THREADS": self.threads} if self.threads else {}
        return {"INFERENCE_PRECISION_HINT": self.precision, **threads}


def make_target() -> api.Target:
    """Return the target; an entry point would name this function."""
    api.require_api("1.1")
    target = api.Target(
        "openvino", description="OpenVINO's plugins", options=OpenVinoOptions, version=openvino.__version__,
        tolerance=api.Tolerance(rtol=1e-3, atol=1e-4),
    )  # fmt: skip
    target.op("*")(takes)
    target.codegen(build)
    target.loader(load)
    target.compatibility(compatible)
    return target


def takes(node: api.Node) -> bool | api.Remark:
    """Take the operators that OpenVINO's frontend reads, for values of types that its plugins compute with."""
    if node.domain or node.op in LEFT:
        return api.reject(f"{node.label} is left to others")
    if refused := next((v for v in (*node.inputs, *node.outputs) if v and not computes(v)), None):
        return api.reject(f"its types are {', '.join(DTYPES)} of a known rank, got {refused.type}")
    return reads(node.op, node.version, len(node.inputs)) or api.reject(f"its frontend has no {node.op}-{node.version}")


def computes(value: api.Value) -> bool:
    """Tell whether OpenVINO computes with such a value."""
    return isinstance(value.type, api.TensorType) and value.dtype in DTYPES and value.rank is not None


@functools.cache
def reads(op: str, version: int, count: int) -> bool:
    """Ask OpenVINO's frontend: whatever is wrong with a node without attributes, that it has no rule it says first."""
    ends = [onnx.helper.make_tensor_value_info(name, 1, None) for name in (*map(str, range(count)), "y")]
    node = onnx.helper.make_node(op, [end.name for end in ends[:-1]], ["y"])
    graph = onnx.helper.make_graph([node], "probe", ends[:-1], ends[-1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", version)])
    try:
        openvino.Core().read_model(io.BytesIO(model.SerializeToString()))
    except RuntimeError as error:
        return "No conversion rule" not in str(error)
    return True


def build(region: api.Node, options: OpenVinoOptions) -> api.Blob:
    """Have a region compiled; what OpenVINO cannot compile after all is declined."""
    core, file = openvino.Core(), io.BytesIO(api.to_onnx(region.body, functions=False).SerializeToString())
    try:
        return api.Blob(
            core.compile_model(core.read_model(file), options.device, options.config()).export_model().getvalue()
        )
    except RuntimeError as error:
        raise api.Decline(str(error).strip().splitlines()[-1]) from error


def load(blob: api.Blob, options: OpenVinoOptions) -> Callable[..., list[np.ndarray]]:
    """Return a function that runs a compiled model, with a request of its own for every thread."""
    model, local = openvino.Core().import_model(blob.data, options.device, options.config()), threading.local()

    def run(*operands: np.ndarray) -> list[np.ndarray]:
        if not hasattr(local, "request"):
            local.request = model.create_infer_request()
        results = local.request.infer(operands, share_inputs=True)
        return [results[i] for i in range(len(model.outputs))]

    return run


def compatible(version: str) -> api.Verdict:
    """Use what this version of OpenVINO has exported."""
    return "use" if version == openvino.__version__ else "rebuild"


if __name__ == "__main__":
    model = sys.argv[1] if sys.argv[1:] else tinycomp.data.digits_model()
    print(tinycomp.compile(model, [make_target(), "c"], verify=True).report())
