"""Matrix products: MatMul and Gemm, and Det."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tinycomp.errors import ExecutionError
from tinycomp.ops.numeric import Array, node_shape, prod, widened
from tinycomp.ops.registry import OpFamily

if TYPE_CHECKING:
    from tinycomp.ir.graph import Node

FAMILY = OpFamily("matmul")


def _matmul_macs(node: Node) -> int:
    return prod(node_shape(node.outputs[0])) * (node_shape(node.inputs[0]) or (1,))[-1]


def _gemm_macs(node: Node) -> int:
    a = node_shape(node.inputs[0]) or (1, 1)
    return prod(node_shape(node.outputs[0])) * a[0 if node.attrs.get("transA") else -1]


@FAMILY.op("MatMul", macs=_matmul_macs)
@widened
def matmul(a: Array, b: Array) -> Array:
    """numpy.matmul."""
    return np.asarray(np.matmul(a, b))


@FAMILY.op("Gemm", since=7, macs=_gemm_macs)
@widened
def gemm(
    a: Array,
    b: Array,
    c: Array | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803
    transB: int = 0,  # noqa: N803
) -> Array:
    """``alpha A' B' + beta C`` with ``C`` broadcast to the product.

    Raises:
        ExecutionError: If ``C`` is larger than the product.
    """
    product = np.matmul(a.T if transA else a, b.T if transB else b)
    if alpha != 1.0:
        product = (product * alpha).astype(a.dtype)
    if c is None or beta == 0.0:
        return np.asarray(product)
    result = product + (c if beta == 1.0 else (c * beta).astype(a.dtype))
    if result.shape != product.shape:
        raise ExecutionError(
            "C does not broadcast to A B",
            where="Gemm",
            expected=f"a shape that broadcasts to {product.shape}",
            found=str(c.shape),
        )
    return np.asarray(result)


@FAMILY.op("Gemm", since=1, macs=_gemm_macs)
def gemm_broadcast(
    a: Array,
    b: Array,
    c: Array,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803
    transB: int = 0,  # noqa: N803
    broadcast: int = 0,
) -> Array:
    """Gemm before opset 7, where ``broadcast`` had to allow what is always allowed since."""
    return np.asarray(gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB))


@FAMILY.op("Det")
@widened
def det(x: Array) -> Array:
    """Determinants of the innermost square matrices."""
    if not x.shape[-1] and not x.shape[-2]:
        return np.ones(x.shape[:-2], x.dtype)
    return np.asarray(np.linalg.det(x))
