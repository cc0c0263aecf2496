"""Rotary embedding as exporters spell it: one kernel call that reads and writes heads in place, equal to the host."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import tinycomp
from tests.targets.c.harness import make_model
from tests.targets.c.quantized.test_layers import kernels

BATCH, ROWS, HEADS, SIZE = 2, 5, 3, 8
X = np.random.default_rng(1).standard_normal((BATCH, ROWS, HEADS * SIZE), np.float32)
TURNS = np.random.default_rng(2).standard_normal((2, BATCH, 1, ROWS, SIZE), np.float32)


def model(turns: np.ndarray = TURNS, ends: tuple[int, int] = (4, 4), axis: int = -1, heads_first: bool = True):
    """Heads apart, turned, and apart once more."""
    node = helper.make_node
    turn = "Transpose" if heads_first else "Identity"
    attrs = {"perm": [0, 2, 1, 3]} if heads_first else {}
    nodes = [
        node("Reshape", ["x", "heads"], ["apart"]),
        node(turn, ["apart"], ["h"], **attrs),
        node("Slice", ["h", "zero", "first", "last", "one"], ["low"]),
        node("Slice", ["h", "second", "end", "last", "one"], ["high"]),
        node("Neg", ["high"], ["minus"]),
        node("Concat", ["minus", "low"], ["crossed"], axis=axis),
        node("Mul", ["h", "cos"], ["a"]),
        node("Mul", ["crossed", "sin"], ["b"]),
        node("Add", ["a", "b"], ["y"]),
    ]
    constants = {
        "heads": np.int64([0, 0, HEADS, SIZE]), "zero": np.int64([0]), "first": np.int64([ends[0]]),
        "second": np.int64([ends[1]]), "end": np.int64([np.iinfo(np.int64).max]), "last": np.int64([3]),
        "one": np.int64([1]),
    }  # fmt: skip
    feeds = {"x": X, "cos": turns[0], "sin": turns[1]}
    return make_model(nodes, feeds, constants, ["y"]), feeds


def check(parts, expected: list[str]) -> None:
    graph, feeds = parts
    module = tinycomp.compile(graph, "c", strict=True)
    wanted = tinycomp.compile(graph, "host", passes="").run(feeds)["y"]
    np.testing.assert_allclose(module.run(feeds)["y"], wanted, rtol=1e-6, atol=1e-6)
    assert kernels(module) == expected


@pytest.mark.parametrize("shape", [TURNS.shape, (2, 1, 1, ROWS, SIZE), (2, 1, ROWS, SIZE), (2, ROWS, SIZE)], ids=str)
def test_heads_are_read_where_they_lie(shape):
    check(model(np.resize(TURNS, shape)), ["rotary_f32"])


def test_heads_behind_the_rows():
    check(model(TURNS.swapaxes(2, 3), heads_first=False), ["rotary_f32"])


@pytest.mark.parametrize(
    "parts",
    [
        model(ends=(3, 3)),
        model(ends=(5, 5)),
        model(np.resize(TURNS, (2, BATCH, HEADS, ROWS, SIZE))),
        model(np.resize(TURNS, (2, BATCH, 1, 1, SIZE))),
        model(np.resize(TURNS, (2, BATCH, 1, ROWS, 1))),
    ],
    ids=["less than half", "more than half", "per head", "for all rows", "for all features"],
)
def test_other_sums_of_products_stay_apart(parts):
    graph, feeds = parts
    module = tinycomp.compile(graph, "c", strict=True)
    wanted = tinycomp.compile(graph, "host", passes="").run(feeds)["y"]
    np.testing.assert_allclose(module.run(feeds)["y"], wanted, rtol=1e-6, atol=1e-6)
    assert "rotary_f32" not in kernels(module)


@pytest.mark.parametrize("positions", ["absent", "given"])
@pytest.mark.parametrize("attrs", [{}, {"interleaved": 1}, {"rotary_embedding_dim": 4}], ids=str)
@pytest.mark.parametrize("rank", [3, 4])
def test_the_operator_of_onnx(positions, attrs, rank):
    x = X if rank == 3 else np.ascontiguousarray(X.reshape(BATCH, ROWS, HEADS, SIZE).swapaxes(1, 2))
    rng, half = np.random.default_rng(3), attrs.get("rotary_embedding_dim", SIZE) // 2
    tables = (BATCH, ROWS, half) if positions == "absent" else (20, half)
    feeds = {"x": x, **{name: rng.standard_normal(tables, np.float32) for name in ("cos", "sin")}}
    if positions == "given":
        feeds["at"] = rng.integers(0, 20, (BATCH, ROWS))
    heads = {"num_heads": HEADS} if rank == 3 else {}
    node = helper.make_node("RotaryEmbedding", list(feeds), ["y"], **attrs, **heads)
    check((make_model([node], feeds, {}, ["y"], 23), feeds), ["rotary_f32"])
