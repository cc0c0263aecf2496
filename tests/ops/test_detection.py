from __future__ import annotations

import numpy as np
import pytest

from tests.ops.harness import check, run_ours
from tinycomp.errors import ExecutionError, TypeInferenceError
from tinycomp.ir.graph import Graph
from tinycomp.ir.types import TensorType
from tinycomp.ops.typing import infer_node_types


def _boxes(count, seed=0):
    rng = np.random.default_rng(seed)
    corner = rng.uniform(0, 8, (2, count, 2))
    return np.concatenate([corner, corner + rng.uniform(0.5, 4, (2, count, 2))], -1).astype(np.float32)


@pytest.mark.parametrize("center", [0, 1])
@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("limit", [0, 3, 100])
def test_non_max_suppression(center, threshold, limit):
    scores = np.random.default_rng(1).random((2, 3, 40)).astype(np.float32)
    operands = [_boxes(40), scores, np.array([limit]), np.array([threshold], "f"), np.array([0.2], "f")]
    check("NonMaxSuppression", operands, {"center_point_box": center}, 11, against=("onnxruntime",))


def test_non_max_suppression_forms():
    scores = np.random.default_rng(1).random((2, 1, 10)).astype(np.float32)
    flipped = _boxes(10)[..., [2, 3, 0, 1]]
    check("NonMaxSuppression", [flipped, scores, np.array([5])], {}, 11, against=("onnxruntime",))
    assert run_ours("NonMaxSuppression", [flipped, scores])[0].shape == (0, 3)
    operands = [flipped, scores, np.array([5]), np.array([1.5], "f")]
    with pytest.raises(ExecutionError, match=r"NonMaxSuppression: bad iou_threshold; expected \[0, 1\]; found 1.5"):
        run_ours("NonMaxSuppression", operands)


def test_more_boxes_than_a_block():
    rng = np.random.default_rng(2)
    corner = rng.uniform(0, 30, (1, 500, 2))
    boxes = np.concatenate([corner, corner + rng.uniform(1, 6, (1, 500, 2))], -1).astype(np.float32)
    scores = np.round(rng.random((1, 2, 500)), 2).astype(np.float32)  # with ties
    for limit in (1, 65, 500):
        operands = [boxes, scores, np.array([limit]), np.array([0.4], "f"), np.array([0.1], "f")]
        check("NonMaxSuppression", operands, {}, 11, against=("onnxruntime",))


def test_no_candidates():
    boxes, scores = np.zeros((1, 3, 4), np.float32), np.zeros((1, 2, 3), np.float32)
    operands = [boxes, scores, np.array([5]), np.array([0.5], "f"), np.array([0.5], "f")]
    assert run_ours("NonMaxSuppression", operands)[0].shape == (0, 3)
    empty = [boxes[:, :0], scores[:, :, :0], np.array([5])]
    assert run_ours("NonMaxSuppression", empty)[0].shape == (0, 3)


@pytest.mark.parametrize(
    ("boxes", "scores", "text"),
    [
        ((1, 5, 3), (1, 2, 5), "a box has the wrong size; expected 4; found 3"),
        ((2, 5, 4), (1, 2, 5), "the scores' batch has the wrong size; expected 2; found 1"),
        ((1, 5, 4), (1, 2, 6), "a class of scores has the wrong size; expected 5; found 6"),
    ],
)
def test_boxes_and_scores_that_do_not_fit(boxes, scores, text):
    graph = Graph("g", infer=infer_node_types)
    operands = [graph.add_input(n, TensorType("float32", s)) for n, s in (("boxes", boxes), ("scores", scores))]
    with pytest.raises(TypeInferenceError, match=text):
        graph.add("NonMaxSuppression", operands, version=11)


def test_the_first_version_has_a_shape_too():
    graph = Graph("g", infer=infer_node_types)
    operands = [graph.add_input(n, TensorType("float32", (1, 5, k))) for n, k in (("boxes", 4), ("scores", 5))]
    for version in (10, 11):
        assert str(graph.add("NonMaxSuppression", operands, version=version).output.type) == "int64[?, 3]"
