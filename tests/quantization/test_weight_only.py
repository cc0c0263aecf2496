"""Weights in 4 bits: the numbers that are chosen, the models that come out, and what cannot be asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import tinycomp
from tests.generation.decoders import Session, decoder
from tinycomp.data import digits_model
from tinycomp.errors import QuantizationError
from tinycomp.generation import Decoder, perplexity
from tinycomp.quantization.weight_only import BLOCKS, packed, quantize_blocks

RNG = np.random.default_rng()


@pytest.fixture(autouse=True)
def _same_numbers_for_every_test() -> None:
    RNG.bit_generator.state = np.random.default_rng(8).bit_generator.state


def weights(depth: int, columns: int, seed: int, dtype: Any = np.float32) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((depth, columns)) * rng.uniform(0.01, 2, columns) + rng.normal(0, 0.3)).astype(dtype)


def error(weight: np.ndarray, importance: np.ndarray | float = 1.0, **options: Any) -> np.ndarray:
    """The weighted squared error of every block and column."""
    block = options.pop("block", 16)
    restored = quantize_blocks(weight, block, **options).dequantize()
    behind = len(restored) - len(weight)
    missed = np.pad((restored[: len(weight)] - weight) ** 2 * importance, ((0, behind), (0, 0)))
    return missed.reshape(-1, block, weight.shape[1]).sum(axis=1)


SHAPES = {"depth": st.integers(1, 70), "columns": st.integers(1, 5), "seed": st.integers(0, 999)}


@settings(deadline=None, max_examples=60)
@given(symmetric=st.booleans(), weighed=st.booleans(), block=st.sampled_from(BLOCKS[:2]), **SHAPES)
def test_a_search_is_never_worse_than_the_nearest_number(depth, columns, seed, symmetric, weighed, block):
    weight = weights(depth, columns, seed)
    moments = np.random.default_rng(seed).uniform(0, 3, depth) ** 2 if weighed else None
    importance = 1.0 if moments is None else moments[:, np.newaxis]
    nearest = error(weight, importance, method="minmax", symmetric=symmetric, block=block)
    searched = error(weight, importance, method="mse", symmetric=symmetric, moments=moments, block=block)
    assert (searched <= nearest * (1 + 1e-5) + 1e-12).all()


def test_a_search_and_zero_points_pay():
    weight = weights(512, 64, 0)
    nearest, searched = (error(weight, method=m).sum() for m in ("minmax", "mse"))
    assert searched < 0.9 * nearest
    assert error(np.abs(weight), symmetric=False).sum() < 0.5 * error(np.abs(weight)).sum()


@settings(deadline=None, max_examples=40)
@given(symmetric=st.booleans(), **SHAPES)
def test_the_nearest_number_is_within_half_a_step_and_nothing_is_cut_off(depth, columns, seed, symmetric):
    weight = weights(depth, columns, seed)
    blocks = quantize_blocks(weight, 32, method="minmax", symmetric=symmetric)
    # The zero point is rounded, too: the ends of a range may be half a step further.
    steps = np.repeat(np.abs(blocks.scales), 32, axis=0)[:depth] * (0.5 if symmetric else 1.0)
    assert (np.abs(blocks.dequantize()[:depth] - weight) <= steps * (1 + 1e-5)).all()
    assert not symmetric or (blocks.zero_points == 8).all()


def test_weights_of_zero_stay_zero():
    for symmetric in (False, True):
        for method in ("minmax", "mse"):
            blocks = quantize_blocks(np.zeros((20, 3), np.float32), 16, method=method, symmetric=symmetric)
            assert not blocks.dequantize().any()


def test_numbers_lie_two_to_a_byte_the_first_in_the_lower_half():
    weight = weights(40, 3, 1)
    blocks = quantize_blocks(weight, 16, symmetric=False)
    numbers, scales, points = packed(blocks, symmetric=False)
    assert (numbers.shape, scales.shape, points.shape) == ((3, 3, 8), (3, 3), (3, 2))
    assert numbers[2, 1, 3] == blocks.numbers[1, 6, 2] | blocks.numbers[1, 7, 2] << 4
    assert points[2, 0] == blocks.zero_points[0, 2] | blocks.zero_points[1, 2] << 4
    assert points[2, 1] == blocks.zero_points[2, 2]


def correlated(rows: int, depth: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    directions = rng.standard_normal((depth // 4, depth))
    mixed = rng.standard_normal((rows, depth // 4)) @ directions
    return (mixed + 0.1 * rng.standard_normal((rows, depth))).astype(np.float32)


@pytest.mark.rows(3)
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(("depth", "block"), [(64, 16), (192, 32), (300, 128), (300, 256)])
def test_gptq_loses_less_on_data_that_move_together(depth, block, symmetric):
    weight, (x, unseen) = weights(depth, 24, 2), np.split(correlated(1200, depth, 3), 2)
    losses = {}
    for method, moments in {"minmax": None, "mse": (x**2).mean(axis=0), "gptq": x.T @ x / len(x)}.items():
        blocks = quantize_blocks(weight, block, method=method, symmetric=symmetric, moments=moments)
        losses[method] = np.square(unseen @ (blocks.dequantize()[:depth] - weight)).mean()
    assert losses["gptq"] < 0.5 * losses["mse"] < 0.5 * losses["minmax"] * 1.01


def test_gptq_survives_data_that_are_always_zero():
    weight, x = weights(48, 4, 4), correlated(100, 48, 5)
    x[:, 7] = 0
    blocks = quantize_blocks(weight, 16, method="gptq", moments=x.T @ x)
    assert np.isfinite(blocks.dequantize()).all()
    assert np.isfinite(quantize_blocks(weight, 16, method="gptq", moments=np.zeros((48, 48))).dequantize()).all()


def product(op: str = "MatMul", depth: int = 40, dtype: Any = np.float32, **attrs: Any) -> onnx.ModelProto:
    """One product, its weight behind a Transpose, and a Gemm's bias."""
    shape = (12, depth) if op == "MatMul" or attrs.get("transB") else (depth, 12)
    arrays = {"w": RNG.standard_normal(shape).astype(dtype), "b": RNG.standard_normal(12).astype(dtype)}
    nodes = [
        helper.make_node("Transpose", ["w"], ["t"], "turn"),
        helper.make_node("MatMul", ["x", "t"], ["y"], "dense"),
    ]
    if op == "Gemm":
        nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"], "dense", **attrs)]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    infos = [helper.make_tensor_value_info(n, kind, ["N", d]) for n, d in (("x", depth), ("y", 12))]
    stored = [numpy_helper.from_array(a, n) for n, a in arrays.items()]
    graph = helper.make_graph(nodes, "product", infos[:1], infos[1:], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def by_onnxruntime(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(
    "model",
    [product(), product(depth=64), product("Gemm"), product("Gemm", transB=1), product(depth=48, dtype=np.float16)],
    ids=["K not a multiple", "K a multiple", "Gemm", "Gemm transposed", "float16"],
)
def test_a_product_runs_alike_on_onnxruntime_and_tinycomp(model, symmetric):
    quantized = tinycomp.quantize(model, weights="int4", symmetric=symmetric)
    onnx.checker.check_model(quantized)
    ops = [node.op_type for node in quantized.graph.node]
    assert ops == ["MatMulNBits"] + ["Add"] * (model.graph.node[0].op_type == "Gemm")
    x = RNG.standard_normal((5, model.graph.input[0].type.tensor_type.shape.dim[1].dim_value))
    x = x.astype(helper.tensor_dtype_to_np_dtype(model.graph.input[0].type.tensor_type.elem_type))
    theirs, ours = by_onnxruntime(quantized, x), tinycomp.compile(quantized)(x)
    exact = by_onnxruntime(model, x)
    tolerance = 2e-2 if x.dtype == np.float16 else 1e-4
    np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)
    assert np.abs(theirs - exact).max() < 0.2 * np.abs(exact).max()
    node = quantized.graph.node[0]
    assert {a.name: a.i for a in node.attribute} == {"K": x.shape[1], "N": 12, "bits": 4, "block_size": 32}
    assert len(node.input) == (3 if symmetric else 4)


@pytest.mark.parametrize("symmetric", [False, True])
def test_products_may_round_their_data(symmetric):
    model = product("Gemm", depth=64)
    quantized = tinycomp.quantize(model, weights="int4", symmetric=symmetric, accuracy_level=4)
    onnx.checker.check_model(quantized)
    assert {a.name: a.i for a in quantized.graph.node[0].attribute}["accuracy_level"] == 4
    x = RNG.standard_normal((5, 64)).astype(np.float32)
    theirs, ours = by_onnxruntime(quantized, x), tinycomp.compile(quantized)(x)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-2 * np.abs(theirs).max())
    exact = by_onnxruntime(tinycomp.quantize(model, weights="int4", symmetric=symmetric), x)
    assert 0 < np.abs(ours - exact).max() < 2e-2 * np.abs(exact).max()


def test_a_decoder_generates_and_its_perplexity_is_near():
    model, text = decoder(), RNG.integers(0, 19, 60).tolist()
    module = tinycomp.compile(model)
    feeds = [Decoder(module).feeds(RNG.integers(0, 19, 40)) for _ in range(10)]
    before = np.log(perplexity(module, text))
    after = {}
    for method in ("minmax", "mse", "gptq"):
        quantized = tinycomp.quantize(model, feeds, weights="int4", method=method, block=16)
        assert [n.op_type for n in quantized.graph.node].count("MatMulNBits") == 13
        assert len(quantized.SerializeToString()) < len(model.SerializeToString())
        ours = tinycomp.compile(quantized)
        given = Decoder(module).feeds(text)
        theirs = Session(quantized).run(given)["logits"]
        np.testing.assert_allclose(ours.run(given)["logits"], theirs, rtol=1e-3, atol=1e-3)
        after[method] = np.square(theirs - module.run(given)["logits"]).mean()
        assert np.log(perplexity(ours, text)) == pytest.approx(before, rel=0.5)
        assert len(list(tinycomp.generate(ours, text[:5], max_new_tokens=4))) == 4
    assert after["gptq"] < after["mse"] < after["minmax"]


def test_products_can_stay_in_float():
    nodes = [n.name for n in decoder().graph.node if n.op_type == "MatMul"]
    quantized = tinycomp.quantize(decoder(), weights="int4", keep_float=[nodes[0], "last matmul"])
    kept = [n.name for n in quantized.graph.node if n.op_type == "MatMul"]
    assert {nodes[0], "logits"} <= set(kept)
    assert [n.op_type for n in quantized.graph.node].count("MatMulNBits") == 11


def test_weights_of_eight_bits_are_the_default_and_need_data():
    with pytest.raises(QuantizationError) as caught:
        tinycomp.quantize(digits_model())
    assert str(caught.value) == (
        "calibration: there is no calibration data; expected inputs that the model will see; found None. "
        'Give some, or quantise the weights alone: weights="int4".'
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": "int3"},
            'weights: the option does not take this value; expected "int8" or "int4"; found \'int3\'. Did you mean'),
        ({"block": 24}, "block: block cannot have this value; expected one of 16, 32, 64, 128, 256; found 24"),
        ({"accuracy_level": 5},
            "accuracy_level: accuracy_level cannot have this value; expected one of 0, 1, 2, 3, 4; found 5"),
        ({"weights": "int8", "accuracy_level": 4},
            "accuracy_level: accuracy_level does not go with these weights; expected 0; found 4. It is for weights="),
        ({"method": "entropy"},
            "method: method cannot have this value; expected one of minmax, mse, gptq; found 'entropy'"),
        (
            {"method": "gptq"},
            "calibration: there is no calibration data; expected data for method='gptq'; found None. "
            'Give inputs as the model will see them, or use method="mse".',
        ),
        (
            {"equalize": True},
            "equalize: equalize does not go with these weights; expected False; found True. "
            'It is for weights="int8", with activations.',
        ),
        ({"activations": "int8"}, "activations does not go with these weights; expected 'uint8'; found 'int8'"),
        ({"percentile": 99.0}, "percentile does not go with these weights; expected None; found 99.0"),
        ({"weights": "int8", "block": 64},
            'block: block does not go with these weights; expected 32; found 64. It is for weights="int4".'),
        ({"weights": "int8", "method": "gptq"},
            "method: method does not go with these weights; expected 'minmax'; found 'gptq'. It is for"),
        (
            {"keep_float": "MatMul"},
            "product: there is nothing to quantise; expected at least one MatMul or Gemm of floats with a constant "
            "matrix; found all of them kept in float",
        ),
        ({"calibration": np.array([object(), object()])},
            "calibration: not an iterable of inputs; expected arrays by name: x; found an array of shape [2]. Give an"),
        ({"calibration": [{"x": np.full((1, 40), 1e30, np.float32)}]},
            'calibration input 0, value "x": a value is not finite, or too large; expected finite numbers. Leave'),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_for(options, message):
    with pytest.raises(QuantizationError) as caught:
        tinycomp.quantize(product(), **{"weights": "int4"} | options)
    assert message in str(caught.value)


def test_a_weight_that_is_not_finite():
    model = product("Gemm")
    weight = numpy_helper.to_array(model.graph.initializer[0]).copy()
    weight[3, 4] = np.inf
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weight, "w"))
    with pytest.raises(QuantizationError) as caught:
        tinycomp.quantize(model, weights="int4")
    assert str(caught.value) == (
        'node dense, constant "w": a weight is not finite; expected finite numbers. '
        "Keep this layer in float: keep_float=."
    )


def test_a_model_without_products():
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "g", [info], [helper.make_empty_tensor_value_info("y")]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(QuantizationError, match=r"g: there is nothing to quantise; .*; found none"):
        tinycomp.quantize(model, weights="int4")
