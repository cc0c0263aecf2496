"""Where the conversions lie, and that their scales are what operators demand."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import tinycomp
from tests.quantization.networks import CONVERSIONS, Network, Picture, by_onnxruntime, decibels, images, residual


def quantized(model: onnx.ModelProto, channels: int = 3, **options) -> Picture:
    return Picture(tinycomp.quantize(model, images(channels=channels), **options))


def test_the_whole_network():
    picture = quantized(residual())
    for name in ("first", "depthwise", "point", "pool", "last", "mean", "flatten", "dense"):
        assert picture.is_quantized(name), name
    # The input, and every layer up to the Softmax; Relu and Clip have none of their own, because they are gone.
    assert picture.ops["QuantizeLinear"] == 10
    assert not picture.ops["Relu"] + picture.ops["Clip"]
    softmax = picture.node("softmax")
    assert picture.maker[softmax.input[0]].op_type == "DequantizeLinear"
    assert list(softmax.output) == picture.outputs == ["y0"]


def test_every_reader_has_a_conversion_of_its_own():
    picture = quantized(residual())
    for node in picture.nodes:
        if node.op_type == "DequantizeLinear":
            assert len(picture.readers[node.output[0]]) == 1


def test_weights_and_biases():
    picture = quantized(residual())
    for name, axis, channels in (("first", 0, 8), ("depthwise", 0, 8), ("dense", 1, 5)):
        node = picture.node(name)
        weight, bias = (picture.maker[operand] for operand in node.input[1:])
        scale, zero = picture.affine(weight)
        assert picture.constants[weight.input[0]].dtype == np.int8
        assert scale.shape == zero.shape == (channels,)
        assert weight.attribute[0].i == axis
        data, _ = picture.affine(picture.data_of(name))
        assert picture.constants[bias.input[0]].dtype == np.int32
        np.testing.assert_array_equal(picture.affine(bias)[0], data * scale)


def test_one_scale_per_weight():
    picture = quantized(residual(), per_channel=False)
    weight, bias = (picture.maker[operand] for operand in picture.node("first").input[1:])
    assert picture.affine(weight)[0].shape == ()
    assert picture.affine(bias)[0].shape == ()
    assert picture.constants[bias.input[0]].shape == (8,)


@pytest.mark.parametrize(("reduce", "limit"), [(False, 127), (True, 64)])
def test_reduced_weights(reduce, limit):
    picture = quantized(residual(), reduce_range=reduce)
    weights = [a for a in picture.constants.values() if a.dtype == np.int8 and a.ndim > 1]
    assert max(np.abs(w.astype(int)).max() for w in weights) == limit


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_symmetric_activations_keep_the_relu(dtype):
    picture = quantized(residual(), activations=dtype, symmetric=True)
    zeros = {int(picture.affine(n)[1]) for n in picture.nodes if n.op_type == "QuantizeLinear"}
    assert zeros == {128 if dtype == "uint8" else 0}
    assert picture.ops["Relu"] == 2
    assert picture.ops["Clip"] == 1


def test_int8_activations_fold_the_relu_too():
    picture = quantized(residual(), activations="int8")
    assert not picture.ops["Relu"]
    assert int(picture.affine(picture.result_of("first"))[1]) == -128


def test_a_clip_that_cuts_off_less_than_the_range_stays():
    net = Network(2, 3, 8, 8)
    one = net.graph.add_const(np.float32(1)), net.graph.add_const(np.float32(-1))
    y = net.op("Clip", net.conv(net.x, 4), one[1], one[0])
    z = net.op("Concat", y, net.conv(net.x, 4), axis=1)
    assert quantized(net.done(net.conv(z, 4))).ops["Clip"] == 1


def test_operators_that_move_numbers_share_scales():
    net = Network(2, 3, 8, 8)
    small, large = net.conv(net.x, 4, name="small"), net.conv(net.x, 4, name="large")
    large = net.op("Relu", net.op("Add", large, net.const(4, 1, 1, spread=5), name="shifted"))
    x = net.op("Concat", small, large, axis=1, name="concat")
    x = net.op("Transpose", x, perm=[0, 1, 3, 2], name="transpose")
    x = net.op("MaxPool", x, kernel_shape=[2, 2], name="pool")
    picture = quantized(net.done(net.conv(x, 4, name="last")))
    sources = [picture.maker[name] for name in picture.node("concat").input]
    results = [picture.result_of(name) for name in ("concat", "transpose", "pool")]
    assert len({tuple(float(p) for p in picture.affine(n)) for n in [*sources, *results]}) == 1


def test_batch_normalisations_are_folded():
    net = Network(2, 3, 8, 8)
    x = net.conv(net.x, 4, bias=False)
    parts = [net.graph.add_const(np.float32([0.5, 1, 2, 3]) + i) for i in range(4)]
    assert not quantized(net.done(net.op("BatchNormalization", x, *parts))).ops["BatchNormalization"]


def test_a_product_of_rows_with_a_bias():
    net = Network(2, 6, 8)
    x = net.op("MatMul", net.x, net.const(8, 16), name="product")
    x = net.op("Relu", net.op("Add", net.const(16), x, name="bias"), name="relu")
    graph = net.done(net.op("MatMul", x, net.const(16, 4), name="second"))
    data = [np.random.default_rng(0).standard_normal((2, 6, 8)).astype(np.float32)]
    model = tinycomp.quantize(graph, data)
    picture = Picture(model)
    assert picture.ops["QuantizeLinear"] == 3
    bias = next(picture.maker[n] for n in picture.node("bias").input if picture.maker[n].op_type == "DequantizeLinear")
    assert picture.constants[bias.input[0]].dtype == np.int32
    exact = tinycomp.compile(graph, "host")(data[0])
    assert decibels(exact, by_onnxruntime(model, {"x": data[0]})[0]) > 30


def test_products_of_two_activations_and_an_inner_softmax():
    net = Network(2, 6, 8)
    q, k, v = (net.op("MatMul", net.x, net.const(8, 8), name=name) for name in "qkv")
    scores = net.op("MatMul", q, net.op("Transpose", k, perm=[0, 2, 1]), name="scores")
    mixed = net.op("MatMul", net.op("Softmax", scores, axis=-1, name="softmax"), v, name="mixed")
    graph = net.done(net.op("MatMul", mixed, net.const(8, 8), name="out"))
    data = [np.random.default_rng(0).standard_normal((2, 6, 8)).astype(np.float32)]
    model = tinycomp.quantize(graph, data)
    assert Picture(model).is_quantized("softmax")
    exact = tinycomp.compile(graph, "host")(data[0])
    assert decibels(exact, by_onnxruntime(model, {"x": data[0]})[0]) > 20


def test_what_has_no_rule_stays_in_float_and_reads_what_it_read():
    net = Network(2, 3, 8, 8)
    x = net.conv(net.op("Erf", net.x, name="before"), 4, name="conv")
    y = net.op("Erf", x, name="after")
    picture = quantized(net.done(y, net.op("Neg", net.x, name="side")))
    assert picture.ops["QuantizeLinear"] == 2
    assert list(picture.node("before").input) == list(picture.node("side").input) == ["x"]
    assert picture.maker[picture.node("after").input[0]].op_type == "DequantizeLinear"


def test_moves_between_float_layers_stay_in_float():
    net = Network(2, 3, 8, 8)
    x = net.op("Transpose", net.op("Erf", net.x), perm=[0, 1, 3, 2], name="moved")
    y = net.op("Erf", x)
    graph = net.done(y, net.conv(y, 4, name="conv"))
    assert not quantized(graph).is_quantized("moved")


def test_a_result_that_is_read_inside_too_keeps_its_name():
    net = Network(2, 3, 8, 8)
    x = net.conv(net.x, 4, name="one")
    graph = net.done(x, net.conv(x, 4, name="two"))
    model = tinycomp.quantize(graph, images())
    exact = tinycomp.compile(graph, "host").run({"x": images()[0]})
    for name, array in zip(("y0", "y1"), by_onnxruntime(model, {"x": images()[0]}), strict=True):
        assert decibels(exact[name], array) > 30
    assert [v.name for v in model.graph.output] == ["y0", "y1"]


def test_a_split_has_several_results():
    net = Network(2, 4, 8, 8, opset=13)
    halves = net.graph.add("Split", [net.conv(net.x, 8)], {"axis": 1}, outputs=["l", "r"], sources=["split"])
    graph = net.done(net.conv(halves.outputs[0], 4), net.conv(halves.outputs[1], 4))
    picture = quantized(graph, channels=4)
    for half in picture.node("split").output:
        assert [n.op_type for n in picture.readers[half]] == ["QuantizeLinear"]


def test_no_conversion_is_superfluous():
    """No QuantizeLinear reads a DequantizeLinear, in whatever mixture."""
    for kept in ((), "last 2 conv", ["first", "dense"], "Add", "MaxPool", "mean"):
        picture = quantized(residual(), keep_float=kept)
        for node in picture.nodes:
            if node.op_type == "QuantizeLinear":
                made = picture.maker.get(node.input[0])
                assert made is None or made.op_type not in CONVERSIONS
