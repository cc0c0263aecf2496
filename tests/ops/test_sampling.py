"""GridSample and AffineGrid against onnxruntime and onnx.reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ops.harness import check, run_ours, sample
from tinycomp.errors import ExecutionError


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_grid_sample_16(mode):
    x, grid = sample("float32", (1, 2, 4, 5)), sample("float32", (1, 3, 4, 2), 1, -1.2, 1.2)
    check("GridSample", [x, grid], {"mode": mode}, 16, against=("onnxruntime",), atol=1e-4)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int32", "uint8"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_dtypes(dtype, mode):
    x, grid = sample(dtype, (1, 2, 4, 5), low=0, high=9), sample("float32", (1, 3, 4, 2), 1)
    (got,) = run_ours("GridSample", [x, grid], {"mode": mode})
    (want,) = run_ours("GridSample", [x.astype(np.float64), grid], {"mode": mode})
    assert got.dtype == x.dtype
    tolerance = 1 if "int" in dtype else 0.1
    np.testing.assert_allclose(got.astype(np.float64), want, atol=tolerance, rtol=0)


def test_errors():
    x = sample("float32", (1, 2, 4, 5))
    with pytest.raises(ExecutionError, match="the grid has a wrong number of coordinates; expected 2; found 3"):
        run_ours("GridSample", [x, np.zeros((1, 3, 3, 3), np.float32)])
    with pytest.raises(ExecutionError, match=r"unknown mode; .*found 'lanczos'"):
        run_ours("GridSample", [x, np.zeros((1, 3, 3, 2), np.float32)], {"mode": "lanczos"})
    with pytest.raises(ExecutionError, match="size has the wrong size; expected 5; found 4"):
        run_ours("AffineGrid", [np.zeros((1, 3, 4), np.float32), np.array([1, 1, 4, 4])])


@pytest.mark.parametrize("aligned", [0, 1])
def test_the_identity_map_samples_the_image_itself(aligned):
    x = sample("float32", (1, 2, 4, 5))
    theta = np.array([[[1, 0, 0], [0, 1, 0]]], np.float32)
    (grid,) = run_ours("AffineGrid", [theta, np.array(x.shape)], {"align_corners": aligned})
    (y,) = run_ours("GridSample", [x, grid], {"align_corners": aligned})
    np.testing.assert_allclose(y, x, atol=1e-5)
