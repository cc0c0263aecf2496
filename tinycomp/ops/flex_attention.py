"""FlexAttention: attention whose scores and probabilities pass through graphs of the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tinycomp.errors import ExecutionError, ModelError
from tinycomp.ir.types import UNKNOWN, TensorType, Type, dtype_name, numpy_dtype
from tinycomp.ops.attention import check_heads, grouped_matmul, scaled_scores, softmax_dtype
from tinycomp.ops.numeric import Array, compute_dtype, node_shape, quiet
from tinycomp.ops.registry import OpFamily
from tinycomp.ops.softmax import softmax_along

if TYPE_CHECKING:
    from tinycomp.ir.graph import Node

FAMILY = OpFamily("flex_attention")

_FLOAT32 = np.dtype(np.float32)


def _precision(number: int | None, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of scores and probabilities: at least float32 unless the node says otherwise."""
    return softmax_dtype(number, compute_dtype(dtype))


def _body_types(node: Node) -> tuple[list[Type], list[Type]]:
    """Return what each graph takes and returns: the scores, or probabilities, (B, Hq, L, S)."""
    q, k = (v.type if v is not None else UNKNOWN for v in node.inputs[:2])
    if not isinstance(q, TensorType) or q == UNKNOWN:
        return [UNKNOWN], [UNKNOWN]
    shape = None
    if isinstance(k, TensorType) and q.shape is not None and k.shape is not None and len(q.shape) == len(k.shape) == 4:
        shape = (*q.shape[:3], k.shape[2])
    number = node.attrs.get("softmax_precision")
    scores = TensorType(dtype_name(_precision(number, numpy_dtype(q.dtype))), shape)
    return [scores], [scores]


def _macs(node: Node) -> int:
    """Return the MACs of both products, without those of the graphs."""
    q, k, v = (node_shape(node.inputs[i]) for i in range(3))
    return q[0] * q[1] * q[2] * k[2] * (q[3] + v[3]) if len(q) == len(k) == len(v) == 4 else 0


def _modified(graph: Callable[..., tuple[Any, ...]] | None, x: Array, captured: tuple[Any, ...], name: str) -> Array:
    """Send an array through a graph, which must keep its shape and dtype."""
    if graph is None:
        return x
    (y,) = graph(x, *captured)
    if y.shape != x.shape or y.dtype != x.dtype:
        raise ExecutionError(
            f"FlexAttention: {name} changes shape or dtype",
            expected=f"{x.dtype}{list(x.shape)}",
            found=f"{y.dtype}{list(y.shape)}",
        )
    return np.asarray(y)


@FAMILY.op("FlexAttention", domain="ai.onnx.preview", traits={"bodies"}, macs=_macs, body_rule=_body_types)
@quiet
def flex_attention(
    q: Array,
    k: Array,
    v: Array,
    *captured: Any,
    scale: float | None = None,
    softmax_precision: int | None = None,
    score_mod: Callable[..., tuple[Any, ...]] | None = None,
    prob_mod: Callable[..., tuple[Any, ...]] | None = None,
    captures: int = 0,
) -> Array:
    """Scaled dot-product attention of rank-4 operands with graphs behind the scores and behind the softmax.

    Args:
        q: Queries (B, Hq, L, D).
        k: Keys (B, Hk, S, D).
        v: Values (B, Hk, S, E).
        *captured: Outer values that the graphs read.
        scale: Factor of the scores; 1 / sqrt(D) by default.
        softmax_precision: Element type of scores and probabilities.
        score_mod: Takes the scores (B, Hq, L, S) and returns others.
        prob_mod: The same for the probabilities.
        captures: How many values are captured.

    Returns:
        (B, Hq, L, E) in the dtype of ``v``.

    Raises:
        ModelError: If the operands do not fit each other.
        ExecutionError: If a graph changes shape or dtype.
    """
    if not q.ndim == k.ndim == v.ndim == 4:
        raise ModelError(
            "FlexAttention: operands of a wrong rank", expected="rank 4", found=f"{q.ndim}, {k.ndim}, {v.ndim}"
        )
    check_heads(q, k, v, "FlexAttention")
    precision = _precision(softmax_precision, q.dtype)
    scores = _modified(score_mod, scaled_scores(q, k, scale).astype(precision), captured, "score_mod")
    weights = _modified(prob_mod, softmax_along(scores, -1), captured, "prob_mod")
    wide = compute_dtype(precision)
    return grouped_matmul(weights.astype(wide), v.astype(precision).astype(wide)).astype(precision).astype(v.dtype)
