"""What targets ask for: layers are rewritten where that helps, and nowhere else; the report says so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinycomp
from tests.targets.quantized_layers import Layer
from tests.targets.tosa_tools import needs_tosa
from tinycomp import Target, reject
from tinycomp.ir import Graph
from tinycomp.passes.legalize import DecomposeStrides, SplitGroups
from tinycomp.target import Policy, find
from tinycomp.target_api import partitioned

OURS = "c:requantize=fixed_point"


def depthwise_stride() -> tuple[Layer, Graph]:
    layer = Layer(1, 8, 16, 16)
    weight = layer.weight(8, 1, 3, 3)
    y = layer.Conv(layer.dequantized(layer.inputs[0]), weight, group=8, strides=[4, 4], pads=[1, 1, 1, 1])
    return layer, layer.done(layer.Relu(y))


def token_mean() -> tuple[Layer, Graph]:
    layer = Layer(1, 6, 8)
    return layer, layer.done(layer.ReduceMean(layer.dequantized(layer.inputs[0]), axes=[1], keepdims=0), scale=0.03)


def padded_mean() -> tuple[Layer, Graph]:
    layer = Layer(1, 8, 6, 6)
    x = layer.dequantized(layer.inputs[0])
    y = layer.AveragePool(x, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1)
    return layer, layer.done(y, scale=0.03)


def wide_weights() -> tuple[Layer, Graph]:
    layer = Layer(1, 4, 6, 6)
    weight = layer.weight(8, 4, 3, 3, dtype="uint8", zero_point=100)
    return layer, layer.done(layer.Conv(layer.dequantized(layer.inputs[0]), weight, layer.bias(weight)), scale=2.0)


def focus() -> tuple[Layer, Graph]:
    layer = Layer(1, 4, 8, 8)
    places = [np.array(v, np.int64) for v in ([0, 1], [8, 8], [2, 3], [2, 2])]
    weight = layer.weight(8, 4, 3, 3)
    y = layer.Slice(layer.inputs[0], *places)
    return layer, layer.done(layer.Conv(layer.dequantized(y), weight), scale=2.0)


def transposed() -> tuple[Layer, Graph]:
    layer = Layer(1, 8, 4, 4)
    weight = layer.weight(8, 4, 3, 3, axis=1)
    y = layer.ConvTranspose(layer.dequantized(layer.inputs[0]), weight, strides=[2, 2], output_padding=[1, 1])
    return layer, layer.done(layer.Relu(y), scale=2.0)


CASES = [
    (depthwise_stride, "ethos_u", "decompose-strides",
     "ethos-u55-128 moves the windows of single channels by at most 3, got strides [4, 4]"),
    (token_mean, "tosa", "reductions-to-pools",
     "it does not compute ReduceMean of float32"),
    (padded_mean, "tosa", "explicit-pads",
     "every sum is divided by the same count, but padding makes the counts differ"),
    (wide_weights, "tosa", "narrow-weights", "weights without their zero point leave int8"),
    (transposed, "tosa", "transposed-to-convolutions",
     "it does not compute ConvTranspose of float32"),
    (focus, "tosa", "steps-to-pools", "SLICE has no steps, got [2, 2]"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "name", "rule", "reason"), CASES, ids=[case[2] for case in CASES])
def test_what_targets_refuse_they_take_rewritten(make: Any, name: str, rule: str, reason: str) -> None:
    _, graph = make()
    target = find(name)
    plain = target.with_options()
    plain.legalize = ()
    before, after = partitioned(graph, [plain]), partitioned(graph, [target])
    assert any(remark.reason == reason for remark in before.remarks)
    assert not all(node.is_region for node in before.nodes)
    (region,) = after.nodes
    assert region.target == name
    (remark,) = [remark for remark in after.remarks if remark.stage == "legalize"]
    assert (remark.rule, remark.reason) == (rule, f"as it stands: {reason}")


@needs_tosa
@pytest.mark.parametrize(("make", "name", "rule", "reason"), CASES[1:], ids=[case[2] for case in CASES[1:]])
def test_what_is_rewritten_has_the_same_bits(make: Any, name: str, rule: str, reason: str) -> None:
    layer, graph = make()
    module = tinycomp.compile(graph, [name, OURS])
    assert {region.target for region in module.report().regions} == {name}
    (note,) = [note for note in module.report().notes if rule in note]
    assert note.startswith(f"For {name}, {rule} rewrote 1 layer(s) that it refuses as they stand: ")
    reference = tinycomp.compile(graph, OURS)
    x = layer.data()
    np.testing.assert_array_equal(module(*x), reference(*x))


def npu(*legalize: Any) -> Target:
    made = Target("npu", legalize=legalize, policy=Policy())
    made.accept("Split", "Concat", "MaxPool")

    @made.op("Conv")
    def _(node: Any) -> Any:
        if node.attrs.get("group", 1) != 1:
            return reject("no groups")
        return max(node.attrs.get("strides", [1])) <= 2 or reject("strides above 2")

    return made


def convolution(**attrs: Any) -> Graph:
    layer = Layer(1, 4, 9, 9, dtype="float32")
    weight = np.ones((4, 4 // attrs.get("group", 1), 3, 3), np.float32)
    return layer.finish(layer.Conv(layer.inputs[0], weight, **attrs))


def test_several_passes_help_together() -> None:
    graph = partitioned(convolution(group=2, strides=[4, 4]), [npu(SplitGroups(), DecomposeStrides(2))])
    assert [node.target for node in graph.nodes] == ["npu"]
    (remark,) = [remark for remark in graph.remarks if remark.stage == "legalize"]
    assert str(remark) == "split-groups and decompose-strides: as it stands: no groups"


@pytest.mark.parametrize(
    ("attrs", "legalize"),
    [
        pytest.param({"strides": [2, 2]}, [DecomposeStrides(1)], id="taken as it stands"),
        pytest.param({"strides": [4, 4], "group": 2}, [DecomposeStrides(2)], id="of no help"),
        pytest.param({"strides": [5, 5]}, [DecomposeStrides(2)], id="cannot be said otherwise"),
    ],
)
def test_other_layers_stay_as_they_stand(attrs: dict[str, Any], legalize: list[Any]) -> None:
    graph = partitioned(convolution(**attrs), [npu(*legalize)])
    assert [node.op for _, node in graph.walk() if not node.is_region] == ["Conv"]
    assert not any(remark.stage == "legalize" for remark in graph.remarks)


def test_another_target_finds_what_is_refused_as_the_model_has_it() -> None:
    other = Target("other")
    other.accept("Conv")
    graph = partitioned(convolution(strides=[4, 4], group=2), [npu(DecomposeStrides(2)), other])
    (region,) = graph.nodes
    assert region.target == "other"
    assert [node.op for node in region.body.nodes] == ["Conv"]
