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


@pytest.mark.parametrize("mask", [None, (1, 3, 1, 5, 7), (2, 1, 4, 1, 7), (2, 3, 4, 5, 7)])
def test_batches_of_any_number_of_dimensions(mask):
    batch = (2, 3, 4)
    shapes = ((*batch, 5, 6), (*batch, 6, 7), (*batch, 7, 8))
    model, feeds = attention_model(shapes, mask=None if mask is None else draw(*mask))
    for open_sizes in (False, True):
        shapes = {name: (None, None, None, *x.shape[3:]) for name, x in feeds.items()} if open_sizes else None
        module = tinycomp.compile(model, shapes=shapes)
        assert open_sizes or "attention_f32" in kernels(module)
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


QUERIES, SHARED, SIZE = 6, 2, 16
TIMES = QUERIES // SHARED


def shared_heads(repeat="Expand", guard=True, mask=None, axes=(0, 1, 3, 2), scale="both"):
    """Heads that share keys and values as exporters write it, with a model that any number of tokens is right for."""
    node = helper.make_node
    nodes = []
    for name in "kv":
        nodes += [
            node("Unsqueeze", [name, "two"], [f"{name}1"]),
            node("Expand", [f"{name}1", "wide"], [f"{name}2"]) if repeat == "Expand"
            else node("Tile", [f"{name}1", "times"], [f"{name}2"]),
            node("Reshape", [f"{name}2", "joined"], [f"{name}3"]),
        ]  # fmt: skip
    if repeat is None:
        nodes = [node("Identity", [name], [f"{name}3"]) for name in "kv"]
    nodes += [
        node("Transpose", ["k3"], ["k4"], perm=list(axes)),
        *(node("Mul", [n, "root"], [f"{n}_"]) if scale == "both" else node("Identity", [n], [f"{n}_"])
          for n in ("q", "k4")),
        node("MatMul", ["q_", "k4_"], ["scores"], name="scores"),
        node("Add", ["scores", "mask"], ["masked"]) if mask is not None else node("Identity", ["scores"], ["masked"]),
        node("Softmax", ["masked"], ["shares"], axis=-1),
        *([node("IsNaN", ["shares"], ["none"]), node("Where", ["none", "zero", "shares"], ["p"])] if guard
          else [node("Identity", ["shares"], ["p"])]),
        node("MatMul", ["p", "v3"], ["y"]),
    ]  # fmt: skip
    constants = {
        "two": np.int64([2]), "wide": np.int64([1, 1, TIMES, 1, 1]), "times": np.int64([1, 1, TIMES, 1, 1]),
        "joined": np.int64([0, QUERIES, -1, SIZE]), "root": np.float32(0.7), "zero": np.float32(0),
    }  # fmt: skip
    return nodes, constants


def shared_feeds(rows, keys, heads=SHARED, mask=None):
    feeds = {"q": draw(2, QUERIES, rows, SIZE), "k": draw(2, heads, keys, SIZE), "v": 3 * draw(2, heads, keys, SIZE)}
    return feeds if mask is None else feeds | {"mask": mask}


def hidden(rows, keys):
    """A causal mask of minus infinity, under which the first query sees nothing."""
    seen = np.arange(keys) < np.arange(keys - rows, keys)[:, None] if rows < keys else np.tri(rows, keys, -1) > 0
    seen[0] = False
    return np.where(seen, 0, -np.inf).astype(np.float32)[None, None]


@pytest.mark.parametrize(("rows", "keys"), [(1, 5), (1, 700), (2, 1100), (40, 90), (40, 600)])
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("repeat", ["Expand", "Tile", None])
@pytest.mark.parametrize("scale", ["both", ""])
def test_heads_that_share_keys_are_read_once(rows, keys, masked, repeat, scale):
    mask = hidden(rows, keys) if masked else None
    feeds = shared_feeds(rows, keys, SHARED if repeat else QUERIES, mask)
    nodes, constants = shared_heads(repeat, mask=mask, scale=scale)
    model = make_model(nodes, feeds, constants, ["y"])
    module = tinycomp.compile(model, verify=True)
    assert set(kernels(module)) <= {"cached_attention_f32", "attention_combine_f32"}
    expected = tinycomp.compile(model, "host", passes="").run(feeds)["y"]
    assert not masked or not expected[:, :, 0].any()
    np.testing.assert_allclose(module.run(feeds)["y"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("rows", "keys"), [(1, 700), (40, 90)])
def test_a_query_without_keys_gives_nan_where_nothing_catches_that(rows, keys):
    mask = hidden(rows, keys)
    feeds = shared_feeds(rows, keys, mask=mask)
    nodes, constants = shared_heads(guard=False, mask=mask)
    model = make_model(nodes, feeds, constants, ["y"])
    module = tinycomp.compile(model)
    assert kernels(module) == ["attention_f32"]
    expected = tinycomp.compile(model, "host", passes="").run(feeds)["y"]
    assert np.isnan(expected[:, :, 0]).all()
    np.testing.assert_allclose(module.run(feeds)["y"], expected, rtol=1e-4, atol=1e-5)


def test_shared_heads_without_a_mask_need_nothing_to_catch():
    feeds = shared_feeds(3, 600)
    model = make_model(*shared_heads_of(feeds, guard=False), ["y"])
    module = tinycomp.compile(model)
    assert set(kernels(module)) <= {"cached_attention_f32", "attention_combine_f32"}
    expected = tinycomp.compile(model, "host", passes="").run(feeds)["y"]
    np.testing.assert_allclose(module.run(feeds)["y"], expected, rtol=1e-4, atol=1e-5)


def shared_heads_of(feeds, **options):
    nodes, constants = shared_heads(**options)
    return nodes, feeds, constants


APART = {
    "narrow mask": ({"mask": draw(2, 1, 4, 1)}, shared_feeds(4, 9, mask=draw(2, 1, 4, 1))),
    "other transpose": ({"axes": (0, 1, 2, 3)}, shared_feeds(SIZE, SIZE)),
}


@pytest.mark.parametrize("name", APART)
def test_other_forms_of_shared_heads_stay_apart_and_are_right(name):
    options, feeds = APART[name]
    model = make_model(*shared_heads_of(feeds, **options), ["y"])
    module = tinycomp.compile(model)
    assert not {"cached_attention_f32"} & set(kernels(module))
    expected = tinycomp.compile(model, "host", passes="").run(feeds)["y"]
    np.testing.assert_allclose(module.run(feeds)["y"], expected, rtol=1e-4, atol=1e-5)
