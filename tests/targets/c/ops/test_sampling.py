"""GridSample and RoiAlign on the C target, against the host and onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import tinycomp
from tests.targets.c.harness import Case, assert_close, check, compile_for, make_model
from tinycomp.errors import ExecutionError

RNG = np.random.default_rng(5)
CLOSE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-5}


def reals(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def grid(*shape: int) -> np.ndarray:
    """Return places, a fifth of them outside."""
    return RNG.uniform(-1.25, 1.25, shape).astype(np.float32)


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    ("shape", "places"),
    [((2, 3, 5, 7), (2, 4, 9, 2)), ((1, 19, 6, 4), (1, 3, 40, 2)), ((1, 5, 3, 4, 5), (1, 2, 3, 6, 3))],
    ids=str,
)
def test_grid_sample(shape: tuple[int, ...], places: tuple[int, ...], mode: str, padding: str, aligned: int):
    if len(shape) == 5 and mode == "cubic":
        pytest.skip("ONNX defines it for images only")
    attrs = {"mode": mode, "padding_mode": padding, "align_corners": aligned}
    check(Case("GridSample", [reals(*shape), grid(*places)], attrs, onnxruntime=len(shape) == 4, **CLOSE))


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_places_that_are_no_numbers(mode: str, padding: str):
    places = grid(1, 3, 4, 2)
    places[0, 0] = [[np.nan, 0], [np.inf, 0], [-np.inf, 0], [1e30, -1e30]]
    attrs = {"mode": mode, "padding_mode": padding}
    check(Case("GridSample", [reals(1, 3, 5, 6), places], attrs, onnxruntime=False, **CLOSE))


def test_grid_sample_of_sizes_that_only_a_run_shows():
    node = helper.make_node("GridSample", ["x0", "x1"], ["y0"], name="node")
    feeds = {"x0": reals(2, 3, 5, 7), "x1": grid(2, 4, 9, 2)}
    names = {"x0": ["n", 3, "h", "w"], "x1": ["n", "a", "b", 2]}
    module = tinycomp.compile(make_model([node], feeds, {}, ["y0"], symbolic=names), "c")
    assert not module.report().hosts
    for x, places in (
        (feeds["x0"], feeds["x1"]),
        (reals(1, 3, 9, 2), grid(1, 70, 1, 2)),
        (reals(1, 3, 2, 2), grid(1, 0, 3, 2)),
    ):
        case = Case("GridSample", [x, places], **CLOSE)
        wanted = compile_for(case.model(), "host").run(case.feeds)["y0"]
        assert_close(module.run({"x0": x, "x1": places})["y0"], wanted, case, "sizes")


def regions(count: int, extent: float) -> np.ndarray:
    corners = RNG.uniform(-2, extent, (count, 2, 2)).astype(np.float32)
    return np.concatenate([corners.min(axis=1), corners.max(axis=1)], axis=1)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("ratio", [0, 2, 3])
@pytest.mark.parametrize("how", ["half_pixel", "output_half_pixel"])
def test_roi_align(how: str, ratio: int, mode: str):
    attrs = {
        "mode": mode, "output_height": 3, "output_width": 5, "sampling_ratio": ratio, "spatial_scale": 0.5,
        "coordinate_transformation_mode": how,
    }  # fmt: skip
    operands = [reals(2, 21, 8, 9), regions(6, 20.0), np.array([0, 1, 1, 0, 1, 0])]
    check(Case("RoiAlign", operands, attrs, onnxruntime=mode == "avg", **CLOSE))


def test_roi_align_before_opset_16():
    attrs = {"output_height": 2, "output_width": 2, "sampling_ratio": 2}
    check(Case("RoiAlign", [reals(1, 3, 6, 7), regions(4, 6.0), np.zeros(4, np.int64)], attrs, opset=13, **CLOSE))


def test_a_region_of_an_image_that_is_not_there():
    case = Case("RoiAlign", [reals(2, 3, 6, 7), regions(2, 6.0), np.array([0, 2])])
    with pytest.raises(ExecutionError, match="batch index out of bounds"):
        compile_for(case.model()).run(case.feeds)


def test_a_region_that_is_too_large():
    case = Case("RoiAlign", [reals(1, 3, 6, 7), np.float32([[0, 0, 1e9, 1]]), np.array([0])])
    with pytest.raises(ExecutionError, match="a region has too many samples"):
        compile_for(case.model()).run(case.feeds)
