"""Operators that work in either layout take the one that leaves nothing to be turned round."""

from __future__ import annotations

import numpy as np

from tinycomp.ir import TensorType
from tinycomp.ir.graph import Graph, Node
from tinycomp.ir.types import tensor
from tinycomp.passes.assign_layout import AssignLayout, LayoutRule


def convolutions(*, ends: bool) -> Graph:
    """A convolution and an element-wise operator, and another convolution unless the graph ends before."""
    graph = Graph("m", opsets={"": 17})
    value = graph.add_input("x", TensorType("float32", (1, 8, 6, 6)))
    weight = graph.add_const(np.ones((8, 8, 1, 1), np.float32))
    value = graph.add("Relu", [graph.add("Conv", [value, weight]).output]).output
    if not ends:
        value = graph.add("Conv", [value, weight], {"strides": [2, 2]}).output
    graph.set_outputs([value], ["y"])
    return graph


def rule(node: Node) -> LayoutRule:
    if node.op != "Conv":
        return LayoutRule.FOLLOW
    return LayoutRule.CHANNELS_LAST if node.attrs.get("strides") else LayoutRule.EITHER


def test_a_result_that_is_wanted_row_major_is_computed_so() -> None:
    graph = convolutions(ends=True)
    assert not AssignLayout(rule).run(graph)
    assert {tensor(node.output.type).layout for node in graph.nodes} == {""}


def test_a_result_that_is_wanted_channels_last_is_computed_so() -> None:
    graph = convolutions(ends=False)
    AssignLayout(rule).run(graph)
    relayouts = {node.attrs["layout"]: node for node in graph.nodes if node.op == "Relayout"}
    assert relayouts["NHWC"].operand(0) is graph.inputs[0]
    assert relayouts[""].output is graph.outputs[0]
