"""NonMaxSuppression; RoiAlign and MaxRoiPool against onnxruntime, with random attributes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.harness import run_ours, sample
from tinycomp.errors import ExecutionError, MemoryLimitError, TypeInferenceError
from tinycomp.ir.graph import Graph
from tinycomp.ir.types import TensorType
from tinycomp.memory.budget import limited
from tinycomp.ops.typing import infer_node_types


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


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_roi_align_of_other_floats(dtype: str) -> None:
    x = sample(dtype, (1, 2, 6, 6))
    rois = np.array([[0, 1, 4, 5], [2, 2, 2, 2]]).astype(x.dtype)
    (got,) = run_ours("RoiAlign", [x, rois, np.array([0, 0])], {"output_height": 2, "sampling_ratio": 2}, 22)
    single = [x.astype(np.float32), rois.astype(np.float32), np.array([0, 0])]
    (want,) = run_ours("RoiAlign", single, {"output_height": 2, "sampling_ratio": 2}, 22)
    assert got.dtype == x.dtype
    np.testing.assert_allclose(got.astype(np.float32), want, rtol=1e-2, atol=1e-2)


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
