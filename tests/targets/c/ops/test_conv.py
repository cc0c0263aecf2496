"""Convolutions of volumes: which planes are summed up by which calls, and that an epilogue is applied once."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.cases.values import floats
from tests.targets.c.harness import Case, assert_close, compile_for, make_model
from tinycomp.ops.spatial import make_window
from tinycomp.targets.c.ops.conv import planes_of

X, W = floats(2, 16, 6, 9, 8), floats(16, 16, 3, 3, 3, low=-0.1, high=0.1, seed=1)
PADS = {"pads": [1] * 6}


def parts(size, kernel, **attrs):
    window = make_window("Conv", (size, 4, 4), (kernel, 1, 1), **attrs)
    return [(p.target, p.source, p.count, p.tap, p.is_first, p.is_last) for p in planes_of(window)]


def test_planes_that_the_same_taps_reach_are_one_part():
    assert parts(5, 3, pads=[1, 0, 0, 1, 0, 0]) == [
        (0, 0, 1, 1, True, False),
        (0, 1, 1, 2, False, True),
        (1, 0, 3, 0, True, False),
        (1, 1, 3, 1, False, False),
        (1, 2, 3, 2, False, True),
        (4, 3, 1, 0, True, False),
        (4, 4, 1, 1, False, True),
    ]


def test_strided_planes_are_parts_of_their_own():
    assert parts(5, 2, strides=[2, 1, 1]) == [
        (0, 0, 1, 0, True, False),
        (0, 1, 1, 1, False, True),
        (1, 2, 1, 0, True, False),
        (1, 3, 1, 1, False, True),
    ]


def test_planes_in_the_padding_are_computed_too():
    assert parts(1, 1, pads=[1, 0, 0, 0, 0, 0]) == [(0, 0, 1, 0, True, True), (1, 0, 1, 0, True, True)]


def model(activation: str, attrs: dict[str, list[int]]) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], **attrs),
        helper.make_node("Add", ["c", "r"], ["a"]),
        helper.make_node(activation, ["a"], ["y"]),
    ]
    constants = {"w": W, "b": floats(16, seed=2)}
    return make_model(nodes, feeds(attrs), constants, ["y"])


def feeds(attrs: dict[str, list[int]]) -> dict[str, np.ndarray]:
    grown = attrs["pads"][0] - 1
    return {"x": X, "r": floats(2, 16, 6 + 2 * grown, 9, 8, seed=3)}


@pytest.mark.parametrize("depth_pads", [1, 4], ids=["same", "planes of padding"])
@pytest.mark.parametrize("activation", ["Relu", "Sigmoid"])
def test_bias_residual_and_activation_are_applied_once(activation, depth_pads):
    attrs = {"pads": [depth_pads, 1, 1] * 2}
    onnx_model = model(activation, attrs)
    module = compile_for(onnx_model, strict=True)
    assert module.report().regions[0].composites
    found, wanted = (m.run(feeds(attrs))["y"] for m in (module, compile_for(onnx_model, "host")))
    assert_close(found, wanted, Case("Conv", [], atol=1e-5), activation)


def test_products_are_counted():
    module = compile_for(model("Relu", PADS), strict=True)
    (region,) = module.report().regions
    assert region.macs == 2 * 16 * 6 * 9 * 8 * 16 * 27
