"""Models of classical machine learning beside onnxruntime: one row, a thousand, a hundred thousand.

scikit-learn trains them on its own data sets; their trees and coefficients are written as ONNX here. Both engines run
in this process by turns; ratios are of medians, those in brackets of minima. The results are compared with those of
onnxruntime and of scikit-learn.

``--corpus`` measures the models of :mod:`benchmarks.classical_corpus` instead, which need the libraries that train and
convert them.

Usage: python -m benchmarks classical [--corpus] [--rows N ...] [--threads N ...] [--seconds S] [--output DIR]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

import tinycomp
from benchmarks import output, page

Case = tuple[onnx.ModelProto, dict[str, np.ndarray], np.ndarray | None]
"""A model, rows for it by the names of inputs, and what the library that trained it says of them."""
COLUMNS = ("model", "threads", "rows", "tinycomp, us", "onnxruntime, us", "onnxruntime / ours", "error")


def model_of(nodes: Sequence[onnx.NodeProto], features: int, outputs: int) -> onnx.ModelProto:
    """Return a model from ``x`` [rows, features] to ``y`` [rows, outputs]."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", features])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", outputs])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(helper.make_graph(nodes, "model", [x], [y]), opset_imports=opsets, ir_version=8)


def trees(estimators: Sequence[Any], features: int, factor: float, kind: str) -> onnx.ModelProto:
    """Write trees of scikit-learn, whose leaves are multiplied by ``factor``, as a regressor or classifier."""
    nodes: dict[str, list[Any]] = {
        part: [] for part in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
    }
    leaves: list[tuple[int, int, int, float]] = []
    outputs = 1
    for number, estimator in enumerate(estimators):
        tree = estimator.tree_
        inner = tree.children_left >= 0
        nodes["treeids"] += [number] * tree.node_count
        nodes["nodeids"] += range(tree.node_count)
        nodes["featureids"] += np.maximum(tree.feature, 0).tolist()
        nodes["values"] += np.where(inner, tree.threshold, 0).astype(np.float32).astype(float).tolist()
        nodes["modes"] += np.where(inner, "BRANCH_LEQ", "LEAF").tolist()
        nodes["truenodeids"] += np.maximum(tree.children_left, 0).tolist()
        nodes["falsenodeids"] += np.maximum(tree.children_right, 0).tolist()
        values = tree.value.reshape(tree.node_count, -1)
        values = values / values.sum(1, keepdims=True) if kind == "Classifier" else values
        outputs = values.shape[1]
        leaves += [
            (number, int(leaf), output, float(values[leaf, output] * factor))
            for leaf in np.flatnonzero(~inner)
            for output in range(outputs)
        ]
    name = "class" if kind == "Classifier" else "target"
    attributes: dict[str, Any] = {f"nodes_{part}": values for part, values in nodes.items()}
    for i, part in enumerate(("treeids", "nodeids", "ids", "weights")):
        attributes[f"{name}_{part}"] = [leaf[i] for leaf in leaves]
    attributes |= {"classlabels_int64s": list(range(outputs))} if kind == "Classifier" else {"n_targets": outputs}
    results = ["label", "y"] if kind == "Classifier" else ["y"]
    node = helper.make_node(f"TreeEnsemble{kind}", ["x"], results, domain="ai.onnx.ml", **attributes)
    return model_of([node], features, outputs)


def cases() -> Iterator[tuple[str, Case]]:
    """Train the models, one after another."""
    from sklearn import datasets, ensemble, linear_model, preprocessing, svm

    x, y = datasets.make_regression(4000, 20, random_state=0, noise=5)
    x = x.astype(np.float32)
    forest = ensemble.RandomForestRegressor(100, random_state=0).fit(x, y)
    yield (
        "random forest, 100 deep trees",
        (trees(forest.estimators_, 20, 0.01, "Regressor"), {"x": x}, forest.predict(x)),
    )
    boosted = ensemble.GradientBoostingRegressor(n_estimators=200, max_depth=5, random_state=0).fit(x, y)
    wanted = boosted.predict(x) - boosted.init_.constant_.item()
    stages = [stage[0] for stage in boosted.estimators_]
    yield "boosting, 200 trees of depth 5", (trees(stages, 20, boosted.learning_rate, "Regressor"), {"x": x}, wanted)
    digits, labels = datasets.load_digits(return_X_y=True)
    digits = digits.astype(np.float32)
    classes = ensemble.RandomForestClassifier(100, random_state=0).fit(digits, labels)
    model = trees(classes.estimators_, 64, 0.01, "Classifier")
    yield "random forest, 10 classes", (model, {"x": digits}, classes.predict_proba(digits))

    def floats(values: np.ndarray) -> list[float]:
        return [float(v) for v in values.ravel()]

    scaler = preprocessing.StandardScaler().fit(digits)
    scaled = scaler.transform(digits)
    logistic = linear_model.LogisticRegression(max_iter=300).fit(scaled, labels)
    ml = {"domain": "ai.onnx.ml"}
    scale = helper.make_node("Scaler", ["x"], ["s"], offset=floats(scaler.mean_), scale=floats(1 / scaler.scale_), **ml)
    linear = helper.make_node(
        "LinearClassifier", ["s"], ["label", "y"], coefficients=floats(logistic.coef_), post_transform="SOFTMAX",
        intercepts=floats(logistic.intercept_), classlabels_ints=list(range(10)), **ml,
    )  # fmt: skip
    yield "scaler and logistic regression", (
        model_of([scale, linear], 64, 10), {"x": digits}, logistic.predict_proba(scaled),
    )  # fmt: skip
    machine = svm.SVR(kernel="rbf", gamma=0.02).fit(scaled[::3], labels[::3])
    support = helper.make_node(
        "SVMRegressor", ["x"], ["y"], coefficients=floats(machine.dual_coef_), rho=floats(machine.intercept_),
        support_vectors=floats(machine.support_vectors_), kernel_type="RBF", kernel_params=[0.02, 0.0, 0.0],
        n_supports=len(machine.support_), **ml,
    )  # fmt: skip
    rows = scaled.astype(np.float32)
    yield "support vector regression", (model_of([support], 64, 1), {"x": rows}, machine.predict(rows))


def by_turns(calls: Sequence[Callable[[], Any]], seconds: float) -> list[tuple[float, float]]:
    """Return median and minimum of the time of every call."""
    times: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 3:
        for call, found in zip(calls, times, strict=True):
            time.sleep(0.003)  # the threads of the other spin for a while
            call()
            start = time.perf_counter()
            call()
            found.append(time.perf_counter() - start)
    return [(float(np.median(found)), min(found)) for found in times]


def corpus_cases() -> Iterator[tuple[str, Case]]:
    """Train the models of the corpus, one after another, and leave out those that onnxruntime does not run."""
    from benchmarks.classical_corpus import MODELS, ONNXRUNTIME_FAILS

    for name in [name for name in MODELS if name not in ONNXRUNTIME_FAILS]:
        trained = MODELS[name]()
        yield name, (trained.model, trained.feeds, trained.wanted[-1])


def numbers(result: Any) -> np.ndarray:
    """Return a result as an array; a dictionary per row is a row of its values."""
    return np.array([list(row.values()) for row in result]) if isinstance(result, list) else np.asarray(result)


def measured(case: Case, threads: int, rows: int, seconds: float) -> list[str]:
    """Return the cells of one line, the model's name left out; the last result is compared.

    Raises:
        AssertionError: If the results are not those of the library that trained the model.
    """
    model, x, wanted = case
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    module = tinycomp.compile(model, threads=threads)
    feeds = {name: np.resize(values, (rows, *values.shape[1:])) for name, values in x.items()}
    ours, theirs = numbers([*module.run(feeds).values()][-1]), numbers(session.run(None, feeds)[-1])
    error = float(np.abs(ours - theirs).max() / np.abs(theirs).max())
    if wanted is not None:
        own = np.resize(wanted.reshape(len(wanted), -1), ours.shape)
        assert np.abs(ours - own).max() <= 1e-3 * np.abs(own).max(), "the library predicts something else"
    (ours_median, ours_least), (median, least) = by_turns(
        [lambda: module.run(feeds), lambda: session.run(None, feeds)], seconds
    )
    return [
        str(threads), f"{rows:,}", f"{ours_median * 1e6:,.1f} ({ours_least * 1e6:,.1f})",
        f"{median * 1e6:,.1f} ({least * 1e6:,.1f})", f"{median / ours_median:.2f} ({least / ours_least:.2f})",
        f"{error:.1e}",
    ]  # fmt: skip


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 1000, 100_000])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--corpus", action="store_true", help="the models of the corpus")
    parser.add_argument("--seconds", type=float, default=1.0, help="per line (1)")
    output.add_option(parser)
    options = parser.parse_args()
    lines = [
        [name, *measured(case, threads, rows, options.seconds)]
        for name, case in (corpus_cases() if options.corpus else cases())
        for threads in options.threads
        for rows in options.rows
    ]
    text = page.table(COLUMNS, lines)
    print(text)
    rows = [dict(zip(COLUMNS, line, strict=True)) for line in lines]
    effort = {"seconds": options.seconds}
    output.save(options.output, output.record("classical", output.command_line("classical", None), effort, rows), text)


if __name__ == "__main__":
    main()
