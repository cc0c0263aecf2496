"""Distances between rows against numpy; rows that a Scan compares one by one, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import tinycomp
from tinycomp.errors import TypeInferenceError
from tinycomp.ir.graph import Node
from tinycomp.ops import OPS
from tinycomp.ops.distance import DOMAIN, METRICS, distances
from tinycomp.ops.rule import Facts, value_of

BY_METRIC = {
    "sqeuclidean": lambda apart: (apart**2).sum(-1),
    "euclidean": lambda apart: np.sqrt((apart**2).sum(-1)),
    "cityblock": lambda apart: np.abs(apart).sum(-1),
}


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(5, 7, 3), (0, 2, 1), (2, 0, 1), (2, 3, 0)])
def test_distances(metric: str, dtype: str, shape: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(0)
    x, points = (rng.standard_normal((count, shape[2])).astype(dtype) for count in shape[:2])
    found = distances(x, points, metric=metric)
    assert (found.dtype, found.shape) == (x.dtype, shape[:2])
    np.testing.assert_allclose(found, BY_METRIC[metric](x[:, None] - points), rtol=1e-5)


def test_what_does_not_fit() -> None:
    rule = OPS.of("Distances", DOMAIN).infer
    node = Node("Distances", DOMAIN, 1, (value_of(np.zeros((1, 2))), value_of(np.zeros((1, 3)))))
    with pytest.raises(TypeInferenceError, match="not have the same features; expected 3; found 2"):
        rule(Facts(node))
    node.attrs = {"metric": "cos"}
    with pytest.raises(TypeInferenceError, match="unknown metric; expected one of sqeuclidean, euclidean, cityblock"):
        rule(Facts(node))


def scan(body: list[onnx.NodeProto], found: str, **attrs: Any) -> onnx.ModelProto:
    """Return a model that compares all rows with each of five points by a body."""
    state = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3]) for name in ("all", "same")]
    row = helper.make_tensor_value_info("row", TensorProto.FLOAT, [3])
    result = helper.make_tensor_value_info(found, TensorProto.FLOAT, ["n"])
    axes = onnx.numpy_helper.from_array(np.array([1]), "axes")
    nodes = [helper.make_node("Identity", ["all"], ["same"]), *body]
    graph = helper.make_graph(nodes, "body", [state[0], row], [state[1], result], [axes])
    node = helper.make_node("Scan", ["x", "points"], ["kept", "y"], body=graph, num_scan_inputs=1, **attrs)
    points = onnx.numpy_helper.from_array(np.random.default_rng(1).standard_normal((5, 3)).astype(np.float32), "points")
    values = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
        for n, s in (("x", ["n", 3]), ("kept", ["n", 3]), ("y", None))
    ]
    outer = helper.make_graph([node], "neighbours", values[:1], values[1:], [points])
    return helper.make_model(outer, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def reduced(op: str, of: str, **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(op, [of, "axes"], ["r"], **{"keepdims": 0} | attrs)


APART = helper.make_node("Sub", ["all", "row"], ["d"])
BODIES = {
    "squares": [APART, reduced("ReduceSumSquare", "d")],
    "lengths": [helper.make_node("Sub", ["row", "all"], ["d"]), reduced("ReduceL2", "d")],
    "blocks": [APART, helper.make_node("Abs", ["d"], ["a"]), reduced("ReduceSum", "a")],
    "blocks in one": [APART, reduced("ReduceL1", "d"), helper.make_node("Identity", ["r"], ["s"])],
}
OTHERS = {
    "sums": [APART, reduced("ReduceSum", "d")],
    "products": [helper.make_node("Mul", ["all", "row"], ["d"]), reduced("ReduceSumSquare", "d")],
    "from itself": [helper.make_node("Sub", ["all", "all"], ["d"]), reduced("ReduceSumSquare", "d")],
}


@pytest.mark.parametrize("name", [*BODIES, *OTHERS])
@pytest.mark.parametrize("target", ["host", "c"])
def test_rows_one_by_one(name: str, target: str) -> None:
    body = (BODIES | OTHERS)[name]
    model = scan(body, body[-1].output[0])
    x = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    module = tinycomp.compile(model, target)
    for actual, wanted in zip(module.run({"x": x}).values(), expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-6)
    if target == "c":
        operators = [op for region in module.report().regions for op in region.singles]
        assert ("tinycomp.ml::Distances" in operators) == (name in BODIES)


@pytest.mark.parametrize("attrs", [{"scan_input_directions": [1]}, {"scan_output_directions": [1]}])
def test_rows_from_the_last(attrs: dict[str, Any]) -> None:
    model = scan(BODIES["squares"], "r", **attrs)
    x = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    for actual, wanted in zip(tinycomp.compile(model, "c").run({"x": x}).values(), expected, strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-6)
