"""Operators of ai.onnx.ml that others define: against onnxruntime, on the host and on the C target."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import tinycomp
from tests.cases.case import make_model
from tinycomp.errors import FeedError
from tinycomp.frontend.extension import operators

F32 = np.float32
WIDTH = 7
RNG = np.random.default_rng(0)


def numbers(count: int) -> list[float]:
    return [float(v) for v in RNG.standard_normal(count).astype(F32)]


def machine(kind: str) -> dict[str, Any]:
    return {
        "coefficients": numbers(5), "support_vectors": numbers(5 * WIDTH), "n_supports": 5, "rho": numbers(1),
        "kernel_type": kind, "kernel_params": [0.2, 0.5, 3.0],
    }  # fmt: skip


def classifier(kind: str) -> dict[str, Any]:
    return {
        "coefficients": numbers(2 * 9), "support_vectors": numbers(9 * WIDTH), "vectors_per_class": [2, 4, 3],
        "rho": numbers(3), "kernel_type": kind, "kernel_params": [0.2, 0.5, 3.0],
    }  # fmt: skip


def linear(classes: int) -> dict[str, Any]:
    return {"coefficients": numbers(classes * WIDTH), "intercepts": numbers(classes)}


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "Scaler": ("Scaler", {"offset": numbers(WIDTH), "scale": numbers(WIDTH)}),
    "Scaler of one number": ("Scaler", {"offset": numbers(1), "scale": numbers(1)}),
    "one class": ("SVMRegressor", {**machine("RBF"), "one_class": 1}),
    "two targets": (
        "LinearRegressor", {"coefficients": numbers(2 * WIDTH), "targets": 2, "post_transform": "SOFTMAX_ZERO"}
    ),
    "one target": ("LinearRegressor", {"coefficients": numbers(WIDTH), "post_transform": "LOGISTIC"}),
    "Normalizer MAX": ("Normalizer", {"norm": "MAX"}),
    "Normalizer L1": ("Normalizer", {"norm": "L1"}),
    "Normalizer L2": ("Normalizer", {"norm": "L2"}),
    "Binarizer": ("Binarizer", {"threshold": 0.3}),
    "Imputer of NaN": ("Imputer", {"imputed_value_floats": numbers(WIDTH), "replaced_value_float": float("nan")}),
    "Imputer of zero": ("Imputer", {"imputed_value_floats": numbers(1), "replaced_value_float": 0.0}),
    "Imputer of integers": ("Imputer", {"imputed_value_int64s": [-1], "replaced_value_int64": 3}),
    "OneHotEncoder": ("OneHotEncoder", {"cats_int64s": [0, 1, 2, 5]}),
    "LabelEncoder": ("LabelEncoder", {"keys_int64s": [4, 0, 5, 4], "values_int64s": [9, 8, 7, 6], "default_int64": 3}),
    "LabelEncoder to floats": ("LabelEncoder", {"keys_int64s": [2, 1], "values_floats": [0.5, -3.0]}),
    "LinearRegressor": ("LinearRegressor", {**linear(3), "targets": 3}),
    "LinearRegressor of one": ("LinearRegressor", linear(1)),
    "LinearClassifier": ("LinearClassifier", {**linear(3), "classlabels_ints": [4, 5, 6], "post_transform": "SOFTMAX"}),
    "LinearClassifier of two": (
        "LinearClassifier", {**linear(2), "classlabels_ints": [0, 1], "post_transform": "LOGISTIC"},
    ),
    "LinearClassifier of texts": ("LinearClassifier", {**linear(3), "classlabels_strings": ["a", "b", "c"]}),
    **{
        f"LinearClassifier of one row, {transform}": (
            "LinearClassifier", {**linear(1), "classlabels_ints": [4, 6], "post_transform": transform},
        )
        for transform in ("NONE", "LOGISTIC")
    },
    "LinearClassifier of one row, texts": ("LinearClassifier", {**linear(1), "classlabels_strings": ["a", "b"]}),
    **{f"SVMRegressor {kind}": ("SVMRegressor", machine(kind)) for kind in ("LINEAR", "POLY", "RBF", "SIGMOID")},
    "SVMClassifier": ("SVMClassifier", {**classifier("RBF"), "classlabels_ints": [4, 5, 9]}),
    "SVMClassifier of texts": ("SVMClassifier", {**classifier("POLY"), "classlabels_strings": ["a", "b", "c"]}),
}  # fmt: skip
HOST = {
    "LabelEncoder of far integers": ("LabelEncoder", {"keys_int64s": [1, 1 << 40], "values_int64s": [2, 3]}),
}  # fmt: skip
"""Forms that no definition covers."""


def model_of(op: str, attributes: dict[str, Any]) -> onnx.ModelProto:
    integers = "imputed_value_int64s" in attributes or op in ("LabelEncoder", "OneHotEncoder")
    x = helper.make_tensor_value_info("x", TensorProto.INT64 if integers else TensorProto.FLOAT, ["rows", WIDTH])
    results = []
    if op in ("LinearClassifier", "SVMClassifier"):
        kind = TensorProto.STRING if "classlabels_strings" in attributes else TensorProto.INT64
        results.append(helper.make_tensor_value_info("label", kind, ["rows"]))
    whole = {"imputed_value_int64s", "values_int64s"} & attributes.keys()
    kind = TensorProto.INT64 if whole else TensorProto.FLOAT
    results.append(helper.make_tensor_value_info("y", kind, None))
    node = helper.make_node(op, ["x"], [r.name for r in results], domain="ai.onnx.ml", **attributes)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 2)]
    return helper.make_model(helper.make_graph([node], "features", [x], results), opset_imports=opsets, ir_version=8)


def rows(model: onnx.ModelProto, count: int) -> np.ndarray:
    rng = np.random.default_rng(count)
    if model.graph.input[0].type.tensor_type.elem_type == TensorProto.INT64:
        return rng.integers(0, 7, (count, WIDTH))
    x = rng.standard_normal((count, WIDTH)).astype(F32)
    if count > 2:
        x[1] = 0
        x[2, 3] = np.nan if model.graph.node[0].op_type == "Imputer" else 0
    return x


def compare(module: tinycomp.Module, session: onnxruntime.InferenceSession, x: np.ndarray) -> None:
    for actual, expected in zip(module.run({"x": x}).values(), session.run(None, {"x": x}), strict=True):
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
        if expected.dtype == F32:
            np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
        else:
            assert actual.tolist() == expected.tolist()


@pytest.mark.parametrize("name", [*CASES, *HOST])
@pytest.mark.parametrize("target", ["host", "c"])
def test_against_onnxruntime(name: str, target: str) -> None:
    model = model_of(*(CASES | HOST)[name])
    module = tinycomp.compile(model, target)
    assert bool(module.report().regions) == (target == "c" and name in CASES)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for count in (1, 50, 0):
        x = rows(model, count)
        compare(module, session, x)


@pytest.mark.parametrize("name", CASES)
def test_unknown_ranks_and_vectors(name: str) -> None:
    """A vector is one row, for onnxruntime as well."""
    model = model_of(*CASES[name])
    x = rows(model, 3)
    for known, feeds in ((None, (x, x[2])), ([WIDTH], (x[2],))):
        model.graph.input[0].type.tensor_type.ClearField("shape")
        if known:
            model.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, known))
            model.graph.input[0].type.tensor_type.elem_type = onnx.helper.np_dtype_to_tensor_dtype(x.dtype)
        for result in model.graph.output:
            result.type.tensor_type.ClearField("shape")
        module = tinycomp.compile(model, "host")
        assert {step.tier for step in module._parts.plan.steps} == {"numpy"}
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        for feed in feeds:
            compare(module, session, feed)


def test_what_a_definition_demands_of_an_input_is_its_size() -> None:
    module = tinycomp.compile(model_of(*CASES["LinearRegressor"]), shapes={"x": ("rows", "columns")})
    assert module.inputs[0].shape == ("rows", WIDTH)
    with pytest.raises(FeedError, match=r"Nodes decide sizes that the model leaves open: y \(LinearRegressor\)"):
        module(np.zeros((2, WIDTH + 1), F32))


def test_every_definition_has_a_case() -> None:
    others = {"ArrayFeatureExtractor", "FeatureVectorizer"}
    assert {op for op, _ in CASES.values()} | others == set(operators("ai.onnx.ml"))


@pytest.mark.parametrize("name", CASES)
def test_the_operator_is_written_as_it_was(name: str) -> None:
    model = tinycomp.to_onnx(tinycomp.from_onnx(model_of(*CASES[name])))
    assert [node.op_type for node in model.graph.node] == [CASES[name][0]]
    onnx.checker.check_model(model)


@pytest.mark.parametrize("target", ["host", "c"])
def test_features_by_index(target: str) -> None:
    node = helper.make_node("ArrayFeatureExtractor", ["x", "which"], ["y"], domain="ai.onnx.ml")
    data = np.random.default_rng(0).standard_normal((4, WIDTH)).astype(F32)
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
