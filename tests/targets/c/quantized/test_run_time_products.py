"""Products of two 8-bit matrices that come in at run time, and the transformers that are made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import tinycomp
from tests.quantization.networks import Network, by_onnxruntime
from tests.targets.c.harness import Case, compile_for
from tests.targets.c.quantized.test_layers import kernels
from tests.targets.quantized_arithmetic import by_fixed_point, evaluate
from tests.targets.quantized_layers import Layer
from tinycomp.errors import FeedError
from tinycomp.ir import Graph, TensorType
from tinycomp.ops.typing import infer_node_types
from tinycomp.runtime.module import Module
from tinycomp.targets.c import TARGET

RNG = np.random.default_rng(11)
SHAPES = {
    "matrices": ((4, 6), (6, 3)),
    "heads": ((2, 3, 5, 17), (2, 3, 17, 9)),
    "one matrix for all": ((2, 3, 5, 17), (17, 9)),
    "broadcast": ((2, 1, 3, 4), (1, 5, 4, 2)),
    "row": ((5,), (5, 4)),
    "column": ((2, 3, 4), (4,)),
    "many batches": ((2, 2, 2, 3, 4), (4, 5)),
}


def stored(dtype: str, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, endpoint=True).astype(dtype)


def product(dtypes: tuple[str, str], shapes: Any, real: bool = False, clamp: bool = False) -> Graph:
    """A MatMul of dequantised inputs ``a`` and ``b``, quantised again unless it is to stay real."""
    graph = Graph("net", infer=infer_node_types, opsets={"": 17})
    const = lambda array: graph.add_const(np.asarray(array))  # noqa: E731
    factors = []
    for name, dtype, shape, scale, point in zip("ab", dtypes, shapes, (0.02, 0.03), (3, 100), strict=True):
        x = graph.add_input(name, TensorType(dtype, shape))
        operands = [x, const(np.float32(scale)), const(np.array(point, dtype))]
        factors.append(graph.add("DequantizeLinear", operands).output)
    y = graph.add("MatMul", factors).output
    if clamp:
        y = graph.add("Relu", [y]).output
    if not real:
        y = graph.add("QuantizeLinear", [y, const(np.float32(0.21)), const(np.array(9, dtypes[0]))]).output
    graph.set_outputs([y])
    return graph


def feeds_of(graph: Graph) -> dict[str, np.ndarray]:
    return {v.name: stored(v.type.dtype, *v.type.shape) for v in graph.inputs}


def run_in_integers(graph: Graph, feeds: dict[str, np.ndarray], **options: Any) -> tuple[Module, np.ndarray]:
    module = tinycomp.compile(graph, "c", strict=True, **options)
    (result,) = module.run(feeds).values()
    assert module.report().totals["integer_macs"]["share"] == 1.0
    return module, result


@pytest.mark.parametrize("real", [False, True], ids=["quantised", "real"])
@pytest.mark.parametrize("dtypes", [("uint8", "uint8"), ("int8", "int8"), ("uint8", "int8"), ("int8", "uint8")])
@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_a_product_has_the_documented_bits(shapes: Any, dtypes: tuple[str, str], real: bool):
    graph = product(dtypes, shapes, real)
    feeds = feeds_of(graph)
    module, found = run_in_integers(graph, feeds)
    (region,) = module.report().regions
    assert region.composites == {"c.qmatmul_real" if real else "c.qmatmul": 1}
    (wanted,) = evaluate(graph, TARGET, feeds)
    np.testing.assert_array_equal(found, wanted)
    if dtypes == ("uint8", "uint8"):  # what onnxruntime has an exact kernel for
        (peer,) = by_onnxruntime(tinycomp.to_onnx(graph), feeds, optimised=True)
        np.testing.assert_allclose(found, peer, rtol=1e-6)


def test_an_activation_narrows_the_range():
    graph = product(("uint8", "uint8"), SHAPES["heads"], clamp=True)
    feeds = feeds_of(graph)
    _, found = run_in_integers(graph, feeds)
    (wanted,) = evaluate(graph, TARGET, feeds)
    np.testing.assert_array_equal(found, wanted)
    assert found.min() == 9  # the zero point


def test_the_fixed_point_rule():
    graph = product(("uint8", "int8"), SHAPES["heads"])
    feeds = feeds_of(graph)
    _, found = run_in_integers(graph, feeds, options={"c": {"requantize": "fixed_point"}})
    (wanted,) = evaluate(graph, TARGET, feeds, by_fixed_point)
    np.testing.assert_array_equal(found, wanted)


def test_a_stack_of_constant_matrices_is_multiplied_in_integers():
    layer = Layer(2, 4, 6)
    w = layer.value(stored("int8", 2, 6, 5))
    y = layer.MatMul(layer.dequantized(layer.inputs[0]), layer.dequantized(w, 0.01, 0))
    graph = layer.done(y, 0.3)
    (data,) = layer.data()
    module, found = run_in_integers(graph, {"x0": data})
    assert "qmatmul" in kernels(module)
    np.testing.assert_array_equal(found, evaluate(graph, TARGET, {"x0": data})[0])


def test_sums_that_may_leave_int32_stay_in_float32():
    graph = product(("uint8", "uint8"), ((1, 60_000), (60_000, 1)))
    assert "qmatmul" not in kernels(tinycomp.compile(graph, "c"))


def test_a_depth_that_is_known_too_late_is_refused():
    module = tinycomp.compile(product(("uint8", "uint8"), ((1, "k"), ("k", 1))), "c")
    short, long = (product(("uint8", "uint8"), ((1, depth), (depth, 1))) for depth in (40, 60_000))
    feeds = feeds_of(short)
    np.testing.assert_array_equal(module(*feeds.values()), evaluate(short, TARGET, feeds)[0])
    with pytest.raises(FeedError, match=r"sums of more than .* 8-bit products may leave int32"):
        module(*feeds_of(long).values())


# Operators ------------------------------------------------------------------------------------------------------------


def operator(op: str, *operands: Any) -> Case:
    return Case(op, [np.asarray(x) if x is not None else None for x in operands], rtol=0, atol=0)


OPERATORS = [
    operator("MatMulInteger", stored("uint8", 2, 3, 20), stored("int8", 2, 20, 9)),
    operator("MatMulInteger", stored("int8", 3, 20), stored("uint8", 20, 9), stored("int8"), stored("uint8", 1)),
    operator("MatMulInteger", stored("int8", 4, 3, 20), stored("int8", 20, 9), stored("int8", 1), stored("int8", 9)),
]
QLINEAR = [
    (stored("uint8", 2, 3, 20), stored("int8", 2, 20, 9), np.float32(0.02), stored("int8")),
    (stored("int8", 3, 20), stored("uint8", 20, 9), RNG.uniform(0.01, 0.03, 9).astype(np.float32), stored("uint8", 9)),
]


@pytest.mark.parametrize("case", OPERATORS, ids=str)
def test_integer_products_of_run_time_operands_are_one_call(case: Case):
    model = case.model()
    module = compile_for(model, strict=True)
    assert kernels(module) == ["qmatmul"]
    for found, wanted in zip(
        module.run(case.feeds).values(), compile_for(model, "host").run(case.feeds).values(), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("known", [True, False], ids=["known scales", "run-time scales"])
@pytest.mark.parametrize(("x", "w", "scale", "point"), QLINEAR, ids=["one scale", "scale per column"])
def test_qlinear_products_of_run_time_weights(x: Any, w: Any, scale: Any, point: Any, known: bool):
    names = ("x", "x_scale", "x_point", "w", "w_scale", "w_point", "y_scale", "y_point")
    arrays = (x, np.float32(0.03), stored(x.dtype.name), w, scale, point, np.float32(2.1), stored(x.dtype.name))
    graph = Graph("net", infer=infer_node_types, opsets={"": 17})
    feeds, operands = {}, []
    for name, array in zip(names, map(np.asarray, arrays), strict=True):
        if name in ("x", "w") or not known:
            operands.append(graph.add_input(name, TensorType(array.dtype.name, array.shape)))
            feeds[name] = array
        else:
            operands.append(graph.add_const(array, name))
    graph.set_outputs([graph.add("QLinearMatMul", operands).output])
    module = tinycomp.compile(graph, "c", strict=True)
    assert kernels(module).count("qmatmul") == 1
    (found,) = module.run(feeds).values()
    (wanted,) = tinycomp.compile(graph, "host").run(feeds).values()
    np.testing.assert_array_equal(found, wanted)
    assert len(np.unique(wanted)) > 10


def test_zero_points_per_row_are_computed_by_definition():
    case = operator("MatMulInteger", stored("uint8", 3, 20), stored("int8", 20, 9), stored("uint8", 3))
    module = compile_for(case.model(), strict=True)
    (found,) = module.run(case.feeds).values()
    np.testing.assert_array_equal(found, *compile_for(case.model(), "host").run(case.feeds).values())
    assert "qmatmul" not in kernels(module)


# Transformers ---------------------------------------------------------------------------------------------------------

WIDTH, HEADS = 24, 3


def attention(net: Network, x: Any) -> Any:
    split = net.graph.add_const(np.array([0, 0, HEADS, WIDTH // HEADS]))
    q, k, v = (
        net.op("Transpose", net.op("Reshape", net.op("MatMul", x, net.const(WIDTH, WIDTH, spread=0.3)), split), perm=p)
        for p in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    )
    shares = net.op("Softmax", net.op("MatMul", q, k), axis=-1)
    mixed = net.op("Transpose", net.op("MatMul", shares, v), perm=[0, 2, 1, 3])
    joined = net.op("Reshape", mixed, net.graph.add_const(np.array([0, 0, WIDTH])))
    return net.op("MatMul", joined, net.const(WIDTH, WIDTH, spread=0.2))


def transformer(*shape: int | str) -> onnx.ModelProto:
    """Two layers of attention and a perceptron, with layer normalisations between them."""
    net = Network(*shape)
    x = net.x
    for _ in range(2):
        ones, zeros = (net.graph.add_const(np.full(WIDTH, n, np.float32)) for n in (1, 0))
        x = net.op("LayerNormalization", net.op("Add", x, attention(net, x)), ones, zeros)
        hidden = net.op("Relu", net.op("MatMul", x, net.const(WIDTH, 2 * WIDTH, spread=0.2)))
        y = net.op("MatMul", hidden, net.const(2 * WIDTH, WIDTH, spread=0.2))
        x = net.op("LayerNormalization", net.op("Add", x, y), ones, zeros)
    return net.done(x)


def sequences(count: int, *shape: int) -> list[np.ndarray]:
    return [RNG.standard_normal(shape).astype(np.float32) for _ in range(count)]


@pytest.mark.parametrize("activations", ["uint8", "int8"])
@pytest.mark.parametrize("length", [10, "length"], ids=["fixed", "symbolic"])
def test_all_products_of_a_quantised_transformer_are_integer_ones(activations: str, length: int | str):
    samples = sequences(4, 2, 10, WIDTH)
    model = tinycomp.quantize(transformer(2, length, WIDTH), samples, activations=activations)
    module = tinycomp.compile(model, "c", strict=True)
    report = module.report()
    (region,) = report.regions
    assert region.composites["c.qmatmul"] == 4
    assert report.totals["integer_macs"]["share"] == 1.0
    found = module(samples[0])
    (wanted,) = evaluate(model, TARGET, {"x": samples[0]})
    np.testing.assert_allclose(found, wanted, atol=0.2)  # a step behind a softmax makes a few of them


def test_dynamically_quantised_products_are_packed(tmp_path: Path):
    """What onnxruntime's quantize_dynamic makes of a transformer runs in one region, with weights packed in 8 bits."""
    quantization = pytest.importorskip("onnxruntime.quantization")
    path = tmp_path / "model.onnx"
    options = {"weight_type": quantization.QuantType.QInt8, "extra_options": {"MatMulConstBOnly": True}}
    quantization.quantize_dynamic(transformer(2, "length", WIDTH), path, reduce_range=True, **options)
    module = tinycomp.compile(path, "c", strict=True)
    assert len(module.report().regions) == 1
    assert not module.report().hosts
    (data,) = sequences(1, 2, 10, WIDTH)
    found = module(data)
    static = tinycomp.compile(path, "c", strict=True, shapes={"x": data.shape})
    assert kernels(static).count("qgemm") == 12
    assert kernels(static).count("quantize_f32") == 8
    (wanted,) = by_onnxruntime(onnx.load(path), {"x": data}, optimised=True)
    np.testing.assert_allclose(found, wanted, atol=0.1)
    np.testing.assert_array_equal(found, static(data))
