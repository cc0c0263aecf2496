"""Quantised models as a whole on the C target: barriers, borders to float layers, and forms that are not QDQ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tinycomp
from tests.targets.c.quantized.test_layers import calls, conv, kernels
from tests.targets.quantized_arithmetic import evaluate
from tests.targets.quantized_layers import Layer
from tinycomp.driver.pipeline import partitioning_passes
from tinycomp.ir import Graph, TensorType, Value
from tinycomp.ops.typing import infer_node_types
from tinycomp.targets.c import TARGET
from tinycomp.targets.npu_sim import TARGET as NPU

STEP = 0.07


def stored(layer: Layer, y: object) -> Value:
    return layer.QuantizeLinear(y, np.float32(STEP), layer.point(3))


def barrier(layer: Layer, y: Value) -> Value:
    return layer.graph.add("StopFusion", [y], domain="tinycomp").output


def two_layers(layer: Layer, between: Callable[[Layer, Value], Value]) -> Graph:
    """Two convolutions, the second one behind ``between``."""
    first = between(layer, stored(layer, layer.Relu(conv(layer, 16))))
    w = layer.weight(16, 16, 3, 3)
    return layer.done(layer.Conv(layer.dequantized(first, STEP), w, layer.bias(w, STEP)), 0.3)


@pytest.mark.parametrize("target", ["c", "npu_sim"])
def test_a_barrier_between_layers_does_not_cut_a_quantised_region(target: str):
    layer = Layer(2, 16, 9, 7)
    module = tinycomp.compile(two_layers(layer, barrier), target, strict=True)
    (region,) = module.report().regions
    assert region.composites == {f"{target}.qconv": 2}
    plain = tinycomp.compile(two_layers(Layer(2, 16, 9, 7), lambda _, y: y), target)
    data = layer.data()
    np.testing.assert_array_equal(module(*data), plain(*data))


@pytest.mark.parametrize("op", ["Add", "Mul"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_constant_operand_may_be_a_zero_point_as_well(op: str, dtype: str):
    """Equal constants are one value, here a quantised number and the zero point of both operands and of the result."""
    layer = Layer(2, 16, 9, 7, dtype=dtype)
    shared = layer.value(layer.point(3))
    x = layer.DequantizeLinear(layer.inputs[0], np.float32(STEP), shared)
    y = layer.QuantizeLinear(x, np.float32(0.04), shared)
    real, number = (layer.DequantizeLinear(v, np.float32(0.04), shared) for v in (y, shared))
    graph = layer.finish(layer.QuantizeLinear(getattr(layer, op)(real, number), np.float32(0.05), shared))
    data = layer.data()
    (wanted,) = evaluate(graph, TARGET, {"x0": data[0]})
    np.testing.assert_array_equal(
        tinycomp.compile(graph, "c", strict=True, passes=partitioning_passes([TARGET]))(*data), wanted
    )


def test_both_targets_recognise_the_same_layers():
    found = {}
    for target in (TARGET, NPU):
        layer = Layer(2, 16, 9, 7)
        (region,) = tinycomp.compile(two_layers(layer, lambda _, y: y), target).report().regions
        found[target.name] = {name.partition(".")[2]: count for name, count in region.composites.items()}
    assert found["c"] == found["npu_sim"] == {"qconv": 2}


def test_the_report_shows_the_borders_between_quantised_and_float_layers():
    layer = Layer(2, 16, 9, 7)
    x = layer.dequantized(stored(layer, layer.Relu(conv(layer, 16))), STEP)
    real = layer.Conv(x, layer.value(layer.rng.standard_normal((16, 16, 1, 1)).astype(np.float32)))
    graph = layer.done(layer.Tanh(real), 1 / 128)
    module = tinycomp.compile(graph, "c", strict=True)
    report = module.report()
    (region,) = report.regions
    rows = [(row.place, row.source, row.result, row.elements) for row in report.conversions]
    elements = 2 * 16 * 7 * 5
    assert rows == [(region.symbol, "int8", "float32", elements), (region.symbol, "float32", "int8", elements)]
    assert all(row.sources for row in report.conversions)
    assert 0 < region.integer_macs < region.macs
    share = region.integer_macs / region.macs
    assert report.totals["integer_macs"] == {"macs": region.integer_macs, "share": share}
    text = str(report)
    assert f"({share:.1%} in 8-bit integers)" in text
    assert "Between quantised and real numbers" in text
    assert tinycomp.runtime.report.Report.from_dict(report.to_dict()) == report
    data = layer.data()
    (wanted,) = evaluate(graph, TARGET, {"x0": data[0]})
    assert np.abs(module(*data).astype(int) - wanted).max() <= 1  # a float layer lies between


def test_weights_of_four_bits():
    graph = Graph("net", infer=infer_node_types, opsets={"": 21})
    rng = np.random.default_rng(3)
    x = graph.add_input("x", TensorType("uint8", (3, 40)))
    const = lambda array: graph.add_const(np.asarray(array))  # noqa: E731
    weight = const(rng.integers(-8, 8, (40, 9)).astype(ml_dtypes.int4))
    data = graph.add("DequantizeLinear", [x, const(np.float32(0.03)), const(np.uint8(120))]).output
    w = graph.add("DequantizeLinear", [weight, const(np.float32(0.02))]).output
    y = graph.add("MatMul", [data, w]).output
    graph.set_outputs([graph.add("QuantizeLinear", [y, const(np.float32(0.1)), const(np.uint8(128))]).output])
    feeds = {"x": rng.integers(0, 256, (3, 40)).astype(np.uint8)}
    (wanted,) = evaluate(graph, TARGET, feeds)
    module = tinycomp.compile(graph, "c", strict=True)
    np.testing.assert_array_equal(module(feeds["x"]), wanted)
    assert kernels(module) == ["qgemm"]


@pytest.mark.parametrize("batch", [2, "N"])
@pytest.mark.parametrize(
    ("op", "shape", "weights", "attrs"),
    [("Conv", (8, 9, 9), (4, 8, 3, 3), {}), ("Conv", (8, 9, 9), (8, 1, 3, 3), {"group": 8}), ("Gemm", (8,), (8, 4), {}),
     ("ConvTranspose", (8, 9, 9), (8, 4, 3, 3), {}), ("MatMul", (8,), (8, 4), {}), ("PRelu", (8, 4), (8, 1), {})],
)  # fmt: skip
def test_float_layers_take_stored_weights_without_optimisation(op: str, shape: Any, weights: Any, attrs, batch: Any):
    layer = Layer(1, inputs=0)
    x = layer.graph.add_input("x", TensorType("float32", (batch, *shape)))
    graph = layer.finish(layer.Relu(getattr(layer, op)(x, layer.weight(*weights), **attrs)))
    data = layer.rng.standard_normal((2, *shape)).astype(np.float32)
    module = tinycomp.compile(graph, "c", strict=True, optimize=False)
    np.testing.assert_allclose(module(data), tinycomp.compile(graph, "host")(data), rtol=1e-4, atol=1e-5)


def test_sixteen_bit_activations_are_computed_in_float32():
    graph = Graph("net", infer=infer_node_types, opsets={"": 21})
    x = graph.add_input("x", TensorType("int16", (3, 40)))
    const = lambda array: graph.add_const(np.asarray(array))  # noqa: E731
    rng = np.random.default_rng(3)
    data = graph.add("DequantizeLinear", [x, const(np.float32(1e-3))]).output
    w = graph.add("DequantizeLinear", [const(rng.integers(-99, 99, (40, 9)).astype(np.int8)), const(np.float32(0.02))])
    y = graph.add("MatMul", [data, w.output]).output
    graph.set_outputs([graph.add("QuantizeLinear", [y, const(np.float32(0.01)), const(np.int16(0))]).output])
    module = tinycomp.compile(graph, "c", strict=True)
    assert "gemm_dequant_f32" in kernels(module)
    feed = rng.integers(-9999, 9999, (3, 40)).astype(np.int16)
    apart = module(feed).astype(int) - tinycomp.compile(graph, "host")(feed)
    assert np.abs(apart).max() <= 1


def resized(layer: Layer, y: Value) -> Value:
    scales = layer.value(np.array([1, 1, 2, 1.5], np.float32))
    real = layer.Resize(layer.dequantized(y, STEP), None, scales, mode="nearest", nearest_mode="floor")
    return layer.QuantizeLinear(real, np.float32(STEP), layer.point(3))


def transposed(layer: Layer, y: Value) -> Value:
    parts = layer.graph.add("Split", [layer.dequantized(y, STEP)], {"axis": 2}, outputs=2).outputs
    joined = layer.Concat(*reversed(parts), axis=2)
    turned = layer.Transpose(layer.Transpose(joined, perm=[0, 2, 3, 1]), perm=[0, 3, 2, 1])
    return layer.QuantizeLinear(turned, np.float32(STEP), layer.point(3))


def padded(layer: Layer, y: Value) -> Value:
    wider = layer.Pad(y, layer.value(np.array([0, 0, 1, 0, 0, 0, 0, 2], np.int64)), layer.point(3))
    return layer.Slice(wider, *(layer.value(np.array([v], np.int64)) for v in (1, 15, 1)))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("between", [resized, transposed], ids=lambda f: f.__name__)
def test_what_moves_numbers_moves_bytes(between: Callable[[Layer, Value], Value], dtype: str):
    layer = Layer(2, 16, 10, 7, dtype=dtype)
    graph = two_layers(layer, between)
    data = layer.data()
    (wanted,) = evaluate(graph, TARGET, {"x0": data[0]})
    module = tinycomp.compile(graph, "c", strict=True)
    np.testing.assert_array_equal(module(*data), wanted)
    assert len(module.report().regions) == 1
    assert not {"quantize_f32", "dequantize_f32", "resize2d_f32"} & set(kernels(module))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_stored_numbers_between_layers_keep_their_meaning(dtype: str):
    """A Pad of stored numbers has a value of its own, and a Cast of them sees what the model stores."""
    layer = Layer(2, 16, 9, 7, dtype=dtype)
    first = stored(layer, layer.Relu(conv(layer, 16)))
    around = padded(layer, first)
    w = layer.weight(16, 14, 3, 3)
    second = layer.done(layer.Conv(layer.dequantized(around, STEP), w), 0.3).outputs[0]
    seen = layer.Cast(layer.Max(first, layer.value(layer.point(5))), to=6)
    graph = layer.finish(second, seen)
    data = layer.data()
    module = tinycomp.compile(graph, "c", strict=True)
    wanted = evaluate(graph, TARGET, {"x0": data[0]})
    for found, right in zip(module(*data), wanted, strict=True):
        np.testing.assert_array_equal(found, right)


# Explicit arithmetic --------------------------------------------------------------------------------------------------


class Spelled:
    """A float32 model whose quantised layers are multiplications, roundings, clips and casts."""

    def __init__(self, form: str) -> None:
        self.form = form
        self.graph = Graph("net", infer=infer_node_types, opsets={"": 17})
        self.rng = np.random.default_rng(5)

    def __call__(self, op: str, *operands: object, **attrs: object) -> Value:
        values = [v if isinstance(v, Value) else self.graph.add_const(np.asarray(v)) for v in operands]
        return self.graph.add(op, values, attrs).output

    def quantised(self, y: Value, factor: object, low: float = -127) -> Value:
        whole = self("Clip", self("Round", self("Mul", y, factor)), np.float32(low), np.float32(127))
        return whole if self.form == "floats" else self("Cast", whole, to=3)

    def conv(self, q: Value, channels: int) -> Value:
        w = self.rng.integers(-60, 60, (16, channels, 3, 3))
        b = self.rng.integers(-500, 500, 16)
        if self.form == "integers":
            sums = self("ConvInteger", q, w.astype(np.int8), pads=[1] * 4)
            return self("Add", sums, b.astype(np.int32).reshape(1, -1, 1, 1))
        real = q if self.form == "floats" else self("Cast", q, to=1)
        return self("Conv", real, w.astype(np.float32), b.astype(np.float32), pads=[1] * 4)

    def shifted(self, sums: Value) -> Value:
        """An arithmetic shift to the right that rounds, as a division of integers."""
        whole = sums if self.form == "integers" else self("Cast", sums, to=6)
        quotient = self("Div", self("Add", whole, np.int32(128)), np.int32(256))
        return self("Cast", self("Clip", quotient, np.int32(-128), np.int32(127)), to=3)

    def model(self) -> Graph:
        x = self.graph.add_input("x", TensorType("float32", (2, 3, 9, 7)))
        real = lambda sums: self("Cast", sums, to=1) if self.form == "integers" else sums  # noqa: E731
        q = self.quantised(x, np.float32(20.0))
        per_channel = self.rng.uniform(0.002, 0.006, (1, 16, 1, 1)).astype(np.float32)
        q = self.quantised(real(self.conv(q, 3)), per_channel, low=0)
        q = self.shifted(self.conv(q, 16))
        if self.form == "floats":
            q = self("Clip", self("Round", self("Cast", q, to=1)), np.float32(-128), np.float32(127))
        q = self.quantised(real(self.conv(q, 16)), np.float32(0.004))
        self.graph.set_outputs([self("Mul", self("Cast", q, to=1), np.float32(0.05))])
        return self.graph


@pytest.mark.parametrize("form", ["casts", "floats", "integers"])
def test_explicit_arithmetic_on_whole_numbers_runs_in_integers(form: str):
    graph = Spelled(form).model()
    module = tinycomp.compile(graph, "c", strict=True)
    (region,) = module.report().regions
    multiplying = [kernel for kernel, macs in calls(module) if macs]
    assert multiplying == ["qconv2d"] * 3
    assert region.integer_macs == region.macs
    if form == "casts":
        assert region.composites["c.qconv_scaled"] == 2
    x = np.random.default_rng(1).standard_normal((2, 3, 9, 7)).astype(np.float32)
    wanted = tinycomp.compile(graph, "host", passes=[])(x)
    np.testing.assert_array_equal(module(x), wanted)
    assert len(np.unique(wanted)) > 50


@pytest.mark.parametrize("change", ["weight", "bias", "data"])
def test_numbers_that_are_not_whole_stay_in_float32(change: str):
    graph = Graph("net", infer=infer_node_types, opsets={"": 17})
    x = graph.add_input("x", TensorType("float32" if change == "data" else "int8", (3, 8)))
    const = lambda array: graph.add_const(np.asarray(array, np.float32))  # noqa: E731
    real = graph.add("Abs", [x]).output if change == "data" else graph.add("Cast", [x], {"to": 1}).output
    w = const(np.arange(40).reshape(8, 5) + (0.5 if change == "weight" else 0))
    b = const(np.arange(5) + (0.25 if change == "bias" else 0))
    graph.set_outputs([graph.add("Gemm", [real, w, b]).output])
    module = tinycomp.compile(graph, "c", strict=True)
    assert [kernel for kernel, macs in calls(module) if macs] == ["gemm_f32"]
