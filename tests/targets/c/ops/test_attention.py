"""Attention as models write it: one kernel call, heads read and written in place, equal to the host."""

from __future__ import annotations

import numpy as np
import pytest

import tinycomp
from tests.targets.c.harness import make_model, nodes_of

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
    factor = "Mul({}, root)" if scale == "both" else "Identity({})"
    text = f"""qkv = MatMul(x, w) q0, k0, v0 = Split<axis = 2, num_outputs = 3>(qkv)
        q1 = Reshape(q0, heads) k1 = Reshape(k0, heads) v1 = Reshape(v0, heads)
        q = Transpose<perm = [0, 2, 1, 3]>(q1) k = Transpose<perm = [0, 2, 3, 1]>(k1)
        v = Transpose<perm = [0, 2, 1, 3]>(v1) q_ = {factor.format("q")} k_ = {factor.format("k")}
        scores = MatMul(q_, k_) scaled = {f"{scale}(scores, factor)" if scale in ("Mul", "Div") else "Identity(scores)"}
        masked = {"Identity(scaled)" if mask is None else "Add(mask, scaled)"}
        p = Softmax<axis = -1>(masked) z = MatMul(p, v) t = Transpose<perm = [0, 2, 1, 3]>(z) y = Reshape(t, flat)"""
    constants = {
        "w": QKV, "root": np.float32(0.7), "factor": np.float32(0.3),
        "heads": np.int64([0, 0, HEADS, WIDTH]), "flat": np.int64([0, 0, HIDDEN]),
    }  # fmt: skip
    feeds = {"x": X} | ({} if mask is None else {"mask": mask})
    return make_model(nodes_of(text), feeds, constants, ["y"]), feeds


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
    nodes = nodes_of("s = MatMul(q, w) masked = Add(s, mask) p = Softmax<axis = -1>(masked) y = MatMul(p, w)")
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
    scores = "s" if mask is None else "sm"
    masked = "" if mask is None else "sm = Add(s, m)"
    nodes = nodes_of(f"s = MatMul(q, k) {masked} p = Softmax<axis = {axis}>({scores}) y = MatMul(p, v)")
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
    copied = {"Expand": "Expand({0}1, wide)", "Tile": "Tile({0}1, times)"}.get(repeat, "")
    spread = f"{{0}}1 = Unsqueeze({{0}}, two) {{0}}2 = {copied} {{0}}3 = Reshape({{0}}2, joined)"
    both = spread if repeat else "{0}3 = Identity({0})"
    factor = "Mul({}, root)" if scale == "both" else "Identity({})"
    nodes = nodes_of(f"""{both.format("k")} {both.format("v")} k4 = Transpose<perm = {list(axes)}>(k3)
        q_ = {factor.format("q")} k4_ = {factor.format("k4")} scores = MatMul(q_, k4_)
        masked = {"Identity(scores)" if mask is None else "Add(scores, mask)"} shares = Softmax<axis = -1>(masked)
        {"none = IsNaN(shares) p = Where(none, zero, shares)" if guard else "p = Identity(shares)"}
        y = MatMul(p, v3)""")
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
