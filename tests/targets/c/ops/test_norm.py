"""Normalisations as models write them: sums and spelled-out root mean squares in one kernel call, equal to the host."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import tinycomp
from tests.targets.c.harness import make_model, nodes_of
from tests.targets.c.quantized.test_layers import kernels

X, Y = (np.random.default_rng(i).standard_normal((2, 5, 24), np.float32) for i in (1, 2))
GAIN, BIAS = (np.random.default_rng(i).standard_normal(24, np.float32) for i in (3, 4))


def spelled(square: str, inverse: str, gain_first: bool, x: str = "x") -> str:
    """The root mean square as exporters write it."""
    normal = {
        "Reciprocal": f"inverse = Reciprocal(root) normal = Mul(inverse, {x})",
        "Div": f"inverse = Div(one, root) normal = Mul({x}, inverse)",
        "quotient": f"normal = Div({x}, root)",
    }[inverse]
    return f"""square = {f"Pow({x}, two)" if square == "Pow" else f"Mul({x}, {x})"}
        mean = ReduceMean<keepdims = 1>(square, last) moved = Add(mean, epsilon) root = Sqrt(moved)
        {normal} y = {"Mul(gain, normal)" if gain_first else "Mul(normal, gain)"}"""


CONSTANTS = {
    "two": np.float32(2), "one": np.float32(1), "epsilon": np.float32(1e-3), "last": np.int64([-1]), "gain": GAIN,
    "bias": BIAS,
}  # fmt: skip


def found(text: str, feeds: dict[str, np.ndarray], outputs: Sequence[str] = ("y",), **changed):
    """Compare with the host and return the kernels."""
    nodes = nodes_of(text)
    used = {name for node in nodes for name in node.input}
    constants = {name: value for name, value in ({**CONSTANTS, **changed}).items() if name in used}
    model = make_model(nodes, feeds, constants, list(outputs), 23)
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


SUM = "t = Add(x, r)"
SUMS = {
    "RMSNormalization": "y = RMSNormalization<epsilon = 0.001>(t, gain)",
    "LayerNormalization": "y = LayerNormalization<epsilon = 0.001>(t, gain, bias)",
    "without bias": "y = LayerNormalization(t, gain)",
    "two axes": "y = RMSNormalization<axis = 1>(t, table)",
    "spelled out": spelled("Pow", "Div", True, "t"),
}


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("outputs", [("y",), ("y", "t"), ("y", "u")], ids=str)
def test_a_sum_is_added_up_on_the_way(name, outputs):
    """Whether it is a result, is used again, or is of no further use."""
    text = f"{SUM} {SUMS[name]} {'u = Neg(t)' if 'u' in outputs else ''}"
    gains = {"table": np.random.default_rng(5).standard_normal((5, 24), np.float32)}
    expected = ["layer_norm_f32", "elementwise"] if "u" in outputs else ["layer_norm_f32"]
    assert found(text, {"x": X, "r": Y}, outputs, **gains) == expected


def test_rows_without_elements():
    for shape in ((0, 5, 24), (2, 0, 24)):
        feeds = {"x": np.zeros(shape, np.float32), "r": np.zeros(shape, np.float32)}
        found(f"{SUM} {SUMS['RMSNormalization']}", feeds, ("y", "t"))


@pytest.mark.parametrize(
    "changed",
    [{"last": np.int64([1])}, {"gain": np.ones(1, np.float32)}, {"gain": np.ones((3, 1, 1, 24), np.float32)}],
    ids=["another axis", "one gain", "another rank"],
)
def test_what_is_not_a_normalisation_of_rows_stays_apart(changed):
    assert "layer_norm_f32" not in found(spelled("Pow", "Div", True), {"x": X}, **changed)


def test_a_residual_that_is_repeated_is_added_before():
    assert found(f"{SUM} {SUMS['RMSNormalization']}", {"x": X, "r": Y[:1]}) == ["elementwise", "layer_norm_f32"]
