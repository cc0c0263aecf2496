"""Ensembles of trees against a walk written down once more, and against onnxruntime; tables that are no trees."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import tinycomp
from tests.cases.case import make_model
from tinycomp.errors import ModelError, TinycompError
from tinycomp.ops.trees import ensemble_of

COMPARE = {
    "BRANCH_LEQ": lambda x, t: x <= t,
    "BRANCH_LT": lambda x, t: x < t,
    "BRANCH_GTE": lambda x, t: x >= t,
    "BRANCH_GT": lambda x, t: x > t,
    "BRANCH_EQ": lambda x, t: x == t,
    "BRANCH_NEQ": lambda x, t: x != t,
}
F32 = np.float32


class Trees:
    """Random trees as attributes of a classifier or regressor."""

    def __init__(self, seed: int, *, kind: str, features: int, outputs: int, only: int | None = None) -> None:
        self.rng = np.random.default_rng(seed)
        self.kind, self.features, self.outputs, self.only = kind, features, outputs, only
        parts = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
        self.nodes: dict[str, list[Any]] = {part: [] for part in (*parts, "missing_value_tracks_true")}
        self.weights: list[tuple[int, int, int, float]] = []

    def grow(self, tree: int, depth: int, modes: list[str], positive: bool) -> int:
        """Add a tree from its root down, and return the number of its root."""
        number = sum(t == tree for t in self.nodes["treeids"])
        for part in self.nodes.values():
            part.append(0)
        at = len(self.nodes["treeids"]) - 1
        self.nodes["treeids"][at] = tree
        leaf = depth == 0 or self.rng.random() < 0.2
        values: dict[str, Any] = {"nodeids": number, "values": 0.0, "modes": "LEAF"}
        if leaf:
            for output in range(self.outputs) if self.only is None else [self.only]:
                weight = float(F32(self.rng.normal()))
                self.weights.append((tree, number, output, abs(weight) if positive else weight))
        else:
            values |= {
                "featureids": int(self.rng.integers(self.features)), "modes": str(self.rng.choice(modes)),
                "values": float(F32(self.rng.integers(-3, 4) / 2)),
                "missing_value_tracks_true": int(self.rng.integers(2)),
            }  # fmt: skip
            values["truenodeids"] = self.grow(tree, depth - 1, modes, positive)
            values["falsenodeids"] = self.grow(tree, depth - 1, modes, positive)
        for part, value in values.items():
            self.nodes[part][at] = value
        return number

    def attributes(self, **more: Any) -> dict[str, Any]:
        name = "class" if self.kind == "Classifier" else "target"
        found = {f"nodes_{part}": values for part, values in self.nodes.items()}
        for i, part in enumerate(("treeids", "nodeids", "ids", "weights")):
            found[f"{name}_{part}"] = [weight[i] for weight in self.weights]
        if self.kind == "Classifier" and "classlabels_strings" not in more:
            more["classlabels_int64s"] = [10 + i for i in range(self.outputs)]
        if self.kind == "Regressor":
            found["n_targets"] = self.outputs
        return found | more


def model_of(kind: str, features: int, outputs: int, attributes: dict[str, Any]) -> onnx.ModelProto:
    classifier = kind == "Classifier"
    label = onnx.TensorProto.STRING if "classlabels_strings" in attributes else onnx.TensorProto.INT64
    results = [helper.make_tensor_value_info("label", label, ["rows"])] if classifier else []
    results.append(helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, ["rows", outputs]))
    node = helper.make_node(f"TreeEnsemble{kind}", ["x"], [r.name for r in results], domain="ai.onnx.ml", **attributes)
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["rows", features])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(helper.make_graph([node], "trees", [x], results), opset_imports=opsets, ir_version=8)


def rows(seed: int, count: int, features: int) -> np.ndarray:
    """Numbers that often are thresholds, infinite or missing."""
    rng = np.random.default_rng(seed)
    x = (rng.integers(-4, 5, (count, features)) / 2).astype(F32)
    strange = rng.random(x.shape) < 0.15
    x[strange] = rng.choice(np.array([np.nan, np.inf, -np.inf, -0.0], F32), int(strange.sum()))
    return x


def cases(kind: str) -> Iterator[Any]:
    """Seeds with what they decide."""
    for seed in range(40):
        rng = np.random.default_rng(seed)
        features, outputs, trees = int(rng.integers(1, 6)), int(rng.integers(2, 5)), int(rng.integers(1, 12))
        only = int(rng.integers(2)) if kind == "Classifier" and outputs == 2 else None
        made = Trees(seed, kind=kind, features=features, outputs=outputs, only=only)
        modes = list(COMPARE) if rng.random() < 0.5 else [str(rng.choice(list(COMPARE)))]
        for tree in range(trees):
            made.grow(tree, int(rng.integers(0, 8)), modes, bool(seed % 2))
        more: dict[str, Any] = {"post_transform": str(rng.choice(["NONE", "SOFTMAX", "LOGISTIC"]))}
        if only is None and rng.random() < 0.4:
            more["base_values"] = [float(v) for v in rng.normal(size=outputs).astype(F32)]
        if kind == "Regressor":
            more["aggregate_function"] = str(rng.choice(["SUM", "AVERAGE", "MIN", "MAX"]))
        attributes = made.attributes(**more)
        yield pytest.param(
            model_of(kind, features, outputs, attributes), rows(seed, 1 + 3 * seed, features), id=str(seed)
        )


@pytest.mark.parametrize("target", ["host", "c"])
@pytest.mark.parametrize(("model", "x"), [*cases("Regressor"), *cases("Classifier")])
def test_against_onnxruntime(model: onnx.ModelProto, x: np.ndarray, target: str) -> None:
    module = tinycomp.compile(model, target)
    assert len(module.report().regions) == (target == "c")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for some in (x, x[:1], x[:0]):
        for actual, expected in zip(module.run({"x": some}).values(), session.run(None, {"x": some}), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
            assert actual.dtype == expected.dtype


@pytest.mark.parametrize("target", ["host", "c"])
@pytest.mark.parametrize(("model", "x"), [*cases("Regressor"), *cases("Classifier")])
def test_rows_in_double(model: onnx.ModelProto, x: np.ndarray, target: str) -> None:
    double = onnx.ModelProto()
    double.CopyFrom(model)
    double.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    wide = x + np.random.default_rng(0).choice([0, 1e-12, -1e-12], x.shape)  # nothing of which float32 knows
    session = onnxruntime.InferenceSession(double.SerializeToString(), providers=["CPUExecutionProvider"])
    results = tinycomp.compile(double, target).run({"x": wide}).values()
    for actual, expected in zip(results, session.run(None, {"x": wide}), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)
        assert actual.dtype == expected.dtype


@pytest.mark.parametrize("mode", COMPARE)
@pytest.mark.parametrize("tracks", [0, 1])
@pytest.mark.parametrize("value", [-np.inf, -1.5, 0.0, -0.0, 1e-45, np.inf, np.nan])
@pytest.mark.parametrize("threshold", [-np.inf, -1.5, 0.0, np.inf])
def test_every_comparison(mode: str, tracks: int, value: float, threshold: float) -> None:
    nodes = {
        "treeids": [0, 0, 0], "nodeids": [0, 1, 2], "featureids": [0, 0, 0], "values": [threshold, 0.0, 0.0],
        "modes": [mode, "LEAF", "LEAF"], "truenodeids": [1, 0, 0], "falsenodeids": [2, 0, 0],
        "missing_value_tracks_true": [tracks, 0, 0],
    }  # fmt: skip
    targets = {"treeids": [0, 0], "nodeids": [1, 2], "ids": [0, 0], "weights": [1.0, 2.0]}
    attributes: dict[str, Any] = {f"nodes_{k}": v for k, v in nodes.items()}
    ensemble = ensemble_of("TreeEnsembleRegressor", attributes | {f"target_{k}": v for k, v in targets.items()})
    x = np.array([[value]], F32)
    holds = COMPARE[mode](x[0, 0], F32(threshold)) or (np.isnan(value) and tracks)
    assert ensemble.scores(x).item() == (1.0 if holds else 2.0)


def test_labels_that_are_texts() -> None:
    made = Trees(3, kind="Classifier", features=3, outputs=3)
    for tree in range(5):
        made.grow(tree, 4, ["BRANCH_LEQ"], positive=True)
    model = model_of("Classifier", 3, 3, made.attributes(classlabels_strings=["a", "b", "c"]))
    x = np.random.default_rng(0).standard_normal((30, 3)).astype(F32)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, {"x": x})
    for target in ("host", "c"):
        module = tinycomp.compile(model, target)
        label, scores = module.run({"x": x}).values()
        assert label.tolist() == expected[0].tolist()
        np.testing.assert_allclose(scores, expected[1], rtol=1e-5)
    assert [region.target for region in module.report().regions] == ["c"]


def modern(**changes: Any) -> dict[str, Any]:
    """A tree of version 5: is x[0] a member of {1, 3, 5}? And one of a leaf alone."""
    tensor = onnx.numpy_helper.from_array
    return {
        "tree_roots": [0, 1], "nodes_featureids": [0, 0], "nodes_splits": tensor(np.array([0, 0], F32)),
        "nodes_modes": tensor(np.array([6, 0], np.uint8)), "nodes_truenodeids": [0, 2], "nodes_trueleafs": [1, 1],
        "nodes_falsenodeids": [1, 2], "nodes_falseleafs": [1, 1], "leaf_targetids": [0, 1, 1],
        "leaf_weights": tensor(np.array([10, 20, 5], F32)), "n_targets": 2,
        "membership_values": tensor(np.array([1, 3, 5, np.nan], F32)),
    } | changes  # fmt: skip


@pytest.mark.parametrize("target", ["host", "c"])
def test_members_and_single_leaves(target: str) -> None:
    node = helper.make_node("TreeEnsemble", ["x"], ["y"], domain="ai.onnx.ml", **modern())
    values = np.array([[0], [1], [2], [3], [5], [np.nan], [6]], F32)
    model = make_model([node], {"x": values}, {}, ["y"], 22, {"x": ["rows", 1]}, {"ai.onnx.ml": 5})
    module = tinycomp.compile(model, target)
    assert len(module.report().regions) == (target == "c")
    wanted = [[10, 5] if v in (1, 3, 5) else [0, 25] for v in values[:, 0]]
    np.testing.assert_array_equal(module(values), np.array(wanted, F32))


def small(**changes: Any) -> dict[str, Any]:
    made = Trees(0, kind="Regressor", features=2, outputs=1)
    for tree in range(2):
        made.grow(tree, 3, ["BRANCH_LEQ"], positive=True)
    return made.attributes(**changes)


def edited(part: str, index: int, value: Any) -> dict[str, Any]:
    attributes = small()
    attributes[part] = [*attributes[part][:index], value, *attributes[part][index + 1 :]]
    return attributes


INNER = next(i for i, mode in enumerate(small()["nodes_modes"]) if i and mode != "LEAF")
"""A node of the first tree, neither its root nor a leaf."""


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        (edited("nodes_truenodeids", 0, 99), "nodes_truenodeids names a node that is not there"),
        (edited("nodes_truenodeids", 0, 0), "nodes are not trees"),
        (edited("nodes_truenodeids", INNER, 0), "nodes are not trees"),
        (edited("nodes_nodeids", 1, 0), "two nodes of a tree have the same number"),
        (edited("nodes_featureids", 0, -1), "nodes_featureids out of range"),
        (edited("nodes_modes", 0, "BRANCH_ODD"), "unknown mode of a node; expected one of BRANCH_LEQ"),
        (edited("target_ids", 0, 7), "target_ids out of range; expected 0 to 0"),
        (small(nodes_values=[1.0]), "nodes_values does not fit"),
        (small(target_weights=[1.0]), "target_weights does not fit"),
        (small(aggregate_function="MEDIAN"), "unknown aggregate function; expected one of AVERAGE, SUM"),
        (small(base_values=[1.0, 2.0]), "base values do not fit"),
        (small(nodes_modes=["LEAF"]), "nodes_modes does not fit"),
    ],
)
def test_what_is_no_ensemble(attributes: dict[str, Any], text: str) -> None:
    with pytest.raises(ModelError, match=text):
        ensemble_of("TreeEnsembleRegressor", attributes)
    module = None
    try:
        module = tinycomp.compile(model_of("Regressor", 2, 1, attributes), "c")
    except TinycompError:
        return
    assert not module.report().regions
    with pytest.raises(TinycompError):
        module(np.zeros((1, 2), F32))


def test_too_few_columns() -> None:
    """More columns than the trees compare are fine, of an open number as well."""
    attributes = edited("nodes_featureids", 0, 5)
    with pytest.raises(TinycompError, match="the trees ask for more columns; expected at least 6; found 1"):
        tinycomp.compile(model_of("Regressor", 1, 1, attributes), "c")
    model, wanted = model_of("Regressor", 7, 1, attributes), None
    for target in ("host", "c"):
        module = tinycomp.compile(model, target, shapes={"x": ("n", "columns")})
        assert bool(module.report().regions) == (target == "c")
        x = np.linspace(-2, 2, 21, dtype=F32).reshape(3, 7)
        found = module(x)
        np.testing.assert_array_equal(found, found if wanted is None else wanted)
        np.testing.assert_array_equal(module(x[:, :6]), found)
        wanted = found
        with pytest.raises(TinycompError, match="the trees ask for more columns"):
            module(x[:, :5])
