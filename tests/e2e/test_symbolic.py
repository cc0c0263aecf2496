"""Models with symbolic sizes: specialised for every size that comes, within bounds, and exact about disagreement."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

import tinycomp
from tests.targets.c.harness import make_model
from tinycomp.data import digits, digits_model
from tinycomp.errors import FeedError, ModelError, TinycompError
from tinycomp.runtime.regions import SPECIALISATIONS, PerShape

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


def test_the_cache_of_plans_is_bounded():
    module = tinycomp.compile(two_inputs())
    for n in range(1, SPECIALISATIONS + 8):
        np.testing.assert_allclose(module(rows(n), rows(n)), 2 * rows(n) @ W, rtol=1e-4, atol=1e-5)
    assert len(module._plans) == SPECIALISATIONS


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


def test_sizes_that_depend_on_data_are_compiled_per_size_within_bounds():
    nodes = [
        helper.make_node("Slice", ["x", "zero", "end"], ["cut"], name="cut"),
        helper.make_node("MatMul", ["cut", "w"], ["p"], name="product"),
        helper.make_node("Relu", ["p"], ["y"], name="relu"),
    ]
    feeds = {"x": rows(40), "end": np.array([3])}
    model = make_model(nodes, feeds, {"w": W, "zero": np.array([0])}, ["y"])
    module = tinycomp.compile(model)
    assert module.report().where("product") == "c_0"
    for n in range(1, SPECIALISATIONS + 8):
        wanted = np.maximum(rows(40)[:n] @ W, 0)
        np.testing.assert_allclose(module(rows(40), np.array([n])), wanted, rtol=1e-4, atol=1e-5)
    (step,) = [s for s in module._parts.plan.steps if isinstance(s.run, PerShape)]
    assert len(step.run.cache) == SPECIALISATIONS
    restored = tinycomp.load(module.__reduce__()[1][0])
    np.testing.assert_array_equal(restored(rows(40), np.array([5])), module(rows(40), np.array([5])))


def test_programs_of_past_sizes_are_let_go():
    from tinycomp.driver.compiler import Compiler, load_graph, resolve_targets
    from tinycomp.runtime.native.executor import Pool

    nodes = [helper.make_node("Slice", ["x", "zero", "end"], ["cut"]), helper.make_node("Exp", ["cut"], ["y"])]
    feeds = {"x": rows(40), "end": np.array([3])}
    graph = load_graph(make_model(nodes, feeds, {"zero": np.array([0])}, ["y"]))
    compiler = Compiler(resolve_targets("c"), Pool(1))
    lowering = compiler.lowering()
    plan = lowering.plan(compiler.partition(graph))
    for n in range(1, SPECIALISATIONS + 8):
        plan.run([rows(40), np.array([n])])
    assert lowering.programs == {}
