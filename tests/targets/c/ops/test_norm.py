"""Normalisations as models write them: sums and spelled-out root mean squares in one kernel call, equal to the host."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import helper

import tinycomp
from tests.targets.c.harness import make_model
from tests.targets.c.quantized.test_layers import kernels

X, Y = (np.random.default_rng(i).standard_normal((2, 5, 24), np.float32) for i in (1, 2))
GAIN, BIAS = (np.random.default_rng(i).standard_normal(24, np.float32) for i in (3, 4))


def spelled(square: str, inverse: str, gain_first: bool, x: str = "x") -> list[onnx.NodeProto]:
    """The root mean square as exporters write it."""
    node = helper.make_node
    scaled = {
        "Reciprocal": [node("Reciprocal", ["root"], ["inverse"]), node("Mul", ["inverse", x], ["normal"])],
        "Div": [node("Div", ["one", "root"], ["inverse"]), node("Mul", [x, "inverse"], ["normal"])],
        "quotient": [node("Div", [x, "root"], ["normal"])],
    }
    return [
        node("Pow", [x, "two"], ["square"]) if square == "Pow" else node("Mul", [x, x], ["square"]),
        node("ReduceMean", ["square", "last"], ["mean"], keepdims=1),
        node("Add", ["mean", "epsilon"], ["moved"]),
        node("Sqrt", ["moved"], ["root"]),
        *scaled[inverse],
        node("Mul", ["gain", "normal"] if gain_first else ["normal", "gain"], ["y"]),
    ]


CONSTANTS = {
    "two": np.float32(2), "one": np.float32(1), "epsilon": np.float32(1e-3), "last": np.int64([-1]), "gain": GAIN,
    "bias": BIAS,
}  # fmt: skip


def found(nodes: Sequence[onnx.NodeProto], feeds: dict[str, np.ndarray], outputs: Sequence[str] = ("y",), **changed):
    """Compare with the host and return the kernels."""
    used = {name for node in nodes for name in node.input}
    constants = {name: value for name, value in ({**CONSTANTS, **changed}).items() if name in used}
    model = make_model(list(nodes), feeds, constants, list(outputs), 23)
    module = tinycomp.compile(model, "c", strict=True)
    expected = tinycomp.compile(model, "host", passes="").run(feeds)
    for name, value in module.run(feeds).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-5)
    return kernels(module)


@pytest.mark.parametrize("square", ["Pow", "Mul"])
@pytest.mark.parametrize("inverse", ["Reciprocal", "Div", "quotient"])
@pytest.mark.parametrize("gain_first", [True, False])
def test_a_spelled_out_root_mean_square_is_one_call(square, inverse, gain_first):
    assert found(spelled(square, inverse, gain_first), {"x": X}) == ["layer_norm_f32"]


SUMS = {
    "RMSNormalization": [helper.make_node("RMSNormalization", ["t", "gain"], ["y"], epsilon=1e-3)],
    "LayerNormalization": [helper.make_node("LayerNormalization", ["t", "gain", "bias"], ["y"], epsilon=1e-3)],
    "without bias": [helper.make_node("LayerNormalization", ["t", "gain"], ["y"])],
    "two axes": [helper.make_node("RMSNormalization", ["t", "table"], ["y"], axis=1)],
    "spelled out": spelled("Pow", "Div", True, "t"),
}


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("outputs", [("y",), ("y", "t"), ("y", "u")], ids=str)
def test_a_sum_is_added_up_on_the_way(name, outputs):
    """Whether it is a result, is used again, or is of no further use."""
    nodes = [helper.make_node("Add", ["x", "r"], ["t"]), *SUMS[name], helper.make_node("Neg", ["t"], ["u"])]
    nodes = nodes if "u" in outputs else nodes[:-1]
    gains = {"table": np.random.default_rng(5).standard_normal((5, 24), np.float32)}
    expected = ["layer_norm_f32", "elementwise"] if "u" in outputs else ["layer_norm_f32"]
    assert found(nodes, {"x": X, "r": Y}, outputs, **gains) == expected


def test_rows_without_elements():
    for shape in ((0, 5, 24), (2, 0, 24)):
        feeds = {"x": np.zeros(shape, np.float32), "r": np.zeros(shape, np.float32)}
        nodes = [helper.make_node("Add", ["x", "r"], ["t"]), *SUMS["RMSNormalization"]]
        found(nodes, feeds, ("y", "t"))


@pytest.mark.parametrize(
    "changed",
    [{"last": np.int64([1])}, {"gain": np.ones(1, np.float32)}, {"gain": np.ones((3, 1, 1, 24), np.float32)}],
    ids=["another axis", "one gain", "another rank"],
)
def test_what_is_not_a_normalisation_of_rows_stays_apart(changed):
    assert "layer_norm_f32" not in found(spelled("Pow", "Div", True), {"x": X}, **changed)


def test_a_residual_that_is_repeated_is_added_before():
    nodes = [helper.make_node("Add", ["x", "r"], ["t"]), *SUMS["RMSNormalization"]]
    assert found(nodes, {"x": X, "r": Y[:1]}) == ["elementwise", "layer_norm_f32"]
