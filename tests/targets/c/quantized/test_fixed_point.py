"""Layers that the fixed-point rule computes in integers: their documented bits, and how near they are to float32."""

from __future__ import annotations

import numpy as np
import pytest

import tinycomp
from tests.targets.quantized_arithmetic import by_fixed_point, evaluate
from tests.targets.quantized_layers import Layer
from tinycomp.ir import Graph, TensorType
from tinycomp.quantized.softmax import LONGEST
from tinycomp.runtime.native.processor import available_isas
from tinycomp.targets.c import TARGET

FIXED = TARGET.with_options(requantize="fixed_point")


def softmax(layer: Layer, axis: int) -> object:
    return layer.Softmax(layer.dequantized(layer.inputs[0], 0.3), axis=axis)


def resize(layer: Layer, mode: str, sizes: tuple[int, int]) -> object:
    x = layer.dequantized(layer.inputs[0])
    wanted = np.array([2, 19, *sizes], np.int64)
    return layer.Resize(x, None, None, wanted, mode="linear", coordinate_transformation_mode=mode)


def check(graph: Graph, data: list[np.ndarray], composite: str) -> None:
    (wanted,) = evaluate(graph, FIXED, {v.name: x for v, x in zip(graph.inputs, data, strict=True)}, by_fixed_point)
    module = tinycomp.compile(graph, FIXED, strict=True)
    assert module.report().regions[0].composites == {composite: 1}
    found, real = module(*data), tinycomp.compile(graph, "c")
    np.testing.assert_array_equal(found, wanted)
    assert len(np.unique(wanted)) > 10, "the test data saturates: it would not see an error"
    assert composite not in real.report().regions[0].composites
    assert np.abs(found.astype(int) - real(*data)).max() <= 1


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("isa", available_isas())
@pytest.mark.parametrize("axis", [-1, 1])
def test_a_softmax_is_shares_of_integers(axis: int, isa: str, dtype: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TINYCOMP_ISA", isa)
    layer = Layer(2, 19, 9, 7, dtype=dtype)
    check(layer.done(softmax(layer, axis), 0.004), layer.data(), "c.qsoftmax")


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("mode", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
@pytest.mark.parametrize("sizes", [(18, 14), (12, 5), (9, 1)], ids=str)
def test_a_linear_resize_weighs_pixels_by_whole_numbers(sizes: tuple[int, int], mode: str, dtype: str):
    layer = Layer(2, 19, 9, 7, dtype=dtype)
    check(layer.done(resize(layer, mode, sizes), 0.043), layer.data(), "c.qresize")


@pytest.mark.parametrize(("length", "steps"), [(2, 1), (197, 1), (2048, 1), (LONGEST, 2)])
@pytest.mark.parametrize("scale", [0.01, 0.1, 0.9])
def test_shares_are_within_steps_of_float32(length: int, steps: int, scale: float):
    graph = Graph("g", opsets={"": 17})
    point, step = graph.add_const(np.int8(-128)), graph.add_const(np.float32(1 / 256))
    x = graph.add_input("x", TensorType("int8", (8, length)))
    given = graph.add("DequantizeLinear", [x, graph.add_const(np.float32(scale)), graph.add_const(np.int8(3))]).output
    shares = graph.add("Softmax", [given], {"axis": -1}).output
    graph.set_outputs([graph.add("QuantizeLinear", [shares, step, point]).output], ["y"])
    rng = np.random.default_rng(0)
    data = rng.integers(-128, 128, (8, length)).astype(np.int8)
    data[1] = 7
    data[2:5] = np.clip(data[2:5], -128, [[-90], [0], [60]])
    data[2:5, 0] = 127
    found, real = (tinycomp.compile(graph, target)(data).astype(int) for target in (FIXED, "host"))
    assert np.abs(found - real).max() <= steps


@pytest.mark.parametrize(
    ("build", "shape", "reason"),
    [
        (lambda n: softmax(n, 1), (1, LONGEST + 1, 1, 1), "lines of 4097, not of up to 4096 numbers"),
        (lambda n: n.Resize(n.dequantized(n.inputs[0]), None, np.array([1, 1, 1.3, 1], np.float32), mode="linear"),
         (1, 3, 9, 7), "is not that of 9 and 11 pixels"),
        (lambda n: n.Resize(n.dequantized(n.inputs[0]), None, np.array([1, 2, 1, 1], np.float32), mode="linear"),
         (1, 3, 9, 7), "it has images, and resizes no channels"),
        (lambda n: n.Resize(n.dequantized(n.inputs[0]), None, None, np.array([1, 3, 2051, 7]), mode="linear"),
         (1, 3, 9, 7), "not of up to 2048 parts"),
    ],
)  # fmt: skip
def test_what_stays_in_float32_says_why(build, shape, reason):
    layer = Layer(*shape)
    report = tinycomp.compile(layer.done(build(layer), 0.01), FIXED).report()
    assert reason in str(report.reasons)
