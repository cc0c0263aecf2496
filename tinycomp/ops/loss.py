"""Losses of classification: NegativeLogLikelihoodLoss, and SoftmaxCrossEntropyLoss, which takes scores as they are."""

from __future__ import annotations

import numpy as np

from tinycomp.errors import ExecutionError
from tinycomp.ops.numeric import Array, compute_dtype, quiet
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Facts, Results

FAMILY = OpFamily("loss")


def _reduced(logs: Array, target: Array, weight: Array | None, ignored: int | None, reduction: str) -> Array:
    """Return the losses of logarithms of probabilities [N, C, d…] at classes [N, d…], added up as asked."""
    counts = np.ones(target.shape, np.bool_) if ignored is None else target != ignored
    classes = np.where(counts, target, 0).astype(np.int64)
    if classes.size and not (classes.min() >= 0 and classes.max() < logs.shape[1]):
        raise ExecutionError(
            "a class is out of range", expected=f"classes from 0 to {logs.shape[1] - 1}, or the ignored one",
            found=f"{int(classes.min())} to {int(classes.max())}",
        )  # fmt: skip
    weights = counts.astype(logs.dtype) if weight is None else np.where(counts, weight[classes], 0).astype(logs.dtype)
    losses = -np.take_along_axis(logs, classes[:, None], 1)[:, 0]
    losses = np.where(counts, losses * weights, 0).astype(logs.dtype)
    if reduction == "none":
        return losses
    total = losses.sum(dtype=logs.dtype)
    return np.asarray(total if reduction == "sum" else total / weights.sum(dtype=logs.dtype))


@FAMILY.op("NegativeLogLikelihoodLoss")
@quiet
def negative_log_likelihood_loss(
    x: Array, target: Array, weight: Array | None = None, *, ignore_index: int | None = None, reduction: str = "mean"
) -> Array:
    """Return the weighted losses of classes, given logarithms of probabilities; ignored classes count nothing.

    Raises:
        ExecutionError: If a class is out of range.
    """
    wide = x.astype(compute_dtype(x.dtype), copy=False)
    return _reduced(wide, target, weight, ignore_index, reduction).astype(x.dtype, copy=False)


@FAMILY.op("SoftmaxCrossEntropyLoss")
@quiet
def softmax_cross_entropy_loss(
    scores: Array,
    labels: Array,
    weights: Array | None = None,
    *,
    ignore_index: int | None = None,
    reduction: str = "mean",
) -> tuple[Array, Array]:
    """Return the losses of scores, and the logarithms of their softmax.

    Raises:
        ExecutionError: If a class is out of range.
    """
    wide = scores.astype(compute_dtype(scores.dtype), copy=False)
    moved = wide - wide.max(1, keepdims=True)
    logs = moved - np.log(np.exp(moved).sum(1, keepdims=True))
    loss = _reduced(logs, labels, weights, ignore_index, reduction)
    return loss.astype(scores.dtype, copy=False), logs.astype(scores.dtype, copy=False)


@FAMILY.infer("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def _loss(facts: Facts) -> Results:
    reduction = facts.require_one_of("reduction", ("none", "sum", "mean"), "mean")
    facts.require_rank_from(0, 2, "the tensor of scores")
    facts.require_rank_from(1, 1, "the tensor of classes")
    classes, rank, dtype = facts.rank(1), facts.rank(0), facts.dtype(0)
    if rank is None and classes is not None:
        rank = classes + 1
    if rank is None:
        return [facts.tensor(dtype, None if reduction == "none" else ()), facts.tensor(dtype, None)]
    scores = facts.dims(0, rank)
    facts.require_vector(2, scores[1], "the weight")
    target = facts.require_same(facts.dims(1, rank - 1), (scores[0], *scores[2:]), "scores and classes differ in shape")
    logs = facts.tensor(dtype, (target[0], scores[1], *target[1:]))
    return [facts.tensor(dtype, target if reduction == "none" else ()), logs]
