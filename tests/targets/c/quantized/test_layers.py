"""Quantised layers on the C target: one call in integers, the bits of the documented arithmetic on every machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tinycomp
from tests.cases import quantize
from tests.targets.c.harness import Case, assert_close, compile_for
from tests.targets.quantized_arithmetic import by_fixed_point, by_float, evaluate, run
from tests.targets.quantized_layers import Layer
from tests.targets.quantized_models import random_model
from tinycomp.ir import Graph
from tinycomp.runtime.module import Module
from tinycomp.runtime.native.processor import available_isas
from tinycomp.targets.c import TARGET

MODELS = ("ad_autoencoder", "ic_resnet8", "kws_dscnn", "vww_mobilenet")
INTEGER_KERNELS = frozenset({"qconv2d", "qconv2d_winograd", "qdwconv2d", "qgemm"})
RANDOM_GRAPHS, SHARES = 300, 6


def calls(module: Module) -> list[tuple[str, int]]:
    """The kernel calls of a module's regions, with the MACs that each is credited with."""
    programs = [step.run.native.program for step in module._parts.plan.steps if hasattr(step.run, "native")]
    return [(call.kernel, call.macs) for program in programs for call in program.instructions]


def kernels(module: Module) -> list[str]:
    return [kernel for kernel, _ in calls(module)]


# Whole models ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("name", MODELS)
def test_quantized_models_give_their_stored_outputs_to_the_bit(models: Path, name: str, isa: str, monkeypatch):
    path = models / f"{name}_int8.onnx"
    if not path.exists():
        pytest.skip(f"no {path.name} in the model folder")
    monkeypatch.setenv("TINYCOMP_ISA", isa)
    stored = np.load(path.with_suffix(".npz"))
    batch = {v.name: (len(stored["input"]), *v.shape[1:]) for v in tinycomp.compile(path).inputs}
    module = tinycomp.compile(path, "c", shapes=batch, strict=True)
    np.testing.assert_array_equal(module(stored["input"]), stored["output"])
    (region,) = module.report().regions
    assert region.target == "c"
    assert {kernel for kernel, macs in calls(module) if macs} <= INTEGER_KERNELS
    assert sum(macs for _, macs in calls(module)) == region.macs > 0


# Layers ---------------------------------------------------------------------------------------------------------------


def conv(layer: Layer, channels: int = 24, group: int = 1, bias: bool = True, **attrs: object) -> object:
    w = layer.weight(channels, 16 // group, 3, 3)
    b = (layer.bias(w),) if bias else ()
    return layer.Conv(layer.dequantized(layer.inputs[0]), w, *b, group=group, **attrs)


def clip(layer: Layer) -> object:
    return layer.Clip(conv(layer), np.float32(-1.0), np.float32(3.3))


def odd_weights(layer: Layer) -> object:
    """Unsigned weights whose zero point leaves more than int8 holds, and one scale."""
    w = layer.weight(10, 16, 1, 1, per_channel=False, dtype="uint8", zero_point=3)
    return layer.Conv(layer.dequantized(layer.inputs[0]), w)


def float_bias(layer: Layer) -> object:
    w = layer.weight(24, 16, 1, 1)
    return layer.Conv(layer.dequantized(layer.inputs[0]), w, layer.rng.standard_normal(24).astype(np.float32))


def padded(layer: Layer) -> object:
    around = layer.Pad(layer.dequantized(layer.inputs[0]), np.array([0, 0, 1, 2, 0, 0, 0, 1], np.int64))
    kept = layer.graph.add("StopFusion", [around], domain="tinycomp").output
    return layer.Conv(kept, layer.weight(24, 16, 3, 3), pads=[1, 0, 0, 0])


def two(layer: Layer, op: str) -> object:
    other = layer.dequantized(
        layer.QuantizeLinear(layer.Relu(conv(layer, 16, pads=[1] * 4)), *point(layer, 0.07)), 0.07
    )
    return getattr(layer, op)(layer.dequantized(layer.inputs[0]), other)


def point(layer: Layer, scale: float) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(scale, np.float32), layer.point(3)


LAYERS: dict[str, tuple[str, Callable[[Layer], object]]] = {
    "plain": ("qconv", conv),
    "no bias": ("qconv", lambda n: conv(n, bias=False)),
    "relu": ("qconv", lambda n: n.Relu(conv(n, pads=[1, 1, 1, 1], strides=[2, 2]))),
    "same": ("qconv", lambda n: conv(n, auto_pad="SAME_UPPER", dilations=[2, 2])),
    "grouped": ("qconv", lambda n: conv(n, group=4, pads=[1, 0, 0, 1])),
    "depthwise": ("qconv", lambda n: conv(n, group=16, channels=16)),
    "multiplied": ("qconv", lambda n: conv(n, group=16, channels=32)),
    "clip": ("qconv", clip),
    "odd weights": ("qconv", odd_weights),
    "float bias": ("qconv", float_bias),
    "padded": ("qconv", padded),
    "add": ("qbinary", lambda n: two(n, "Add")),
    "sub": ("qbinary", lambda n: n.Relu(two(n, "Sub"))),
    "mul": ("qbinary", lambda n: two(n, "Mul")),
    "sigmoid": ("qtable", lambda n: n.Sigmoid(n.dequantized(n.inputs[0]))),
    "chain": ("qtable", lambda n: n.Tanh(n.Mul(n.dequantized(n.inputs[0]), np.float32(0.3)))),
    "swish": ("qtable", lambda n: (lambda x: n.Mul(x, n.Sigmoid(x)))(n.dequantized(n.inputs[0]))),
    "rescaled": ("qtable", lambda n: n.dequantized(n.inputs[0])),
}


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_one_composite_with_the_documented_bits(name: str, dtype: str):
    composite, build = LAYERS[name]
    layer = Layer(2, 16, 9, 7, dtype=dtype)
    check(layer, layer.done(build(layer), 0.043), composite)


def check(layer: Layer, graph: Graph, composite: str) -> Module:
    data = layer.data()
    feeds = {v.name: x for v, x in zip(graph.inputs, data, strict=True)}
    (wanted,) = evaluate(graph, TARGET, feeds)
    module = tinycomp.compile(graph, "c", strict=True)
    (region,) = module.report().regions
    assert f"c.{composite}" in region.composites
    found = module(*data)
    assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(found, wanted)
    assert len(np.unique(wanted)) > 10, "the test data saturates: it would not see an error"
    return module


def matmul(layer: Layer) -> object:
    w = layer.weight(20, 12, axis=1)
    return layer.Add(layer.MatMul(layer.dequantized(layer.inputs[0]), w), layer.bias(w))


def gemm(layer: Layer) -> object:
    w = layer.weight(12, 20)
    return layer.Relu(layer.Gemm(layer.dequantized(layer.inputs[0]), w, layer.bias(w), transB=1))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("build", [matmul, gemm])
def test_a_dense_layer(build: Callable[[Layer], object], dtype: str):
    shape = (5, 20) if build is gemm else (2, 5, 20)
    layer = Layer(*shape, dtype=dtype)
    check(layer, layer.done(build(layer), 0.043), "qdense")


@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("name", ["plain", "relu", "depthwise", "clip"])
def test_tflites_fixed_point_rule_is_an_option(name: str, isa: str, monkeypatch):
    monkeypatch.setenv("TINYCOMP_ISA", isa)
    layer = Layer(2, 16, 9, 7, dtype="uint8")
    graph = layer.done(LAYERS[name][1](layer), 0.043)
    data = layer.data()
    feeds = {"x0": data[0]}
    (wanted,) = evaluate(graph, TARGET, feeds, by_fixed_point)
    module = tinycomp.compile(graph, "c", strict=True, options={"c": {"requantize": "fixed_point"}})
    np.testing.assert_array_equal(module(*data), wanted)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("window", [None, {"kernel_shape": [3, 2], "strides": [2, 1]}], ids=["global", "windows"])
def test_a_mean_is_summed_in_integers_by_the_fixed_point_rule(window: dict | None, isa: str, dtype: str, monkeypatch):
    monkeypatch.setenv("TINYCOMP_ISA", isa)
    layer = Layer(2, 19, 9, 7, dtype=dtype)
    x = layer.dequantized(layer.inputs[0])
    graph = layer.done(layer.GlobalAveragePool(x) if window is None else layer.AveragePool(x, **window), 0.011)
    data, target = layer.data(), TARGET.with_options(requantize="fixed_point")
    (wanted,) = evaluate(graph, target, {"x0": data[0]}, by_fixed_point)
    module = tinycomp.compile(graph, target, strict=True)
    assert module.report().regions[0].composites == {"c.qavgpool": 1}
    np.testing.assert_array_equal(module(*data), wanted)


@pytest.mark.parametrize(
    ("window", "integers"),
    [(None, False), ({"kernel_shape": [2, 2], "strides": [2, 2]}, False), ({"kernel_shape": [3, 3]}, True),
     ({"kernel_shape": [4, 4], "pads": [1, 1, 1, 1]}, False), ({"kernel_shape": [7, 7]}, True)],
    ids=["global", "halves", "odd", "padded", "whole"],
)  # fmt: skip
def test_a_mean_is_that_of_float32_row_by_row_whatever_is_known_of_sizes(window: dict | None, integers: bool):
    shape = (2, 19, 7, 7) if integers else (2, 19, 32, 40)
    for sizes in (shape, ("N", *shape[1:]), ("N", 19, "H", "W")):
        layer = Layer(*sizes)
        x = layer.dequantized(layer.inputs[0])
        graph = layer.done(layer.GlobalAveragePool(x) if window is None else layer.AveragePool(x, **window), 0.05)
        data = np.random.default_rng(0).integers(-128, 128, shape).astype(np.int8)
        module = tinycomp.compile(graph, "c", strict=True)
        assert ("c.qavgpool" in module.report().regions[0].composites) == integers
        np.testing.assert_array_equal(module(data), run(graph, [data], by_float)[0])


def test_winograds_algorithm_changes_no_bit():
    layer = Layer(2, 16, 9, 7)
    graph = layer.done(conv(layer))
    direct, winograd = (
        tinycomp.compile(graph, "c", strict=True, options={"c": {"winograd": allowed}}) for allowed in (False, True)
    )
    assert ("qconv2d" in kernels(direct), "qconv2d_winograd" in kernels(winograd)) == (True, True)
    data = layer.data()
    np.testing.assert_array_equal(winograd(*data), direct(*data))


def test_a_layer_whose_result_stays_real():
    layer = Layer(2, 16, 9, 7)
    graph = layer.finish(layer.Softmax(conv(layer), axis=1))
    data = layer.data()
    (wanted,) = evaluate(graph, TARGET, {"x0": data[0]})
    module = tinycomp.compile(graph, "c", strict=True)
    np.testing.assert_allclose(module(*data), wanted, rtol=1e-5, atol=1e-7)
    assert [kernel for kernel, macs in calls(module) if macs] == ["qconv2d"]


def test_sums_that_could_leave_int32_stay_in_float32():
    layer = Layer(2, 16, 9, 9)
    w = layer.weight(16, 16, 1, 1)
    scales = w.producer.inputs[1].const * np.float32(0.05)
    b = layer.DequantizeLinear(np.full(16, 2**31 - 1, np.int32), scales, np.zeros(16, np.int32), axis=0)
    graph = layer.done(layer.Conv(layer.dequantized(layer.inputs[0]), w, b), 2e5)
    module = tinycomp.compile(graph, "c", strict=True)
    assert "conv2d_f32" in kernels(module)
    told = [str(r) for reasons in module.report().reasons.values() for r in reasons]
    assert any("overflows the int32 accumulator" in text for text in told)


def test_a_dequantisation_that_two_layers_share_does_not_keep_them_apart():
    layer = Layer(2, 16, 9, 9)
    x = layer.dequantized(layer.inputs[0])
    parts = [layer.QuantizeLinear(layer.Conv(x, layer.weight(16, 16, 1, 1)), *point(layer, 0.1)) for _ in range(2)]
    graph = layer.done(layer.Add(*(layer.dequantized(p, 0.1) for p in parts)))
    module = check(layer, graph, "qbinary")
    assert kernels(module).count("qconv2d") == 2
    assert "dequantize_f32" not in kernels(module)


# The integer operators ------------------------------------------------------------------------------------------------


OPERATORS = list(quantize.integer_operators())


@pytest.mark.parametrize("case", OPERATORS, ids=str)
def test_integer_operators_run_in_integers_with_the_hosts_bits(case: Case):
    model = case.model()
    module = compile_for(model, strict=True)
    assert INTEGER_KERNELS & set(kernels(module))
    for found, wanted in zip(
        module.run(case.feeds).values(), compile_for(model, "host").run(case.feeds).values(), strict=True
    ):
        assert_close(found, wanted, case, str(case))


# Random graphs --------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("share", range(SHARES))
def test_random_quantised_graphs_have_the_documented_bits(share: int):
    """On C the bits of the rules; in onnxruntime, too, for uint8 activations, which it computes in integers."""
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    for seed in range(share, RANDOM_GRAPHS, SHARES):
        model, feeds = random_model(seed)
        wanted = evaluate(model, TARGET, feeds)
        module = tinycomp.compile(model, "c", strict=True, threads=1)
        for array, right in zip(module.run(feeds).values(), wanted, strict=True):
            np.testing.assert_array_equal(array, right, f"C, seed {seed}")
        if feeds["x"].dtype == np.uint8:
            session = onnxruntime.InferenceSession(model.SerializeToString(), options)
            for array, right in zip(session.run(None, feeds), wanted, strict=True):
                np.testing.assert_array_equal(array, right, f"onnxruntime, seed {seed}")
