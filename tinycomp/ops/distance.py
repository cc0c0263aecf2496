"""Distances between the rows of two matrices: an operator of tinycomp's own, which others are defined by."""

from __future__ import annotations

import numpy as np

from tinycomp.errors import ExecutionError, ModelError
from tinycomp.ir.graph import Node
from tinycomp.ir.types import TensorType, Type, tensor
from tinycomp.memory.budget import reserve
from tinycomp.ops.numeric import Array
from tinycomp.ops.record import OpFamily

FAMILY = OpFamily("distance")
DOMAIN = "tinycomp.ml"
METRICS = ("sqeuclidean", "euclidean", "cityblock")
"""The names that scipy gives them."""


def _pairs(node: Node) -> list[Type]:
    x, points = (tensor(node.operand(index).type) for index in (0, 1))
    sizes = [None if t.shape is None or len(t.shape) != 2 else t.shape[0] for t in (x, points)]
    return [TensorType(x.dtype, tuple(sizes))]


@FAMILY.op("Distances", domain=DOMAIN, type_rule=_pairs)
def distances(x: Array, points: Array, *, metric: str = "sqeuclidean") -> Array:
    """Return how far every row of ``x`` is from every one of ``points``, [rows, points].

    Args:
        x: [rows, features], floats.
        points: [points, features], of the same type.
        metric: One of :data:`METRICS`.

    Raises:
        ModelError: If there is no such metric.
        ExecutionError: If the two are no matrices of the same features.
    """
    if metric not in METRICS:
        raise ModelError("Distances: unknown metric", expected=f"one of {', '.join(METRICS)}", found=metric)
    if x.ndim != 2 or points.ndim != 2 or x.shape[1] != points.shape[1]:
        raise ExecutionError(
            "Distances: the rows do not have the same features", expected="[rows, features] and [points, features]",
            found=f"{list(x.shape)} and {list(points.shape)}",
        )  # fmt: skip
    reserve((len(x), len(points)), 2 * x.itemsize, "Distances")
    sums = np.zeros((len(x), len(points)), x.dtype)
    for column, others in zip(x.T, points.T, strict=True):
        apart = np.subtract.outer(column, others)
        sums += np.abs(apart) if metric == "cityblock" else apart * apart
    return np.sqrt(sums) if metric == "euclidean" else sums
