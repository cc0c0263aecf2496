"""Types that onnx's inference gets wrong, and the operators' own rules get right: what is inferred is computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import tinycomp
from tests.cases.case import make_model

CASES: list[tuple[str, dict[str, Any], int, list[tuple[int, ...]], list[tuple[int, ...]]]] = [
    ("Squeeze", {"axes": [-1]}, 7, [(1, 3, 1)], [(1, 3)]),
    ("ConvTranspose", {"output_shape": [10, 1], "strides": [3, 2]}, 22, [(1, 1, 3, 2), (1, 2, 3, 3)], [(1, 2, 10, 1)]),
    ("Split", {"num_outputs": 5}, 18, [(7,)], [(2,), (2,), (2,), (1,), (0,)]),
    ("Split", {"num_outputs": 9}, 18, [(2,)], [(1,), (1,), (0,)]),
    ("Split", {"num_outputs": 3}, 18, [(0,)], [(0,), (0,), (0,)]),
]


@pytest.mark.parametrize(("op", "attrs", "opset", "shapes", "wanted"), CASES)
def test_what_is_inferred_is_computed(
    op: str, attrs: dict[str, Any], opset: int, shapes: list[tuple[int, ...]], wanted: list[tuple[int, ...]]
) -> None:
    operands, results = [f"x{i}" for i in range(len(shapes))], [f"y{i}" for i in range(len(wanted))]
    feeds = {name: np.ones(shape, np.float32) for name, shape in zip(operands, shapes, strict=True)}
    node = helper.make_node(op, operands, results, **attrs)
    module = tinycomp.compile(make_model([node], feeds, {}, results, opset), "host")
    assert [spec.shape for spec in module.outputs] == wanted
    assert [y.shape for y in module.run(feeds).values()] == wanted
