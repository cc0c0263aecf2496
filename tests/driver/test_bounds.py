"""Bounds of sizes: what `shapes=` promises, and what a run is held to."""

from __future__ import annotations

import numpy as np
import pytest

import tinycomp
from tinycomp.errors import FeedError, ModelError
from tinycomp.ir.types import TensorType
from tinycomp.target import Target

FLOAT = "float32"


def model(dims=("n", "seq")) -> tinycomp.Graph:
    """Add two inputs of one shape."""
    g = tinycomp.Graph("sums", opsets={"": 17})
    a, b = (g.add_input(name, TensorType(FLOAT, dims)) for name in "ab")
    g.set_outputs([g.add("Add", [a, b], sources=["sum"]).output], ["y"])
    return g


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


SHAPES = {"a": ("n", (1, 512))}


@pytest.mark.parametrize("target", ["c", "host"])
def test_a_run_is_held_to_bounds(target):
    module = tinycomp.compile(model(), target, shapes=SHAPES)
    for seq in (1, 7, 512):
        assert module(ones(2, seq), ones(2, seq)).shape == (2, seq)
    for seq in (0, 513):
        expected = (
            f'input "a", dimension 1: a size is not within its bounds; expected seq from 1 to 512; found seq = {seq}'
        )
        for call in (
            lambda n=seq: module(ones(2, n), ones(2, n)),
            lambda n=seq: module.run({"a": ones(2, n), "b": ones(2, n)}),
            lambda n=seq: module.bind([ones(2, n), ones(2, n)]),
        ):
            with pytest.raises(FeedError, match=expected):
                call()
    assert module(ones(2, 3), ones(2, 3)).shape == (2, 3)


def test_names():
    assert [str(s) for s in tinycomp.compile(model(), shapes=SHAPES).inputs] == [
        "a: float32[n, seq]", "b: float32[n, seq]"
    ]  # fmt: skip
    named = tinycomp.compile(model((None, None)), shapes={"a": ("n", ("width", 2, 9)), "b": ("n", "width")})
    assert [str(s) for s in named.inputs] == ["a: float32[n, width]", "b: float32[n, width]"]
    with pytest.raises(FeedError, match="width from 2 to 9"):
        named(ones(1, 10), ones(1, 10))
    unnamed = tinycomp.compile(model((None, 4)), shapes={"a": ((0, 3), 4), "b": (None, 4)}, target="host")
    with pytest.raises(FeedError, match=r"a\.0 from 0 to 3"):
        unnamed(ones(4, 4), ones(4, 4))


def test_bounds_of_two_inputs_count_together():
    module = tinycomp.compile(model(), shapes={"a": ("n", (1, 50)), "b": ("n", (10, 90))})
    with pytest.raises(FeedError, match="seq from 10 to 50"):
        module(ones(1, 9), ones(1, 9))


def test_saved_modules_keep_bounds(tmp_path):
    for target in ("c", "host"):
        module = tinycomp.compile(model(), target, shapes=SHAPES)
        module.save(tmp_path / "m.tcm")
        loaded = tinycomp.load(tmp_path / "m.tcm")
        assert loaded(ones(2, 3), ones(2, 3)).shape == (2, 3)
        with pytest.raises(FeedError, match="seq from 1 to 512"):
            loaded(ones(2, 513), ones(2, 513))


def test_a_graph_keeps_bounds():
    graph = tinycomp.from_onnx(model(), SHAPES)
    assert graph.bounds == graph.clone().bounds == {"seq": (1, 512)}
    with pytest.raises(FeedError, match="seq from 1 to 512"):
        tinycomp.compile(graph)(ones(2, 513), ones(2, 513))


def test_rules_see_bounds():
    """A target that needs to know what the least and the most are."""
    from tinycomp.symbolic import bounds

    seen = []
    npu = Target("npu")

    @npu.op("Add")
    def _(node):
        seen.append([bounds(dim) for dim in node.inputs[0].sizes])
        return True

    npu.codegen(lambda region: lambda *operands: np.add(*operands))
    tinycomp.compile(model(), npu, shapes=SHAPES)
    assert seen[0] == [(0, None), (1, 512)]


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        ((5, 1), "not the bounds of a dimension"),
        ((-1, 4), "not the bounds of a dimension"),
        ((1, 2, 3, 4), "not the bounds of a dimension"),
        ((1.5, 2), "not the bounds of a dimension"),
        ((1,), "not the bounds of a dimension"),
        ((3, 1, 4), "not the bounds of a dimension"),
    ],
)
def test_what_bounds_cannot_be(dim, text):
    with pytest.raises(ModelError, match=text):
        tinycomp.compile(model(), shapes={"a": ("n", dim)})


def test_bounds_open_a_number():
    assert tinycomp.compile(model(("n", 4)), shapes={"a": ("n", (1, 5))}).bounds["a.1"] == (1, 5)


def test_bounds_that_leave_nothing():
    with pytest.raises(ModelError, match='the bounds of "seq" leave no size'):
        tinycomp.compile(model(), shapes={"a": ("n", (1, 5)), "b": ("n", (6, 9))})
