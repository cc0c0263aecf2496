"""tinycomp: a graph-rewriting compiler for ONNX models. Bring your own backend, or run on a fast C runtime."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from tinycomp.memory.interpreter import importing
from tinycomp.version import installed_version  # which notes when the package was imported

if TYPE_CHECKING:
    from tinycomp.driver.compile import compile  # noqa: A004 - the public name
    from tinycomp.driver.ep_context import export_ep_context as to_ep_context
    from tinycomp.driver.load import load
    from tinycomp.driver.models import load_graph as from_onnx
    from tinycomp.driver.pipeline import Pipeline
    from tinycomp.driver.tune import tune
    from tinycomp.errors import DeviceFault, TinycompError
    from tinycomp.export_c import to_c
    from tinycomp.frontend import export_model as to_onnx
    from tinycomp.generation import generate
    from tinycomp.ir.graph import Graph
    from tinycomp.pytorch import from_torch as from_torch
    from tinycomp.quantization import quantize
    from tinycomp.rewrite import P, reject
    from tinycomp.runtime.device.interface import Device, DeviceBuffer, FaultPolicy
    from tinycomp.runtime.module import Module
    from tinycomp.runtime.requests import pipeline_requests
    from tinycomp.scoring.score import score as score
    from tinycomp.target import Target

_WHERE = {
    "Device": ("tinycomp.runtime.device.interface", "Device"),
    "DeviceBuffer": ("tinycomp.runtime.device.interface", "DeviceBuffer"),
    "DeviceFault": ("tinycomp.errors", "DeviceFault"),
    "FaultPolicy": ("tinycomp.runtime.device.interface", "FaultPolicy"),
    "Graph": ("tinycomp.ir.graph", "Graph"),
    "Module": ("tinycomp.runtime.module", "Module"),
    "P": ("tinycomp.rewrite", "P"),
    "Pipeline": ("tinycomp.driver.pipeline", "Pipeline"),
    "Target": ("tinycomp.target", "Target"),
    "TinycompError": ("tinycomp.errors", "TinycompError"),
    "compile": ("tinycomp.driver.compile", "compile"),
    "from_onnx": ("tinycomp.driver.models", "load_graph"),
    "from_torch": ("tinycomp.pytorch", "from_torch"),
    "generate": ("tinycomp.generation", "generate"),
    "load": ("tinycomp.driver.load", "load"),
    "pipeline_requests": ("tinycomp.runtime.requests", "pipeline_requests"),
    "quantize": ("tinycomp.quantization", "quantize"),
    "reject": ("tinycomp.rewrite", "reject"),
    "score": ("tinycomp.scoring.score", "score"),
    "to_c": ("tinycomp.export_c", "to_c"),
    "to_ep_context": ("tinycomp.driver.ep_context", "export_ep_context"),
    "to_onnx": ("tinycomp.frontend", "export_model"),
    "tune": ("tinycomp.driver.tune", "tune"),
}
# from_torch is left out, because "from tinycomp import *" must work without PyTorch.
__all__ = [
    "Device",
    "DeviceBuffer",
    "DeviceFault",
    "FaultPolicy",
    "Graph",
    "Module",
    "P",
    "Pipeline",
    "Target",
    "TinycompError",
    "compile",
    "from_onnx",
    "generate",
    "load",
    "pipeline_requests",
    "quantize",
    "reject",
    "to_c",
    "to_ep_context",
    "to_onnx",
    "tune",
]


def __getattr__(name: str) -> Any:
    """Import public names on first use, so that a saved module loads without onnx or networkx."""
    if name == "__version__":
        return installed_version()
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _WHERE[name]
    with importing():
        value = getattr(importlib.import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_WHERE, "__version__"])
