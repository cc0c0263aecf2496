"""Support vector machines without vectors, of other features, and against scikit-learn where it is installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import tinycomp
from tests.cases.case import make_model
from tests.cases.maps import classifier
from tinycomp.errors import TinycompError

F32 = np.float32


def model_of(features: int, **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node("SVMClassifier", ["x"], ["label", "scores"], domain="ai.onnx.ml", **attributes)
    x = {"x": np.zeros((1, features), F32)}
    return make_model([node], x, {}, ["label", "scores"], 17, {"x": ["rows", features]}, {"ai.onnx.ml": 1})


def test_without_support_vectors() -> None:
    x = np.random.default_rng(1).standard_normal((20, 4)).astype(F32)
    factors = [float(v) for v in np.random.default_rng(2).standard_normal(12).astype(F32)]
    attributes = {"coefficients": factors, "rho": [0.5], "kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 0.0]}
    model = model_of(4, classlabels_ints=[0, 1, 2], **attributes)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    module = tinycomp.compile(model, "c")
    assert not module.report().regions
    label, scores = module.run({"x": x}).values()
    assert label.tolist() == expected[0].tolist()
    np.testing.assert_allclose(scores, expected[1], rtol=1e-4, atol=2e-5)


def test_other_features() -> None:
    model = model_of(3, classlabels_ints=[0, 1, 2], **classifier("RBF", 3))
    with pytest.raises(TinycompError, match=r"do not have the features of the support vectors; expected 7"):
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
