"""Ensembles of trees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.cases.case import Case
from tests.cases.values import floats

ML = "ai.onnx.ml"
NODES: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0, 1, 1, 1], "nodes_nodeids": [0, 1, 2, 0, 1, 2], "nodes_featureids": [0, 0, 0, 1, 0, 0],
    "nodes_values": [0.5, 0.0, 0.0, -0.5, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF", "BRANCH_LT", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 0, 0, 1, 0, 0], "nodes_falsenodeids": [2, 0, 0, 2, 0, 0],
}  # fmt: skip
LEAVES = {"treeids": [0, 0, 1, 1], "nodeids": [1, 2, 1, 2], "ids": [0, 1, 2, 0], "weights": [1.0, -2.0, 0.5, 3.0]}


def rows() -> Iterator[Case]:
    """Return the rows of the family."""
    for x in (floats(5, 2), floats(1, 2), floats(0, 2), floats(5, 2).astype(np.float64)):
        target = {f"target_{k}": v for k, v in LEAVES.items()}
        for how in ("SUM", "AVERAGE", "MIN", "MAX"):
            attrs = {**NODES, **target, "n_targets": 3, "aggregate_function": how}
            yield Case("TreeEnsembleRegressor", [x], attrs, 3, domain=ML)
        classes = {**{f"class_{k}": v for k, v in LEAVES.items()}, "classlabels_int64s": [4, 7, 9]}
        for transform in ("NONE", "SOFTMAX", "LOGISTIC"):
            attrs = {**NODES, **classes, "post_transform": transform}
            yield Case("TreeEnsembleClassifier", [x], attrs, 3, 2, domain=ML)
    yield Case("TreeEnsembleRegressor", [floats(5, 1)], {**NODES, **target, "n_targets": 3}, 3, domain=ML,
               refused="TreeEnsembleRegressor")  # fmt: skip
