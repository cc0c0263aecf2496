"""What is remembered of nodes that have been typed: nothing that makes a difference is left out, nothing kept alive."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from tinycomp.errors import TypeInferenceError
from tinycomp.ir.graph import Graph
from tinycomp.ir.types import TensorType
from tinycomp.ops.typing import infer_node_types

RANK = 9
"""Scales of so many dimensions are too large to be part of what a node is remembered by."""


def open_graph() -> Graph:
    return Graph(infer=infer_node_types, opsets={"": 17})


def resize(scales: list[float]) -> None:
    graph = open_graph()
    x = graph.add_input("x", TensorType("float32", (1,) * RANK))
    graph.add("Resize", [x, None, graph.add_const(np.array(scales, np.float32))])


def test_a_node_with_another_large_constant_is_checked_by_itself():
    resize([1.0] * RANK)
    with pytest.raises(TypeInferenceError, match="a scale is not positive"):
        resize([1.0] * (RANK - 1) + [-1.0])
    resize([1.0] * (RANK - 1) + [2.0])


def test_a_scale_that_is_not_finite_is_found_behind_one_that_is():
    graph = open_graph()
    x = graph.add_input("x", TensorType("int8", (2,)))
    graph.add("DequantizeLinear", [x, graph.add_const(np.float32(0.5))])
    with pytest.raises(TypeInferenceError, match="a quantisation scale is not finite"):
        graph.add("DequantizeLinear", [x, graph.add_const(np.float32(np.inf))])


@pytest.mark.parametrize(("stated", "wrong"), [([3, 3], [5, 5]), ([0, 0, 0, 0], [0, 0, 0, -1])])
def test_a_node_with_other_attributes_is_checked_by_itself(stated: list[int], wrong: list[int]):
    name = "kernel_shape" if len(stated) == 2 else "pads"

    def conv(values: list[int]) -> None:
        graph = open_graph()
        x = graph.add_input("x", TensorType("float32", (1, 2, 11, 13)))
        w = graph.add_const(np.zeros((4, 2, 3, 3), np.float32))
        assert graph.add("Conv", [x, w], {name: values}).output.type == TensorType("float32", (1, 4, 9, 11))

    conv(stated)
    with pytest.raises(TypeInferenceError):
        conv(wrong)
    conv(stated)


def test_constants_of_typed_nodes_are_freed():
    graph = open_graph()
    weight = np.zeros((17, 19, 3, 3), np.float32)
    held = weakref.ref(weight)
    x = graph.add_input("x", TensorType("float32", (1, 19, 23, 29)))
    graph.add("Conv", [x, graph.add_const(weight)])
    del graph, weight, x
    gc.collect()
    assert held() is None
