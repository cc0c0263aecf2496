"""The inferred size of a pool is the size that the kernels give."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import tinycomp


def pool_model(op: str, shape: tuple[int, ...], **attrs: object) -> bytes:
    node = helper.make_node(op, ["x"], ["y"], **attrs)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "pool", [x], [y])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9).SerializeToString()


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("target", ["c", "host"])
def test_a_last_window_that_would_see_no_input_is_not_counted(op: str, target: str) -> None:
    model = pool_model(op, (1, 7, 18, 1), kernel_shape=[1, 1], strides=[3, 2], ceil_mode=1)
    module = tinycomp.compile(model, target)
    x = np.random.default_rng(0).standard_normal((1, 7, 18, 1)).astype(np.float32)
    assert module.outputs[0].shape == (1, 7, 6, 1)
    np.testing.assert_array_equal(module(x), x[:, :, ::3])
