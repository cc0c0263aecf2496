"""Activations of 16 bits, which are computed in float32 between their conversions, beside onnxruntime."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tinycomp
from tests.quantization.networks import by_onnxruntime
from tests.targets.quantized_layers import Layer
from tinycomp.ir import Value

STEP, OUT = 2e-4, 3e-4


def again(layer: Layer, y: Value, scale: float = OUT) -> Value:
    """``y`` stored in 16 bits and read again."""
    return layer.dequantized(layer.QuantizeLinear(y, np.float32(scale), layer.point(0)), scale, 0)


def conv(layer: Layer, x: Value) -> Value:
    w = layer.weight(6, 8, 3, 3)
    y = again(layer, layer.Relu(layer.Conv(x, w, layer.bias(w, STEP), pads=[1] * 4)))
    return layer.AveragePool(y, kernel_shape=[3, 2])


def dense(layer: Layer, x: Value) -> Value:
    rows = layer.Reshape(x, np.array([-1, 8]))
    return layer.Gemm(rows, layer.weight(5, 8), layer.rng.standard_normal(5).astype(np.float32), transB=1)


def attention(layer: Layer, x: Value) -> Value:
    scores = again(layer, layer.MatMul(x, layer.Transpose(x, perm=[0, 1, 3, 2])), 5e-3)
    return layer.MatMul(again(layer, layer.Softmax(scores, axis=-1), 1 / 32767), x)


def elements(layer: Layer, x: Value) -> Value:
    gate = again(layer, layer.Sigmoid(x), 1 / 32767)
    return layer.Add(x, again(layer, layer.Mul(x, gate), STEP))


def moved(layer: Layer, x: Value) -> Value:
    parts = again(layer, layer.Transpose(x, perm=[0, 2, 3, 1])), again(layer, layer.Transpose(x, perm=[0, 3, 2, 1]))
    return layer.Concat(layer.Reshape(parts[0], np.array([-1])), layer.Reshape(parts[1], np.array([-1])), axis=0)


LAYERS: tuple[Callable[[Layer, Value], Value], ...] = (conv, dense, attention, elements, moved)


@pytest.mark.parametrize("dtype", ["int16", "uint16"])
@pytest.mark.parametrize("build", LAYERS, ids=lambda f: f.__name__)
def test_sixteen_bits_are_one_region_with_onnxruntimes_numbers(build: Callable[[Layer, Value], Value], dtype: str):
    layer = Layer(2, 8, 9, 7, dtype=dtype, opset=21)
    graph = layer.done(build(layer, layer.dequantized(layer.inputs[0], STEP, 5)), OUT)
    (data,) = layer.data()
    module = tinycomp.compile(graph, "c", strict=True)
    assert len(module.report().regions) == 1
    found = module(data)
    (wanted,) = by_onnxruntime(tinycomp.to_onnx(graph), {"x0": data}, optimised=True)
    assert found.dtype == wanted.dtype == dtype
    apart = np.abs(found.astype(int) - wanted)
    assert apart.max() <= 1
    assert (apart > 0).mean() < 0.01  # sums of float32 products round differently
    assert len(np.unique(wanted)) > 30
