"""SVMClassifier, with the probabilities that libsvm gives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinycomp.errors import ModelError
from tinycomp.ops.distance import DOMAIN
from tinycomp.ops.numeric import Array
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Facts, Results
from tinycomp.ops.trees import row_sizes, transformed

FAMILY = OpFamily("svm")
_ML = "ai.onnx.ml"
_LEAST = 1e-7
"""No pair of classes is surer than this, as in libsvm."""
_ROUNDS = 100


def similarities(x: Array, vectors: Array, kind: str, params: Sequence[float]) -> Array:
    """Return the kernel function of every row and every vector, [rows, vectors].

    Args:
        x: [rows, features].
        vectors: [vectors, features].
        kind: ``LINEAR``, ``POLY``, ``RBF`` or ``SIGMOID``.
        params: Gamma, the constant term, the degree.

    Raises:
        ModelError: If there is no such kernel.
    """
    gamma, constant, degree = (*params, 0.0, 0.0, 0.0)[:3]
    if kind == "RBF":
        squares = (x * x).sum(1)[:, None] + (vectors * vectors).sum(1) - 2 * (x @ vectors.T)
        near: Array = np.exp(-gamma * np.maximum(squares, 0))
        return near
    products = x @ vectors.T
    if kind == "POLY":
        return np.power(gamma * products + constant, degree)
    if kind == "SIGMOID":
        return np.tanh(gamma * products + constant)
    if kind != "LINEAR":
        raise ModelError(
            "unknown kernel of a support vector machine", expected="LINEAR, POLY, RBF or SIGMOID", found=kind
        )
    return products


def coupled(pairs: Array) -> Array:
    """Return the probabilities of classes that agree best with those of pairs: the second method of Wu, Lin and Weng.

    Args:
        pairs: The probability of the first class of every two, [rows, classes, classes].
    """
    count = pairs.shape[1]
    across = pairs.transpose(0, 2, 1)
    matrix = -across * pairs
    diagonal = np.arange(count)
    matrix[:, diagonal, diagonal] = 0
    matrix[:, diagonal, diagonal] = (across**2).sum(2) - across[:, diagonal, diagonal] ** 2
    p = np.full((len(pairs), count), 1 / count)
    active = np.arange(len(pairs))
    for _ in range(max(_ROUNDS, count)):
        q, chosen = matrix[active], p[active]
        qp = np.einsum("rij,rj->ri", q, chosen)
        pqp = (chosen * qp).sum(1)
        open_ = np.abs(qp - pqp[:, None]).max(1, initial=0) >= 0.005 / count
        active = active[open_]
        if not len(active):
            break
        q, chosen, qp, pqp = q[open_], chosen[open_], qp[open_], pqp[open_]
        for t in range(count):
            step = (pqp - qp[:, t]) / q[:, t, t]
            chosen[:, t] += step
            pqp = (pqp + step * (step * q[:, t, t] + 2 * qp[:, t])) / (1 + step) ** 2
            qp = (qp + step[:, None] * q[:, t]) / (1 + step)[:, None]
            chosen /= (1 + step)[:, None]
        p[active] = chosen
    return p


def class_count(pairs: int) -> int:
    """Return how many classes have so many pairs."""
    return (1 + math.isqrt(1 + 8 * pairs)) // 2


@FAMILY.op("PairwiseCoupling", domain=DOMAIN)
def pairwise_coupling(x: Array, *, prob_a: Sequence[float], prob_b: Sequence[float]) -> Array:
    """Return probabilities of classes from decisions about every two: an operator that SVMClassifier is defined by.

    Args:
        x: Decisions, [rows, pairs], the first class with each of the others first.
        prob_a: What a decision is multiplied by; the probability of the first of two is 1 / (1 + exp(a x + b)).
        prob_b: What is added.

    Returns:
        [rows, classes], of the type of ``x``.
    """
    count = class_count(len(prob_a))
    first, second = np.triu_indices(count, 1)
    exponents = x.astype(np.float64) * np.asarray(prob_a, np.float32) + np.asarray(prob_b, np.float32)
    sure = np.clip(1 / (1 + np.exp(np.clip(exponents, -700, 700))), _LEAST, 1 - _LEAST)
    pairs = np.zeros((len(x), count, count))
    pairs[:, first, second], pairs[:, second, first] = sure, 1 - sure
    return coupled(pairs).astype(x.dtype)


@FAMILY.op("SVMClassifier", domain=_ML)
def svm_classifier(
    x: Array,
    *,
    classlabels_ints: Sequence[int] = (),
    classlabels_strings: Sequence[Any] = (),
    coefficients: Sequence[float] = (),
    kernel_params: Sequence[float] = (),
    kernel_type: str = "LINEAR",
    post_transform: str = "NONE",
    prob_a: Sequence[float] = (),
    prob_b: Sequence[float] = (),
    rho: Sequence[float] = (),
    support_vectors: Sequence[float] = (),
    vectors_per_class: Sequence[int] = (),
) -> tuple[Array, Array]:
    """Return the label of each row, and probabilities of classes where there are some, else the decisions.

    Decisions are those of every two classes, or of every class if there are no support vectors; of two classes the
    only decision stands for the second one, and with the other sign for the first.
    """
    labels = np.array(classlabels_strings, object) if classlabels_strings else np.asarray(classlabels_ints, np.int64)
    rows = (x.reshape(1, -1) if x.ndim == 1 else x).astype(np.float64)
    biases = np.asarray(rho, np.float64)
    counts = np.asarray(vectors_per_class, np.int64)
    if not len(counts):
        factors = np.asarray(coefficients, np.float64).reshape(len(labels), -1)
        scores = similarities(rows, factors, kernel_type, kernel_params) + (
            biases if len(biases) == len(labels) else biases[:1]
        )
        return labels[scores.argmax(1)], transformed(scores, post_transform).astype(np.float32)
    vectors = np.asarray(support_vectors, np.float64).reshape(int(counts.sum()), -1)
    decisions = similarities(rows, vectors, kernel_type, kernel_params) @ pair_weights(counts, coefficients) + biases
    first, second = np.triu_indices(len(counts), 1)
    votes = np.zeros((len(rows), len(counts)), np.int64)
    for pair, (i, j) in enumerate(zip(first, second, strict=True)):
        votes[:, i] += decisions[:, pair] > 0
        votes[:, j] += decisions[:, pair] <= 0
    chosen = votes.argmax(1)
    if len(prob_a):
        scores = pairwise_coupling(decisions, prob_a=prob_a, prob_b=prob_b)
    elif len(counts) == 2:
        scores = np.concatenate([-decisions, decisions], 1)
    else:
        scores = decisions
    return labels[chosen], transformed(scores, post_transform).astype(np.float32)


def pair_weights(counts: Array, coefficients: Sequence[float]) -> Array:
    """Return what every support vector adds to the decision about every two classes, [vectors, pairs] in float64.

    Args:
        counts: How many vectors each class has.
        coefficients: One row of factors of the vectors for every class but one, as libsvm stores them.
    """
    starts = np.cumsum(counts) - counts
    table = np.asarray(coefficients, np.float64).reshape(len(counts) - 1, -1)
    columns = []
    for i in range(len(counts)):
        for j in range(i + 1, len(counts)):
            column = np.zeros(table.shape[1])
            for own, row in ((i, j - 1), (j, i)):
                part = slice(starts[own], starts[own] + counts[own])
                column[part] = table[row, part]
            columns.append(column)
    return np.stack(columns, 1)


@FAMILY.infer("PairwiseCoupling", domain=DOMAIN)
def _coupled(facts: Facts) -> Results:
    rows, decisions = facts.dims(0, 2)
    pairs = len(facts.attr("prob_a"))
    count = class_count(pairs)
    facts.require(len(facts.attr("prob_b")) == pairs == count * (count - 1) // 2, "the numbers are not those of pairs",
                  expected="one of prob_a and of prob_b for every two classes", found=pairs)  # fmt: skip
    facts.require_equal(decisions, pairs, "the decisions do not fit the pairs")
    return [facts.tensor(facts.dtype(0), (rows, count))]


@FAMILY.infer("SVMClassifier", domain=_ML)
def _classified(facts: Facts) -> Results:
    facts.require_one_of("kernel_type", ("LINEAR", "POLY", "RBF", "SIGMOID"))
    rows, columns = row_sizes(facts)
    counts, texts = facts.attr("vectors_per_class") or (), facts.attr("classlabels_strings") or ()
    labels = len(texts or facts.attr("classlabels_ints") or ())
    held, among = ("support_vectors", sum(counts)) if counts else ("coefficients", labels)
    numbers = len(facts.attr(held) or ())
    fits = among > 0 and numbers % among == 0 and (not counts or len(counts) == labels)
    facts.require(fits, f"{held} does not fit", expected=f"a multiple of {among} numbers", found=numbers)
    facts.require_equal(columns, numbers // among, "the rows do not have the features of the support vectors")
    decisions = labels if facts.attr("prob_a") or labels == _TWO or not counts else labels * (labels - 1) // 2
    return [facts.tensor("string" if texts else "int64", (rows,)), facts.tensor("float32", (rows, decisions))]


_TWO = 2
"""Of so many classes the only decision stands for both."""
