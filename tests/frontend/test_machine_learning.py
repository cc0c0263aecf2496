"""Operators of ai.onnx.ml that others define: against onnxruntime, on the host and on the C target."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import tinycomp
from tests.cases.case import Case, make_model
from tests.cases.maps import WIDTH, features, rows
from tests.cases.runner import meet
from tests.cases.subject import of_case
from tinycomp.errors import FeedError
from tinycomp.frontend.extension import operators

ROWS = [row for row in features() if len(row.operands[0]) == 50]


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_every_form_runs_on_the_target_with_open_sizes(row: Case) -> None:
    assert meet(of_case(row), "open") == ("right", "")


def compare(module: tinycomp.Module, session: onnxruntime.InferenceSession, x: np.ndarray) -> None:
    for actual, expected in zip(module.run({"x0": x}).values(), session.run(None, {"x0": x}), strict=True):
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
        if expected.dtype == np.float32:
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
        else:
            assert actual.tolist() == expected.tolist()


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_unknown_ranks_and_vectors(row: Case) -> None:
    """A vector is one row, for onnxruntime as well."""
    model, x = row.model(), row.feeds["x0"]
    for known, feeds in ((None, (x, x[2])), ([x.shape[1]], (x[2],))):
        kind = helper.np_dtype_to_tensor_dtype(x.dtype)
        model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x0", kind, known))
        module = tinycomp.compile(model, "host")
        assert {step.tier for step in module._parts.plan.steps} == {"numpy"}
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        for feed in feeds:
            compare(module, session, feed)


def test_what_a_definition_demands_of_an_input_is_its_size() -> None:
    row = next(row for row in ROWS if row.op == "LinearRegressor" and "intercepts" in row.attrs)
    module = tinycomp.compile(row.model(), shapes={"x0": ("rows", "columns")})
    assert module.inputs[0].shape == ("rows", WIDTH)
    with pytest.raises(FeedError, match=r"Nodes decide sizes that the model leaves open: node \(LinearRegressor\)"):
        module(np.zeros((2, WIDTH + 1), np.float32))


def test_every_definition_has_a_case() -> None:
    assert set(operators("ai.onnx.ml")) <= {row.op for row in rows()}


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_operator_is_written_as_it_was(row: Case) -> None:
    model = tinycomp.to_onnx(tinycomp.from_onnx(row.model()))
    assert [node.op_type for node in model.graph.node] == [row.op]
    onnx.checker.check_model(model)


@pytest.mark.parametrize("target", ["host", "c"])
def test_features_by_index(target: str) -> None:
    node = helper.make_node("ArrayFeatureExtractor", ["x", "which"], ["y"], domain="ai.onnx.ml")
    data = np.random.default_rng(0).standard_normal((4, WIDTH)).astype(np.float32)
    which = {"which": np.array([[6, 0, 3]])}
    model = make_model([node], {"x": data}, which, ["y"], 17, {"x": ["rows", WIDTH]}, {"ai.onnx.ml": 1})
    module = tinycomp.compile(model, target)
    np.testing.assert_array_equal(module(data), data[:, [6, 0, 3]])
    assert bool(module.report().regions) == (target == "c")


@pytest.mark.parametrize("target", ["host", "c"])
@pytest.mark.parametrize("indices", [[[6, 0, 3]], [[1], [1], [2]]])
def test_values_of_a_vector_by_index(target: str, indices: list[list[int]]) -> None:
    node = helper.make_node("ArrayFeatureExtractor", ["x", "which"], ["y"], domain="ai.onnx.ml")
    feeds, labels = {"which": np.array(indices)}, {"x": np.arange(10, 17)}
    model = make_model([node], feeds, labels, ["y"], 17, {"which": [None, None]}, {"ai.onnx.ml": 1})
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)[0]
    module = tinycomp.compile(model, target)
    assert bool(module.report().regions) == (target == "c")
    actual = module(feeds["which"])
    assert (actual.shape, actual.tolist()) == (expected.shape, expected.tolist())
