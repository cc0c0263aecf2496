"""Layers that are not plain ones of the main graph: in bodies of If and Loop, with stored weights, transposed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

import tinycomp
from tests.quantization.networks import CONVERSIONS, Network, by_onnxruntime, decibels, images
from tinycomp.errors import QuantizationError

FLIPS = [x * sign for x in images(2, channels=8) for sign in (1, -1)]
"""What takes both branches."""
MODEL = """<ir_version: 9, opset_import: ["" : 17]>
g (float[N,8,8,8] x) => (float[N,8,8,8] y) <float three_ = {3}, int64 three = {3}, bool true = {1}, float zero = {0}> {
  h = %s(x)
  m = ReduceMean <keepdims = 0> (x)
  c = Greater (m, zero)
  %s
}"""
BRANCHES = """y = If (c) <
    then_branch = t () => (float[N,8,8,8] a) { k = Conv <pads = [1, 1, 1, 1]> (h, w) r = Relu(k) a = Conv (r, v) },
    else_branch = e () => (float[N,8,8,8] b) { l = Conv <pads = [1, 1, 1, 1]> (h, w) b = Mul (l, three_) }>"""
LOOP = """y = Loop (three, true, h) <body = b (int64 i, bool p, float[N,8,8,8] s) => (bool q, float[N,8,8,8] n)
    { q = Identity (p) k = Conv <pads = [1, 1, 1, 1]> (s, w) n = Tanh (k) }>"""


def control_flow(text: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(MODEL % ("Abs", text))
    rng = np.random.default_rng(0)
    for name, kernel in (("w", 3), ("v", 1)):
        weight = rng.normal(0, 0.1, (8, 8, kernel, kernel)).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    return model


def transposed(group: int, bias: bool) -> onnx.ModelProto:
    net = Network("N", 8, 8, 8)
    operands = [net.x, net.const(8, 6 // group, 3, 3, spread=0.2), *([net.const(6)] if bias else [])]
    return net.done(net.op("Relu", net.op("ConvTranspose", *operands, strides=[2, 2], group=group)))


def with_stored_weights() -> onnx.ModelProto:
    """Of a quantised model the weights alone."""
    net = Network("N", 8, 8, 8)
    net.op("Relu", net.conv(net.x, 8))
    stored = net.graph.add_const(net.rng.integers(-127, 128, (8, 8, 3, 3)).astype(np.int8))
    scale = net.graph.add_const(np.float32(0.01))
    return net.done(net.op("Conv", net.x, net.op("DequantizeLinear", stored, scale)))


@pytest.mark.parametrize(
    ("build", "products", "least"),
    [(lambda: control_flow(BRANCHES), 3, 35), (lambda: control_flow(LOOP), 1, 25), (with_stored_weights, 1, 38),
     *((lambda group=group, bias=bias: transposed(group, bias), 1, 36) for group in (1, 2) for bias in (False, True))],
    ids=["branches", "loop", "stored weights", "transposed", "with bias", "of groups", "of groups with bias"],
)  # fmt: skip
def test_all_products_are_quantised(build: Callable[[], onnx.ModelProto], products: int, least: float):
    model = build()
    quantized = tinycomp.quantize(model, FLIPS)
    assert products_of_stored_numbers(quantized) == (products, products)
    exact, found = tinycomp.compile(model, "host"), tinycomp.compile(quantized)
    for x in FLIPS[:2]:
        wanted = exact(x)
        assert decibels(wanted, found(x)) > least
        assert decibels(wanted, by_onnxruntime(quantized, {"x": x})[0]) > least


def products_of_stored_numbers(model: onnx.ModelProto) -> tuple[int, int]:
    nodes = [node for _, node in tinycomp.from_onnx(model).walk() if node.op.startswith("Conv")]
    makers = [[v.producer for v in node.inputs[:2] if v is not None] for node in nodes]
    return len(nodes), sum(all(m is not None and m.op in CONVERSIONS for m in pair) for pair in makers)


def test_a_branch_that_calibration_never_takes_stays_in_float():
    quantized = tinycomp.quantize(control_flow(BRANCHES), [np.abs(x) for x in FLIPS])
    assert products_of_stored_numbers(quantized) == (3, 2)


def test_names_mean_layers_in_bodies_and_data_are_gone_through_again():
    quantized = tinycomp.quantize(control_flow(BRANCHES), FLIPS, keep_float=["k", "a"])
    assert products_of_stored_numbers(quantized) == (3, 1)
    with pytest.raises(QuantizationError, match="once only; expected an iterable that can be gone through 2 times"):
        tinycomp.quantize(control_flow(LOOP), iter(FLIPS))
