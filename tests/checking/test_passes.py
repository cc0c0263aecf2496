"""Checking after every pass: structure and numbers, with the name of the pass and the smallest graph that shows it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
import pytest

import tinycomp
from tests.partition_tools import graph_of
from tinycomp.errors import VerifyError
from tinycomp.ir.graph import Graph
from tinycomp.passes.base import Pass
from tinycomp.passes.eliminate_dead_code import EliminateDeadCode

BODY = "%a = Neg(%x)\n%b = Abs(%a)\n%y = Sqrt(%b)"


@dataclass(frozen=True)
class AbsToRelu(Pass):
    """Takes Abs for Relu, which is wrong."""

    def run(self, graph: Graph) -> bool:
        for node in graph.nodes:
            if node.op == "Abs":
                relu = graph.add("Relu", node.inputs, sources=node.sources)
                graph.replace_uses(node.output, relu.output)
                graph.erase(node)
        return True


@dataclass(frozen=True)
class ForgetOrder(Pass):
    """Leaves a type behind that does not follow from the operands."""

    def run(self, graph: Graph) -> bool:
        from tinycomp.ir.types import TensorType

        graph.nodes[0].output.type = TensorType("float32", (3, 3))
        return True


def test_a_pass_that_changes_numbers_is_named(tmp_path):
    with pytest.raises(VerifyError, match="the pass abs-to-relu changes the results") as caught:
        tinycomp.compile(
            graph_of(BODY, "y"), "host", passes=[EliminateDeadCode(), AbsToRelu()], verify=True, dump=tmp_path
        )
    path = tmp_path / "reproducers" / "abs-to-relu.onnx"
    assert str(path) in caught.value.hint
    model = onnx.load(path)
    assert [n.op_type for n in model.graph.node] == ["Abs", "Sqrt"], "what agrees before them is not needed"
    with np.load(path.with_suffix(".npz")) as feeds:
        assert any((array < 0).any() for array in feeds.values())


def test_without_verify_nothing_is_noticed():
    module = tinycomp.compile(graph_of(BODY, "y"), "host", passes=[AbsToRelu()])
    assert not module(np.ones((2, 4), np.float32)).any()


def test_a_pass_that_breaks_types_is_named():
    with pytest.raises(VerifyError, match="type") as caught:
        tinycomp.compile(graph_of(BODY, "y"), "host", passes=[ForgetOrder()], verify=True)
    assert caught.value.__notes__ == ["The graph was well-formed before the pass forget-order."]
