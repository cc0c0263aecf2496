"""The simulated NPU: its arithmetic, what it takes, and what it refuses and why."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from onnx import helper

import tinycomp
from tests.targets.c.harness import make_model
from tests.targets.quantized_layers import Layer, quantized_product
from tinycomp.driver.pipeline import Pipeline, partitioning_passes
from tinycomp.ir import Graph, TensorType
from tinycomp.target import find
from tinycomp.targets.npu_sim import TARGET
from tinycomp.targets.npu_sim_device import Requantize, product_cycles

# Arithmetic -----------------------------------------------------------------------------------------------------------


def test_requantisation_rounds_products_of_float32_half_to_even():
    step = Requantize(np.array([0.5, 0.125], np.float32), -3, -128, 100, "int8")
    found = step(np.array([[1, 4], [3, 12], [-1, -4], [2**31 - 1, 20]]))
    assert found.dtype == np.int8
    assert found.tolist() == [[-3, -3], [-1, -1], [-3, -3], [100, -1]]


def test_the_array_works_in_tiles():
    assert product_cycles(channels=16, per_output=16, outputs=16 * 10, group=1) == 10
    assert product_cycles(channels=17, per_output=17, outputs=17 * 10, group=1) == 40
    assert product_cycles(channels=32, per_output=9, outputs=32 * 10, group=32) == 320


# Quantised layers against the reference -------------------------------------------------------------------------------


def conv(layer: Layer, *, channels: int = 32, group: int = 1, bias: bool = True, **attrs) -> object:
    w = layer.weight(channels, 16 // group, 3, 3)
    return layer.Conv(layer.dequantized(layer.inputs[0]), w, layer.bias(w) if bias else None, group=group, **attrs)


def clip(layer: Layer) -> Graph:
    return layer.done(layer.Clip(conv(layer), np.float32(-1.3), np.float32(6)))


def padded(layer: Layer) -> Graph:
    w = layer.weight(16, 16, 3, 3)
    pads = np.array([0, 0, 1, 2, 0, 0, 0, 1])
    return layer.done(layer.Conv(layer.Pad(layer.dequantized(layer.inputs[0]), pads), w, layer.bias(w)))


def odd_weights(layer: Layer) -> Graph:
    w = layer.weight(16, 16, 1, 1, per_channel=False, dtype="uint8", zero_point=131)
    return layer.done(layer.Conv(layer.dequantized(layer.inputs[0]), w, np.linspace(-2, 2, 16, dtype=np.float32)))


def add(layer: Layer) -> Graph:
    a, b = layer.dequantized(layer.inputs[0]), layer.dequantized(layer.inputs[1], 0.0271, -20)
    return layer.done(layer.Relu(layer.Add(a, b)), 0.0412)


def add_same(layer: Layer) -> Graph:
    x = layer.dequantized(layer.inputs[0])
    return layer.done(layer.Add(x, x))


def add_constant(layer: Layer) -> Graph:
    stored = layer.rng.integers(0, 127, (2, 16, 9, 9)).astype(layer.dtype)
    return layer.done(layer.Add(layer.dequantized(layer.value(stored), 0.033), layer.dequantized(layer.inputs[0])))


def max_pool(layer: Layer) -> Graph:
    y = layer.MaxPool(layer.dequantized(layer.inputs[0]), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    return layer.done(y, 0.05, 3)


def average_pool(layer: Layer) -> Graph:
    y = layer.AveragePool(layer.dequantized(layer.inputs[0]), kernel_shape=[3, 2], strides=[2, 2])
    return layer.done(y, 0.0317)


IMAGES: dict[str, tuple[str, Callable[[Layer], Graph]]] = {
    "plain": ("qconv", lambda n: n.done(conv(n))),
    "no bias": ("qconv", lambda n: n.done(conv(n, bias=False))),
    "relu": ("qconv", lambda n: n.done(n.Relu(conv(n, pads=[1, 1, 1, 1], strides=[2, 2])))),
    "same": ("qconv", lambda n: n.done(conv(n, auto_pad="SAME_UPPER", dilations=[2, 2]))),
    "grouped": ("qconv", lambda n: n.done(conv(n, group=4, pads=[1, 0, 0, 1]))),
    "depthwise": ("qconv", lambda n: n.done(conv(n, group=16, channels=16))),
    "clip": ("qconv", clip),
    "padded": ("qconv", padded),
    "odd weights": ("qconv", odd_weights),
    "add": ("qadd", add),
    "add same": ("qadd", add_same),
    "add constant": ("qadd", add_constant),
    "average": ("qavgpool", average_pool),
    "global average": ("qavgpool", lambda n: n.done(n.GlobalAveragePool(n.dequantized(n.inputs[0])), 0.02)),
}


def check_layer(layer: Layer, graph: Graph, composite: str) -> None:
    """Compile for the NPU, see that it took the whole layer as one composite, and compare with the numpy tier."""
    module = tinycomp.compile(graph, "npu_sim")
    report = module.report()
    assert not report.hosts, str(report)
    assert [dict(r.composites) for r in report.regions] == [{f"npu_sim.{composite}": 1}]
    data = layer.data()
    found, expected = module(*data), tinycomp.compile(graph, "host")(*data)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    assert len(np.unique(expected)) > 20, "the test data saturates: it would not see an error"


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("name", IMAGES)
def test_a_quantised_layer_equals_the_reference(name: str, dtype: str):
    composite, build = IMAGES[name]
    layer = Layer(2, 16, 9, 9, dtype=dtype, inputs=2 if name == "add" else 1)
    check_layer(layer, build(layer), composite)


def test_a_mean_that_is_a_tie_is_rounded_as_on_the_c_target():
    layer = Layer(4, 16, 8, 8)
    graph = layer.done(layer.GlobalAveragePool(layer.dequantized(layer.inputs[0])), 0.05, 3)
    (x,) = layer.data()
    x = (x // 16).astype(np.int8)
    assert any(int(image.sum()) % 64 == 32 for image in x.reshape(-1, 64))
    found = [tinycomp.compile(graph, target)(x) for target in ("npu_sim", "c", "host")]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def gemm(layer: Layer) -> Graph:
    w = layer.weight(48, 100)
    return layer.done(layer.Gemm(layer.dequantized(layer.inputs[0]), w, layer.bias(w), transB=1))


def gemm_columns(layer: Layer) -> Graph:
    return layer.done(layer.Relu(layer.Gemm(layer.dequantized(layer.inputs[0]), layer.weight(100, 48, axis=1))))


def matmul_bias(layer: Layer) -> Graph:
    w = layer.weight(100, 48, axis=1)
    return layer.done(layer.Relu(layer.Add(layer.bias(w), layer.MatMul(layer.dequantized(layer.inputs[0]), w))))


@pytest.mark.parametrize("build", [gemm, gemm_columns, matmul_bias])
def test_a_dense_layer_equals_the_reference(build: Callable[[Layer], Graph]):
    layer = Layer(32, 100)
    check_layer(layer, build(layer), "qdense")


def test_a_dense_layer_over_the_last_axis_of_many():
    layer = Layer(2, 5, 100)
    check_layer(layer, matmul_bias(layer), "qdense")


def test_a_symbolic_batch():
    layer = Layer("N", 16, 9, 9)
    check_layer(layer, layer.done(layer.Relu(conv(layer))), "qconv")


def test_a_barrier_inside_a_layer_is_looked_through():
    layer = Layer(2, 16, 9, 9)
    held = layer.graph.add("StopFusion", [conv(layer)], domain="tinycomp", sources=["hold"]).output
    check_layer(layer, layer.done(layer.Relu(held)), "qconv")


def test_a_shared_dequantise_serves_both_its_readers():
    layer = Layer(2, 16, 9, 9)
    x = layer.dequantized(layer.inputs[0])
    results = []
    for _ in range(2):
        w = layer.weight(16, 16, 1, 1)
        results.append(layer.QuantizeLinear(layer.Conv(x, w, layer.bias(w)), np.float32(0.1), np.int8(0)))
    module = tinycomp.compile(layer.finish(*results), "npu_sim", verify=True)
    assert dict(module.report().regions[0].composites)["npu_sim.qconv"] in (1, 2)
    assert sum(sum(r.composites.values()) for r in module.report().regions) == 2


# Refusals -------------------------------------------------------------------------------------------------------------


def two_scales(layer: Layer) -> Graph:
    scale, points = np.full(16, 0.05, np.float32), np.zeros(16, np.int8)
    x = layer.DequantizeLinear(layer.inputs[0], scale, points, axis=1)
    return layer.done(layer.GlobalAveragePool(x))


def wrong_axis(layer: Layer) -> Graph:
    return layer.done(layer.Conv(layer.dequantized(layer.inputs[0]), layer.weight(16, 16, 1, 1, axis=1)))


def overflow(layer: Layer) -> Graph:
    w = layer.weight(16, 16, 1, 1)
    scales = w.producer.inputs[1].const * np.float32(0.05)
    b = layer.DequantizeLinear(np.full(16, 2**31 - 1, np.int32), scales, np.zeros(16, np.int32), axis=0)
    return layer.done(layer.Conv(layer.dequantized(layer.inputs[0]), w, b))


def padded_average(layer: Layer) -> Graph:
    x = layer.dequantized(layer.inputs[0])
    return layer.done(layer.AveragePool(x, kernel_shape=[2, 2], pads=[1, 1, 0, 0]))


def broadcast(layer: Layer) -> Graph:
    small = layer.GlobalAveragePool(layer.dequantized(layer.inputs[0]))
    small = layer.dequantized(layer.QuantizeLinear(small, np.float32(0.1), np.int8(0)))
    return layer.done(layer.Add(layer.dequantized(layer.inputs[0]), small))


def negative_scale(layer: Layer) -> Graph:
    return layer.done(layer.GlobalAveragePool(layer.dequantized(layer.inputs[0], -0.05)))


REFUSALS = {
    "channels": (lambda n: n.done(conv(n, channels=12)), "qconv: output channels must be a multiple of 16, got 12"),
    "scales": (two_scales, "activations have one scale, got 16"),
    "sign": (negative_scale, "scales are positive numbers, got -0.05"),
    "axis": (wrong_axis, "weights have one scale per output channel, got one along axis 1"),
    "overflow": (overflow, "which overflows the int32 accumulator"),
    "average": (padded_average, "every sum is divided by the same count, but padding makes the counts differ"),
    "broadcast": (broadcast, "operands must have equal shapes, got (2, 16, 9, 9) and (2, 16, 1, 1)"),
}


def test_a_scale_that_is_not_positive_is_refused_before_any_target_sees_it():
    layer = Layer(2, 16, 9, 9)
    with pytest.raises(tinycomp.TinycompError, match=r"a quantisation scale is not positive; .* found 0\.0"):
        layer.QuantizeLinear(layer.dequantized(layer.inputs[0]), np.float32(0), np.int8(0))


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_says_why_and_the_host_takes_the_layer(name: str):
    build, reason = REFUSALS[name]
    layer = Layer(2, 16, 9, 9)
    graph = build(layer)
    module = tinycomp.compile(graph, "npu_sim")
    told = [str(r) for host in module.report().hosts for r in host.reasons]
    assert any(reason in text for text in told), told
    data = layer.data()
    np.testing.assert_array_equal(module(*data), tinycomp.compile(graph, "host")(*data))


def test_an_activation_stays_with_the_layer_that_is_refused():
    """Alone it would cut the layer into a float32 product and a rounding, which round twice."""
    layer = Layer(2, 16, 9, 9)
    real = layer.Relu(layer.Conv(layer.dequantized(layer.inputs[0]), layer.weight(12, 16, 1, 1)))
    assert not tinycomp.compile(layer.done(real), "npu_sim").report().regions


def test_a_dense_layer_is_refused_by_its_outputs():
    layer = Layer(4, 20)
    w = layer.weight(10, 20)
    module = tinycomp.compile(layer.done(layer.Gemm(layer.dequantized(layer.inputs[0]), w, transB=1)), "npu_sim")
    (row,) = module.report().why("Gemm")
    assert "npu_sim.qdense: output channels must be a multiple of 16, got 10" in map(str, row.reasons)


@pytest.mark.parametrize(
    ("op", "dtype", "shapes", "attrs", "reason"),
    [
        ("Relu", "int8", [(2, 3)], {}, "Relu is float32 only, got int8"),
        ("Add", "float32", [(2, 3), (3,)], {}, "operands must have equal shapes, got (2, 3) and (3,)"),
        ("MaxPool", "float32", [(1, 3, 8)], {"kernel_shape": [2]}, "MaxPool has two spatial axes, got 1"),
        ("MaxPool", "float64", [(1, 3, 8, 8)], {"kernel_shape": [2, 2]}, "float32 or 8-bit only, got float64"),
        ("Softmax", "float32", [(2, 3)], {}, "no rule for Softmax"),
    ],
)
def test_operator_rules_say_why_not(op, dtype, shapes, attrs, reason):
    graph = Graph("op", opsets={"": 17})
    inputs = [graph.add_input(f"x{i}", TensorType(dtype, s)) for i, s in enumerate(shapes)]
    graph.set_outputs([graph.add(op, inputs, attrs, sources=["node"]).output])
    (row,) = tinycomp.compile(graph, "npu_sim").report().why("node")
    assert any(reason in str(r) for r in row.reasons), [str(r) for r in row.reasons]


def test_max_pool_with_indices_stays_on_the_host():
    graph = Graph("op", opsets={"": 17})
    x = graph.add_input("x", TensorType("float32", (1, 3, 8, 8)))
    node = graph.add("MaxPool", [x], {"kernel_shape": [2, 2]}, outputs=2, sources=["pool"])
    graph.set_outputs(node.outputs)
    (row,) = tinycomp.compile(graph, "npu_sim").report().why("pool")
    assert any("MaxPool returns no indices" in str(r) for r in row.reasons)


# Float32 layers -------------------------------------------------------------------------------------------------------


def test_float_layers_fuse_bias_and_activation():
    rng = np.random.default_rng(1)
    graph = Graph("net", opsets={"": 17})
    const = lambda *shape: graph.add_const(rng.standard_normal(shape).astype(np.float32))  # noqa: E731
    x = graph.add_input("x", TensorType("float32", (2, 3, 8, 8)))
    y = graph.add("Conv", [x, const(16, 3, 3, 3), const(16)], {"pads": [1] * 4}).output
    y = graph.add("Clip", [y, graph.add_const(np.float32(0)), graph.add_const(np.float32(6))]).output
    z = graph.add("Conv", [y, const(16, 16, 1, 1)]).output
    y = graph.add("Relu", [graph.add("Add", [y, z]).output]).output
    y = graph.add("MaxPool", [y], {"kernel_shape": [2, 2], "strides": [2, 2]}).output
    y = graph.add("Relu", [graph.add("Add", [graph.add("MatMul", [y, const(4, 32)]).output, const(32)]).output]).output
    graph.set_outputs([y])
    module = tinycomp.compile(graph, "npu_sim", verify=True, strict=True)
    (region,) = module.report().regions
    assert dict(region.composites) == {"npu_sim.conv": 2, "npu_sim.dense": 1}
    data = rng.standard_normal((2, 3, 8, 8)).astype(np.float32)
    np.testing.assert_allclose(module(data), tinycomp.compile(graph, "host")(data), rtol=1e-4, atol=1e-4)


def test_the_target_is_found_by_name():
    assert find("npu_sim") is TARGET


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize(("op", "composite"), [("QLinearConv", "qconv"), ("QLinearMatMul", "qdense")])
def test_a_quantised_product_runs_as_the_layer_that_it_stands_for(op: str, composite: str, dtype: str):
    layer = quantized_product(op, dtype=dtype)
    module = tinycomp.compile(layer.graph, "npu_sim", strict=True)
    report = module.report()
    assert [r.composites for r in report.regions] == [{f"npu_sim.{composite}": 1}]
    assert not report.hosts
    (x,) = layer.data()
    found, expected = module(x), tinycomp.compile(layer.graph, "host")(x)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    assert len(np.unique(expected)) > 20


def test_a_quantised_product_that_is_no_layer_of_the_device_stays_one_node():
    graph = quantized_product("QLinearConv", channels=12).graph
    Pipeline(partitioning_passes([TARGET])).run(graph)
    assert [n.op for n in graph.nodes] == ["QLinearConv"]
    remarks = [r for r in graph.remarks if r.stage == "expand-functions"]
    assert [(r.rule, r.reason) for r in remarks] == [
        ("definition of QLinearConv", "npu_sim.qconv: output channels must be a multiple of 16, got 12")
    ]


def test_a_kernel_that_does_not_fit_into_the_scratchpad_is_refused():
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"])]
    for size, taken in ((40, True), (50, False)):
        x, w = np.ones((1, 1, size, size), np.float32), np.ones((16, 1, size, size), np.float32)
        report = tinycomp.compile(make_model(nodes, {"x": x}, {"w": w}, ["y"]), "npu_sim").report()
        assert bool(report.regions) == taken
    (row,) = report.hosts
    assert "no tile of the convolution fits the scratchpad: 170064 bytes for the smallest, at most 131072" in str(
        row.reasons[0]
    )
