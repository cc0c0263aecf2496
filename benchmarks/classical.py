"""Models of classical machine learning beside onnxruntime: one row, a thousand, a hundred thousand.

scikit-learn trains them on its own data sets; their trees and coefficients are written as ONNX here. Both engines run
in this process by turns; ratios are of medians, those in brackets of minima. The results are compared with those of
onnxruntime and of scikit-learn.

``--corpus`` measures the models of :mod:`benchmarks.classical_corpus` instead, which need the libraries that train and
convert them. Where lleaves is installed, which compiles LightGBM's models to machine code, it joins in with them; it
needs ``llvmlite<0.45``, takes a minute for a thousand trees, and computes in float32 as the others do.

Usage: python -m benchmarks classical [--corpus] [--models TEXT] [--rows N ...] [--threads N ...]
       [--seconds S] [--output DIR]
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

import tinycomp
from benchmarks import output, page

COLUMNS = (
    "model", "threads", "rows", "tinycomp, us", "onnxruntime, us", "onnxruntime / ours", "error", "lleaves, us",
    "lleaves / ours",
)  # fmt: skip


class Case(NamedTuple):
    """Hold what is compared.

    Attributes:
        model: The ONNX model.
        feeds: Rows for it, by the names of inputs.
        wanted: What the library that trained it says of them.
        booster: What LightGBM trained.
    """

    model: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    wanted: np.ndarray | None
    booster: Any = None


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
    model = trees(forest.estimators_, 20, 0.01, "Regressor")
    yield "random forest, 100 deep trees", Case(model, {"x": x}, forest.predict(x))
    boosted = ensemble.GradientBoostingRegressor(n_estimators=200, max_depth=5, random_state=0).fit(x, y)
    wanted = boosted.predict(x) - boosted.init_.constant_.item()
    stages = [stage[0] for stage in boosted.estimators_]
    model = trees(stages, 20, boosted.learning_rate, "Regressor")
    yield "boosting, 200 trees of depth 5", Case(model, {"x": x}, wanted)
    digits, labels = datasets.load_digits(return_X_y=True)
    digits = digits.astype(np.float32)
    classes = ensemble.RandomForestClassifier(100, random_state=0).fit(digits, labels)
    model = trees(classes.estimators_, 64, 0.01, "Classifier")
    yield "random forest, 10 classes", Case(model, {"x": digits}, classes.predict_proba(digits))

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
    yield "scaler and logistic regression", Case(
        model_of([scale, linear], 64, 10), {"x": digits}, logistic.predict_proba(scaled),
    )  # fmt: skip
    machine = svm.SVR(kernel="rbf", gamma=0.02).fit(scaled[::3], labels[::3])
    support = helper.make_node(
        "SVMRegressor", ["x"], ["y"], coefficients=floats(machine.dual_coef_), rho=floats(machine.intercept_),
        support_vectors=floats(machine.support_vectors_), kernel_type="RBF", kernel_params=[0.02, 0.0, 0.0],
        n_supports=len(machine.support_), **ml,
    )  # fmt: skip
    rows = scaled.astype(np.float32)
    yield "support vector regression", Case(model_of([support], 64, 1), {"x": rows}, machine.predict(rows))


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


def corpus_cases(text: str) -> Iterator[tuple[str, Case]]:
    """Train those models of the corpus whose names have a text in them, without those that onnxruntime does not run."""
    from benchmarks.classical_corpus import LARGE, MODELS, ONNXRUNTIME_FAILS

    models = {**MODELS, **LARGE}
    for name in [name for name in models if text in name and name not in ONNXRUNTIME_FAILS]:
        trained = models[name]()
        yield name, Case(trained.model, trained.feeds, trained.wanted[-1], trained.booster)


def lleaves_of(booster: Any) -> Any:
    """Compile what LightGBM trained with lleaves; return None without either."""
    if booster is None or not importlib.util.find_spec("lleaves"):
        return None
    import lleaves

    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "model.txt")
        booster.save_model(file)
        compiled = lleaves.Model(file)
        compiled.compile(use_fp64=False)
    return compiled


def numbers(result: Any) -> np.ndarray:
    """Return a result as an array; a dictionary per row is a row of its values."""
    return np.array([list(row.values()) for row in result]) if isinstance(result, list) else np.asarray(result)


def measured(case: Case, compiled: Any, threads: int, rows: int, seconds: float) -> list[str]:
    """Return the cells of one line, the model's name left out; the last result is compared.

    Args:
        case: The model.
        compiled: The same as lleaves compiled it, or None.
        threads: For each engine.
        rows: How many are computed at once.
        seconds: For all calls.

    Raises:
        AssertionError: If the results are not those of the library that trained the model.
    """
    model, x, wanted, _ = case
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
    calls: list[Callable[[], Any]] = [lambda: module.run(feeds), lambda: session.run(None, feeds)]
    if compiled is not None:
        (values,) = feeds.values()
        found = compiled.predict(values, n_jobs=threads)
        same = ours if found.ndim == 2 else ours.reshape(rows, -1)[:, -1]
        assert np.abs(same - found).max() <= 1e-3 * np.abs(found).max(), "lleaves predicts something else"
        calls.append(lambda: compiled.predict(values, n_jobs=threads))
    (ours_median, ours_least), (median, least), *others = by_turns(calls, seconds)
    cells = [
        str(threads), f"{rows:,}", f"{ours_median * 1e6:,.1f} ({ours_least * 1e6:,.1f})",
        f"{median * 1e6:,.1f} ({least * 1e6:,.1f})", f"{median / ours_median:.2f} ({least / ours_least:.2f})",
        f"{error:.1e}",
    ]  # fmt: skip
    for median, least in others:
        cells += [f"{median * 1e6:,.1f} ({least * 1e6:,.1f})", f"{median / ours_median:.2f} ({least / ours_least:.2f})"]
    return cells + [""] * (len(COLUMNS) - 1 - len(cells))


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 1000, 100_000])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--corpus", action="store_true", help="the models of the corpus")
    parser.add_argument("--models", default="", metavar="TEXT", help="only those whose names have this text in them")
    parser.add_argument("--seconds", type=float, default=1.0, help="per line (1)")
    output.add_option(parser)
    options = parser.parse_args()
    lines = []
    for name, case in corpus_cases(options.models) if options.corpus else cases():
        if options.models in name:
            compiled = lleaves_of(case.booster)
            lines += [
                [name, *measured(case, compiled, threads, rows, options.seconds)]
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
