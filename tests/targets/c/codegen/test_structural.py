"""Nodes that compute nothing, between nodes of the target, where no pass has taken them away."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import tinycomp
from tinycomp.driver.pipeline import partitioning_passes
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ops.typing import infer_node_types
from tinycomp.target import find

X = np.array([[-1.0, 2.0, 3.0]], np.float32)


def test_dropout_joins_two_nodes():
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        g (float[1,3] x) => (float[1,3] y) { a = Relu(x) b = Dropout(a) y = Neg(b) }
    """)
    module = tinycomp.compile(model, passes=partitioning_passes([find("c")]))
    assert not module.report().hosts
    np.testing.assert_array_equal(module(X), -np.maximum(X, 0))


@pytest.mark.parametrize("op", ["StopFusion", "Identity"])
def test_barriers_and_copies_join_two_nodes(op):
    domain = "tinycomp::" if op == "StopFusion" else ""
    text = f"""graph @main opset {{"" = 17}} (%x: float32[1, 3]) -> (%y) {{
        %a = Relu(%x)
        %b = {domain}{op}(%a)
        %y = Neg(%b)
    }}"""
    module = tinycomp.compile(parse_graph(text, infer=infer_node_types), passes=partitioning_passes([find("c")]))
    np.testing.assert_array_equal(module(X), -np.maximum(X, 0))
