"""Models quantised for a target obey its rules, and what they cannot obey stays in float."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import tinycomp
from tests.quantization.networks import Network, Picture, by_onnxruntime, decibels, images, residual
from tinycomp.data import digits, digits_model
from tinycomp.errors import QuantizationError
from tinycomp.quantization import violations
from tinycomp.target import QuantizationCheck, QuantizationRule, QuantizedLayer, Target
from tinycomp.target_api import reject

OPERATORS = ("Add", "Clip", "Concat", "Conv", "Flatten", "Gemm", "GlobalAveragePool", "MaxPool", "Relu", "Reshape")


def target(**rules: QuantizationRule) -> Target:
    """A target with a rule for every operator: int8, but for those given."""
    made = Target("npu")
    for op in OPERATORS:
        made.quantization(op)(rules.get(op, rules.get("every", QuantizationRule(activations=("int8",)))))
    return made


def quantized(npu: Target, model: onnx.ModelProto | None = None, **options: Any) -> Picture:
    """Quantise, and make sure that rules and numbers hold."""
    model = model or residual()
    made = tinycomp.quantize(model, images(), target=npu, **options)
    assert violations(made, npu) == []
    exact = tinycomp.compile(model, "host")(images()[0])
    assert decibels(exact, by_onnxruntime(made, {"x": images()[0]})[0]) > 15
    return Picture(made)


def dtypes(picture: Picture, op: str) -> set[str]:
    return {picture.constants[n.input[2]].dtype.name for n in picture.nodes if n.op_type == op}


def test_the_first_dtype_is_written_unless_another_is_asked_for():
    either = QuantizationRule()
    assert dtypes(quantized(target(every=either)), "QuantizeLinear") == {"int8"}
    assert dtypes(quantized(target(every=either), activations="uint8"), "QuantizeLinear") == {"uint8"}


def test_operators_without_a_rule_stay_in_float():
    npu = target()
    del npu._quantization["GlobalAveragePool"], npu._quantization["Reshape"]
    picture = quantized(npu)
    assert picture.is_quantized("last")
    mean = picture.node("mean")
    assert picture.maker[mean.input[0]].op_type == "DequantizeLinear"
    assert [node.op_type for node in picture.readers[mean.output[0]]] == ["Reshape"]


def test_layers_of_16_bits_are_rounded_again_between_others():
    wide = QuantizationRule(activations=("int16",), symmetric=("activations", "weights"))
    picture = quantized(target(Gemm=wide, Conv=wide))
    assert dtypes(picture, "QuantizeLinear") == {"int8", "int16"}
    for name, dtype in (("first", "int16"), ("add", "int8"), ("pool", "int8"), ("dense", "int16")):
        assert picture.affine(picture.data_of(name))[1].dtype == dtype
    again = [n for n in picture.nodes if n.op_type == "QuantizeLinear" and n.input[0] in picture.maker]
    assert sum(picture.maker[n.input[0]].op_type == "DequantizeLinear" for n in again) == 5
    zeros = {int(picture.affine(n)[1]) for n in picture.nodes if picture.ops and n.op_type == "QuantizeLinear"
             and picture.affine(n)[1].dtype == np.int16}  # fmt: skip
    assert zeros == {0}


def test_scales_are_powers_of_two_per_tensor_and_not_too_small():
    rule = QuantizationRule(
        activations=("int8",), per_channel=False, power_of_two=("activations", "weights"), least_scale=2**-6
    )
    picture = quantized(target(every=rule), method="mse")
    scales = [picture.affine(n)[0] for n in picture.nodes if n.op_type == "QuantizeLinear"]
    scales += [picture.affine(picture.maker[picture.node(name).input[1]])[0] for name in ("first", "dense")]
    for scale in scales:
        assert scale.shape == ()
        assert np.frexp(scale)[0] == 0.5
        assert scale >= 2**-6


def test_an_addition_may_ask_for_equal_scales():
    picture = quantized(target(Add=QuantizationRule(activations=("int8",), equal_scales=True)))
    node = picture.node("add")
    after = picture.readers[node.output[0]][0]
    result = picture.result_of("add_relu") if after.op_type == "Relu" else after
    conversions = [*(picture.maker[name] for name in node.input), result]
    assert len({tuple(float(p) for p in picture.affine(node)) for node in conversions}) == 1


def test_what_may_not_be_fused_is_a_layer_of_its_own():
    picture = quantized(target(Conv=QuantizationRule(activations=("int8",), fused=("Relu",))))
    assert [n.op_type for n in picture.readers[picture.node("depthwise").output[0]]] == ["QuantizeLinear"]
    assert [n.op_type for n in picture.readers[picture.node("first").output[0]]] == ["QuantizeLinear"]
    assert picture.ops["Clip"] == 1


def test_biases_may_stay_real():
    picture = quantized(target(Conv=QuantizationRule(activations=("int8",), bias=("float32",))))
    assert picture.constants[picture.node("first").input[2]].dtype == np.float32


def test_scales_of_results_grow_until_checks_agree():
    def even(layer: QuantizedLayer) -> Any:
        return all(p.scale[0] > 1.05 * layer.data[0].scale[0] for p in layer.results) or reject("too fine")

    npu = target(MaxPool=QuantizationRule(), Add=QuantizationRule(("int8",), checks=(QuantizationCheck(even),)))
    net = Network(2, 3, 8, 8)
    x = net.conv(net.x, 4, name="first")
    quiet = net.op("Clip", net.conv(net.x, 4), *(net.graph.add_const(np.float32(end)) for end in (-0.01, 0.01)))
    model = net.done(net.conv(net.op("Add", x, quiet, name="add"), 4, name="last"))
    picture = quantized(npu, model)
    assert picture.is_quantized("add")
    data, result = (picture.affine(n)[0] for n in (picture.data_of("add"), picture.result_of("add")))
    assert 1.05 * data < result < 1.2 * data


def test_what_no_scale_helps_stays_in_float():
    never = QuantizationCheck(lambda layer: reject("not this one") if layer.core.op == "Gemm" else True)
    npu = target(Gemm=QuantizationRule(activations=("int8",), checks=(never,)))
    picture = quantized(npu)
    assert picture.is_quantized("last")
    assert picture.constants[picture.node("dense").input[1]].dtype == np.float32


def test_a_stack_of_matrices_has_no_scale_per_channel_and_stays_in_float():
    npu = target()
    npu.quantization("MatMul")(QuantizationRule(activations=("int8",), per_channel=True))
    net = Network(2, 3, 4)
    x = net.op("MatMul", net.x, net.const(4, 5), name="plain")
    model = net.done(net.op("MatMul", x, net.const(2, 5, 6), name="stack"))
    data = [np.random.default_rng(seed).standard_normal((2, 3, 4)).astype(np.float32) for seed in range(2)]
    made = tinycomp.quantize(model, data, target=npu)
    assert violations(made, npu) == []
    picture = Picture(made)
    assert picture.is_quantized("plain")
    assert picture.constants[picture.node("stack").input[1]].dtype == np.float32


def test_what_cannot_be_asked_for():
    cases = [
        ({"target": "c"}, "target c: the target says nothing about quantisation"),
        ({"target": target(), "activations": "uint8"}, "activations cannot have this value; expected one of int8"),
        ({"target": target(Conv=QuantizationRule(weights=("uint8",)))}, "npu, Conv: the target wants weights that are"),
        (
            {"target": target(Conv=QuantizationRule(per_channel=True)), "per_channel": False},
            "npu, Conv: the target wants a scale for each output channel; expected per_channel=True",
        ),
        ({"target": "tosa", "weights": "int4"}, "target does not go with these weights"),
    ]
    for options, message in cases:
        with pytest.raises(QuantizationError, match=message):
            tinycomp.quantize(residual(), images(), **options)


def test_the_digits_obey_an_npu():
    seen, labels = digits()
    name = "ethos_u:accelerator=ethos-u85-256"
    model = tinycomp.quantize(digits_model(), [seen[:50]], target=name)
    assert violations(model, name) == []
    assert dtypes(Picture(model), "QuantizeLinear") == {"int8"}
    assert (by_onnxruntime(model, {"image": seen})[0].argmax(axis=1) == labels).mean() > 0.97
