"""Distances between the rows of two matrices: an operator of tinycomp's own, which others are defined by."""

from __future__ import annotations

import numpy as np

from tinycomp.memory.budget import reserve
from tinycomp.ops.numeric import Array
from tinycomp.ops.record import OpFamily
from tinycomp.ops.rule import Facts, Results

FAMILY = OpFamily("distance")
DOMAIN = "tinycomp.ml"
METRICS = ("sqeuclidean", "euclidean", "cityblock")
"""The names that scipy gives them."""


@FAMILY.op("Distances", domain=DOMAIN)
def distances(x: Array, points: Array, *, metric: str = "sqeuclidean") -> Array:
    """Return how far every row of ``x`` is from every one of ``points``, [rows, points].

    Args:
        x: [rows, features], floats.
        points: [points, features], of the same type.
        metric: One of :data:`METRICS`.
    """
    reserve((len(x), len(points)), 2 * x.itemsize, "Distances")
    sums = np.zeros((len(x), len(points)), x.dtype)
    for column, others in zip(x.T, points.T, strict=True):
        apart = np.subtract.outer(column, others)
        sums += np.abs(apart) if metric == "cityblock" else apart * apart
    return np.sqrt(sums) if metric == "euclidean" else sums


@FAMILY.infer("Distances", domain=DOMAIN)
def _pairs(facts: Facts) -> Results:
    facts.require_one_of("metric", METRICS)
    (rows, features), (points, also) = facts.dims(0, 2), facts.dims(1, 2)
    facts.require_equal(features, also, "the rows do not have the same features")
    return [facts.tensor(facts.first_dtype(0, 1), (rows, points))]
