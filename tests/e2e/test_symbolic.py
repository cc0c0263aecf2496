"""Models with symbolic sizes: right for every size that comes, and exact about disagreement."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import tinycomp
from tests.targets.c.harness import make_model
from tinycomp.data import digits, digits_model
from tinycomp.errors import FeedError, ModelError, TinycompError

W = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)


def rows(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((n, 4)).astype(np.float32)


def two_inputs() -> onnx.ModelProto:
    nodes = [helper.make_node("Add", ["a", "b"], ["s"]), helper.make_node("MatMul", ["s", "w"], ["y"])]
    feeds = {"a": rows(2), "b": rows(2)}
    return make_model(nodes, feeds, {"w": W}, ["y"], symbolic={"a": ("N", 4), "b": ("N", 4)})


def test_every_batch_size():
    images, _ = digits()
    module = tinycomp.compile(digits_model())
    whole = module(images[:32])
    for n in (1, 2, 3, 7, 32, 1):
        np.testing.assert_allclose(module(images[:n]), whole[:n], atol=1e-6)


def test_an_empty_batch():
    module = tinycomp.compile(digits_model())
    assert module(np.empty((0, 1, 8, 8), np.float32)).shape == (0, 10)


def test_disagreeing_sizes_are_named():
    module = tinycomp.compile(two_inputs())
    with pytest.raises(FeedError) as error:
        module(rows(2), rows(3))
    assert str(error.value) == (
        'inputs "a" and "b": the sizes of "N" differ; expected N = 2 as in a; found N = 3. '
        "Give both inputs the same size there."
    )


def test_unnamed_dimensions_are_independent():
    model = two_inputs()
    for info in model.graph.input:
        info.type.tensor_type.shape.dim[0].ClearField("dim_param")
    module = tinycomp.compile(model)
    assert [s.shape for s in module.inputs] == [("a.0", 4), ("b.0", 4)]
    np.testing.assert_allclose(module(rows(3), rows(1)), (rows(3) + rows(1)) @ W, rtol=1e-4, atol=1e-5)


def test_shapes_fix_sizes():
    module = tinycomp.compile(two_inputs(), shapes={"a": (3, 4), "b": (3, 4)}, strict=True)
    assert str(module.inputs[0]) == "a: float32[3, 4]"
    assert str(module.outputs[0]) == "y: float32[3, 5]"
    np.testing.assert_allclose(module(rows(3), rows(3)), 2 * rows(3) @ W, rtol=1e-4, atol=1e-5)
    with pytest.raises(FeedError, match=r"compile with shapes=\{...\} for another one"):
        module(rows(2), rows(2))


def test_a_size_given_for_one_input_holds_for_all_with_the_same_symbol():
    for model in (two_inputs(), tinycomp.from_onnx(two_inputs())):
        module = tinycomp.compile(model, shapes={"a": (3, 4)})
        assert [s.shape for s in module.inputs] == [(3, 4), (3, 4)]


def test_shapes_replace_fixed_sizes_too_and_apply_to_graphs():
    fixed = tinycomp.compile(two_inputs(), shapes={"a": (3, 4), "b": (3, 4)})
    graph = tinycomp.from_onnx(two_inputs())
    module = tinycomp.compile(graph, shapes={"a": (3, 4), "b": (3, 4)})
    np.testing.assert_array_equal(module(rows(3), rows(3)), fixed(rows(3), rows(3)))
    assert [v.type.shape for v in graph.inputs] == [("N", 4), ("N", 4)], "the graph handed in is left alone"


@pytest.mark.parametrize("as_graph", [False, True])
@pytest.mark.parametrize(
    ("shapes", "text"),
    [
        ({"x": (1, 4)}, 'shapes names the input "x", which the model does not have; expected one of'),
        ({"a": (1, 3)}, r"node s.* the operands do not fit the operator"),
        ({"a": (1, 4, 4)}, 'input "a": the given shape has the wrong rank; expected 2 dimensions'),
        ({"a": (-1, 4)}, 'input "a": a dimension of the given shape is not valid; expected a size of at least 0'),
        ({"a": (1.5, 4)}, 'input "a": a dimension of the given shape is not valid'),
        ({"a": (2, 4), "b": (3, 4)}, 'input "b": the given shapes disagree about the dimension "N"; expected 2'),
    ],
)
def test_shapes_that_do_not_fit(shapes, text, as_graph):
    model = tinycomp.from_onnx(two_inputs()) if as_graph else two_inputs()
    with pytest.raises(ModelError, match=text):
        tinycomp.compile(model, shapes=shapes)


def test_a_size_that_does_not_fit_the_graph_fails_before_anything_runs():
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    model = make_model(nodes, {"x": rows(2)}, {"shape": np.array([2, -1])}, ["y"], symbolic={"x": ("N", 3)})
    module = tinycomp.compile(model)
    assert module(np.ones((4, 3), np.float32)).shape == (2, 6)
    with pytest.raises(TinycompError):
        module(np.ones((3, 3), np.float32))


def test_a_region_reads_sizes_that_only_the_host_finds_off_its_inputs():
    nodes = [
        helper.make_node("Compress", ["x", "chosen"], ["cut"], name="cut", axis=0),
        helper.make_node("MatMul", ["cut", "w"], ["p"], name="product"),
        helper.make_node("Relu", ["p"], ["y"], name="relu"),
    ]
    feeds = {"x": rows(40), "chosen": np.ones(40, np.bool_)}
    module = tinycomp.compile(make_model(nodes, feeds, {"w": W}, ["y"]))
    assert (module.report().where("cut"), module.report().where("product")) == ("host", "c_0")
    for n in (3, 1, 40, 0):
        wanted = np.maximum(rows(40)[:n] @ W, 0)
        np.testing.assert_allclose(module(rows(40), np.arange(40) < n), wanted, rtol=1e-4, atol=1e-5)
    restored = tinycomp.load(module.__reduce__()[1][0])
    few = np.arange(40) < 5
    np.testing.assert_array_equal(restored(rows(40), few), module(rows(40), few))
