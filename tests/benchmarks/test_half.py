"""The float16 models that are made for measuring."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from benchmarks import half


def test_weights_inputs_outputs_and_casts_become_float16() -> None:
    weights = numpy_helper.from_array(np.array([1.5, -1e38], np.float32), "w")
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
            helper.make_node("Add", ["x", "w"], ["a"]),
            helper.make_node("Add", ["a", "f"], ["y"]),
        ],
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2]),
            helper.make_tensor_value_info("i", TensorProto.INT64, [2]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
        [weights],
    )
    model = half.in_float16(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
    )
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": np.array([1, 0], np.float16), "i": np.array([2, 0])})
    assert (y.dtype, y.tolist()) == (np.float16, [4.5, -half.LARGEST])


def test_a_line_has_ratios_to_ours_and_errors() -> None:
    row = {"model": "m", "seconds": [0.002, 0.003, 0.001, 0.004, 0.005], "errors": [0.1, 0.2, 0.3]}
    assert half.line(row) == "| m | 2.00 | 1.50 | 0.50 | 2.00 | 2.50 | 1.0e-01 | 2.0e-01 | 3.0e-01 |"
    assert half.line({"model": "m", "error": "tvm: no"}) == "| m | tvm: no |  |  |  |  |  |  |  |"
