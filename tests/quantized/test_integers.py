"""The integers of quantised layers on the host: the documented bits, by both roundings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinycomp
from tests.targets.quantized_arithmetic import by_fixed_point, by_float, evaluate, multiplied
from tests.targets.quantized_layers import Layer
from tests.targets.quantized_models import FIXED_POINT_LAYERS, random_model
from tinycomp.driver.lowering import Lowering
from tinycomp.driver.pipeline import Pipeline, optimisation_passes
from tinycomp.ir import Graph
from tinycomp.quantized import Rounding
from tinycomp.quantized.integers import fixed
from tinycomp.quantized.layer import QuantizedLayer
from tinycomp.quantized.layers import in_integers
from tinycomp.runtime.native.executor import Pool
from tinycomp.targets.c import TARGET

FIXED = TARGET.with_options(requantize="fixed_point")


def on_the_host(graph: Graph, feeds: dict[str, np.ndarray], rounding: Rounding) -> list[Any]:
    graph = Pipeline(optimisation_passes())(graph)
    return Lowering({}, Pool(1)).plan(graph, rounding).run([feeds[v.name] for v in graph.inputs])


@pytest.mark.rows(12)
@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("rounding", ["float", "fixed_point"])
def test_random_networks_have_the_documented_bits(rounding: Rounding, seed: int):
    model, feeds = random_model(seed, layers=FIXED_POINT_LAYERS)
    target, rule = (TARGET, by_float) if rounding == "float" else (FIXED, by_fixed_point)
    wanted = evaluate(model, target, feeds, rule)
    for found, right in zip(on_the_host(tinycomp.from_onnx(model), feeds, rounding), wanted, strict=True):
        np.testing.assert_array_equal(found, right)


def test_fixed_point_numbers_are_those_of_tflite():
    rng = np.random.default_rng(0)
    sums = np.r_[rng.integers(-(2**31), 2**31, 300), rng.integers(-2000, 2000, 300), 0, 1, -1, 2**31 - 1, -(2**31)]
    for ratio in (0.75, 0.5, 0.1234567, 3e-3, 2.0**-20, 1e-10, 1.0, 7.5, 1000.0):
        found = np.clip(fixed(sums, np.array(ratio)), -(2**31), 2**31)
        wanted = np.clip([multiplied(int(s), ratio) for s in sums], -(2**31), 2**31)
        inside = np.abs(sums * ratio) < 2**30  # beyond, only the end of the range that is left counts
        np.testing.assert_array_equal(found[inside], wanted[inside])
        np.testing.assert_array_equal(np.sign(found[~inside]), np.sign(wanted[~inside]))


def test_a_result_that_is_read_elsewhere_keeps_its_definition():
    layer = Layer(2, 16, 5, 5)
    y = layer.Conv(layer.dequantized(layer.inputs[0]), layer.weight(4, 16, 1, 1))
    graph = layer.done(y)
    graph.set_outputs([*graph.outputs, y])
    held, layers = in_integers(graph, "float")
    assert [core.op for core, _ in layers.values()] == ["Conv"]
    assert "QuantizeLinear" in {node.op for node in held.nodes}
    assert not any(node.op == "QuantizeLinear" for node in next(iter(layers)).body.nodes)


def test_the_record_of_a_layer():
    layer = Layer(2, 16, 5, 5)
    w = layer.weight(4, 16, 3, 3)
    graph = layer.done(layer.Relu(layer.Conv(layer.dequantized(layer.inputs[0]), w, layer.bias(w), pads=[1] * 4)))
    record = QuantizedLayer.of(graph.nodes)
    assert record.core.op == "Conv"
    assert record.stored() is layer.inputs[0]
    assert (record.scale(), record.zero_point()) == (pytest.approx(0.05), 3)
    assert (record.result.low, record.result.high, record.result.dtype) == (-7, 127, "int8")
    assert record.product.weight.shape == (4, 16, 3, 3)
    np.testing.assert_array_equal(record.factors, (record.steps.astype(np.float32) / np.float32(0.1)))
