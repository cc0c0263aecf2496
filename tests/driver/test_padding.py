"""A model with padded channels computes what it did before, whatever its channels go through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinycomp
from tests.driver.planted import Network
from tinycomp.driver.advice.padding import channels, pad_channels
from tinycomp.ir.graph import Graph, Node
from tinycomp.ir.verify import verify

ODD, PADDED = 6, 8


def first(graph: Graph, op: str = "Conv") -> Node:
    return next(node for node in graph.nodes if node.op == op)


def test_a_batch_of_any_size() -> None:
    network = Network(9, batch="batch")
    conv = network.conv(ODD)
    network.add("Relu")
    network.conv(ODD + 1)
    graph = network.finished()
    before = graph.clone()
    assert pad_channels(graph, conv, "output", PADDED)
    assert pad_channels(graph, graph.nodes[-1], "output", PADDED)
    verify(graph)
    assert [node.op for node in graph.nodes] == ["Conv", "Relu", "Conv", "Slice"]
    for batch in (1, 3):
        x = np.random.default_rng(1).standard_normal((batch, 8, 8, 8)).astype(np.float32)
        expected, found = tinycomp.compile(before, "c")(x), tinycomp.compile(graph, "c")(x)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def padded(network: Network, node: Node, side: str = "output", size: int = PADDED) -> list[str]:
    """Pad, compare the results, and return the operators of the padded model."""
    graph = network.finished()
    before = graph.clone()
    assert pad_channels(graph, node, side, size)
    verify(graph)
    shape = graph.inputs[0].static_shape
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    expected, found = tinycomp.compile(before, "host")(x), tinycomp.compile(graph, "host")(x)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert channels(node, side) == size
    return [node.op for node in graph.nodes]


def per_channel(network: Network, *shape: int) -> Any:
    return network.const(network.rng.uniform(0.5, 1.5, shape).astype(np.float32))


def batch_normalization(net: Network) -> None:
    net.add("BatchNormalization", *(per_channel(net, ODD) for _ in range(4)))


def depthwise(net: Network) -> None:
    weight = net.const(net.weights(ODD, 1, 3, 3))
    net.add("Conv", weight, per_channel(net, ODD), group=ODD, pads=[1] * 4)


def quantized(net: Network) -> None:
    point = net.const(np.int8(3))
    net.add("QuantizeLinear", net.const(np.float32(0.1)), point)
    net.add("DequantizeLinear", net.const(np.float32(0.1)), point)


def residual(net: Network) -> None:
    kept = net.value
    net.conv(ODD)
    net.add("Add", kept)


def there_and_back(net: Network) -> None:
    net.add("Transpose", perm=[0, 2, 3, 1])
    net.add("Mul", per_channel(net, ODD))
    net.add("Transpose", perm=[0, 3, 1, 2])


GOES_THROUGH: dict[str, Callable[[Network], Any]] = {
    "Relu": lambda net: net.add("Relu"),
    "Sigmoid": lambda net: net.add("Sigmoid"),
    "Exp": lambda net: net.add("Exp"),
    "Clip": lambda net: net.add("Clip", net.const(np.float32(0.1)), net.const(np.float32(0.5))),
    "PRelu": lambda net: net.add("PRelu", per_channel(net, ODD, 1, 1)),
    "add of constants": lambda net: net.add("Add", per_channel(net, 1, ODD, 1, 1)),
    "division by constants": lambda net: net.add("Div", per_channel(net, ODD, 1, 1)),
    "a scalar": lambda net: net.add("Mul", net.const(np.float32(2))),
    "MaxPool": lambda net: net.add("MaxPool", kernel_shape=[2, 2]),
    "AveragePool": lambda net: net.add("AveragePool", kernel_shape=[2, 2]),
    "BatchNormalization": batch_normalization,
    "depthwise": depthwise,
    "quantized": quantized,
    "residual": residual,
    "transposed": there_and_back,
    "nothing": lambda net: None,
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("between", GOES_THROUGH)
def test_channels_go_through(between: str, seed: int) -> None:
    network = Network(seed)
    conv = network.conv(ODD)
    GOES_THROUGH[between](network)
    network.conv()
    assert not {"Slice", "Pad"} & set(padded(network, conv))


@pytest.mark.parametrize("last", ["Gemm", "Gemm transposed", "MatMul"])
@pytest.mark.parametrize("shape", ["Flatten", "Reshape", "Reshape with -1", "Squeeze"])
def test_channels_go_through_a_classifier(last: str, shape: str) -> None:
    network = Network(1)
    conv = network.conv(ODD)
    network.add("GlobalAveragePool")
    if shape == "Flatten":
        network.add("Flatten")
    elif shape == "Squeeze":
        network.add("Squeeze", network.const(np.array([2, 3])))
    else:
        network.add("Reshape", network.const(np.array([1, -1 if "-1" in shape else ODD])))
    transposed = "transposed" in last
    weight = network.const(network.weights(10, ODD) if transposed else network.weights(ODD, 10))
    network.add(last.split()[0], weight, **({"transB": 1} if transposed else {}))
    assert not {"Slice", "Pad"} & set(padded(network, conv))


def test_the_last_product_gets_a_slice_behind_it() -> None:
    network = Network(2)
    network.add("GlobalAveragePool")
    network.add("Flatten")
    gemm = network.add("Gemm", network.const(network.weights(8, 10)), network.const(network.weights(10, 1)[:, 0]))
    assert padded(network, gemm, size=16) == ["GlobalAveragePool", "Flatten", "Gemm", "Slice"]


@pytest.mark.parametrize("op", ["Softmax", "Log", "ReduceMean"])
def test_what_minds_further_channels_reads_a_slice(op: str) -> None:
    network = Network(3)
    conv = network.conv(ODD)
    network.add("Relu")
    network.add("Add", network.const(np.float32(1)))
    network.add(op, **({"axis": 1} if op == "Softmax" else {}))
    assert "Slice" in padded(network, conv)


def test_an_input_of_the_model_gets_a_pad() -> None:
    network = Network(4)
    conv = network.conv(8)
    network.add("Relu")
    assert padded(network, conv, "input", 16) == ["Pad", "Conv", "Relu"]


def test_an_input_whose_maker_is_a_product_is_padded_there() -> None:
    network = Network(5)
    network.conv(ODD)
    network.add("Relu")
    conv = network.conv()
    assert padded(network, conv, "input") == ["Conv", "Relu", "Conv"]


def test_a_value_that_others_read_as_well_keeps_its_size_for_them() -> None:
    network = Network(6)
    conv = network.conv(ODD)
    kept = network.value
    network.conv(4)
    graph = network.graph
    both = graph.add("Softmax", [kept], {"axis": 1})
    network.value = graph.add("Concat", [both.output, network.value], {"axis": 1}).output
    assert sorted(padded(network, conv)) == ["Concat", "Conv", "Conv", "Slice", "Softmax"]


def test_quantised_weights_are_padded_with_their_zero_points() -> None:
    network = Network(7)
    rng = network.rng

    def weight(shape: tuple[int, ...], axis: int) -> Any:
        points = rng.integers(-3, 4, shape[axis]).astype(np.int8)
        scales = rng.uniform(0.01, 0.02, shape[axis]).astype(np.float32)
        parts = [network.const(a) for a in (rng.integers(-100, 100, shape).astype(np.int8), scales, points)]
        return network.graph.add("DequantizeLinear", parts, {"axis": axis}).output

    conv = network.add("Conv", weight((ODD, 8, 3, 3), 0), pads=[1] * 4)
    network.add("Relu")
    network.add("Conv", weight((5, ODD, 1, 1), 0))
    network.add("Conv", weight((4, 5, 1, 1), 1))
    assert "Slice" not in padded(network, conv)


def test_what_cannot_be_padded_stays_as_it_is() -> None:
    network = Network(8)
    grouped = network.add("Conv", network.const(network.weights(8, 4, 3, 3)), group=2)
    graph = network.finished()
    text = str(graph)
    assert not pad_channels(graph, grouped, "output", 16)
    assert not pad_channels(graph, grouped, "output", 8)
    assert str(graph) == text
