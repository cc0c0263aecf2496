"""Matrix products: MatMul and Gemm, Einsum, and Det.

``numpy.einsum`` contracts with a batch label in a plain loop; here each pair of operands becomes one ``numpy.matmul``.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence

import numpy as np

from tinycomp.errors import ExecutionError
from tinycomp.ir.graph import Node
from tinycomp.memory.budget import reserve
from tinycomp.ops.contraction import (
    Labels,
    check_shapes,
    contraction_order,
    label_sizes,
    labels_of,
    output_labels,
    split_equation,
)
from tinycomp.ops.facts import Facts, Operand, broadcast_shape, broadcast_sizes, may_be_equal
from tinycomp.ops.numeric import Array, node_shape, widened
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Sizes
from tinycomp.symbolic import Size, product

FAMILY = OpFamily("matmul")


def matmul_macs(node: Node) -> Size:
    """Return output elements times terms of each."""
    return product(node_shape(node.outputs[0])) * (node_shape(node.inputs[0]) or (1,))[-1]


def _gemm_macs(node: Node) -> Size:
    a = node_shape(node.inputs[0]) or (1, 1)
    return product(node_shape(node.outputs[0])) * a[0 if node.attrs.get("transA") else -1]


@FAMILY.op("MatMul", macs=matmul_macs)
@widened
def matmul(a: Array, b: Array) -> Array:
    """Return the matrix product, as numpy.matmul does."""
    if a.ndim > 1 and b.ndim > 1:
        with contextlib.suppress(ValueError):  # what does not broadcast is numpy's to refuse
            batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
            reserve((*batch, a.shape[-2], b.shape[-1]), a.itemsize, "MatMul")
    return np.asarray(np.matmul(a, b))


@FAMILY.plain_type("MatMul", least=2)
def _matmul_type(node: Node, operands: Sequence[Operand]) -> Operand | None:
    (dtype, a), (_, b) = operands
    if min(len(a), len(b)) < 2 or not may_be_equal(a[-1], b[-2]):
        return None
    batch = broadcast_shape(a[:-2], b[:-2])
    return None if batch is None else (dtype, (*batch, a[-2], b[-1]))


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
    """Return ``alpha A' B' + beta C`` with ``C`` broadcast to the product.

    Raises:
        ExecutionError: If ``C`` is larger than the product.
    """
    left, right = a.T if transA else a, b.T if transB else b
    reserve((len(left), right.shape[-1]), a.itemsize, "Gemm")
    product = np.matmul(left, right)
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
    """Compute Gemm before opset 7, where ``broadcast`` had to allow what is always allowed since."""
    return np.asarray(gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB))


@FAMILY.plain_type("Gemm", least=2, most=3, since=11)
def _gemm_type(node: Node, operands: Sequence[Operand]) -> Operand | None:
    (dtype, a), (_, b) = operands[:2]
    if len(a) != 2 or len(b) != 2:
        return None
    rows, depth = reversed(a) if node.attrs.get("transA") else a
    other_depth, columns = reversed(b) if node.attrs.get("transB") else b
    size = (rows, columns)
    if depth != other_depth or any(broadcast_shape(shape, size) != size for _, shape in operands[2:]):
        return None
    return dtype, size


@FAMILY.check("Gemm")
def _check_gemm_bias(facts: Facts) -> None:
    rows = facts.dim(0, 1 if facts.attr("transA", 0) else 0)
    columns = facts.dim(1, 0 if facts.attr("transB", 0) else 1)
    if facts.node.version >= 7:
        facts.require_broadcast(2, (rows, columns), "the bias")


@FAMILY.op("Det")
@widened
def det(x: Array) -> Array:
    """Return the determinants of the innermost square matrices."""
    if not x.shape[-1] and not x.shape[-2]:
        return np.ones(x.shape[:-2], x.dtype)
    return np.asarray(np.linalg.det(x))


def _simplify(x: Array, term: Labels, needed: set[str]) -> tuple[Array, Labels]:
    """Take diagonals of repeated labels and sum over labels that nobody else needs."""
    kept = [label for label in dict.fromkeys(term) if label in needed]
    if kept == term:
        return x, kept
    codes = {label: i for i, label in enumerate(dict.fromkeys(term))}
    return np.asarray(np.einsum(x, [codes[label] for label in term], [codes[label] for label in kept])), kept


def _contract(a: Array, of_a: Labels, b: Array, of_b: Labels, needed: set[str]) -> tuple[Array, Labels]:
    """Multiply two operands and sum over the labels that both have and nobody needs."""
    batch = [label for label in of_a if label in of_b and label in needed]
    inner = [label for label in of_a if label in of_b and label not in needed]
    rows = [label for label in of_a if label not in of_b]
    columns = [label for label in of_b if label not in of_a]
    left = a.transpose([of_a.index(label) for label in [*batch, *rows, *inner]])
    right = b.transpose([of_b.index(label) for label in [*batch, *inner, *columns]])
    count = len(batch)
    depth = math.prod(left.shape[count + len(rows) :])
    row_sizes, column_sizes = left.shape[count : count + len(rows)], right.shape[count + len(inner) :]
    product = np.matmul(
        left.reshape(*left.shape[:count], math.prod(row_sizes), depth),
        right.reshape(*right.shape[:count], depth, math.prod(column_sizes)),
    )
    return product.reshape((*product.shape[:count], *row_sizes, *column_sizes)), [*batch, *rows, *columns]


def _einsum_macs(node: Node) -> Size:
    """Return the product of the sizes of all labels, the cost of the direct loop nest."""
    shapes = [node_shape(value) for value in node.inputs]
    texts, _ = split_equation(node.attrs["equation"], len(shapes))
    sizes: dict[str, Size] = {}
    for text, shape in zip(texts, shapes, strict=True):
        sizes.update(zip(labels_of(text, len(shape)), shape, strict=False))
    return product(sizes.values())


@FAMILY.op("Einsum", macs=_einsum_macs)
@widened
def einsum(*inputs: Array, equation: str) -> Array:
    """Return a sum of products in Einstein notation; several operands are contracted in the cheapest order.

    Raises:
        ExecutionError: If the equation is malformed or does not fit the shapes.
    """
    texts, right = split_equation(equation, len(inputs))
    terms = [labels_of(text, x.ndim) for text, x in zip(texts, inputs, strict=True)]
    output = output_labels(right, terms)
    sizes = label_sizes(terms, [x.shape for x in inputs], equation)
    # An axis of size 1 under an ellipsis that is summed must count as often as its partner is long.
    operands = {
        i: (np.broadcast_to(x, [sizes[label] for label in term]), term)
        for i, (x, term) in enumerate(zip(inputs, terms, strict=True))
    }
    for i, (x, term) in operands.items():
        others = set(output).union(*(labels for j, (_, labels) in operands.items() if j != i))
        operands[i] = _simplify(x, term, others)
    order = contraction_order([labels for _, labels in operands.values()], output, sizes)
    for place, (i, j) in enumerate(order, len(inputs)):
        a, b = operands.pop(i), operands.pop(j)
        needed = set(output).union(*(labels for _, labels in operands.values()))
        operands[place] = _contract(*_shared(a, b, needed), *_shared(b, a, needed), needed)
    ((result, labels),) = operands.values()
    result, labels = _simplify(result, labels, set(output))
    return result.transpose([labels.index(label) for label in output])


def _shared(own: tuple[Array, Labels], other: tuple[Array, Labels], needed: set[str]) -> tuple[Array, Labels]:
    """Sum an operand over the labels that neither its partner nor anybody else has."""
    return _simplify(*own, needed.union(other[1]))


@FAMILY.check("Einsum")
def _check_einsum(facts: Facts) -> None:
    shapes = [facts.shape(i) for i in range(len(facts.node.inputs))]
    if any(s is None for s in shapes):
        return
    try:
        check_shapes(str(facts.attr("equation", "")), [s for s in shapes if s is not None])
    except ExecutionError as error:
        facts.fail(error.message, expected=error.expected, found=error.found)


@FAMILY.sizes("MatMul")
def matmul_sizes(node: Node, shapes: Sequence[Sizes | None]) -> list[Sizes | None]:
    """Give the shape of a product, quantised ones among them."""
    a, b = shapes[0], shapes[3 if node.op == "QLinearMatMul" else 1]
    if a is None or b is None or not a or not b:
        return [None]
    rows, columns = a[-2:-1], b[-1:] if len(b) > 1 else ()
    batch = broadcast_sizes(a[:-2], b[:-2])
    return [None if batch is None else (*batch, *rows, *columns)]


@FAMILY.sizes("Einsum")
def _einsum_sizes(node: Node, shapes: Sequence[Sizes | None]) -> list[Sizes | None]:
    equation = node.attrs["equation"]
    text = (equation.decode() if isinstance(equation, bytes) else equation).replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if "." in text or not arrow or len(terms) != len(shapes):
        return [None]
    sizes: dict[str, Size | None] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for letter, size in zip(term, shape or (None,) * len(term), strict=True):
            known = sizes.get(letter)
            sizes[letter] = size if known is None or known == 1 else known
    return [tuple([sizes.get(letter) for letter in right])]


FAMILY.trait("product", "Gemm", "MatMul")
