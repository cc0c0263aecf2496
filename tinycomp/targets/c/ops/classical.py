"""Distances, probabilities of pairs, determinants and inverses on the C target: linear algebra of classical models."""

from __future__ import annotations

import numpy as np

from tinycomp.ir.graph import Node
from tinycomp.ops.distance import DOMAIN
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.rewrite import reject
from tinycomp.runtime.native.library import lib
from tinycomp.symbolic import product
from tinycomp.targets.c.codegen.element_program import TYPES
from tinycomp.targets.c.codegen.emitter import Emitter
from tinycomp.targets.c.codegen.rules import LoweringRules, known_rank
from tinycomp.targets.common.checks import Verdict, all_of, dtypes, float32, ranks, sized_type

FAMILY = LoweringRules()
_FLOATS = dtypes("float32", "float64")
_METRICS = {
    "sqeuclidean": lib.TC_DISTANCE_SQUARED,
    "euclidean": lib.TC_DISTANCE_EUCLIDEAN,
    "cityblock": lib.TC_DISTANCE_MANHATTAN,
}


def _points(node: Node) -> Verdict:
    points = node.operand(1)
    if points.const is None:
        return reject(f'the points "{points.name}" are not constant')
    columns = (node.operand(0).shape or (None, None))[1]
    if points.const.ndim != 2 or not points.const.size or points.const.shape[1] != columns:
        return reject(f"points {list(points.const.shape)} for rows of {columns} features")
    return node.attrs.get("metric", "sqeuclidean") in _METRICS or reject("an unknown metric")


@FAMILY.lower("Distances", domain=DOMAIN, check=all_of(_FLOATS, ranks(2), _points), layout=LayoutRule.ROW_MAJOR)
def distances(emit: Emitter, node: Node) -> None:
    """Emit the distances of all rows and points."""
    rows, features = sized_type(node.operand(0))[1]
    points = sized_type(node.operand(1))[1][0]
    metric = _METRICS[node.attrs.get("metric", "sqeuclidean")]
    params = {"rows": rows, "points": points, "features": features, "metric": metric}
    kernel = "distances_f64" if node.output.dtype == "float64" else "distances_f32"
    emit.call(kernel, [node.output, node.operand(0), node.operand(1)], params, node)


@FAMILY.lower("Det", check=all_of(_FLOATS, known_rank), layout=LayoutRule.ROW_MAJOR)
def determinant(emit: Emitter, node: Node) -> None:
    """Emit an elimination of every matrix."""
    x = node.operand(0)
    shape = sized_type(x)[1]
    params = {"type": TYPES[x.dtype], "batch": product(shape[:-2]), "n": shape[-1]}
    emit.call("det", [node.output, x], params, node)


@FAMILY.lower("Inverse", domain="com.microsoft", check=all_of(_FLOATS, known_rank), layout=LayoutRule.ROW_MAJOR)
def inverse(emit: Emitter, node: Node) -> None:
    """Emit an elimination of every matrix."""
    shape = sized_type(node.output)[1]
    params = {"type": TYPES[node.output.dtype], "batch": product(shape[:-2]), "n": shape[-1]}
    emit.call("inverse", [node.output, node.operand(0)], params, node)


@FAMILY.lower("PairwiseCoupling", domain=DOMAIN, check=all_of(float32, ranks(2)), layout=LayoutRule.ROW_MAJOR)
def pairwise_coupling(emit: Emitter, node: Node) -> None:
    """Emit the probabilities of all classes."""
    rows, classes = sized_type(node.output)[1]
    a, b = (emit.constant(np.asarray(node.attrs[name], np.float32)) for name in ("prob_a", "prob_b"))
    params = {"rows": rows, "classes": classes}
    emit.call("pairwise_coupling_f32", [node.output, node.operand(0), a, b], params, node)
