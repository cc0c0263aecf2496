"""Attention as models write it: one kernel call, heads read and written in place, equal to the host."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import tinycomp
from tests.targets.c.harness import make_model

BATCH, TOKENS, HEADS, WIDTH = 2, 37, 3, 8
HIDDEN = HEADS * WIDTH


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape, np.float32)


X = draw(BATCH, TOKENS, HIDDEN)
QKV = draw(HIDDEN, 3 * HIDDEN) * np.float32(0.2)
MASKS = {
    "none": None,
    "keys": np.where(np.arange(TOKENS) < 30, 0, -np.inf).astype(np.float32).reshape(1, 1, 1, TOKENS),
    "square": draw(TOKENS, TOKENS),
    "full": draw(BATCH, HEADS, TOKENS, TOKENS),
}


def block(scale: str, mask: np.ndarray | None) -> tuple[bytes, dict[str, np.ndarray]]:
    """One product for queries, keys and values; split, heads apart, attention, heads together."""
    node = helper.make_node
    nodes = [
        node("MatMul", ["x", "w"], ["qkv"]),
        node("Split", ["qkv"], ["q0", "k0", "v0"], axis=2, num_outputs=3),
        *(node("Reshape", [f"{n}0", "heads"], [f"{n}1"]) for n in "qkv"),
        node("Transpose", ["q1"], ["q"], perm=[0, 2, 1, 3]),
        node("Transpose", ["k1"], ["k"], perm=[0, 2, 3, 1]),
        node("Transpose", ["v1"], ["v"], perm=[0, 2, 1, 3]),
        *(node("Mul", [n, "root"], [f"{n}_"]) if scale == "both" else node("Identity", [n], [f"{n}_"]) for n in "qk"),
        node("MatMul", ["q_", "k_"], ["scores"], name="scores"),
        node(*((scale, ["scores", "factor"]) if scale in ("Mul", "Div") else ("Identity", ["scores"])), ["scaled"]),
        node("Add", ["mask", "scaled"], ["masked"]) if mask is not None else node("Identity", ["scaled"], ["masked"]),
        node("Softmax", ["masked"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["z"]),
        node("Transpose", ["z"], ["t"], perm=[0, 2, 1, 3]),
        node("Reshape", ["t", "flat"], ["y"]),
    ]
    constants = {
        "w": QKV, "root": np.float32(0.7), "factor": np.float32(0.3),
        "heads": np.int64([0, 0, HEADS, WIDTH]), "flat": np.int64([0, 0, HIDDEN]),
    }  # fmt: skip
    feeds = {"x": X} | ({} if mask is None else {"mask": mask})
    return make_model(nodes, feeds, constants, ["y"]), feeds


def kernels(module) -> list[str]:
    return [call.kernel for call in module._parts.plan.steps[0].run.program.instructions]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("scale", ["", "Mul", "Div", "both"])
def test_two_kernels_and_no_copy(scale, mask):
    model, feeds = block(scale, MASKS[mask])
    module = tinycomp.compile(model, verify=True)
    assert kernels(module) == ["gemm_f32", "attention_f32"]
    expected = tinycomp.compile(model, "host", passes="").run(feeds)["y"]
    np.testing.assert_allclose(module.run(feeds)["y"], expected, rtol=1e-4, atol=1e-5)


def test_keys_and_values_may_be_one_constant():
    nodes = [
        helper.make_node("MatMul", ["q", "w"], ["s"]),
        helper.make_node("Add", ["s", "mask"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["p"], axis=-1),
        helper.make_node("MatMul", ["p", "w"], ["y"]),
    ]
    feeds = {"q": draw(5, 8), "mask": draw(5, 8)}
    model = make_model(nodes, feeds, {"w": draw(8, 8)}, ["y"])
    module = tinycomp.compile(model, verify=True)
    assert kernels(module) == ["attention_f32"]
    expected = tinycomp.compile(model, "host", passes="").run(feeds)["y"]
    np.testing.assert_allclose(module.run(feeds)["y"], expected, rtol=1e-4, atol=1e-5)


SHAPES = {
    "one head": ((5, 4), (4, 7), (7, 3)),
    "batch": ((2, 5, 4), (2, 4, 7), (2, 7, 3)),
    "one query": ((1, 2, 1, 4), (1, 2, 4, 7), (1, 2, 7, 1)),
}


def attention_model(shapes, axis=-1, outputs=("y",), mask=None):
    nodes = [
        helper.make_node("MatMul", ["q", "k"], ["s"]),
        *([helper.make_node("Add", ["s", "m"], ["sm"])] if mask is not None else []),
        helper.make_node("Softmax", ["s" if mask is None else "sm"], ["p"], axis=axis),
        helper.make_node("MatMul", ["p", "v"], ["y"]),
    ]
    feeds = dict(zip("qkv", (draw(*s) for s in shapes), strict=True)) | ({} if mask is None else {"m": mask})
    return make_model(nodes, feeds, {}, list(outputs)), feeds


@pytest.mark.parametrize("name", SHAPES)
def test_ranks(name):
    model, feeds = attention_model(SHAPES[name])
    module = tinycomp.compile(model)
    assert kernels(module) == ["attention_f32"]
    expected = tinycomp.compile(model, "host").run(feeds)["y"]
    np.testing.assert_allclose(module.run(feeds)["y"], expected, rtol=1e-5, atol=1e-6)


STAY = {
    "other axis": attention_model(((2, 5, 4), (2, 4, 7), (2, 7, 3)), axis=1),
    "shared keys": attention_model(((2, 5, 4), (1, 4, 7), (2, 7, 3))),
    "scores wanted": attention_model(((5, 4), (4, 7), (7, 3)), outputs=("y", "p")),
    "wider mask": attention_model(((1, 5, 4), (1, 4, 7), (1, 7, 3)), mask=draw(2, 5, 7)),
}


@pytest.mark.parametrize("name", STAY)
def test_what_stays_apart_is_still_right(name):
    model, feeds = STAY[name]
    module = tinycomp.compile(model)
    assert "attention_f32" not in kernels(module)
    expected = tinycomp.compile(model, "host").run(feeds)
    for output, result in module.run(feeds).items():
        np.testing.assert_allclose(result, expected[output], rtol=1e-5, atol=1e-6)
