"""Quantisation rules of a target: what they say, what they refuse, and what would mend it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import tinycomp
from tinycomp.errors import TargetError
from tinycomp.ir import Graph, Node, TensorType, Value
from tinycomp.passes.check_quantization import CheckQuantization
from tinycomp.target import QuantizationCheck, QuantizationRule, QuantizedLayer, Target, find, violations
from tinycomp.target_api import P, patterns, reject

RULE = QuantizationRule(activations=("int8",), weights=("int8",))


class Model:
    """Quantised layers, one after another, on data of int8 with the scale 0.5."""

    def __init__(self, *shape: int, dtype: str = "int8", scale: float = 0.5, point: int = 0) -> None:
        self.graph = Graph("model", opsets={"": 21})
        self.parameters = (dtype, scale, point)
        self.x = self.graph.add_input("x", TensorType(dtype, shape))

    def conversion(self, op: str, value: Value, dtype: str, scale: Any, point: int, **attrs: Any) -> Value:
        scales = np.float32(scale)
        numbers = [self.graph.add_const(scales), self.graph.add_const(np.full(scales.shape, point, dtype))]
        return self.graph.add(op, [value, *numbers], attrs).output

    def real(self, value: Value | None = None, dtype: str = "", scale: Any = 0.0, point: int = 0) -> Value:
        own = (dtype, scale, point) if dtype else self.parameters
        return self.conversion("DequantizeLinear", value or self.x, *own)

    def constant(self, array: np.ndarray, scale: Any = 0.25, point: int = 0, axis: int = 0) -> Value:
        held = self.graph.add_const(array)
        return self.conversion("DequantizeLinear", held, array.dtype.name, scale, point, axis=axis)

    def store(self, value: Value, dtype: str = "int8", scale: float = 1.0, point: int = 0) -> Value:
        stored = self.conversion("QuantizeLinear", value, dtype, scale, point)
        self.graph.set_outputs([stored], ["y"])
        return stored

    def op(self, op: str, *inputs: Value, **attrs: Any) -> Value:
        return self.graph.add(op, inputs, attrs, sources=[op.lower()]).output

    def node(self, op: str) -> Node:
        return next(node for node in self.graph.nodes if node.op == op)


def conv(weight: str = "int8", scale: Any = 0.25, bias: Any = None, act: str = "", **changes: Any) -> Model:
    """A convolution that obeys RULE, but for the changes."""
    result = {k[7:]: changes.pop(k) for k in [*changes] if k.startswith("result_")}
    point, axis = changes.pop("weight_point", 0), changes.pop("axis", 0)
    model = Model(1, 3, 4, 4, **changes)
    w = model.constant(np.ones((2, 3, 1, 1), weight), scale, point, axis)
    operands = [model.real(), w, *([] if bias is None else [model.graph.add_const(bias)])]
    y = model.op("Conv", *operands)
    model.store(model.op(act, y) if act else y, **result)
    return model


def found(model: Model, op: str, rule: QuantizationRule) -> list[tuple[str, str]]:
    layer = QuantizedLayer.read(model.node(op))
    assert layer is not None
    return [(each.reason, each.remedy) for each in violations(layer, rule)]


BIAS = np.zeros(2, np.float32)
WRONG: list[tuple[Model, QuantizationRule, str, str]] = [
    (conv(dtype="uint8"), RULE, "is uint8, not int8", "quantise it to int8"),
    (conv(result_dtype="uint8"), RULE, "is uint8, not int8", "quantise it to int8"),
    (conv(weight="uint8"), RULE, "is uint8, not int8", "quantise it to int8"),
    (conv(weight_point=3), RULE, "has the zero point 3, not 0", "quantise it symmetrically"),
    (conv(point=3), replace(RULE, symmetric=("int8",)), "has the zero point 3, not 0", "quantise it symmetrically"),
    (conv(dtype="uint8", point=3), QuantizationRule(symmetric=("activations",)), "zero point 3, not 128", "symm"),
    (conv(scale=0.3), replace(RULE, power_of_two=("weights",)), "has the scale 0.3, no power of two", "round"),
    (conv(result_scale=0.3), replace(RULE, power_of_two=("activations",)), "scale 0.3, no power of two", "round"),
    (conv(result_scale=0.01), replace(RULE, least_scale=0.1), "has the scale 0.01, below 0.1", "raise its scale"),
    (conv(scale=[0.5, 0.25]), replace(RULE, per_channel=False), "the weight has 2 scales, not one", "per tensor"),
    (conv(), replace(RULE, per_channel=True), "the weight has one scale, not one per output channel", "per channel"),
    (conv(scale=[0.5] * 3, axis=1), RULE, "one scale per output channel, got one along axis 1", "per channel"),
    (conv(bias=BIAS), RULE, "the bias is float32, not int32", "store the bias as int32"),
    (conv(act="Relu"), replace(RULE, fused=()), "Relu stands before the rounding, which may be no activation", "round"),
    (conv(), replace(RULE, equal_scales=True), "must be equal", "one scale and zero point"),
    (conv(), replace(RULE, activations=()), "is int8, not quantised", "leave the layer in float"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "rule", "reason", "remedy"), WRONG, ids=[case[2] for case in WRONG])
def test_what_a_rule_does_not_allow_has_a_reason_and_a_remedy(
    model: Model, rule: QuantizationRule, reason: str, remedy: str
):
    ((said, mend), *_) = found(model, "Conv", rule)
    assert reason in said
    assert remedy in mend


@pytest.mark.parametrize(
    ("model", "rule"),
    [
        (conv(), RULE),
        (conv(act="Relu"), RULE),
        (conv(scale=[0.5, 0.25]), replace(RULE, per_channel=True)),
        (conv(bias=BIAS), replace(RULE, bias=("int32", "float32"))),
        (conv(dtype="uint8", point=128), QuantizationRule(symmetric=("activations",))),
        (conv(result_scale=0.5), replace(RULE, equal_scales=True, power_of_two=("activations", "weights"))),
    ],
)
def test_what_a_rule_allows(model: Model, rule: QuantizationRule):
    assert found(model, "Conv", rule) == []


def test_a_product_whose_result_stays_real_is_half_a_layer():
    model = Model(1, 3)
    y = model.op("MatMul", model.real(), model.constant(np.ones((3, 2), np.int8)))
    model.graph.set_outputs([y], ["y"])
    assert found(model, "MatMul", RULE) == [(f'the result "{y.name}" is float32, not int8', "quantise it to int8")]
    assert found(model, "MatMul", replace(RULE, activations=("int8", "float32"))) == []


def test_the_bias_of_a_product_of_rows_and_its_activation_are_parts_of_it():
    model = Model(4, 3)
    bias = model.constant(np.ones(2, np.int32), 0.125)
    y = model.op("MatMul", model.real(), model.constant(np.ones((3, 2), np.int8)))
    model.store(model.op("Relu", model.op("Add", y, bias)))
    layer = QuantizedLayer.read(model.node("MatMul"))
    assert layer is not None
    assert layer.bias is not None
    assert (layer.bias.dtype, layer.activation) == ("int32", model.node("Relu"))
    npu = Target("npu")
    npu.quantization("MatMul", "Add", "Relu")(RULE)
    CheckQuantization((npu,)).run(model.graph)
    assert not model.graph.remarks


def test_float_layers_are_none():
    graph = Graph("g", opsets={"": 21})
    y = graph.add("Relu", [graph.add_input("x", TensorType("float32", (2,)))]).output
    graph.set_outputs([y], ["y"])
    assert QuantizedLayer.read(graph.nodes[0]) is None


def test_checks_come_last_and_say_what_mends():
    check = QuantizationCheck(lambda layer: layer.core.op == "Conv" or reject("no convolution"), "make it one")
    rule = replace(RULE, checks=(check,))
    model = Model(1, 3)
    model.store(model.op("Relu", model.real()), dtype="uint8")
    ((reason, _),) = found(model, "Relu", rule)
    assert reason == f'the result "{model.node("Relu").output.name}" is uint8, not int8'
    assert found(model, "Relu", replace(rule, activations=("int8", "uint8"))) == [("no convolution", "make it one")]
    assert found(conv(), "Conv", rule) == []


def test_the_inside_of_a_chain_is_asked_for_its_data_alone():
    never = QuantizationCheck(lambda layer: reject("never"))
    target = Target("npu")
    target.composite(patterns.qtable)
    target.quantization("Mul")(QuantizationRule(activations=("int8",), checks=(never,)))
    model = Model(4)
    x = model.real()
    model.store(model.op("Tanh", model.op("Mul", x, x)))
    assert [node.op for node in tinycomp.target_api.partitioned(model.graph, [target]).nodes if node.is_region]
    other = Model(4, dtype="uint8")
    x = other.real()
    other.store(other.op("Tanh", other.op("Mul", x, x)))
    remarks = tinycomp.target_api.partitioned(other.graph, [target]).remarks
    assert any("is uint8, not int8" in remark.reason for remark in remarks if remark.rule == "npu.qtable")


# On a target ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options:
    """Of the target.

    Attributes:
        wide: Whether data have 16 bits.
    """

    wide: bool = False


def npu() -> Target:
    target = Target("npu", options=Options)

    @target.composite
    def qconv(x, w=P.const, b=P.const):  # type: ignore[no-untyped-def]
        return patterns.qconv(x, w, b)

    @target.quantization("Conv")
    def rule(options: Options) -> QuantizationRule:
        return QuantizationRule(activations=("int16",) if options.wide else ("int8",))

    target.accept("MaxPool")
    target.quantization("MaxPool")(RULE)
    return target


def test_rules_are_data_and_follow_the_options():
    target = npu()
    assert target.quantization_rules == {"Conv": QuantizationRule(activations=("int8",)), "MaxPool": RULE}
    wide = target.with_options(wide=True)
    assert wide.quantization_rules["Conv"].activations == ("int16",)
    wide.quantization("Add")(RULE)
    assert "Add" not in target.quantization_rules


def test_a_violation_is_why_a_match_is_refused_and_the_report_says_what_mends_it():
    model = conv(dtype="uint8", result_scale=0.5)
    module = tinycomp.compile(model.graph, [npu(), "c"])
    report = module.report()
    (row,) = report.violations()
    assert (row.target, row.op, row.sources) == ("npu", "Conv", ("conv",))
    assert row.remedy == "quantise it to int8"
    reasons = [str(reason) for reason in report.reasons["conv"]]
    assert f"npu, quantisation of Conv: {row.reason}; {row.remedy}" in reasons
    assert any(text == f"npu.qconv: {row.reason}" for texts in report.reasons.values() for text in map(str, texts))
    assert "Against the rules of quantisation" in str(report)
    again = tinycomp.load(module.to_bytes()).report()
    assert again.violations() == [row]


def test_what_obeys_is_taken():
    report = tinycomp.compile(conv().graph, ["host"]).report()
    assert report.violations() == []
    target = npu()
    target.codegen(lambda region: lambda *x: None)
    graph = tinycomp.target_api.partitioned(conv().graph, [target])
    assert [node.target for node in graph.nodes] == ["npu"]


@pytest.mark.parametrize("others", [(), (find("c"),)], ids=["alone", "before c"])
def test_rules_are_for_layers_whose_data_are_quantised_as_well_as_their_weights(others: tuple[Target, ...]):
    target = npu()

    @target.composite
    def real_conv(x, w=P.const):  # type: ignore[no-untyped-def]
        return P.Relu(P.Conv(x, w))

    model = Model(1)
    x = model.graph.add_input("real", TensorType("float32", (1, 3, 8, 8)))
    weight = model.constant(np.ones((2, 3, 3, 3), np.int8))
    model.graph.set_outputs([model.op("Relu", model.op("Conv", x, weight))], ["y"])
    graph = tinycomp.target_api.partitioned(model.graph, [target, *others])
    assert [node.target for node in graph.nodes] == ["npu"]
    assert not [remark for remark in graph.remarks if "float32, not int8" in remark.reason]


def test_operators_on_stored_numbers_of_other_dtypes_are_refused():
    graph = Graph("g", opsets={"": 21})
    x = graph.add_input("x", TensorType("uint8", (1, 2, 4, 4)))
    graph.set_outputs([graph.add("MaxPool", [x], {"kernel_shape": [2, 2]}, sources=["pool"]).output], ["y"])
    (row,) = tinycomp.compile(graph, npu()).report().hosts
    assert "it does not compute MaxPool of uint8, only of int8" in str(row.reasons[0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"activations": ("int7",)}, "activations: a quantisation rule cannot say this; expected a tuple of int4"),
        ({"symmetric": "weights"}, "symmetric: .*found 'weights'"),
        ({"fused": ("Gelu",)}, "fused: .*expected a tuple of Clip, Relu"),
    ],
)
def test_what_a_rule_cannot_say(changes: dict[str, Any], message: str):
    with pytest.raises(TargetError, match=message):
        QuantizationRule(**changes)


def test_what_is_no_rule():
    target = Target("npu")
    with pytest.raises(TargetError, match='there is no operator "Convv"'):
        target.quantization("Convv")(RULE)
    with pytest.raises(TargetError, match=r'Write @npu.quantization\("Add"\), with the brackets'):
        target.quantization()(RULE)
    with pytest.raises(TargetError, match="a quantisation rule needs the names of its operators"):
        target.quantization("*")(RULE)
    target.quantization("Conv")(lambda: "int8")  # type: ignore[arg-type, return-value]
    with pytest.raises(TargetError, match="npu, Conv: not a quantisation rule; expected a QuantizationRule"):
        _ = target.quantization_rules
