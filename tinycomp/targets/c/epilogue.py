"""What a convolution or matrix product adds to its result before it stores it: bias and residual."""

from __future__ import annotations

import numpy as np

from tinycomp.ir.graph import Value
from tinycomp.ir.layout import memory_order
from tinycomp.ir.types import TensorType, tensor
from tinycomp.targets.c.emit import Emitter, View
from tinycomp.targets.c.fused import Fused
from tinycomp.targets.common.checks import channel_vector


def epilogue_operands(emit: Emitter, fused: Fused, axis: int) -> tuple[View | None, View | None]:
    """Return the sum of all per-channel constants as one bias vector, and the residual in the result's memory order.

    Args:
        emit: Holds the bias as a constant.
        fused: The composite; an operand 2 of its anchor is a bias.
        axis: The channel axis of the result: 1 for images, -1 for matrices.
    """
    bias, residual = bias_and_residual(emit, fused, axis)
    return bias, None if residual is None else _in_order_of(tensor(fused.output.type), residual, emit)


def bias_and_residual(emit: Emitter, fused: Fused, axis: int) -> tuple[View | None, Value | None]:
    """As :func:`epilogue_operands`, but leave the residual where it is."""
    result = tensor(fused.output.type)
    vectors = []
    own = fused.operands[2] if len(fused.operands) > 2 else None
    if own is not None:
        assert own.const is not None, own
        vectors.append(own.const.reshape(-1))
    residual = None
    for value in fused.addends:
        vector = None if value.const is None else channel_vector(value.const, result, axis)
        if vector is not None:
            vectors.append(vector)
        else:
            assert residual is None, f"{fused.output.name} has two residuals"
            residual = value
    if not vectors:
        return None, residual
    return emit.constant(np.ascontiguousarray(sum(vectors[1:], vectors[0]), np.float32)), residual


def _in_order_of(result: TensorType, residual: Value, emit: Emitter) -> View:
    """Layout assignment leaves constants alone, since weights are packed anyway; a residual must lie as the result."""
    if residual.const is None:
        return emit.view(residual)
    return emit.constant(residual.const.transpose(memory_order(result.layout, residual.const.ndim)))
