"""Matrix products: MatMul and Gemm, Einsum, and Det.

``numpy.einsum`` contracts with a batch label in a plain loop; here each pair of operands becomes one ``numpy.matmul``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tinycomp.errors import ExecutionError
from tinycomp.ir.graph import Node
from tinycomp.ir.types import TensorType
from tinycomp.lazy import LazyModule
from tinycomp.memory.budget import reserve
from tinycomp.ops.numeric import Array, node_shape, widened
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Facts, Results
from tinycomp.symbolic import Size, product

if TYPE_CHECKING:
    from tinycomp.ops import contraction
    from tinycomp.ops.contraction import Labels
else:
    contraction = LazyModule("tinycomp.ops.contraction")

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
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        reserve((*batch, a.shape[-2], b.shape[-1]), a.itemsize, "MatMul")
    return np.asarray(np.matmul(a, b))


def product_type(facts: Facts, left: int, right: int, dtype: str) -> TensorType:
    """Return the type of a product of two operands, vectors and batches of matrices as numpy has them."""
    for index in (left, right):
        facts.require_rank_from(index, 1)
    a, b = facts.shape(left), facts.shape(right)
    if a is not None and b is not None:
        facts.require_equal(a[-1], b[max(len(b) - 2, 0)], "the operands differ in the size that is summed over")
        batch = facts.broadcast(a[:-2], b[:-2], message="the batches do not broadcast") or ()
        return facts.tensor(dtype, (*batch, *a[-2:-1], *(b[-1:] if len(b) > 1 else ())))
    return facts.tensor(dtype, None)


@FAMILY.infer("MatMul")
def _matmul(facts: Facts) -> Results:
    return [product_type(facts, 0, 1, facts.first_dtype())]


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
    """Return ``alpha A' B' + beta C`` with ``C`` broadcast to the product."""
    left, right = a.T if transA else a, b.T if transB else b
    reserve((len(left), right.shape[-1]), a.itemsize, "Gemm")
    product = np.matmul(left, right)
    if alpha != 1.0:
        product = (product * alpha).astype(a.dtype)
    if c is None or beta == 0.0:
        return np.asarray(product)
    return np.asarray(product + (c if beta == 1.0 else (c * beta).astype(a.dtype)))


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


@FAMILY.infer("Gemm")
def _gemm(facts: Facts) -> Results:
    a, b = facts.dims(0, 2), facts.dims(1, 2)
    rows, depth = reversed(a) if facts.attr("transA") else a
    also_depth, columns = reversed(b) if facts.attr("transB") else b
    facts.require_equal(depth, also_depth, "the operands differ in the size that is summed over")
    facts.require_broadcast(2, (rows, columns), "the bias")
    return [facts.tensor(facts.first_dtype(), (rows, columns))]


@FAMILY.op("Det")
@widened
def det(x: Array) -> Array:
    """Return the determinants of the innermost square matrices."""
    return np.asarray(np.linalg.det(x)) if x.shape[-1] else np.ones(x.shape[:-2], x.dtype)


@FAMILY.infer("Det")
def _det(facts: Facts) -> Results:
    facts.require_rank_from(0, 2)
    facts.require_equal(facts.dim(0, -2), facts.dim(0, -1), "the matrices are not square")
    shape = facts.shape(0)
    return [facts.tensor(facts.dtype(0), None if shape is None else shape[:-2])]


@FAMILY.op("Inverse", domain="com.microsoft")
@widened
def inverse(x: Array) -> Array:
    """Return the inverses of the innermost square matrices, NaN for those that have none."""
    wide = x.astype(np.float64)
    exists = np.linalg.slogdet(wide).sign != 0
    safe = np.where(exists[..., None, None], wide, np.eye(x.shape[-1]))
    return np.where(exists[..., None, None], np.linalg.inv(safe), np.nan)


@FAMILY.infer("Inverse", domain="com.microsoft")
def _inverse(facts: Facts) -> Results:
    facts.require_rank_from(0, 2)
    size = facts.require_equal(facts.dim(0, -2), facts.dim(0, -1), "the matrices are not square")
    shape = facts.shape(0)
    return [facts.tensor(facts.dtype(0), None if shape is None else (*shape[:-2], size, size))]


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
    texts, _ = contraction.split_equation(node.attrs["equation"], len(shapes))
    sizes: dict[str, Size] = {}
    for text, shape in zip(texts, shapes, strict=True):
        sizes.update(zip(contraction.labels_of(text, len(shape)), shape, strict=False))
    return product(sizes.values())


@FAMILY.op("Einsum", macs=_einsum_macs)
@widened
def einsum(*inputs: Array, equation: str) -> Array:
    """Return a sum of products in Einstein notation; several operands are contracted in the cheapest order."""
    texts, right = contraction.split_equation(equation, len(inputs))
    terms = [contraction.labels_of(text, x.ndim) for text, x in zip(texts, inputs, strict=True)]
    output = contraction.output_labels(right, terms)
    sizes = contraction.label_sizes(terms, [x.shape for x in inputs])
    # An axis of size 1 under an ellipsis that is summed must count as often as its partner is long.
    operands = {
        i: (np.broadcast_to(x, [sizes[label] for label in term]), term)
        for i, (x, term) in enumerate(zip(inputs, terms, strict=True))
    }
    for i, (x, term) in operands.items():
        others = set(output).union(*(labels for j, (_, labels) in operands.items() if j != i))
        operands[i] = _simplify(x, term, others)
    order = contraction.contraction_order([labels for _, labels in operands.values()], output, sizes)
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


@FAMILY.infer("Einsum")
def _einsum(facts: Facts) -> Results:
    equation = str(facts.attr("equation", ""))
    try:
        texts, right = contraction.split_equation(equation, facts.count)
    except ExecutionError as error:
        facts.fail(error.message, expected=error.expected, found=error.found)
    terms: list[Labels] = []
    sizes: dict[str, Size | None] = {}
    for index, text in enumerate(texts):
        shape = facts.shape(index)
        if shape is None:
            if "..." in text and "..." in right:
                return [facts.tensor(facts.first_dtype(), None)]
            continue
        terms.append(contraction.labels_of(text, len(shape)))
        facts.require(len(terms[-1]) == len(shape), f'the term "{text}" of "{equation}" does not fit its operand',
                      expected="a letter for each dimension", found=facts.shown(index))  # fmt: skip
        for label, size in zip(terms[-1], shape, strict=True):
            if not label.isdigit():
                sizes[label] = facts.require_equal(sizes.get(label), size, f'"{label}" of "{equation}" has two sizes')
            elif label in sizes:
                sizes[label], *_ = facts.broadcast((sizes[label],), (size,)) or (None,)
            else:
                sizes[label] = size
    return [facts.tensor(facts.first_dtype(), [sizes.get(label) for label in contraction.output_labels(right, terms)])]


FAMILY.trait("product", "Gemm", "MatMul")
