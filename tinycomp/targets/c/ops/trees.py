"""Ensembles of trees on the C target: a kernel walks them, another makes classes of scores."""

from __future__ import annotations

import numpy as np

from tinycomp.errors import ModelError
from tinycomp.ir.graph import Node, Value
from tinycomp.ops.trees import AGGREGATES, TRANSFORMS, Ensemble, class_labels, ensemble_of
from tinycomp.passes.assign_layout import LayoutRule
from tinycomp.rewrite import reject
from tinycomp.symbolic import Size, minimum
from tinycomp.targets.c.codegen.emitter import Emitter, View
from tinycomp.targets.c.codegen.placement import element_size, emit_copy
from tinycomp.targets.c.codegen.rules import LoweringRules
from tinycomp.targets.common.checks import Verdict, all_of, dtypes, ranks, sized_type

FAMILY = LoweringRules()
_ML = "ai.onnx.ml"
_TRACKS = 1 << 30
"""The bit of a feature that sends NaN to the first child."""
_SMALL_NODES, _SMALL_LEAVES = 256, 64
"""The most that a tree may have which the kernel computes without walking it."""


def ensemble_check(node: Node) -> Verdict:
    """Tell whether the trees are sound, of the type of the rows, and these have the columns that they ask for."""
    dtype = node.operand(0).dtype
    try:
        ensemble = ensemble_of(node.op, node.attrs, dtype)
        if node.op == "TreeEnsembleClassifier":
            labels = class_labels(node.op, node.attrs, ensemble.outputs)
            if labels.dtype == object:
                return reject("labels are texts")
    except ModelError as error:
        return reject(str(error))
    if not ensemble.threshold.dtype == ensemble.weights.dtype == dtype:
        return reject(f"trees of {ensemble.threshold.dtype} for rows of {dtype}")
    if node.op == "TreeEnsemble" and dtype == "float64" and ensemble.target_transform != "NONE":
        return reject(f"{ensemble.target_transform} in float64")
    return True


def _is_wide(ensemble: Ensemble) -> bool:
    return ensemble.threshold.dtype == np.float64


def _nodes_of_small_trees(ensemble: Ensemble) -> int:
    """Return how many nodes those trees have that the kernel may compute as sets of leaves."""
    order = np.argsort(ensemble.roots)  # the nodes of a tree lie side by side
    starts = ensemble.roots[order]
    nodes = np.diff(starts, append=len(ensemble.feature))
    leaves = np.add.reduceat(ensemble.leaf >= 0, starts, dtype=np.int64)
    return int(nodes[(nodes <= _SMALL_NODES) & (leaves <= _SMALL_LEAVES)].sum())


def _columns_of(emit: Emitter, node: Node, needed: int) -> tuple[Value | View, Size, int]:
    """Return the rows and how many columns they have, for which the kernel packs the trees: the first of an open count.

    That there are so many is a condition of the program.
    """
    x, size = node.operand(0), element_size(node.operand(0))
    rows, columns = sized_type(x)[1]
    if isinstance(columns, int):
        return x, rows, columns
    place = emit.scratch(rows * needed * size)
    emit_copy(emit, node, place, emit.view(x), (rows, minimum(columns, needed)), (needed, 1), (columns, 1), size)
    return place, rows, needed


def emit_scores(emit: Emitter, node: Node, ensemble: Ensemble, to: Value | View) -> None:
    """Emit the walk of all rows through all trees; ``to`` gets their scores."""
    count, (x, rows, columns) = len(ensemble.feature), _columns_of(emit, node, ensemble.features)
    feature = np.where(ensemble.missing & (ensemble.leaf < 0), ensemble.feature | _TRACKS, ensemble.feature)
    thresholds = ensemble.threshold.view(np.int32).reshape(count, -1)
    nodes = np.concatenate([feature[:, None], thresholds, ensemble.children], 1).astype(np.int32)
    params: dict[str, float | Size] = {
        "rows": rows, "features": columns, "outputs": ensemble.outputs, "nodes": count,
        "leaves": len(ensemble.weights), "trees": len(ensemble.roots),
        "aggregate": AGGREGATES.index(ensemble.aggregate), "tracks": int(bool((feature & _TRACKS).any())),
        "small": _nodes_of_small_trees(ensemble),
    }  # fmt: skip
    base = ensemble.base if ensemble.base.any() else None
    tables = [nodes, ensemble.leaf, np.stack([ensemble.roots, ensemble.depths, ensemble.columns]), ensemble.weights]
    operands = [emit.constant(np.ascontiguousarray(table)) for table in tables]
    kernel = f"tree_ensemble_{'f64' if _is_wide(ensemble) else 'f32'}"
    emit.call(kernel, [to, x, *operands, None if base is None else emit.constant(base)], params, node)


@FAMILY.lower(
    "TreeEnsemble", "TreeEnsembleRegressor", domain=_ML,
    check=all_of(dtypes("float32", "float64", operands=(0,)), ranks(2), ensemble_check), layout=LayoutRule.ROW_MAJOR,
)  # fmt: skip
def trees(emit: Emitter, node: Node) -> None:
    """Emit the scores of all targets, and what transforms them."""
    ensemble = ensemble_of(node.op, node.attrs, node.operand(0).dtype)
    if ensemble.target_transform == "NONE" and ensemble.weights.dtype == node.output.dtype:
        emit_scores(emit, node, ensemble, node.output)
        return
    rows = sized_type(node.output)[1][0]
    scores = emit.scratch(rows * ensemble.outputs * ensemble.weights.itemsize)
    emit_scores(emit, node, ensemble, scores)
    emit_classes(emit, node, scores, ensemble, ensemble.target_transform)


def emit_classes(
    emit: Emitter, node: Node, scores: View, ensemble: Ensemble, transform: str, labels: np.ndarray | None = None
) -> None:
    """Emit what makes transformed scores, and classes where there are labels: the last result, and the first."""
    params: dict[str, float | Size] = {
        "rows": sized_type(node.operand(0))[1][0], "classes": ensemble.outputs,
        "transform": TRANSFORMS.index(transform), "only": ensemble.only, "positive": int(ensemble.positive),
        "mirrored": int(ensemble.mirrored), "wide": int(_is_wide(ensemble)),
    }  # fmt: skip
    chosen = None if labels is None else node.outputs[0]
    table = None if labels is None else emit.constant(labels)
    emit.call("class_scores_f32", [node.outputs[-1], chosen, scores, table], params, node)


@FAMILY.lower(
    "TreeEnsembleClassifier", domain=_ML,
    check=all_of(dtypes("float32", "float64", operands=(0,)), ranks(2), ensemble_check), layout=LayoutRule.ROW_MAJOR,
)  # fmt: skip
def tree_classes(emit: Emitter, node: Node) -> None:
    """Emit the scores of all classes, and what makes labels of them."""
    ensemble = ensemble_of(node.op, node.attrs, node.operand(0).dtype)
    labels = class_labels(node.op, node.attrs, ensemble.outputs)
    scores = emit.scratch(sized_type(node.operand(0))[1][0] * ensemble.outputs * ensemble.weights.itemsize)
    emit_scores(emit, node, ensemble, scores)
    emit_classes(emit, node, scores, ensemble, ensemble.transform, labels)
