"""Matrix products: MatMul, Gemm, Einsum, and Det."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from tinycomp.errors import ExecutionError
from tinycomp.ops.numeric import Array, node_shape, prod, widened
from tinycomp.ops.registry import OpFamily

if TYPE_CHECKING:
    from tinycomp.ir.graph import Node

FAMILY = OpFamily("matmul")
_TERM = re.compile(r"[A-Za-z]*(\.\.\.[A-Za-z]*)?")


def _matmul_macs(node: Node) -> int:
    return prod(node_shape(node.outputs[0])) * (node_shape(node.inputs[0]) or (1,))[-1]


def _gemm_macs(node: Node) -> int:
    a = node_shape(node.inputs[0]) or (1, 1)
    return prod(node_shape(node.outputs[0])) * a[0 if node.attrs.get("transA") else -1]


def _einsum_macs(node: Node) -> int:
    """Product of the sizes of all labels, the cost of the direct loop nest."""
    shapes = [node_shape(value) for value in node.inputs]
    terms, _ = split_equation(node.attrs["equation"], len(shapes))
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        sizes.update(zip(_expand_ellipsis(term, len(shape)), shape, strict=False))
    return prod(list(sizes.values()))


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


def split_equation(equation: str, operands: int) -> tuple[list[str], str | None]:
    """Split an Einsum equation into its input terms and its output term (None if implicit).

    Raises:
        ExecutionError: If the equation is malformed or has another number of terms than ``operands``.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != operands:
        raise ExecutionError(
            f'the equation "{equation}" has {len(terms)} input terms', where="Einsum", expected=str(operands)
        )
    for term in [*terms, right]:
        if not _TERM.fullmatch(term):
            raise ExecutionError(
                f'malformed term "{term}" in "{equation}"', where="Einsum", expected="letters and at most one ellipsis"
            )
    used = set("".join(terms).replace(".", ""))
    for letter in right.replace(".", ""):
        if letter not in used or right.count(letter) > 1:
            raise ExecutionError(
                f'bad output label "{letter}" in "{equation}"',
                where="Einsum",
                expected="each output label once, and in some input",
            )
    return terms, right if arrow else None


def _expand_ellipsis(term: str, rank: int) -> list[str]:
    """Return one label per axis; axes under the ellipsis are numbered from the right, as broadcasting aligns them."""
    before, dots, after = term.partition("...")
    hidden = rank - len(before) - len(after) if dots else 0
    return [*before, *(str(i) for i in range(hidden, 0, -1)), *after]


@FAMILY.op("Einsum", macs=_einsum_macs)
@widened
def einsum(*inputs: Array, equation: str) -> Array:
    """Sum of products in Einstein notation.

    Raises:
        ExecutionError: If the equation is malformed or does not fit the shapes.
    """
    terms, right = split_equation(equation, len(inputs))
    text = ",".join(terms) + ("" if right is None else f"->{right}")
    try:
        return np.asarray(np.einsum(text, *inputs, optimize=len(inputs) > 1))
    except ValueError as error:
        raise ExecutionError(
            f'the equation "{equation}" does not fit the shapes {[x.shape for x in inputs]}: {error}', where="Einsum"
        ) from error


@FAMILY.op("Det")
@widened
def det(x: Array) -> Array:
    """Determinants of the innermost square matrices."""
    if not x.shape[-1] and not x.shape[-2]:
        return np.ones(x.shape[:-2], x.dtype)
    return np.asarray(np.linalg.det(x))
