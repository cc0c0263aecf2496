"""Legalised layers have the results of the layers as they stand, for generated ones of every kind.

Scales are powers of two and floats whole numbers, so that sums are exact and every result is one certain number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tinycomp
from tests.passes.evaluation import evaluate
from tinycomp.ir import Graph, TensorType, Value
from tinycomp.ir.verify import verify
from tinycomp.ops.typing import infer_node_types
from tinycomp.passes.legalize import (
    DecomposeStrides,
    DenseToConvolutions,
    ExplicitPads,
    FunctionsToTables,
    Legalization,
    MoveTransposes,
    NarrowWeights,
    ReductionsToPools,
    SplitGroups,
    SplitKernels,
    StepsToPools,
    TransposedToConvolutions,
    ZeroPointsToBias,
)

Draw = Callable[..., Any]
_SETTINGS = settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


class Network:
    """A graph of one generated layer between conversions, or in float."""

    def __init__(self, draw: Draw, *shape: int, quantized: bool | None = None) -> None:
        self.draw = draw
        self.graph = Graph("layer", infer=infer_node_types, opsets={"": 17})
        self.quantized = draw(st.booleans()) if quantized is None else quantized
        self.dtype = draw(st.sampled_from(["int8", "uint8"])) if self.quantized else "float32"
        self.rng = np.random.default_rng(draw(st.integers(0, 1000)))
        self.input = self.graph.add_input("x", TensorType(self.dtype, shape))

    def const(self, array: Any) -> Value:
        return self.graph.add_const(np.asarray(array))

    def add(self, op: str, *inputs: Value | None, **attrs: Any) -> Value:
        return self.graph.add(op, inputs, attrs, sources=[op]).output

    def point(self) -> np.ndarray:
        return np.asarray(self.draw(st.integers(-5, 5)) + (128 if self.dtype == "uint8" else 0), self.dtype)

    def real(self) -> Value:
        if not self.quantized:
            return self.input
        return self.add("DequantizeLinear", self.input, self.const(np.float32(0.5)), self.const(self.point()))

    def weight(self, *shape: int, axis: int = 0, dtypes: tuple[str, ...] = ("int8", "uint8")) -> Value:
        if not self.quantized:
            return self.const(self.rng.integers(-4, 5, shape).astype(np.float32))
        dtype = self.draw(st.sampled_from(dtypes))
        info = np.iinfo(dtype)
        count = shape[axis] if self.draw(st.booleans()) else 1
        scales = (2.0 ** self.rng.integers(-9, -5, count)).astype(np.float32)
        points = (self.rng.integers(-9, 9, count) + (info.max + info.min + 1) // 2).astype(dtype)
        stored = self.rng.integers(info.min, info.max, shape, endpoint=True).astype(dtype)
        wide = count > 1
        operands = [stored, scales if wide else scales[0], points if wide else points[0]]
        return self.add("DequantizeLinear", *map(self.const, operands), **({"axis": axis} if wide else {}))

    def bias(self, weight: Value, channels: int) -> Value | None:
        if self.draw(st.booleans()):
            return None
        if not self.quantized:
            return self.const(self.rng.integers(-9, 9, channels).astype(np.float32))
        assert weight.producer is not None
        scale = np.float32(0.5) * weight.producer.const(1)
        stored = self.rng.integers(-3000, 3000, channels).astype(np.int32)
        zero = np.zeros(np.shape(scale), np.int32)
        operands = [stored, scale, zero]
        return self.add("DequantizeLinear", *map(self.const, operands), **({"axis": 0} if np.ndim(scale) else {}))

    def done(self, y: Value, activation: bool = True) -> Graph:
        kind = self.draw(st.sampled_from(["", "Relu", "Clip"])) if activation else ""
        if kind == "Relu":
            y = self.add("Relu", y)
        elif kind:
            y = self.add("Clip", y, self.const(np.float32(-1)), self.const(np.float32(6)))
        if self.quantized:
            y = self.add("QuantizeLinear", y, self.const(np.float32(0.25)), self.const(self.point()))
        self.graph.set_outputs([y], ["y"])
        return self.graph

    def data(self) -> np.ndarray:
        shape = self.input.static_shape
        assert shape is not None
        if not self.quantized:
            return self.rng.integers(-9, 9, shape).astype(np.float32)
        info = np.iinfo(self.dtype)
        return self.rng.integers(info.min, info.max, shape, endpoint=True).astype(self.dtype)


def spatial(draw: Draw, low: int, high: int) -> list[int]:
    return [draw(st.integers(low, high)), draw(st.integers(low, high))]


def conv(
    draw: Draw, groups: int = 1, each: int = 2, high: int = 4, strides: list[int] | None = None, **more: Any
) -> Network:
    channels = groups * each
    net = Network(draw, 2, channels, *spatial(draw, 14, 17), **more)
    filters = groups * draw(st.integers(1, 2))
    weight = net.weight(filters, each, *spatial(draw, 1, high))
    attrs = {
        "strides": strides or spatial(draw, 1, 3), "dilations": spatial(draw, 1, 2), "group": groups,
        "pads": spatial(draw, 0, 2) + spatial(draw, 0, 2),
    }  # fmt: skip
    net.done(net.add("Conv", net.real(), weight, net.bias(weight, filters), **attrs))
    return net


def transposed(draw: Draw) -> Network:
    rank = draw(st.integers(1, 2))
    net = Network(draw, 2, 3, *[draw(st.integers(3, 6)) for _ in range(rank)])
    weight = net.weight(3, 2, *[draw(st.integers(1, 5)) for _ in range(rank)], axis=1)
    strides = [draw(st.integers(1, 3)) for _ in range(rank)]
    attrs = {
        "strides": strides, "pads": [draw(st.integers(0, 1)) for _ in range(2 * rank)],
        "output_padding": [draw(st.integers(0, step - 1)) for step in strides],
    }  # fmt: skip
    net.done(net.add("ConvTranspose", net.real(), weight, net.bias(weight, 2), **attrs))
    return net


def pool(draw: Draw, op: str, strides: list[int], **attrs: Any) -> Network:
    net = Network(draw, 2, 3, *spatial(draw, 14, 17))
    pads = spatial(draw, 0, 1) + spatial(draw, 0, 1)
    net.done(net.add(op, net.real(), kernel_shape=spatial(draw, 2, 4), strides=strides, pads=pads, **attrs))
    return net


def dense(draw: Draw, op: str = "Gemm", **more: Any) -> Network:
    leading = [2, 3] if op == "MatMul" else [5]
    net = Network(draw, *leading, 6, **more)
    turned = op == "Gemm" and draw(st.booleans())
    weight = net.weight(*((4, 6) if turned else (6, 4)), axis=0 if turned else 1)
    bias = net.bias(weight, 4)
    y = net.add(op, net.real(), weight, *([bias] if bias and op == "Gemm" else []), **({"transB": 1} if turned else {}))
    if bias and op == "MatMul":
        y = net.add("Add", *draw(st.permutations([y, bias])))
    net.done(y)
    return net


def reduction(draw: Draw) -> Network:
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    axes = draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    net = Network(draw, *shape)
    op = draw(st.sampled_from(["ReduceMean", "ReduceMax"]))
    given = [axis - len(shape) if draw(st.booleans()) else axis for axis in sorted(axes)]
    net.done(net.add(op, net.real(), axes=given, keepdims=draw(st.integers(0, 1))))
    return net


def cut(draw: Draw) -> Network:
    net = Network(draw, 2, 3, *spatial(draw, 9, 14))
    steps = draw(st.sampled_from([[2, 2], [4, 1], [3, 2], [6, 9]]))
    places = [np.array(v, np.int64) for v in ([0, -8], [99, -1], [2, 3], steps)]
    net.graph.set_outputs([net.add("Slice", net.input, *map(net.const, places))], ["y"])
    return net


def function(draw: Draw) -> Network:
    net = Network(draw, 3, 5, quantized=True)
    x = net.real()
    op = draw(st.sampled_from(["LeakyRelu", "HardSwish", "Gelu", "Sigmoid"]))
    if op == "Gelu":
        half = net.add("Mul", x, net.const(np.float32(0.5)))
        erf = net.add("Erf", net.add("Div", x, net.const(np.float32(1.5))))
        y = net.add("Mul", half, net.add("Add", erf, net.const(np.float32([1]))))
    else:
        y = net.add(op, x, **({"alpha": 0.3} if op == "LeakyRelu" else {}))
    net.done(y, activation=False)
    return net


def transposes(draw: Draw) -> Network:
    net = Network(draw, 2, 3, 4, 5)
    perm = draw(st.permutations(range(4)))
    y = net.add("Transpose", net.real(), perm=perm)
    shape = y.static_shape
    assert shape is not None
    if draw(st.booleans()):
        y = net.add("Add", y, net.const(net.rng.integers(-5, 5, shape[-draw(st.integers(1, 4)) :]).astype(np.float32)))
    if draw(st.booleans()):
        y = net.add("Concat", y, y, axis=draw(st.integers(-4, 3)))
    net.done(y)
    (last,) = net.graph.outputs
    net.graph.set_outputs([net.add("Transpose", last, perm=[int(at) for at in np.argsort(perm)])], ["y"])
    return net


LONG = [[4, 4], [6, 1], [2, 8], [9, 5]]
CASES: dict[str, tuple[Legalization, Callable[[Draw], Network]]] = {
    "groups": (SplitGroups(), lambda draw: conv(draw, groups=draw(st.integers(2, 4)))),
    "depthwise": (SplitGroups(depthwise=True), lambda draw: conv(draw, groups=3, each=1)),
    "kernels": (SplitKernels(3), lambda draw: conv(draw, high=7)),
    "strides of convolutions": (
        DecomposeStrides(3),
        lambda draw: conv(draw, *draw(st.sampled_from([(1, 2), (3, 1)])), strides=draw(st.sampled_from(LONG[:3]))),
    ),
    "strides of means": (DecomposeStrides(2), lambda draw: pool(draw, "AveragePool", draw(st.sampled_from(LONG)))),
    "strides of maxima": (DecomposeStrides(3), lambda draw: pool(draw, "MaxPool", draw(st.sampled_from(LONG)))),
    "steps": (StepsToPools(), cut),
    "reductions": (ReductionsToPools(), reduction),
    "pads of convolutions": (ExplicitPads(), conv),
    "pads of means": (ExplicitPads(), lambda draw: pool(draw, "AveragePool", [1, 2], count_include_pad=1)),
    "zero points of convolutions": (ZeroPointsToBias(), lambda draw: conv(draw, groups=draw(st.integers(1, 2)))),
    "zero points of products": (ZeroPointsToBias(), dense),
    "transposed": (TransposedToConvolutions(), transposed),
    "dense": (DenseToConvolutions(), lambda draw: dense(draw, draw(st.sampled_from(["Gemm", "MatMul"])))),
    "wide weights": (NarrowWeights(), conv),
    "wide matrices": (NarrowWeights(), lambda draw: dense(draw, draw(st.sampled_from(["Gemm", "MatMul"])))),
    "functions": (FunctionsToTables(), function),
    "transposes": (MoveTransposes(), transposes),
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_equal(name: str) -> None:
    legalization, network = CASES[name]
    changed = []

    @_SETTINGS
    @given(st.data())
    def check(data: st.DataObject) -> None:
        net = network(data.draw)
        after = net.graph.clone()
        changed.append(legalization.run(after))
        verify(after)
        x = net.data()
        before = evaluate(net.graph, [x])
        (wanted,), (result,) = before, evaluate(after, [x])
        assert result.dtype == wanted.dtype
        np.testing.assert_array_equal(result, wanted)
        assert after.outputs[0].type == net.graph.outputs[0].type

    check()
    assert sum(changed) >= len(changed) // 4  # the others are such that nothing is to be done


@pytest.mark.parametrize(
    "name", ["groups", "kernels", "strides of convolutions", "zero points of convolutions", "dense"]
)
def test_integers_of_the_c_target_have_the_same_bits(name: str) -> None:
    """Other scales than powers of two, and the rounding of TFLite."""
    legalization, network = CASES[name]

    @settings(_SETTINGS, max_examples=4)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        net = network(data.draw)
        if not net.quantized:
            return
        for value in net.graph.constants:
            if value.dtype == "float32" and value.const is not None and value.const.max() < 1:
                value.const *= np.float32(1.1)
        after = net.graph.clone()
        legalization.run(after)
        x = net.data()
        results = [
            tinycomp.compile(graph, "c:requantize=fixed_point", optimize=False)(x) for graph in (net.graph, after)
        ]
        np.testing.assert_array_equal(results[1], results[0])

    check()
