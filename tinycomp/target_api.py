"""Everything that a target outside of tinycomp needs, under one version: import from here, and from nowhere else.

``docs/target-api.md`` shows every name at work. The first number of :data:`API_VERSION` rises when something is taken
away or changes its meaning, the second when something is added; whatever else is in tinycomp may change at any time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tinycomp.errors import DeviceFault, ExecutionError, MemoryLimitError, TargetError, TinycompError, UnsupportedError
from tinycomp.frontend import export_model as to_onnx
from tinycomp.ir import Graph, Node, TensorType, Value
from tinycomp.ir.blocked import BlockedLayout, conversion_of
from tinycomp.ir.types import tensor
from tinycomp.memory.placement import Buffer, Memory, MemoryPlan, Place, plan_memories
from tinycomp.memory.planner import ALIGNMENT, Arena, Lifetime, aligned, plan_arena
from tinycomp.memory.tiling import (
    AxisTile,
    Convolution,
    ConvTile,
    ConvTiling,
    MatMulTile,
    MatMulTiling,
    axis_tiles,
    tile_convolution,
    tile_matmul,
)
from tinycomp.ops.numeric import Array
from tinycomp.ops.spatial import Window, make_window
from tinycomp.passes import legalize
from tinycomp.quantized import patterns, reading
from tinycomp.rewrite import Composite, Match, P, Remark, ValuePattern, reject
from tinycomp.rewrite.traits import attribute, is_structural
from tinycomp.runtime.blob import Blob
from tinycomp.runtime.csource.source import CSource, c_comment, c_identifier, c_number, c_string
from tinycomp.runtime.device.interface import Activity, Device, DeviceBuffer, DeviceProgram, FaultPolicy
from tinycomp.runtime.native.program import Program
from tinycomp.target import (
    Decline,
    Policy,
    QuantizationCheck,
    QuantizationParameters,
    QuantizationRule,
    QuantizedLayer,
    Region,
    Split,
    Target,
    Tolerance,
    TransferCost,
    Verdict,
    split,
)
from tinycomp.targets.common import activations, checks, composites

if TYPE_CHECKING:
    from tinycomp.driver.models import Model
    from tinycomp.frontend import Shapes

API_VERSION = "1.8"
"""Version of what this module offers."""

__all__ = [
    "ALIGNMENT",
    "API_VERSION",
    "Activity",
    "Arena",
    "Array",
    "AxisTile",
    "Blob",
    "BlockedLayout",
    "Buffer",
    "CSource",
    "Composite",
    "ConvTile",
    "ConvTiling",
    "Convolution",
    "Decline",
    "Device",
    "DeviceBuffer",
    "DeviceFault",
    "DeviceProgram",
    "ExecutionError",
    "FaultPolicy",
    "Graph",
    "Lifetime",
    "MatMulTile",
    "MatMulTiling",
    "Match",
    "Memory",
    "MemoryLimitError",
    "MemoryPlan",
    "Node",
    "P",
    "Place",
    "Policy",
    "Program",
    "QuantizationCheck",
    "QuantizationParameters",
    "QuantizationRule",
    "QuantizedLayer",
    "Region",
    "Remark",
    "Split",
    "Target",
    "TargetError",
    "TensorType",
    "TinycompError",
    "Tolerance",
    "TransferCost",
    "UnsupportedError",
    "Value",
    "ValuePattern",
    "Verdict",
    "Window",
    "activations",
    "aligned",
    "attribute",
    "axis_tiles",
    "c_comment",
    "c_identifier",
    "c_number",
    "c_string",
    "checks",
    "composites",
    "conversion_of",
    "is_structural",
    "legalize",
    "make_window",
    "partitioned",
    "patterns",
    "plan_arena",
    "plan_memories",
    "reading",
    "reject",
    "require_api",
    "split",
    "tensor",
    "tile_convolution",
    "tile_matmul",
    "to_onnx",
]


def require_api(version: str) -> None:
    """Refuse a tinycomp that does not offer what a target was written for.

    Args:
        version: The :data:`API_VERSION` that the target was written for.

    Raises:
        TargetError: If this one is older, or has taken something away since.

    Example:
        >>> require_api("1.0")
        >>> require_api("2.3")
        Traceback (most recent call last):
        tinycomp.errors.TargetError: this tinycomp has another target API; expected 2.3, or a later 2.x; found 1.8...
    """
    wanted, offered = (tuple(map(int, text.split("."))) for text in (version, API_VERSION))
    if wanted[0] != offered[0] or wanted > offered:
        raise TargetError(
            "this tinycomp has another target API", expected=f"{version}, or a later {wanted[0]}.x", found=API_VERSION,
            hint="Install versions of tinycomp and of the target that go together.",
        )  # fmt: skip


def partitioned(model: Model, targets: Sequence[Target], *, shapes: Shapes | None = None) -> Graph:
    """Return a model as its targets' code generators would get it: optimised, with their regions outlined.

    Args:
        model: As for :func:`tinycomp.compile`.
        targets: In order of priority.
        shapes: Shapes that replace the declared ones of inputs.

    Raises:
        ModelError: If the model is not valid.

    Example:
        >>> from tinycomp.data import digits_model
        >>> npu = Target("npu")
        >>> npu.accept("Relu", "Add")
        >>> graph = partitioned(digits_model(), [npu])
        >>> [[inner.op for inner in node.body.nodes] for node in graph.nodes if node.is_region]
        [['Relu'], ['Relu'], ['Relu'], ['Add', 'Relu'], ['Relu'], ['Relu']]
    """
    from tinycomp.driver.models import load_graph  # imported here: describing a target needs no compiler
    from tinycomp.driver.pipeline import Pipeline, optimisation_passes, partitioning_passes

    passes = [*optimisation_passes(targets), *partitioning_passes(targets)]
    return Pipeline(passes)(load_graph(model, shapes))
