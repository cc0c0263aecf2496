"""Composites: one primitive with post-ops for each, and results like the host's."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.examples.dnnl.harness import check, floats, needs_dnnl, program_of
from tests.targets.c.harness import make_model

pytestmark = needs_dnnl

X = floats(2, 17, 9, 7)
CONSTANTS = {
    "w": floats(6, 17, 3, 3, seed=1) / 16,
    "b": floats(6, seed=2),
    "square": floats(17, 17, 3, 3, seed=3),
    "depthwise": floats(17, 1, 3, 3, seed=4),
    "per_channel": floats(1, 6, 1, 1, seed=5),
    "matrix": floats(7, 17, seed=6) / 4,
    "row": floats(17, seed=7),
    **{name: np.float32(v) for name, v in {"0": 0, "0.5": 0.5, "1": 1, "3": 3, "6": 6, "root2": 2**0.5}.items()},
}

Nodes = list[onnx.NodeProto]


def node(op: str, inputs: str, output: str, **attrs: object) -> onnx.NodeProto:
    return helper.make_node(op, inputs.split(), [output], name=f"{output}_node", **attrs)


def model(nodes: Nodes, feeds: dict[str, np.ndarray], *outputs: str) -> onnx.ModelProto:
    read = {name for n in nodes for name in n.input}
    constants = {name: np.asarray(array) for name, array in CONSTANTS.items() if name in read}
    return make_model(nodes, feeds, constants, outputs or (nodes[-1].output[0],))


def steps(program_model: onnx.ModelProto) -> Counter[str]:
    return Counter(step.primitive.name for step in program_of(program_model).steps)


def conv(x: str, w: str, y: str, b: str = "", **attrs: object) -> onnx.NodeProto:
    return node("Conv", f"{x} {w} {b}", y, pads=[1, 1, 1, 1], **attrs)


ACTIVATIONS: dict[str, Nodes] = {
    "relu": [node("Relu", "c", "y")],
    "clip": [node("Clip", "c 0 6", "y")],
    "leaky_relu": [node("LeakyRelu", "c", "y", alpha=0.25)],
    "hardswish": [node("HardSwish", "c", "y")],
    "hardswish_spelled": [
        node("Add", "c 3", "s"), node("Clip", "s 0 6", "t"), node("Mul", "c t", "u"), node("Div", "u 6", "y"),
    ],
    "silu": [node("Sigmoid", "c", "s"), node("Mul", "c s", "y")],
    "sigmoid": [node("Sigmoid", "c", "y")],
    "tanh": [node("Tanh", "c", "y")],
    "hardsigmoid": [node("HardSigmoid", "c", "y", alpha=0.125)],
    "gelu": [node("Gelu", "c", "y")],
    "gelu_spelled": [
        node("Div", "c root2", "s"), node("Erf", "s", "t"), node("Add", "t 1", "u"), node("Mul", "c u", "v"),
        node("Mul", "v 0.5", "y"),
    ],
    "gelu_tanh": [node("Gelu", "c", "y", approximate="tanh")],
}  # fmt: skip


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_convolution_applies_an_activation(name: str) -> None:
    tested = model([conv("x", "w", "c", "b"), *ACTIVATIONS[name]], {"x": X})
    module = check(tested, {"x": X})
    assert module.report().regions[0].composites == {"dnnl.conv": 1}
    assert steps(tested)["eltwise"] == 0


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_convolution_adds_a_residual_before_an_activation(name: str) -> None:
    residual = floats(2, 6, 9, 7, seed=9)
    feeds = {"x": X, "r": residual}
    tested = model([conv("x", "w", "p", "b"), node("Add", "p r", "c"), *ACTIVATIONS[name]], feeds)
    module = check(tested, feeds)
    assert module.report().regions[0].composites == {"dnnl.conv": 1}
    assert steps(tested)["binary"] == 0


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_other_primitives_apply_activations_too(name: str) -> None:
    for first, feeds, count in [
        (node("Gemm", "x matrix row", "c"), {"x": floats(5, 7)}, {"dnnl.gemm": 1}),
        (node("MatMul", "x matrix", "c"), {"x": floats(2, 5, 7)}, {"dnnl.matmul": 1}),
        (node("Mul", "x z", "c"), {"x": floats(2, 5, 7), "z": floats(7, seed=1)}, {"dnnl.eltwise": 1}),
    ]:
        module = check(model([first, *ACTIVATIONS[name]], feeds), feeds)
        assert module.report().regions[0].composites == count


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_stands_alone(name: str) -> None:
    module = check(model(ACTIVATIONS[name], {"c": X}), {"c": X})
    assert module.report().regions[0].composites == {"dnnl.eltwise": 1}


def test_constants_per_channel_become_the_bias() -> None:
    nodes = [conv("x", "w", "c", "b"), node("Add", "per_channel c", "a"), node("Relu", "a", "y")]
    check(model(nodes, {"x": X}), {"x": X})
    assert steps(model(nodes, {"x": X}))["binary"] == 0


def test_a_product_adds_a_row_and_a_residual() -> None:
    feeds = {"x": floats(2, 5, 7), "r": floats(2, 5, 17, seed=1)}
    nodes = [node("MatMul", "x matrix", "p"), node("Add", "row p", "q"), node("Add", "r q", "y")]
    module = check(model(nodes, feeds), feeds)
    assert module.report().regions[0].composites == {"dnnl.matmul": 1}
    assert steps(model(nodes, feeds))["binary"] == 0


def test_the_residual_is_scaled_by_beta() -> None:
    feeds = {"x": floats(5, 7), "r": floats(5, 17, seed=1)}
    nodes = [node("Gemm", "x matrix r", "p", beta=0.5), node("Relu", "p", "y")]
    assert check(model(nodes, feeds), feeds).report().regions[0].composites == {"dnnl.gemm": 1}


# Where results go: residuals are overwritten only if nobody needs them, layouts change only where they must. ----------


def block(residual_read_again: bool) -> Nodes:
    nodes = [
        conv("x", "square", "a"),
        conv("a", "depthwise", "d", group=17),
        conv("d", "square", "e"),
        node("Add", "e a", "f"),
        node("Relu", "f", "y"),
    ]
    return [*nodes, node("Mul", "y a", "z")] if residual_read_again else nodes


def test_a_residual_that_dies_is_overwritten() -> None:
    tested = model(block(False), {"x": X})
    check(tested, {"x": X})
    program = program_of(tested)
    (last,) = [s for s in program.steps if s.primitive.name == "convolution"][-1:]
    first = program.steps[[s.primitive.name for s in program.steps].index("convolution")]
    assert last.args[17].storage is first.args[17].storage


def test_a_residual_that_lives_on_is_not_overwritten() -> None:
    check(model(block(True), {"x": X}), {"x": X})
    check(model(block(False), {"x": X}, "y", "a"), {"x": X})


def test_a_residual_that_the_convolution_reads_is_not_overwritten() -> None:
    nodes = [conv("x", "square", "a"), conv("a", "depthwise", "d", group=17), node("Add", "d a", "y")]
    check(model(nodes, {"x": X}), {"x": X})
    nodes = [conv("x", "square", "a"), conv("a", "square", "d"), node("Add", "d a", "y")]
    check(model(nodes, {"x": X}), {"x": X})


def test_a_view_keeps_its_source_alive() -> None:
    """The reshaped value shares the memory of the residual, and is read after the addition."""
    feeds = {"x": floats(5, 7)}
    nodes = [
        node("Gemm", "x matrix", "a"),
        node("Flatten", "a", "v", axis=0),
        node("Gemm", "x matrix", "p"),
        node("Add", "p a", "s"),
        node("Softmax", "v", "z", axis=1),
    ]
    check(model(nodes, feeds, "s", "z"), feeds)


def test_a_block_of_convolutions_is_reordered_at_its_borders_only() -> None:
    assert steps(model(block(False), {"x": X}))["reorder"] <= 2


def test_results_may_share_memory_inside() -> None:
    feeds = {"x": floats(5, 7)}
    nodes = [
        node("Gemm", "x matrix", "a"),
        node("Flatten", "a", "v"),
        node("Relu", "a", "y"),
        node("Flatten", "y", "f"),
    ]
    check(model(nodes, feeds, "a", "v", "y", "f", "a"), feeds)


def test_one_constant_may_be_an_operand_and_a_bound() -> None:
    for first, feeds in [
        (conv("x", "w", "p"), {"x": X}),
        (node("Gemm", "x matrix", "p"), {"x": floats(5, 7)}),
        (node("Abs", "x", "p"), {"x": X}),
    ]:
        check(model([first, node("Add", "p 3", "s"), node("Clip", "s 3 6", "y")], feeds), feeds)
