"""Operators: what is true of each on every machine, and the two host tiers that can run it.

:data:`OPS` holds a record per operator and version. :func:`bind` turns a node into a function of arrays, with the numpy
kernel of its record where there is one (tier ``"numpy"``), else with ``onnx.reference`` (tier ``"reference"``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tinycomp.ops import (
    activation,
    cast,
    comparison,
    control_flow,
    conv,
    conv_transpose,
    creation,
    elementwise,
    indexing,
    matmul,
    movement,
    norm,
    padding,
    pool,
    quantize,
    recurrent,
    reduction,
    resize,
    selection,
    shape,
    softmax,
)
from tinycomp.ops.registry import Kernel, OpFamily, OpRecord, OpTable

if TYPE_CHECKING:
    from tinycomp.ir.graph import Node
    from tinycomp.ops.reference import Bound

__all__ = ["OPS", "OpFamily", "OpRecord", "OpTable", "bind"]

FAMILIES = (
    activation.FAMILY,
    cast.FAMILY,
    comparison.FAMILY,
    control_flow.FAMILY,
    conv.FAMILY,
    conv_transpose.FAMILY,
    creation.FAMILY,
    elementwise.FAMILY,
    indexing.FAMILY,
    matmul.FAMILY,
    movement.FAMILY,
    norm.FAMILY,
    padding.FAMILY,
    pool.FAMILY,
    quantize.FAMILY,
    recurrent.FAMILY,
    reduction.FAMILY,
    resize.FAMILY,
    selection.FAMILY,
    shape.FAMILY,
    softmax.FAMILY,
)
OPS = OpTable(FAMILIES)

# A memory-reuse hint of operators before opset 6 that never changed a result.
_MEANINGLESS = frozenset({"consumed_inputs"})


def bind(node: Node, bodies: Mapping[str, Callable[..., Any]] | None = None) -> tuple[Bound, str]:
    """Return a function that computes ``node`` from arrays, and the name of its tier.

    The function takes one argument per operand (None for an absent one) and returns a tuple with one entry per result.
    A result may share memory with an operand where the operator only changes the shape.

    Args:
        node: Any node without nested graphs, or a control-flow node together with ``bodies``.
        bodies: For control flow: a callable per attribute that holds a graph.

    Raises:
        ModelError: If an attribute is not one of the operator's.
        UnsupportedError: If no tier knows the operator.
    """
    attrs = {k: v for k, v in node.attrs.items() if k not in _MEANINGLESS} | dict(bodies or {})
    record = OPS.find(node.op, node.domain, node.version)
    if record is not None and record.kernel is not None:
        return _as_tuple(record.bind(attrs, len(node.outputs), node.label), len(node.outputs)), "numpy"
    from tinycomp.ops.reference import bind_reference

    input_types = [None if v is None else v.type for v in node.inputs]
    output_types = [v.type if v.name else None for v in node.outputs]
    bound = bind_reference(node.op, node.domain, node.version, attrs, input_types, output_types, node.label)
    return bound, "reference"


def _as_tuple(kernel: Kernel, outputs: int) -> Bound:
    @functools.wraps(kernel)
    def run(*inputs: Any) -> tuple[Any, ...]:
        result = kernel(*inputs)
        return result[:outputs] if isinstance(result, tuple) else (result,)

    return run
