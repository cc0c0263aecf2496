"""NonMaxSuppression; RoiAlign and MaxRoiPool against onnxruntime, with random attributes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.harness import assert_same, check, run_onnxruntime, run_ours, sample
from tinycomp.errors import ExecutionError, MemoryLimitError, TypeInferenceError
from tinycomp.ir.graph import Graph
from tinycomp.ir.types import TensorType
from tinycomp.memory.budget import limited
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
    with pytest.raises(ExecutionError, match=r"iou_threshold is not between 0 and 1; expected \[0, 1\]; found 1.5"):
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
        ((1, 5, 3), (1, 2, 5), "a box has 4 numbers; expected 4; found 3"),
        ((2, 5, 4), (1, 2, 5), "boxes and scores differ in batch; expected 1; found 2"),
        ((1, 5, 4), (1, 2, 6), "boxes and scores differ in number; expected 6; found 5"),
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


def regions(rng: np.random.Generator, count: int, size: float) -> np.ndarray:
    """Boxes of two corners, some beyond the image."""
    corners = rng.uniform(-0.2 * size, 1.2 * size, (count, 2, 2))
    return np.sort(corners, axis=1).reshape(count, 4).astype(np.float32)


@pytest.mark.parametrize("version", [10, 16, 22])
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("seed", range(6))
def test_roi_align(version: int, mode: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((3, 2, 7, 9)).astype(np.float32)
    scale = float(rng.choice([1.0, 0.5, 0.25]))
    inputs = [x, regions(rng, 5, 8 / scale), rng.integers(0, 3, 5)]
    attrs = {
        "mode": mode, "output_height": int(rng.integers(1, 5)), "output_width": int(rng.integers(1, 5)),
        "sampling_ratio": int(rng.integers(0, 3)), "spatial_scale": scale,
    }  # fmt: skip
    if version >= 16:
        attrs["coordinate_transformation_mode"] = str(rng.choice(["half_pixel", "output_half_pixel"]))
    (got,) = run_ours("RoiAlign", inputs, attrs, version)
    (want,) = run_onnxruntime("RoiAlign", inputs, attrs, min(version, 16))
    assert_same(got, want, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_roi_align_of_other_floats(dtype: str) -> None:
    x = sample(dtype, (1, 2, 6, 6))
    rois = np.array([[0, 1, 4, 5], [2, 2, 2, 2]]).astype(x.dtype)
    (got,) = run_ours("RoiAlign", [x, rois, np.array([0, 0])], {"output_height": 2, "sampling_ratio": 2}, 22)
    single = [x.astype(np.float32), rois.astype(np.float32), np.array([0, 0])]
    (want,) = run_ours("RoiAlign", single, {"output_height": 2, "sampling_ratio": 2}, 22)
    assert got.dtype == x.dtype
    np.testing.assert_allclose(got.astype(np.float32), want, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("seed", range(6))
def test_max_roi_pool(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scale = float(rng.choice([1.0, 0.5]))
    rois = np.concatenate([rng.integers(0, 2, (5, 1)), regions(rng, 5, 8 / scale)], axis=1).astype(np.float32)
    shape = [int(n) for n in rng.integers(1, 5, 2)]
    attrs = {"pooled_shape": shape, "spatial_scale": scale}
    check("MaxRoiPool", [sample("float32", (2, 3, 8, 9)), rois], attrs, 1, against=("onnxruntime",))


def test_bad_operands_are_refused() -> None:
    x = np.ones((1, 1, 4, 4), np.float32)
    box = np.array([[0, 0, 2, 2]], np.float32)
    with pytest.raises(
        ExecutionError, match=r"RoiAlign: batch index out of bounds; expected indices in \[0, 0\]; found 1"
    ):
        run_ours("RoiAlign", [x, box, np.array([1])], {}, 16)
    with pytest.raises(ExecutionError, match="a region has the wrong number of columns; expected 4; found 3"):
        run_ours("RoiAlign", [x, box[:, :3], np.array([0])], {}, 16)
    with pytest.raises(ExecutionError, match="unknown mode; expected one of avg, max; found 'sum'"):
        run_ours("RoiAlign", [x, box, np.array([0])], {"mode": "sum"}, 16)
    with pytest.raises(ExecutionError, match="unknown coordinate_transformation_mode"):
        run_ours("RoiAlign", [x, box, np.array([0])], {"coordinate_transformation_mode": "pixel"}, 16)
    with pytest.raises(ExecutionError, match="bad size of the result; expected two sizes above 0"):
        run_ours("MaxRoiPool", [x, np.zeros((1, 5), np.float32)], {"pooled_shape": [0, 1]}, 1)
    with pytest.raises(ExecutionError, match="MaxRoiPool: batch index out of bounds"):
        run_ours("MaxRoiPool", [x, np.full((1, 5), -1, np.float32)], {"pooled_shape": [1, 1]}, 1)


def test_a_huge_number_of_samples_is_refused_before_it_is_allocated() -> None:
    inputs = [np.ones((1, 1, 4, 4), np.float32), np.array([[0, 0, 2, 2]], np.float32), np.array([0])]
    with limited(1 << 20), pytest.raises(MemoryLimitError):
        run_ours("RoiAlign", inputs, {"sampling_ratio": 1 << 40}, 16)
