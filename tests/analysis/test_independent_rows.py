"""Which operators keep the rows of a batch apart, by inference and by running them on single rows."""

from __future__ import annotations

import numpy as np
import pytest

import tinycomp
from tinycomp.analysis.independent_rows import batch_of
from tinycomp.ir.text.parser import parse_graph
from tinycomp.ops.typing import infer_node_types

RNG = np.random.default_rng(0)
INPUTS = "%x: float32[N, 4, 6], %m: float32[N, 6, 4], %v: float32[N, 4]"
LINES = {
    "%y: float32[N, 4, 6] = Relu(%x)": True,
    "%y: float32[N, 4, 6] = Add(%x, %one)": True,
    "%y: float32[N, 4, 6] = Add(%x, %row)": True,
    "%y: float32[N, 4, 4] = MatMul(%x, %m)": True,
    "%y: float32[N, 4, 5] = MatMul(%x, %w)": True,
    "%y: float32[N, 6] = Gemm(%v, %g)": True,
    "%y: float32[N, 4, 6] = Softmax(%x) {axis = -1}": True,
    "%y: float32[N, 4, 6] = Softmax(%x) {axis = 1}": True,
    "%y: float32[N, 4, 6] = Softmax(%x) {axis = 0}": False,
    "%y: float32[N, 4, 6] = Softmax(%x) {axis = -3}": False,
    "%y: float32[N, 6] = ReduceMean(%x) {axes = [1], keepdims = 0}": True,
    "%y: float32[1, 4, 6] = ReduceMean(%x) {axes = [0]}": False,
    "%y: float32[1, 1, 1] = ReduceMean(%x)": False,
    "%y: float32[N, 6, 4] = Transpose(%x) {perm = [0, 2, 1]}": True,
    "%y: float32[4, N, 6] = Transpose(%x) {perm = [1, 0, 2]}": False,
    "%y: float32[N, 24] = Flatten(%x)": True,
    "%y: float32[N, 8, 6] = Concat(%x, %x) {axis = 1}": True,
    '%y: float32["2*N", 4, 6] = Concat(%x, %x) {axis = 0}': False,
    "%y: float32[N, 4, 2] = Gather(%x, %picked) {axis = 2}": True,
    "%y: float32[2, 4, 6] = Gather(%x, %picked) {axis = 0}": False,
    "%y: float32[N, 4, 6] = CumSum(%x, %zero)": False,
    "%y: uint8[N, 4, 6] = QuantizeLinear(%x, %half)": True,
    "%y: uint8[N, 4, 6], %a: float32[], %b: uint8[] = DynamicQuantizeLinear(%x)": False,
    "%y: int64[3] = Shape(%x)": False,
    "%p: float32[N, 4, 3], %y: int64[N, 4, 3] = MaxPool(%x) {kernel_shape = [2], strides = [2]}": False,
    "%y: float32[N, 4, 3] = MaxPool(%x) {kernel_shape = [2], strides = [2]}": True,
    "%y: float32[N, 4, 6] = RandomNormalLike(%x)": False,
}


def graph_of(line: str) -> tinycomp.Graph:
    text = f"""graph @g opset {{"" = 17}} ({INPUTS}) -> (%y) {{
      %one: float32[1, 4, 1] = const [1.0, 2.0, 3.0, 4.0]
      %row: float32[6] = const [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
      %w: float32[6, 5] = const [{", ".join(["0.5"] * 30)}]
      %g: float32[4, 6] = const [{", ".join(["0.25"] * 24)}]
      %picked: int64[2] = const [1, 0]
      %zero: int64[] = const 0
      %half: float32[] = const 0.5
      {line}
    }}"""
    return parse_graph(text, infer=infer_node_types)


@pytest.mark.parametrize("line", LINES)
def test_which_operators_keep_rows_apart(line: str) -> None:
    graph = graph_of(line)
    assert batch_of(graph) == ("N" if LINES[line] else None)
    if not LINES[line]:
        return
    arrays = [RNG.standard_normal(shape).astype(np.float32) for shape in ((5, 4, 6), (5, 6, 4), (5, 4))]
    module = tinycomp.compile(graph, "host", optimize=False)
    alone = [module(*(array[i : i + 1] for array in arrays)) for i in range(5)]
    np.testing.assert_allclose(module(*arrays), np.concatenate(alone), rtol=1e-6, atol=1e-6)
