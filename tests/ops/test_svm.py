"""Support vector machines against onnxruntime, and against scikit-learn where it is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import tinycomp
from tinycomp.errors import TinycompError

F32 = np.float32


def model_of(features: int, strings: bool = False, **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node("SVMClassifier", ["x"], ["label", "scores"], domain="ai.onnx.ml", **attributes)
    label = onnx.TensorProto.STRING if strings else onnx.TensorProto.INT64
    results = [
        helper.make_tensor_value_info("label", label, ["rows"]),
        helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, ["rows", None]),
    ]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["rows", features])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 1)]
    return helper.make_model(helper.make_graph([node], "svm", [x], results), opset_imports=opsets, ir_version=8)


def machine(classes: int, kernel: str, probability: bool, seed: int = 0) -> dict[str, Any]:
    """Random support vectors of four features."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(1, 5, classes)
    pairs = classes * (classes - 1) // 2

    def numbers(count: int) -> list[float]:
        return [float(v) for v in rng.standard_normal(count).astype(F32)]

    attributes = {
        "kernel_type": kernel, "kernel_params": [0.3, 0.5, 3.0], "vectors_per_class": counts.tolist(),
        "support_vectors": numbers(int(counts.sum()) * 4), "rho": numbers(pairs),
        "coefficients": numbers(int(counts.sum()) * (classes - 1)),
    }  # fmt: skip
    return attributes | ({"prob_a": [-abs(a) for a in numbers(pairs)], "prob_b": numbers(pairs)} if probability else {})


def check(model: onnx.ModelProto, x: np.ndarray, defined: bool = True) -> None:
    """Compare with onnxruntime on the host and, where ONNX's operators define the machine, on the target c."""
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    for target in ("host", "c"):
        module = tinycomp.compile(model, target)
        assert bool(module.report().regions) == (target == "c" and defined)
        label, scores = module.run({"x": x}).values()
        assert label.tolist() == expected[0].tolist()
        np.testing.assert_allclose(scores, expected[1], rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("kernel", ["LINEAR", "RBF", "POLY", "SIGMOID"])
@pytest.mark.parametrize("classes", [2, 3, 6])
@pytest.mark.parametrize("probability", [False, True])
def test_against_onnxruntime(kernel: str, classes: int, probability: bool) -> None:
    x = np.random.default_rng(1).standard_normal((60, 4)).astype(F32)
    labels = {"classlabels_ints": list(range(5, 5 + classes))}
    check(model_of(4, **labels, **machine(classes, kernel, probability)), x)


def test_labels_that_are_texts() -> None:
    x = np.random.default_rng(1).standard_normal((20, 4)).astype(F32)
    check(model_of(4, strings=True, classlabels_strings=["a", "b", "c"], **machine(3, "RBF", probability=True)), x)


@pytest.mark.parametrize(("classes", "transform"), [(2, "LOGISTIC"), (3, "LOGISTIC"), (3, "SOFTMAX")])
def test_transformed_decisions(classes: int, transform: str) -> None:
    x = np.random.default_rng(1).standard_normal((20, 4)).astype(F32)
    attributes = machine(classes, "RBF", probability=False) | {"post_transform": transform}
    check(model_of(4, classlabels_ints=list(range(classes)), **attributes), x)


def test_without_support_vectors() -> None:
    x = np.random.default_rng(1).standard_normal((20, 4)).astype(F32)
    factors = [float(v) for v in np.random.default_rng(2).standard_normal(12).astype(F32)]
    check(
        model_of(
            4,
            classlabels_ints=[0, 1, 2],
            coefficients=factors,
            rho=[0.5],
            kernel_type="LINEAR",
            kernel_params=[0.0, 0.0, 0.0],
        ),
        x,
        defined=False,
    )


def test_other_features() -> None:
    model = model_of(3, classlabels_ints=[0, 1, 2], **machine(3, "RBF", probability=False))
    with pytest.raises(TinycompError, match=r"do not have the features of the support vectors; expected 4"):
        tinycomp.compile(model, "host")(np.zeros((2, 3), F32))


@pytest.mark.parametrize("kernel", ["linear", "rbf", "poly", "sigmoid"])
@pytest.mark.filterwarnings("ignore")
def test_probabilities_of_scikit_learn(kernel: str) -> None:
    svm = pytest.importorskip("sklearn.svm", reason="scikit-learn trains the machine")
    x, y = pytest.importorskip("sklearn.datasets").load_digits(return_X_y=True)
    x = ((x[::4] - x.mean(0)) / (x.std(0) + 1)).astype(F32)
    trained = svm.SVC(kernel=kernel, probability=True, random_state=0).fit(x, y[::4])
    lists = {
        "coefficients": trained._dual_coef_, "support_vectors": trained.support_vectors_, "rho": trained._intercept_,
        "prob_a": trained._probA, "prob_b": trained._probB,
        "kernel_params": np.array([trained._gamma, trained.coef0, trained.degree]),
    }  # fmt: skip
    model = model_of(
        x.shape[1],
        classlabels_ints=trained.classes_.tolist(),
        kernel_type=kernel.upper(),
        vectors_per_class=trained.n_support_.tolist(),
        **{name: [float(v) for v in values.ravel()] for name, values in lists.items()},
    )
    label, scores = tinycomp.compile(model, "host").run({"x": x}).values()
    np.testing.assert_allclose(scores, trained.predict_proba(x), atol=2e-6)
    assert (label == trained.predict(x)).all()
