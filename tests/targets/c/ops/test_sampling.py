"""GridSample and RoiAlign on the C target, against the host and onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import tinycomp
from tests.targets.c.harness import Case, assert_close, compile_for, make_model
from tinycomp.errors import ExecutionError

RNG = np.random.default_rng(5)
CLOSE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-5}


def reals(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def grid(*shape: int) -> np.ndarray:
    """Return places, a fifth of them outside."""
    return RNG.uniform(-1.25, 1.25, shape).astype(np.float32)


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


def test_a_region_that_is_too_large():
    case = Case("RoiAlign", [reals(1, 3, 6, 7), np.float32([[0, 0, 1e9, 1]]), np.array([0])])
    with pytest.raises(ExecutionError, match="a region has too many samples"):
        compile_for(case.model()).run(case.feeds)
