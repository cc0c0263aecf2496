"""Modules bound to the caller's arrays: same results as a call, in the caller's memory."""

from __future__ import annotations

import re

import numpy as np
import pytest
from onnx import helper

import tinycomp
from tests.targets.c.harness import make_model
from tinycomp.errors import FeedError

X = np.arange(12, dtype=np.float32).reshape(3, 4) - 5


def relu_and_sum(shape=(3, 4)) -> bytes:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("ReduceSum", ["y"], ["s"], keepdims=0)]
    return make_model(nodes, {"x": np.zeros(shape, np.float32)}, {}, ["y", "s"])


@pytest.fixture(scope="module", params=["c", "host"])
def module(request):
    return tinycomp.compile(relu_and_sum(), request.param)


def test_inputs_are_read_anew_and_outputs_stay_the_same_objects(module):
    x = np.zeros((3, 4), np.float32)
    bound = module.bind(x)
    y, s = bound.outputs
    for values in (X, -X, X * 2):
        x[...] = values
        results = bound()
        assert results[0] is y
        assert results[1] is s
        np.testing.assert_array_equal(y, np.maximum(values, 0))
        assert s == np.maximum(values, 0).sum()


@pytest.mark.parametrize("names", [False, True])
def test_the_callers_outputs_are_written(module, names):
    y, s = np.empty((3, 4), np.float32), np.empty((), np.float32)
    bound = module.bind({"x": X} if names else [X], {"s": s, "y": y} if names else [y, s])
    assert bound()[0] is y
    np.testing.assert_array_equal(y, np.maximum(X, 0))
    assert s == y.sum()


def test_an_output_that_becomes_read_only_is_not_written(module):
    bound = module.bind(X)
    bound.outputs[0].flags.writeable = False
    with pytest.raises(FeedError, match="output 0: the bound array can no longer be written; expected writeable"):
        bound()


def test_nothing_cannot_be_bound(module):
    with pytest.raises(FeedError, match="not inputs; expected arrays by name, in order, or the only one; found None"):
        module.bind(None)


def test_one_output_alone_is_not_wrapped():
    model = make_model([helper.make_node("Relu", ["x"], ["y"])], {"x": X}, {}, ["y"])
    bound = tinycomp.compile(model).bind(X)
    np.testing.assert_array_equal(bound(), np.maximum(X, 0))
    assert bound.inputs[0] is X


def test_a_symbolic_module_is_bound_for_the_shape_at_hand():
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    module = tinycomp.compile(make_model(nodes, {"x": X}, {}, ["y"], symbolic={"x": ["batch", 4]}))
    for rows in (1, 3):
        assert module.bind(X[:rows].copy())().shape == (rows, 4)


def test_a_result_of_another_size_is_an_error():
    model = make_model([helper.make_node("NonZero", ["x"], ["y"])], {"x": X}, {}, ["y"])
    x = X.copy()
    bound = tinycomp.compile(model).bind(x)
    x[...] = 0
    with pytest.raises(FeedError, match=r'output "y".*does not fit the array.*call the module itself'):
        bound()


def spread(array):
    return np.repeat(array, 2, -1)[..., ::2]


def read_only(array):
    array.flags.writeable = False
    return array


Y, S = np.empty((3, 4), np.float32), np.empty((), np.float32)
REFUSED = {
    "strided input": (spread(X), None, r'input "x".*cannot be bound.*ascontiguousarray'),
    "other byte order": (X.astype(">f4"), None, r'input "x".*does not fit.*>f4'),
    "list input": ([X.tolist()], None, r'input "x".*only arrays'),
    "list": (X, [Y.tolist(), S], r'output "y".*only arrays can be bound'),
    "strided output": (X, [spread(Y), S], r'output "y".*contiguous'),
    "read-only output": (X, [Y, read_only(S.copy())], r'output "s".*may be written'),
    "wrong shape": (X, [Y[:2], S], r'output "y".*does not fit'),
    "wrong count": (X, [Y], r"wrong number of outputs.*2.*1"),
    "in place": (Y, [Y, S], r'output "y".*shares its memory.*"x"'),
    "unknown name": (X, {"y": Y, "t": S}, r"not the outputs of the model.*y, s"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_bound(module, name):
    inputs, outputs, message = REFUSED[name]
    with pytest.raises(FeedError) as caught:
        module.bind(inputs, outputs)
    assert re.search(message, str(caught.value).replace("\n", " "))
