"""ONNX's node tests of the operators on quantised numbers run on the C target, not only on the host."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

import tinycomp

OPERATORS = frozenset({
    "ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul",
    "QuantizeLinear",
})  # fmt: skip
TO_TINY_FLOATS = frozenset({"test_quantizelinear_e4m3fn", "test_quantizelinear_e5m2", "test_quantizelinear_float4e2m1"})
"""The C target gives no floats of 8 bits or fewer: these alone stay on the host."""
AT_LEAST = 40


@functools.cache
def cases() -> tuple[Any, ...]:
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        every = load_model_tests(kind="node")
    return tuple(c for c in every if any(node.op_type in OPERATORS for node in c.model.graph.node))


def array(value: Any) -> np.ndarray:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def test_every_case_runs_on_the_c_target_with_the_right_numbers():
    found = {}
    for case in cases():
        module = tinycomp.compile(case.model, "c")
        found[case.name] = {row.op for row in module.report().hosts}
        for inputs, outputs in case.data_sets:
            results = module.run({spec.name: array(x) for spec, x in zip(module.inputs, inputs, strict=False)})
            for result, wanted in zip(results.values(), map(array, outputs), strict=True):
                assert result.dtype == wanted.dtype, case.name
                both = [x.astype(np.float32) for x in (result, wanted)]
                np.testing.assert_allclose(*both, rtol=1e-6, err_msg=case.name)
    assert len(found) >= AT_LEAST
    left = {name for name, hosts in found.items() if hosts}
    assert left <= TO_TINY_FLOATS
