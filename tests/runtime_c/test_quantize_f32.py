"""Quantisation, bit by bit as onnxruntime does it."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.cases.case import make_model
from tests.runtime_c.helpers import run_single, single
from tinycomp.errors import TargetError
from tinycomp.runtime.native.executor import NativeProgram

onnxruntime = pytest.importorskip("onnxruntime")

CODES = {"int8": 4, "uint8": 5, "int16": 6, "uint16": 7, "int32": 8}

# shape, axis (None: one scale for all)
CASES = [
    ((9001,), None),
    ((3, 17, 29), 1),
    ((50, 70), 1),
    ((5, 7, 1), 1),
    ((4, 30, 5), 0),
    ((2, 1, 33), 1),
    ((0, 4), 1),
]


def quant_params(shape, axis, dtype):
    outer, size, inner = (
        (1, 1, int(np.prod(shape)))
        if axis is None
        else (int(np.prod(shape[:axis])), shape[axis], int(np.prod(shape[axis + 1 :])))
    )
    return {"outer": outer, "axis": size, "inner": inner, "type": CODES[dtype]}


def run_onnx(op, x, scale, zero, axis, output):
    names = ["x", "scale", "zero"][: 2 + (zero is not None)]
    arrays = dict(zip(names, (x, scale, zero), strict=False))
    attributes = {} if axis is None else {"axis": axis}
    if zero is None and op == "QuantizeLinear":
        attributes["output_dtype"] = helper.np_dtype_to_tensor_dtype(np.dtype(output))
    model = make_model([helper.make_node(op, names, ["y"], **attributes)], arrays, {}, ["y"])
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, arrays)[0]


def operands(x, scale, zero):
    return [x, scale.reshape(-1), None if zero is None else zero.reshape(-1)]


def make_scale(shape, axis, rng):
    return np.array(0.03) if axis is None else rng.uniform(0.01, 0.1, shape[axis])


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
@pytest.mark.parametrize("with_zero", [True, False])
def test_quantize_equals_onnxruntime(case, dtype, with_zero, isa, pool, rng):
    shape, axis = case
    x = (rng.standard_normal(shape) * (3 if dtype[-1] == "8" else 500)).astype(np.float32)
    scale = make_scale(shape, axis, rng).astype(np.float32)
    x.reshape(-1)[::3] = (np.rint(x / 0.015) * np.float32(0.015)).astype(np.float32).reshape(-1)[::3]  # near ties
    zero = np.asarray(rng.integers(0, 100, scale.shape)).astype(dtype) if with_zero else None
    y = run_single(
        "quantize_f32", operands(x, scale, zero), quant_params(shape, axis, dtype), (dtype, shape), isa, pool
    )
    np.testing.assert_array_equal(y, run_onnx("QuantizeLinear", x, scale, zero, axis, dtype))


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("dtype", CODES)
@pytest.mark.parametrize("with_zero", [True, False])
def test_dequantize_equals_onnxruntime(case, dtype, with_zero, isa, pool, rng):
    shape, axis = case
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    scale = make_scale(shape, axis, rng).astype(np.float32)
    zero = None
    if with_zero:
        zero = (
            np.zeros(scale.shape, dtype)
            if dtype == "int32"
            else np.asarray(rng.integers(0, 100, scale.shape)).astype(dtype)
        )
    y = run_single(
        "dequantize_f32", operands(x, scale, zero), quant_params(shape, axis, dtype), ("float32", shape), isa, pool
    )
    np.testing.assert_array_equal(y, run_onnx("DequantizeLinear", x, scale, zero, axis, "float32"))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_quantize_special_values(dtype, isa):
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30] * 7, np.float32)
    params, info = quant_params(x.shape, None, dtype), np.iinfo(dtype)
    y = run_single("quantize_f32", [x, np.ones(1, np.float32), np.array([3], dtype)], params, (dtype, x.shape), isa)
    np.testing.assert_array_equal(y, [info.min, info.max, info.min, info.max, info.min] * 7)


def test_types():
    x, scale = np.zeros(3, np.float32), np.ones(1, np.float32)
    for kernel, text in (("quantize_f32", "nothing can be quantised to type"), ("dequantize_f32", "dequantised from")):
        params = quant_params((3,), None, "int8") | {"type": 10}
        with pytest.raises(TargetError, match=text):
            NativeProgram(single(kernel, [x, scale, None], params, ("float32", (3,)))[0])
