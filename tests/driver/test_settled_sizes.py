from __future__ import annotations

import numpy as np
import onnx
import pytest

import tinycomp
from tinycomp.errors import FeedError

HEAD = '<ir_version: 10, opset_import: ["" : 21]>'
MATMUL = HEAD + "g (float[b, c] x) => (float[b, 2] y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}> { y = MatMul(x, w) }"
EQUAL = HEAD + "g (float[n, 3] a, float[m, 3] b) => (float[p, 6] y) { t = Concat <axis = 1> (a, b)  y = Relu(t) }"
UNUSED = HEAD + (
    "g (float[b, c] x) => (float[b, c] y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}> { u = MatMul(x, w)  y = Relu(x) }"
)
BODY = (
    HEAD
    + """
g (float[b, c] x, int64 trips) => (float[b, c] y) <float[3, 3] w = {1, 0, 0, 0, 1, 0, 0, 0, 1}> {
  y = Loop(trips, , x) <body = step (int64 i, bool go, float[b, c] s) => (bool again, float[b, c] t) {
    again = Identity(go)  t = MatMul(s, w)
  }>
}"""
)


def module_of(text: str, target: str) -> tinycomp.Module:
    return tinycomp.compile(onnx.parser.parse_model(text), target=[] if target == "host" else target)


@pytest.mark.parametrize("target", ["c", "host"])
@pytest.mark.parametrize(
    ("text", "shapes"),
    [(MATMUL, [("b", 3)]), (EQUAL, [("n", 3), ("n", 3)]), (UNUSED, [("b", "c")]), (BODY, [("b", "c"), ()])],
    ids=["number", "symbol", "unused", "body"],
)
def test_inputs_have_the_sizes_that_nodes_which_surely_run_want(text, shapes, target):
    module = module_of(text, target)
    assert [spec.shape for spec in module.inputs] == shapes


@pytest.mark.parametrize("saved", [False, True])
def test_an_input_of_another_size_is_told_which_node_wants_it(saved):
    module = module_of(MATMUL, "c")
    module = tinycomp.load(module.to_bytes()) if saved else module
    with pytest.raises(FeedError) as error:
        module(np.ones((1, 4), np.float32))
    assert str(error.value) == (
        'input "x": wrong shape; expected x: float32[b, 3]; found shape (1, 4). Nodes decide sizes that the model '
        "leaves open: y (MatMul): the operands differ in the size that is summed over: c and 3."
    )


def test_a_loop_without_trips_wants_nothing():
    x = np.ones((1, 5), np.float32)
    np.testing.assert_array_equal(module_of(BODY, "c")(x, np.int64(0)), x)
