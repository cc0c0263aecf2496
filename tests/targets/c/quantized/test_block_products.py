"""MatMulNBits with accuracy level 4 on the C target: data rounded to 8 bits in blocks, products of integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import tinycomp
from tests.targets.c.quantized.test_layers import kernels

K, N = 96, 40
KERNELS = ["quantize_blocks_f32", "gemm_blocks_f32"]


def nbits(
    *,
    bits: int = 4,
    block: int = 32,
    zeros: str = "",
    level: int = 4,
    bias: bool = False,
    added: bool = False,
    activation: str = "",
    count: int = 1,
    halves: bool = False,
    order: bool = False,
    depth: int = K,
    rows: tuple[int | str, ...] = ("batch", "rows"),
) -> ModelProto:
    """Products of the same data with several weights, each with what may follow it."""
    rng = np.random.default_rng(5)
    blocks = -(-depth // block)
    stored: dict[str, Any] = {}
    nodes, results = [], []
    for i in range(count):
        scales = rng.uniform(0.01, 0.1, (N, blocks)).astype(np.float16 if halves else np.float32)
        stored[f"w{i}"] = rng.integers(0, 256, (N, blocks, block * bits // 8), np.uint8)
        stored[f"s{i}"] = scales.astype(np.float32)
        operands = ["x", f"w{i}", f"s{i}", "", "", ""]
        if zeros:
            real = zeros == "float32"
            stored[f"z{i}"] = (
                rng.uniform(0, 2**bits, (N, blocks)).astype(np.float32)
                if real
                else rng.integers(0, 256, (N, -(-blocks * bits // 8)), np.uint8)
            )
            operands[3] = f"z{i}"
        if order:
            stored[f"g{i}"] = rng.integers(0, blocks, depth).astype(np.int32)
            operands[4] = f"g{i}"
        if bias:
            stored[f"b{i}"] = rng.standard_normal(N, np.float32)
            operands[5] = f"b{i}"
        while not operands[-1]:
            operands.pop()
        attrs = {"K": depth, "N": N, "bits": bits, "block_size": block, "accuracy_level": level}
        last = f"product{i}"
        nodes.append(helper.make_node("MatMulNBits", operands, [last], domain="com.microsoft", **attrs))
        if added:
            stored[f"a{i}"] = rng.standard_normal(N, np.float32)
            nodes.append(helper.make_node("Add", [last, f"a{i}"], [f"sum{i}"]))
            last = f"sum{i}"
        if activation:
            nodes.append(helper.make_node(activation, [last], [f"y{i}"]))
            last = f"y{i}"
        results.append(helper.make_tensor_value_info(last, TensorProto.FLOAT, None))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [*rows, depth])
    graph = helper.make_graph(nodes, "g", [x], results, [numpy_helper.from_array(v, k) for k, v in stored.items()])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def data(*rows: int, depth: int = K) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((*rows, depth), np.float32)


def peer(model: ModelProto, x: np.ndarray) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, {"x": x}))


def rounded(x: np.ndarray, block: int) -> np.ndarray:
    """What is left of data once every block of a row has 8 bits, in double precision."""
    blocks = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % block)]).reshape(*x.shape[:-1], -1, block)
    most = np.abs(blocks).max(axis=-1, keepdims=True)
    steps = np.rint(blocks * (np.float32(127) / most))
    return (steps * (most / np.float32(127)).astype(np.float64)).reshape(*x.shape[:-1], -1)[..., : x.shape[-1]]


@pytest.mark.parametrize(
    "options",
    [
        {}, {"bits": 8}, {"bits": 2}, {"block": 16}, {"block": 128}, {"block": 256}, {"zeros": "uint8"},
        {"zeros": "uint8", "bits": 2}, {"zeros": "uint8", "bits": 8}, {"halves": True}, {"bias": True}, {"added": True},
        {"activation": "Relu"}, {"activation": "Sigmoid", "added": True, "bias": True}, {"depth": 100},
    ],
    ids=str,
)  # fmt: skip
def test_is_what_onnxruntime_computes(options):
    model, x = nbits(**options), data(2, 3, depth=options.get("depth", K))
    module = tinycomp.compile(model, shapes={"x": x.shape})
    assert kernels(module) == KERNELS
    (region,) = module.report().regions
    assert region.integer_macs == 6 * x.shape[-1] * N
    (expected,) = peer(model, x)
    # onnxruntime multiplies codes of 8 bits in another way on some processors; the data are rounded alike.
    np.testing.assert_allclose(module(x), expected, rtol=0, atol=1e-2 * np.abs(expected).max())


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", ["", "uint8", "float32"])
def test_is_the_product_with_rounded_data(bits, zeros):
    x = data(2, 3)
    module = tinycomp.compile(nbits(bits=bits, zeros=zeros), shapes={"x": x.shape})
    assert kernels(module) == KERNELS
    floats = nbits(bits=bits, zeros=zeros, level=0)
    exact = tinycomp.compile(floats, target="host", shapes={"x": x.shape})(rounded(x, 32).astype(np.float32))
    np.testing.assert_allclose(module(x), exact, rtol=0, atol=2e-6 * np.abs(exact).max())


@pytest.mark.parametrize("rows", [(1, 1), (1, 7), (3, 40), (0, 4)], ids=str)
def test_any_number_of_rows_with_one_module(rows):
    model, x = nbits(), data(*rows)
    found = tinycomp.compile(model)(x)
    assert found.shape == (*rows, N)
    if x.size:
        np.testing.assert_allclose(found, peer(model, x)[0], rtol=0, atol=1e-2 * np.abs(found).max())


def test_products_of_the_same_data_round_it_once():
    model, x = nbits(count=3), data(2, 3)
    for node in model.graph.node:
        node.input[0] = "seen"
    model.graph.node.insert(0, helper.make_node("Relu", ["x"], ["seen"]))
    module = tinycomp.compile(model, shapes={"x": x.shape})
    assert kernels(module) == ["elementwise", KERNELS[0], *[KERNELS[1]] * 3]
    for found, expected in zip(module(x), peer(model, x), strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-2 * np.abs(expected).max())


@pytest.mark.parametrize("halves", [False, True])
def test_scales_are_kept_in_half_the_bytes_where_that_loses_nothing(halves):
    module = tinycomp.compile(nbits(halves=halves), shapes={"x": (2, 3, K)})
    (program,) = [step.run.native.program for step in module._parts.plan.steps]
    assert any(constant.dtype == np.float16 for constant in program.constants) == halves


@pytest.mark.parametrize(
    "options", [{"level": 0}, {"level": 1}, {"order": True}, {"block": 512, "depth": 512}], ids=str
)
def test_what_asks_for_more_accuracy_or_has_another_form_is_computed_in_float(options):
    model = nbits(**options)
    depth = options.get("depth", K)
    module = tinycomp.compile(model, shapes={"x": (2, 3, depth)})
    assert "gemm_blocks_f32" not in kernels(module)
    x = data(2, 3, depth=depth)
    expected = tinycomp.compile(model, target="host", shapes={"x": x.shape})(x)
    np.testing.assert_allclose(module(x), expected, rtol=0, atol=1e-5 * np.abs(expected).max())
