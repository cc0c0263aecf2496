"""Sizes that a run finds, such as the rows of a Compress, among sizes of inputs: the C target beside the host."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import tinycomp
from tinycomp.errors import TinycompError

SIZES = ((4, 3), (4, 4), (1, 1), (5, 1), (1, 6), (3, 9), (0, 2), (2, 0), (6, 5))
CONSTANTS: dict[str, Any] = {
    "first": np.array([0]), "second": np.array([1]), "two": np.array([2]), "third": np.array([3]),
    "last two": np.array([-2]), "end": np.array([2**40]), "pads": np.array([1, 2]), "axis": np.array(0),
    "one number": np.float32([2]), "three numbers": np.float32([1, 2, 3]),
}  # fmt: skip


class Drawn:
    """A graph that begins with a value of a size that a run finds, and goes on at random."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.nodes: list[onnx.NodeProto] = []
        values = [self._found()]
        others = ["x", "z", "one number", "three numbers"]
        if self.random.random() < 0.4:
            others.append(self.node("Compress", ["z", "keep z"], axis=0))
        for _ in range(self.random.randint(1, 4)):
            values.append(self._next(self.random.choice(values), self.random.choice(others + values), others))
        vectors = {"x": (TensorProto.FLOAT, "n"), "z": (TensorProto.FLOAT, "m")}
        vectors |= {"keep": (TensorProto.BOOL, "n"), "keep z": (TensorProto.BOOL, "m")}
        self.model = helper.make_model(
            helper.make_graph(
                self.nodes, "found",
                [helper.make_tensor_value_info(name, kind, [size]) for name, (kind, size) in vectors.items()],
                [helper.make_tensor_value_info(values[-1], TensorProto.FLOAT, None)],
                [numpy_helper.from_array(array, name) for name, array in CONSTANTS.items()],
            ),
            opset_imports=[helper.make_opsetid("", 18)], ir_version=9,
        )  # fmt: skip

    def node(self, op: str, inputs: list[str], results: int = 1, **attributes: Any) -> str:
        names = [f"v{len(self.nodes)}{'ab'[i]}" for i in range(results)]
        self.nodes.append(helper.make_node(op, inputs, names, name=names[0], **attributes))
        return names[0]

    def _found(self) -> str:
        kind = self.random.choice(["Compress", "NonZero", "Unique", "Compress"])
        if kind == "NonZero":
            rows = self.node("Squeeze", [self.node("NonZero", ["x"]), "first"])
            return self.node("Cast", [rows], to=TensorProto.FLOAT)
        return self.node("Compress", ["x", "keep"], axis=0) if kind == "Compress" else self.node("Unique", ["x"])

    def _next(self, a: str, b: str, others: list[str]) -> str:
        draw = self.random.choice
        op = draw(["Add", "Sub", "Mul", "Max", "Min", "Mean", "Where", "Concat", "Slice", "Outer", "Expand", "Pad",
                   "Tile", "Softmax", "ReduceSum", "Relu", "Gather", "CumSum", "Shape", "TopK"])  # fmt: skip
        if op in ("Add", "Sub", "Mul"):
            return self.node(op, draw([[a, b], [b, a]]))
        if op in ("Max", "Min", "Mean"):
            return self.node(op, [a, b, *([draw(others)] if self.random.random() < 0.3 else [])])
        if op == "Where":
            return self.node(op, [self.node("Less", [a, b]), a, b])
        if op == "Outer":
            sides = [self.node("Unsqueeze", [a, "second"]), self.node("Unsqueeze", [b, "first"])]
            product = self.node(draw(["Mul", "MatMul", "Add"]), sides)
            return self.node("ReduceSum", [product, draw(["first", "second"])], keepdims=0)
        if op == "Shape":
            return self.node("Add", [b, self.node("Cast", [self.node("Shape", [a])], to=TensorProto.FLOAT)])
        inputs, attributes = {
            "Concat": ([a, b], {"axis": 0}),
            "Slice": ([a, draw(["first", "second", "last two"]), draw(["third", "end"])], {}),
            "Expand": ([a, self.node("Shape", [b])], {}) if op == "Expand" else ([], {}),
            "Pad": ([a, "pads"], {}),
            "Tile": ([a, "two"], {}),
            "Softmax": ([a], {"axis": 0}),
            "Gather": ([a, "first"], {}),
            "CumSum": ([a, "axis"], {}),
            "TopK": ([a, "second"], {"results": 2}),
        }.get(op, ([a], {}))
        return self.node(op, inputs, **attributes)


def feeds_of(seed: int) -> Iterator[dict[str, np.ndarray]]:
    rng = np.random.default_rng(seed)
    for n, m in SIZES:
        for _ in range(2):
            yield {
                "x": rng.integers(-1, 3, n).astype(np.float32), "z": rng.integers(1, 4, m).astype(np.float32),
                "keep": rng.random(n) < 0.6, "keep z": rng.random(m) < 0.5,
            }  # fmt: skip


def result(module: tinycomp.Module, feeds: dict[str, np.ndarray]) -> np.ndarray | None:
    """Return the result of a run, None if it is refused for its sizes."""
    try:
        return next(iter(module.run(feeds).values()))
    except TinycompError as error:
        if "byte" in str(error):  # it must be about sizes
            raise
        return None


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs_have_the_results_of_the_host(seed: int) -> None:
    model = Drawn(seed).model
    host, c = tinycomp.compile(model, []), tinycomp.compile(model, "c")
    for feeds in feeds_of(seed):
        wanted, found = result(host, feeds), result(c, feeds)
        assert (wanted is None) == (found is None), feeds
        if wanted is not None and found is not None:
            assert wanted.shape == found.shape, feeds
            np.testing.assert_allclose(found, wanted, atol=1e-5, err_msg=str(feeds))


HEAD = '<ir_version: 10, opset_import: ["" : 21]> g (float[n] x, float[m] z, bool[n] keep) => (float[k] y) '
DIFFERENCE = HEAD + "{ t = Compress(x, keep)  y = Sub(t, z) }"
STALE = HEAD + "<float[2] t> { t = Compress(x, keep)  y = Sub(t, z) }"
LAST = HEAD + "<int64[1] two = {-2}, int64[1] end = {9}> { t = Compress(x, keep)  y = Slice(t, two, end)  u = Relu(z) }"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("target", ["c", "host"])
@pytest.mark.parametrize("text", [DIFFERENCE, STALE], ids=["open", "declared"])
def test_sizes_need_not_fit_before_they_are_found(text: str, target: str) -> None:
    module = tinycomp.compile(onnx.parser.parse_model(text), target)
    x = np.arange(4, dtype=np.float32)
    for kept, size in (([0, 2, 3], 3), ([1], 3), ([0, 1], 2), ([3], 9), ([2, 3], 1), ([], 1)):
        z = np.full(size, 2, np.float32)
        np.testing.assert_array_equal(module(x, z, np.isin(x, kept)), x[kept] - z)
    with pytest.raises(TinycompError, match="do not broadcast"):
        module(x, np.ones(3, np.float32), x < 2)


def test_a_result_that_begins_at_a_place_that_is_found_is_read_there() -> None:
    module = tinycomp.compile(onnx.parser.parse_model(LAST))
    x = np.arange(6, dtype=np.float32)
    for count in range(7):
        np.testing.assert_array_equal(module(x, x, x < count), x[:count][-2:])
